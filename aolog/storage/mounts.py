"""Which guarantees a file system lacks: the mount of a log, and where its locks or syncs fall short.

Pure but for the warning: takes the text of /proc/self/mountinfo. The type and options of a file system show
only the worst cases. A device that acknowledges a sync early, or a library that skips fsync, does not show.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from aolog.errors import warn


class Mount(NamedTuple):
    """kind: the file system's type, as the kernel names it. options: of the mount and of the file
    system under it."""

    point: str
    kind: str
    options: frozenset[str]


_LIMITS = {
    "volatile": "it is in memory: nothing survives a restart of the machine, synced or not",
    "sync_omitted": "mounted with an option that makes fsync do nothing",
    "no_barrier": "mounted without barriers: synced data may be only in the device's cache",
    "remote": "a network file system: other machines may not see a lock, and the server decides what "
    "fsync means",
    "by_program": "a program or the host serves it, and decides what locks and fsync mean",
}

_IN_MEMORY = {"tmpfs", "ramfs", "rootfs", "hugetlbfs"}
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "coda", "lustre",
            "orangefs"}  # fmt: skip  # a set of names
_HOSTED = {"9p", "virtiofs", "vboxsf", "prl_fs"}
_SYNC_OFF = {"volatile", "fsync=volatile"}  # as mounted; as kernels from 6.18 on list it
_BARRIER_OFF = {"nobarrier", "barrier=0", "fsync_mode=nobarrier"}

_ESCAPE = re.compile(r"\\([0-7]{3})")  # space, tab, newline and backslash


def parse_mount(mountinfo: str, mount_id: int) -> Mount | None:
    """The mount with this number; None if it is not listed, or not in the form that
    proc_pid_mountinfo(5) documents."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if len(fields) >= 6 and len(more) >= 3 and fields[0] == str(mount_id):
            point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
            return Mount(point, more[0], frozenset(fields[5].split(",") + more[2].split(",")))
    return None


def limits_of(mount: Mount) -> dict[str, str]:
    """The guarantees that a log on this mount lacks; usually none on a local disk. Texts for people, by
    stable code."""
    found = []
    if mount.kind in _IN_MEMORY:
        found.append("volatile")
    elif mount.kind in _NETWORK:
        found.append("remote")
    elif mount.kind in _HOSTED or mount.kind.partition(".")[0] in {"fuse", "fuseblk"}:
        found.append("by_program")
    elif mount.kind == "overlay" and mount.options & _SYNC_OFF:
        found.append("sync_omitted")
    if mount.options & _BARRIER_OFF:
        found.append("no_barrier")
    return {code: _LIMITS[code] for code in found}


_warned: set[str] = set()  # mount points that a warning named


def warn_of_limits(path: str, mount: Mount | None) -> None:
    """Warns, once a mount, if the file system of this path is known not to keep its locks or syncs."""
    if mount is None or mount.point in _warned:
        return
    for text in limits_of(mount).values():
        _warned.add(mount.point)
        warn("%s is on %s (%s): %s", path, mount.point, mount.kind, text)
