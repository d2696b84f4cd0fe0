"""Where a log lies, from what the kernel lists; and what is said where that cannot keep a sync."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from aolog.storage.mounts import limits_of, parse_mount
from aolog.storage.storage import Storage
from tests.aolog.commands import answer, well
from tests.aolog.conftest import fill

# Lines as kernels 4.19 to 6.18 wrote them, and one of each kind that counts.
MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 25 0:27 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,size=65536k
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:2 unbindable - ext3 /dev/root rw,errors=continue
41 27 0:40 / /srv/logs rw,relatime shared:20 - nfs4 server:/export rw,vers=4.2,hard,proto=tcp,local_lock=none
42 27 0:41 / /srv/old rw - nfs server:/old rw,vers=3,nolock
43 27 0:42 / /srv/win rw - cifs //server/share rw,vers=3.1.1
50 27 0:50 / /mnt/host rw - 9p hostshare rw,dirsync,access=client,trans=virtio
51 27 0:51 / /mnt/virtio rw - virtiofs myfs rw
52 27 0:52 / /home/me/remote rw,nosuid - fuse.sshfs me@host:/ rw,user_id=1000,group_id=1000
53 27 8:17 / /mnt/stick rw - fuseblk /dev/sdb1 rw,user_id=0
60 1 0:60 / /var/lib/c/merged rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
61 1 0:61 / /var/lib/c/fast rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,volatile
62 1 0:62 / /var/lib/c/new rw - overlay overlay rw,upperdir=/u,fsync=volatile
70 27 8:1 / /data rw - ext4 /dev/sda1 rw,barrier=0
72 27 8:3 / /data3 rw - f2fs /dev/sda3 rw,fsync_mode=nobarrier
71 27 8:2 / /data2 rw - ext4 /dev/sda2 rw,nobarrier,data=writeback
80 27 0:33 /@home /with\040space\011and\134more rw,relatime shared:1 - btrfs /dev/sdc rw,compress=zstd:3,subvol=/@home
81 27 259:1 / /xfs rw - xfs /dev/nvme0n1 rw,attr2,inode64
90 broken
91 27 0:91 / /half rw - ext4
"""

KINDS = [
    (27, "/", "ext4", []),
    (30, "/dev/shm", "tmpfs", ["volatile"]),
    (36, "/mnt2", "ext3", []),
    (41, "/srv/logs", "nfs4", ["remote"]),
    (42, "/srv/old", "nfs", ["remote"]),
    (43, "/srv/win", "cifs", ["remote"]),
    (50, "/mnt/host", "9p", ["by_program"]),
    (51, "/mnt/virtio", "virtiofs", ["by_program"]),
    (52, "/home/me/remote", "fuse.sshfs", ["by_program"]),
    (53, "/mnt/stick", "fuseblk", ["by_program"]),
    (60, "/var/lib/c/merged", "overlay", []),
    (61, "/var/lib/c/fast", "overlay", ["sync_omitted"]),
    (62, "/var/lib/c/new", "overlay", ["sync_omitted"]),
    (70, "/data", "ext4", ["no_barrier"]),
    (71, "/data2", "ext4", ["no_barrier"]),
    (72, "/data3", "f2fs", ["no_barrier"]),
    (80, "/with space\tand\\more", "btrfs", []),
    (81, "/xfs", "xfs", []),
]


@pytest.mark.parametrize(("number", "point", "kind", "codes"), KINDS)
def test_each_kind_is_known_for_what_it_does_not_keep(number, point, kind, codes) -> None:
    mount = parse_mount(MOUNTINFO, number)
    assert mount is not None
    assert (mount.point, mount.kind) == (point, kind)
    assert list(limits_of(mount)) == codes


@pytest.mark.parametrize("number", [1, 2, 90, 91, 99])
def test_what_is_not_listed_or_not_whole_is_no_mount(number) -> None:
    assert parse_mount(MOUNTINFO, number) is None


def test_the_kernel_says_where_a_directory_is() -> None:
    shared = Storage().mount_of("/dev/shm")
    proc = Storage().mount_of("/proc/self")
    assert proc is not None
    assert (proc.point, proc.kind) == ("/proc", "proc")
    assert shared is not None
    assert shared.point == "/dev/shm"
    assert Storage().mount_of("/not/there") is None


@pytest.fixture
def in_memory(small_disk, monkeypatch) -> Path:
    """A directory that no power loss is survived in, of which nobody was warned yet."""
    monkeypatch.setattr("aolog.storage.mounts._warned", set())
    return small_disk(1 << 20)


def test_a_writer_whose_syncs_do_nothing_warns_once(in_memory, caplog) -> None:
    with caplog.at_level(logging.WARNING, "aolog"):
        for name in "ab":
            fill(in_memory / name, [b"x"])
    (message,) = [m for m in caplog.messages if " is on " in m]
    assert str(in_memory) in message
    assert "tmpfs" in message


def test_info_names_the_file_system_and_its_limits(in_memory) -> None:
    fill(in_memory / "log", [b"x"], sync="never")
    said = answer("info", in_memory / "log")
    assert said["file_system"] == "tmpfs"
    assert said["mount_point"] == str(in_memory)
    assert said["storage_limits"] == ["volatile"]
    text = well("info", in_memory / "log").stdout
    assert f"tmpfs on {in_memory}" in text
    assert "nothing survives a restart" in text
