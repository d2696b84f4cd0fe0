"""A repaired copy is the same log: addresses, ordinals, gaps, counts, cursors and modes. The original is
never written to.

Every case of damage that test_gaps.py has is repaired and the copy read in every way.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import aolog
from aolog.errors import (
    CursorCorrupt,
    HeaderLost,
    LockedError,
    NotALog,
    StorageFailed,
    StorageFull,
    UsageError,
)
from aolog.format.slab import DATA_BEGIN
from aolog.log.cursor_file import read_position
from aolog.maintenance.repair import Repaired
from aolog.storage.file import File
from aolog.storage.storage import Storage
from aolog.testing import Killed
from tests.aolog.conftest import (
    WAYS,
    WatchedStorage,
    by_iteration,
    fill,
    flip,
    one_by_one,
    overwrite,
    raising_at,
    read_all,
    slab_files,
    snapshot,
    unchanged,
)
from tests.aolog.read import test_gaps, test_ranges
from tests.aolog.read.test_compressed_logs import NAMES
from tests.aolog.read.test_compressed_logs import fill as fill_records
from tests.aolog.read.test_gaps import CASES, Built, shapes

__all__ = ["shapes"]

Status = tuple[int, int, int, int, int, int]


def state_of(path: str) -> dict[str, tuple[Status, bytes]]:
    """Of each file and directory of a log: inode, links, mode, owner, size, time of change, contents."""
    found = {}
    for each in [Path(path), *Path(path).rglob("*")]:
        s = each.lstat()
        status = (s.st_ino, s.st_nlink, s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns)
        found[str(each)] = (status, each.read_bytes() if stat.S_ISREG(s.st_mode) else b"")
    return found


@pytest.fixture
def damaged(shapes: dict[str, Built], tmp_path: Path) -> Callable[[str], Built]:
    """The case, carried out on a copy."""

    def make(name: str) -> Built:
        shape, damage = CASES[name]
        path = tmp_path / "log"
        shutil.copytree(shapes[shape].path, path)
        log = shapes[shape].at(str(path))
        damage(log)
        return log

    return make


@pytest.fixture
def broken(shapes: dict[str, Built], tmp_path: Path) -> Built:
    """A log with a damaged frame, header copy and seal."""
    path = tmp_path / "log"
    shutil.copytree(shapes["sealed"].path, path)
    log = shapes["sealed"].at(str(path))
    test_gaps.body(log.frames[1][2])
    flip(log.slabs[0], 0, 512)
    test_gaps.head(log.seals[2]._replace(slab=log.slabs[2]))
    return log


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "copy"


# --- the copy is the same log ----------------------------------------------------------------


@pytest.mark.parametrize("new_uuid", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_copy_has_the_same_records_at_the_same_addresses_and_the_same_gaps(
    damaged: Callable[[str], Built], into: Path, name: str, new_uuid: bool
) -> None:
    log = damaged(name)
    before, old, there = one_by_one(log.path), aolog.verify(log.path), state_of(log.path)
    done = aolog.repair(log.path, into, new_uuid=new_uuid)
    assert state_of(log.path) == there
    for way in WAYS:
        assert way(str(into)) == before
    new = aolog.verify(into)
    assert (new.records, new.gaps, new.end) == (old.records, old.gaps, old.end)
    assert (done.records, done.gaps, done.left) == (new.records, new.gaps, [])
    assert (new.ok, new.problems) == (True, [])


@pytest.mark.parametrize("name", CASES)
def test_a_writer_goes_on_in_a_copy_above_every_address(
    damaged: Callable[[str], Built], into: Path, name: str
) -> None:
    log = damaged(name)
    aolog.repair(log.path, into)
    before, end = read_all(str(into)), aolog.verify(log.path).end
    with aolog.Writer(into) as writer:
        address = writer.append(b"later")
    assert address >= end
    assert [r.value for r in read_all(str(into))] == [r.value for r in before] + [b"later"]


@pytest.mark.parametrize("compression", NAMES)
def test_compressed_frames_are_copied_byte_for_byte(
    log_path: str, into: Path, compression: str
) -> None:
    with aolog.Writer(log_path, compression=compression, slab_bytes=12_000) as writer:
        fill_records(writer, 12)
    aolog.repair(log_path, into)
    assert snapshot(str(into)) == snapshot(log_path)


@pytest.mark.parametrize("seed", range(40))
def test_a_copy_of_a_log_with_any_damage_is_the_same_log(
    tmp_path: Path, into: Path, seed: int
) -> None:
    """Random logs under random damage."""
    rng, log = random.Random(seed), tmp_path / "log"
    test_ranges.make_log(log, rng)
    commit(str(log), "c", rng.randrange(1, 40))
    test_ranges.damage(log, rng)
    before, resumed = by_iteration(str(log)), by_iteration(str(log), cursor="c")
    there = state_of(str(log))
    try:
        done = aolog.repair(log, into, new_uuid=seed % 2 == 1)
    except HeaderLost:
        assert not before.records
        return
    assert state_of(str(log)) == there
    assert by_iteration(str(into)) == before
    assert by_iteration(str(into), cursor="c") == resumed
    assert aolog.verify(into).gaps == before.gaps == done.gaps


@pytest.mark.parametrize("new_uuid", [False, True])
def test_a_copy_keeps_what_only_a_seal_shows_to_be_another_log_s(
    shapes: dict[str, Built], broken: Built, tmp_path: Path, into: Path, new_uuid: bool
) -> None:
    other = test_gaps.build(str(tmp_path / "other"), closed=True)
    shutil.copy(other.slabs[1], broken.slabs[1])
    overwrite(broken.slabs[1], 0, bytes(DATA_BEGIN))
    before = one_by_one(broken.path)
    assert "foreign" in {gap.reason for gap in before.gaps}
    aolog.repair(broken.path, into, new_uuid=new_uuid)
    assert one_by_one(str(into)) == before
    assert aolog.verify(into).ok


# --- cursors ---------------------------------------------------------------------------------


def commit(path: str, name: str, *counts: int) -> Path:
    with aolog.Reader(path, cursor=name) as reader:
        for count in counts:
            for _ in range(count):
                reader.read()
            reader.commit()
    return Path(path, "cursors", f"{name}.cursor")


@pytest.mark.parametrize("new_uuid", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_cursors_of_a_copy_resume_where_those_of_the_log_do(
    damaged: Callable[[str], Built], into: Path, name: str, new_uuid: bool
) -> None:
    log = damaged(name)
    for i in range(1, 6):
        commit(log.path, f"c{i}", i * 27)
    expected = {i: by_iteration(log.path, cursor=f"c{i}") for i in range(1, 6)}
    done = aolog.repair(log.path, into, new_uuid=new_uuid)
    assert done.cursors == [f"c{i}" for i in range(1, 6)]
    for i, records in expected.items():
        assert by_iteration(str(into), cursor=f"c{i}") == records
    old, new = (
        [read_position(str(path), f"c{i}", Storage()) for i in range(1, 6)]
        for path in (log.path, into)
    )
    uuid = bytes.fromhex(str(done.topic_uuid))
    assert new == ([position._replace(topic_uuid=uuid) for position in old] if new_uuid else old)


def test_a_cursor_without_an_intact_copy_stays_an_error(log_path: str, into: Path) -> None:
    fill(log_path, [b"%d" % i for i in range(10)])
    commit(log_path, "c", 1).write_bytes(bytes(8192))
    done = aolog.repair(log_path, into)
    assert done.left == aolog.verify(log_path).problems
    assert len(done.left) == len(aolog.verify(into).problems) == 1
    with pytest.raises(CursorCorrupt):
        aolog.Reader(into, cursor="c")


def test_the_manifest_is_copied_and_the_bridge_s_notes_with_the_same_uuid_only(
    log_path: str, tmp_path: Path
) -> None:
    fill(log_path, [b"%d" % i for i in range(10)])
    commit(log_path, "c", 1)
    notes = Path(log_path, "cursors", "c.lanes")
    notes.write_bytes(b"notes")
    Path(log_path, "published.jsonl").write_bytes(b"transactions")
    for new_uuid in (False, True):
        into = tmp_path / f"copy-{new_uuid}"
        aolog.repair(log_path, into, new_uuid=new_uuid)
        copied = into / "cursors" / "c.lanes"
        assert (copied.read_bytes() if copied.exists() else None) == (
            None if new_uuid else b"notes"
        )
        assert (into / "published.jsonl").read_bytes() == b"transactions"


# --- modes -----------------------------------------------------------------------------------


def test_a_copy_has_the_modes_and_times_of_the_log_s_files_and_directories(
    broken: Built, into: Path
) -> None:
    commit(broken.path, "c", 1)
    Path(broken.path).chmod(0o2750)
    Path(broken.path, "cursors").chmod(0o2770)
    Path(broken.path, "cursors", "c.cursor").chmod(0o640)
    for i, slab in enumerate(broken.slabs):
        slab.chmod(0o640 if i else 0o600)
        os.utime(slab, ns=(10**18, 10**18 + i))
    into = into / "below"
    aolog.repair(broken.path, into)
    assert oct(into.parent.stat().st_mode & 0o777) == oct(0o700)
    known = into / "known-gaps.json"
    assert oct(known.stat().st_mode & 0o777) == oct(0o600)
    copied = [path for path in [into, *into.rglob("*")] if path != known]
    names = [path.relative_to(into) for path in copied]
    assert len(names) == len(broken.slabs) + 3
    for name in names:
        old, new = Path(broken.path, name).stat(), (into / name).stat()
        assert oct(old.st_mode) == oct(new.st_mode), name
        assert old.st_mtime_ns == new.st_mtime_ns, name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_copy_by_root_belongs_to_the_log_s_owner(broken: Built, into: Path) -> None:
    commit(broken.path, "c", 1)
    there = [Path(broken.path), *Path(broken.path).rglob("*")]
    for path in there:
        os.chown(path, 65534, 65534)
    aolog.repair(broken.path, into)
    owners = {(p.stat().st_uid, p.stat().st_gid) for p in [into, *into.rglob("*")]}
    assert owners == {(65534, 65534)}


# --- what is refused -------------------------------------------------------------------------


def assert_refused(path: str, error: type[Exception], into: object, **options: object) -> Exception:
    before = state_of(path)
    with pytest.raises(error) as raised:
        aolog.repair(path, into, **options)
    assert state_of(path) == before
    return raised.value


def test_a_copy_goes_where_nothing_is_and_not_into_the_log(broken: Built, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(broken.path)
    for into in ("", tmp_path / "there", f"{broken.path}/in", tmp_path / "link/in", broken.path):
        assert_refused(broken.path, UsageError, into)
    (tmp_path / "file").write_bytes(b"")
    for dry_run in (True, False):
        assert_refused(broken.path, NotALog, tmp_path / "file" / "new", dry_run=dry_run)


def test_a_log_without_any_header_is_refused(broken: Built, into: Path) -> None:
    for slab in broken.slabs:
        overwrite(slab, 0, bytes(DATA_BEGIN))
        test_gaps.trailer(slab)
    assert_refused(broken.path, HeaderLost, into)
    assert not into.exists()


def test_a_log_whose_slabs_have_other_names_is_refused_with_the_right_names(
    log_path: str, into: Path
) -> None:
    fill(log_path, [b"one"])
    (slab,) = slab_files(log_path)
    slab.rename(slab.with_name(f"{8:020d}.slab"))
    error = assert_refused(log_path, HeaderLost, into)
    assert "is the slab of base 0 under another name" in str(error)
    assert f"rename it to {slab.name}" in str(error)


def test_a_dry_run_writes_nothing_and_says_what_is_copied(broken: Built, into: Path) -> None:
    with unchanged(into.parent):
        told = aolog.repair(broken.path, into, dry_run=True)
    done = aolog.repair(broken.path, into)
    assert told._replace(dry_run=False) == done


# --- full disks, kills -----------------------------------------------------------------------


def test_too_little_room_is_reported_before_anything_is_written(broken: Built, into: Path) -> None:
    class Full(Storage):
        def free_bytes(self, path: str) -> int:
            return 5

    error = assert_refused(broken.path, StorageFull, into, storage=Full())
    needed = aolog.repair(broken.path, into, dry_run=True).needed_bytes
    assert error.details["needed"] == needed
    size = sum(slab.stat().st_size for slab in broken.slabs)
    assert size <= needed <= size * 1.2 + (1 << 20) + 30_000


def test_killed_at_every_operation_a_copy_is_complete_or_absent(broken: Built, into: Path) -> None:
    commit(broken.path, "c", 5)
    before, there, n = one_by_one(broken.path), state_of(broken.path), 0
    unfinished = Path(f"{into}.unfinished")
    while True:
        with suppress(Killed):
            storage = WatchedStorage(raising_at(n, Killed))
            storage.unlink = raising_at(0, Killed)  # a killed process removes nothing
            aolog.repair(broken.path, into, storage=storage)
        assert state_of(broken.path) == there
        if into.exists():
            break
        if unfinished.exists() and list(unfinished.iterdir()):
            with pytest.raises(UsageError, match="was killed"):
                aolog.repair(broken.path, into)
            shutil.rmtree(unfinished)
        n += 1
    assert n > 20
    assert one_by_one(str(into)) == before
    assert not unfinished.exists()


def test_each_file_of_a_copy_is_durable_before_it_has_its_name(broken: Built, into: Path) -> None:
    commit(broken.path, "c", 5)
    storage = WatchedStorage()
    aolog.repair(broken.path, into, storage=storage)
    did = [(one.what, one.name) for one in storage.operations]
    renamed = did.index(("rename", into.name))
    assert did[renamed - 1] == ("sync", f"{into.name}.unfinished")
    for slab in broken.slabs:
        mine = [what for what, name in did[:renamed] if name == slab.name]
        assert mine[-1] == "datasync"
        assert "write" in mine
    assert ("rename", "c.cursor") in did[:renamed]
    assert did[-1] == ("sync", into.parent.name)


def test_a_copy_that_does_not_read_as_the_log_is_removed(broken: Built, into: Path) -> None:
    """A device that writes other bytes than it was given."""

    class Altering(File):
        def pwrite_all(self, parts: Sequence[bytes], offset: int) -> None:
            data = bytearray(b"".join(map(bytes, parts)))
            data[-1] ^= 1
            super().pwrite_all([bytes(data)], offset)

    class Device(Storage):
        def create(self, path: str) -> File:
            made = super().create(path)
            return Altering(path, os.dup(made.fd)) if path.endswith(".slab") else made

    with unchanged(into.parent), pytest.raises(StorageFailed, match="differs from the log"):
        aolog.repair(broken.path, into, storage=Device())


# --- beside others ---------------------------------------------------------------------------


@pytest.mark.parametrize("copy_of", [aolog.repair, aolog.backup])
def test_a_copy_beside_a_live_writer_is_a_consistent_prefix(
    log_path: str, tmp_path: Path, copy_of: Callable[..., Repaired]
) -> None:
    """The writer appends at every operation of the copying and at every step of its reading, and a
    reader commits what there is."""
    written: list[int] = []
    with aolog.Writer(log_path, slab_bytes=DATA_BEGIN + 3000, batch_bytes=300) as writer:

        def append(*_: object) -> None:
            for _ in range(7):
                writer.append(b"record %d" % len(written))
                written.append(0)
            writer.flush()
            commit(log_path, "c", 7)

        for n in range(3):
            append()
            into, first = tmp_path / str(n), len(written)
            done = copy_of(log_path, into, storage=WatchedStorage(append), progress=append)
            if copy_of is aolog.backup:  # whose cursors are as they were before
                with aolog.Reader(into, cursor="c") as reader:
                    assert reader.tell() <= reader.end()
            values = [record.value for record in read_all(str(into))]
            assert values == [b"record %d" % i for i in range(len(values))]
            assert len(values) == done.records >= first
            assert aolog.verify(into).ok


def test_bytes_that_a_writer_is_writing_are_no_damage_of_a_copy(
    shapes: dict[str, Built], tmp_path: Path, into: Path
) -> None:
    path = tmp_path / "log"
    shutil.copytree(shapes["open"].path, path)
    last = slab_files(str(path))[-1]

    class Appending(Storage):
        def create(self, path: str) -> File:
            with last.open("ab") as file:
                file.write(b"more of a frame")
            return super().create(path)

    with last.open("ab") as file:
        file.write(b"half of a frame")
    aolog.repair(path, into, storage=Appending())
    assert aolog.verify(into).tail_bytes == 0
    assert aolog.verify(into).ok


def test_slabs_that_are_pruned_meanwhile_leave_no_hole_in_a_copy(
    shapes: dict[str, Built], tmp_path: Path
) -> None:
    for n in range(1, 40):
        path, into = tmp_path / f"log{n}", tmp_path / f"copy{n}"
        shutil.copytree(shapes["sealed"].path, path)
        slabs, opened = slab_files(str(path)), 0

        class Pruning(Storage):
            def open_read(self, path: str) -> File:
                nonlocal opened
                opened += 1
                if opened in {n, n + 2}:  # noqa: B023 -- called in this turn only
                    next(s for s in slabs if s.exists()).unlink()  # noqa: B023 -- the same
                return super().open_read(path)

        aolog.repair(path, into, storage=Pruning())
        left = [slab.name for slab in slab_files(str(into))]
        assert left == [slab.name for slab in slabs][-len(left) :]
        assert {gap.reason for gap in one_by_one(str(into)).gaps} <= {"pruned"}
        if opened < n:
            break
    assert n > 5


def test_a_second_repair_to_the_same_place_is_refused(broken: Built, into: Path) -> None:
    refused = []

    def second(operation: object) -> None:
        if ("write", broken.slabs[-1].name) == operation:
            with pytest.raises(LockedError):
                aolog.repair(broken.path, into)
            refused.append(operation)

    aolog.repair(broken.path, into, storage=WatchedStorage(second))
    assert refused
    assert one_by_one(str(into)) == one_by_one(broken.path)


# --- format 1 --------------------------------------------------------------------------------


def test_a_log_of_format_1_is_copied_byte_for_byte(log_path: str, into: Path) -> None:
    fill(log_path, [b"%05d" % i for i in range(100)], format="queuefka", slab_bytes=300)
    commit(log_path, "c", 50)
    flip(slab_files(log_path)[1], 10)
    before, resumed = one_by_one(log_path), by_iteration(log_path, cursor="c")
    assert before.gaps
    with pytest.raises(UsageError, match="format 1"):
        aolog.repair(log_path, into, new_uuid=True)
    done = aolog.repair(log_path, into)
    assert done.topic_uuid is None
    slabs = {name: data for name, data in snapshot(log_path).items() if name.endswith(".slab")}
    assert slabs.items() <= snapshot(str(into)).items()
    assert one_by_one(str(into)) == before
    assert by_iteration(str(into), cursor="c") == resumed
