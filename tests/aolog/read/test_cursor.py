"""Cursors: a position that is durable, belongs to one log, and is never ahead of it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import aolog
from aolog.log.cursor_file import read_copies
from aolog.read.reader import view_of
from aolog.storage.storage import Storage
from aolog.testing import Fault, SimulatedSystem
from tests.aolog.conftest import (
    Operation,
    WatchedStorage,
    commit,
    fill,
    flip,
    kill,
    slab_files,
    snapshot,
    unchanged,
    values,
)


@pytest.fixture
def log(log_path: str) -> str:
    """Six records in three frames."""
    with aolog.Writer(log_path) as writer:
        for i in range(3):
            writer.append_many([b"%d" % (2 * i), b"%d" % (2 * i + 1)])
    return log_path


def rest(path: str, name: str = "c") -> list[bytes | None]:
    return values(path, cursor=name)


# --- resuming --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(7))
def test_a_reader_goes_on_where_the_cursor_stands(log: str, n: int) -> None:
    commit(log, n)
    assert rest(log) == [b"%d" % i for i in range(n, 6)]
    assert rest(log) == [b"%d" % i for i in range(n, 6)]  # reading alone moves nothing


def test_a_cursor_that_was_never_committed_begins_at_start(log: str) -> None:
    before = snapshot(log)
    assert values(log, start="latest", cursor="c") == []
    assert values(log, cursor="c") == [b"%d" % i for i in range(6)]
    assert snapshot(log) == before  # and leaves no file
    commit(log, 2)
    assert values(log, start="latest", cursor="c") == [b"2", b"3", b"4", b"5"]


def test_a_reader_without_a_cursor_has_nothing_to_commit(log: str) -> None:
    with aolog.Reader(log) as reader, pytest.raises(aolog.UsageError, match="no cursor"):
        reader.commit()


def test_a_writer_begins_above_every_cursor(log_path: str) -> None:
    """The page cache was lost: records that were read are not there any more."""
    writer = aolog.Writer(log_path, batch_bytes=0)
    writer.append(b"durable")
    writer.sync()
    writer.append(b"lost" * 500)
    writer.flush()
    stands = commit(log_path, 2)
    kill(writer)
    os.truncate(slab_files(log_path)[0], 8192 + 48)
    with aolog.Reader(log_path, cursor="c") as reader:
        assert reader.read() is None  # it waits above the end
        with aolog.Writer(log_path) as writer:
            assert writer.append(b"next") >= stands
        assert reader.read().value == b"next"
        assert reader.gaps == []
    assert rest(log_path) == [b"next"]


# --- durability ------------------------------------------------------------------------------


def test_a_commit_is_durable_and_the_log_before_it(log_path: str) -> None:
    storage = WatchedStorage()
    did = storage.operations
    with aolog.Writer(log_path, flush_seconds=None) as writer:
        writer.append(b"a")
        writer.append(b"b")
        writer.flush()
        with aolog.Reader(log_path, cursor="c", storage=storage) as reader:
            reader.read()
            reader.commit()
            slab = slab_files(log_path)[0].name
            assert did == [
                Operation("datasync", slab),  # the log first: a cursor is never ahead of it
                Operation("sync", Path(log_path).parent.name),  # the log's own entry
                Operation("sync", "log"),  # the entry of the directory of cursors
                Operation("create", "c.cursor.tmp"),
                Operation("write", "c.cursor.tmp"),
                Operation("write", "c.cursor.tmp"),
                Operation("datasync", "c.cursor.tmp"),
                Operation("rename", "c.cursor"),
                Operation("sync", "cursors"),
            ]
            did.clear()
            reader.read()
            reader.commit()
            assert did == [
                Operation("datasync", slab),
                Operation("write", "c.cursor"),
                Operation("datasync", "c.cursor"),
            ]


def test_a_commit_in_the_next_slab_makes_that_one_durable_first(log_path: str) -> None:
    storage = WatchedStorage()
    with aolog.Writer(log_path, slab_bytes=8300, flush_seconds=None) as writer:
        writer.append_many([b"x" * 1000])
        with aolog.Reader(log_path, cursor="c", storage=storage) as reader:
            for rolled in range(3):
                writer.append_many([b"y" * 1000])
                writer.flush()
                assert len(slab_files(log_path)) == rolled + 2
                while reader.read() is not None:
                    pass
                storage.operations.clear()
                reader.commit()
                assert storage.operations[0] == Operation("datasync", slab_files(log_path)[-1].name)


def test_a_commit_that_was_prepared_is_refused_after_the_close(log: str) -> None:
    reader = aolog.Reader(log, cursor="c")
    reader.commit()
    reader.read()
    late = view_of(reader).prepare_commit()
    reader.close()
    with pytest.raises(aolog.LogClosed, match="the reader of the cursor is closed"):
        late()
    with aolog.Reader(log, cursor="c") as reader:
        assert reader.tell() == aolog.Reader(log).tell()


def test_commits_take_turns_so_that_the_one_before_stays(log: str) -> None:
    """Whatever becomes of the copy that is being written."""
    with aolog.Reader(log, cursor="c") as reader:
        told = []
        for _ in range(6):
            reader.read()
            reader.commit()
            told.append(reader.tell())
            copies = [copy for copy in read_copies(log, "c", Storage()) if copy is not None]
            assert sorted(copy[1].address for copy in copies) == told[-2:]


# --- whose it is -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["aolog", "queuefka"])
def test_a_cursor_of_another_log_is_refused(tmp_path: Path, kind: str) -> None:
    log, other = str(tmp_path / "log"), str(tmp_path / "other")
    for path in (log, other):
        fill(path, (b"%s %d" % (path.encode(), i) for i in range(10)), format=kind)
    commit(log, 2)
    shutil.copytree(Path(log) / "cursors", Path(other) / "cursors")
    with unchanged(other), pytest.raises(aolog.CursorForeign):
        aolog.Reader(other, cursor="c")
    assert [cursor.lag for cursor in aolog.cursors(other)] == [aolog.Lag(None, 0, None)]


def test_a_log_that_took_another_course_below_the_cursor_is_told(
    log_path: str, tmp_path: Path
) -> None:
    """Restored from a backup without its cursors' knowledge, then written."""
    fill(log_path, [b"a"])
    backup = tmp_path / "backup"
    shutil.copytree(log_path, backup)
    with aolog.Writer(log_path) as writer:
        for i in range(5):
            writer.append_many([b"x" * 1000, b"%d" % i])
        writer.flush()
        commit(log_path, 11)
    cursors = tmp_path / "cursors"
    (Path(log_path) / "cursors").rename(cursors)
    shutil.rmtree(log_path)
    backup.rename(log_path)
    first_inode = slab_files(log_path)[0].stat().st_ino
    with aolog.Writer(log_path) as writer:  # the cursors are not back yet
        assert writer.opening.epoch == 2
        high = writer.append(b"another course")
    assert slab_files(log_path)[0].stat().st_ino == first_inode
    cursors.rename(Path(log_path) / "cursors")
    with aolog.Reader(log_path, cursor="c") as reader:  # above all: the old reach was respected
        assert [record.address for record in reader] == [high]
    # a cursor from above the new epoch's begin, in the old one, can't be
    position = reader_position_above(log_path, high)
    assert position > high
    with pytest.raises(aolog.CursorDiverged) as caught:
        aolog.Reader(log_path, cursor="d")
    assert caught.value.exit_status == 3
    with pytest.raises(aolog.CursorDiverged):  # whosever it is: that comes first
        aolog.Reader(log_path, cursor="e")
    findings = [(found.code, Path(found.path).stem) for found in aolog.verify(log_path).findings]
    assert findings == [("cursor_diverged", "d"), ("cursor_diverged", "e")]


def test_the_lag_of_a_cursor_that_waits_above_a_restored_log_counts_what_it_will_read(
    log_path: str, tmp_path: Path
) -> None:
    """Its ordinal is of the course that was lost."""
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"%d" % i for i in range(10)])
    backup = tmp_path / "backup"
    shutil.copytree(log_path, backup)
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"%d" % i for i in range(10, 30)])
    with aolog.Reader(log_path, cursor="c") as reader:
        assert len(list(reader)) == 30
        reader.commit()
    (Path(log_path) / "cursors").rename(backup / "cursors")
    shutil.rmtree(log_path)
    backup.rename(log_path)
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"x"] * 5)
    with aolog.Reader(log_path, cursor="c") as reader:
        assert reader.lag().records == 5
        assert len(list(reader)) == 5
        assert reader.lag().records == 0


def reader_position_above(path: str, address: int) -> int:
    """Makes cursor d: of the log's first epoch, standing above its second; and e, another's."""
    from aolog.log.cursor_file import CursorFile

    position = CursorFile(path, "c", Storage()).position
    assert position is not None
    assert position.epoch == 1
    made = CursorFile(path, "d", Storage())
    made.commit(position._replace(address=address + 8))
    made.close()
    made = CursorFile(path, "e", Storage())
    made.commit(position._replace(address=address + 8, topic_uuid=b"another log's id"))
    made.close()
    return address + 8


# --- one holder ------------------------------------------------------------------------------


def test_a_cursor_has_one_holder(log: str) -> None:
    commit(log, 1)
    with aolog.Reader(log, cursor="c") as reader:
        for _ in range(2):
            with pytest.raises(aolog.CursorLocked) as caught:
                aolog.Reader(log, cursor="c")
        assert caught.value.exit_status == 5
        assert len(aolog.cursors(log)) == 1  # looking is no holding
        with aolog.Reader(log, cursor="d") as other:
            assert other.read() is not None
        reader.read()
        reader.commit()
    assert rest(log) == [b"2", b"3", b"4", b"5"]


# --- listing and names -------------------------------------------------------------------------


def test_cursors_are_listed_by_name_with_their_lag(log: str) -> None:
    assert aolog.cursors(log) == []
    commit(log, 6, "b")
    commit(log, 1, "a", protect=False)
    commit(log, 0, "Z-9._")
    listed = aolog.cursors(log)
    assert [cursor.name for cursor in listed] == ["Z-9._", "a", "b"]
    assert [cursor.ordinal for cursor in listed] == [0, 1, 6]
    assert [cursor.lag.records for cursor in listed] == [6, 5, 0]
    assert [cursor.protects for cursor in listed] == [True, False, True]
    assert listed[2].lag == aolog.Lag(0, 0, 0.0)
    assert listed[1].lag.bytes > 0
    with aolog.Reader(log, listed[1].address) as reader:
        assert reader.read().value == b"1"


# --- a full disk -------------------------------------------------------------------------------


def test_a_commit_on_a_full_simulated_disk_needs_no_room() -> None:
    """To the byte."""
    system = SimulatedSystem()
    storage = Storage(system)
    fill("/log", (b"%d" % i for i in range(5)), batch_bytes=0, storage=storage)
    with aolog.Reader("/log", cursor="c", storage=storage) as reader:
        reader.read()
        reader.commit()
        system.capacity = system.used()
        for _ in range(4):
            reader.read()
            reader.commit()
        assert reader.tell() == aolog.cursors("/log", storage=storage)[0].address


# --- a file that other programs change ---------------------------------------------------------


def cursor_file(path: str) -> Path:
    return Path(path, "cursors", "c.cursor")


def test_a_commit_makes_a_removed_file_anew_with_its_lock_and_warns(
    log: str, caplog: pytest.LogCaptureFixture
) -> None:
    with aolog.Reader(log, cursor="c") as reader:
        reader.read()
        reader.commit()
        for moves in (True, False):  # also a commit of the same position
            cursor_file(log).unlink()
            if moves:
                reader.read()
            reader.commit()
            with pytest.raises(aolog.CursorLocked):
                aolog.Reader(log, cursor="c")
            [cursor] = aolog.cursors(log)
            assert (cursor.address, cursor.protects) == (reader.tell(), True)
        reader.read()
        reader.commit()
    assert caplog.text.count("the file of cursor 'c' was removed while it was in use") == 2
    assert rest(log) == [b"3", b"4", b"5"]


def overwrite_in_place(log: str, other: bytes) -> None:
    cursor_file(log).write_bytes(other)


def rename_over(log: str, other: bytes) -> None:
    copy = Path(log, "cursors", "copy")
    copy.write_bytes(other)
    copy.rename(cursor_file(log))


def remove_and_make(log: str, other: bytes) -> None:
    cursor_file(log).unlink()
    cursor_file(log).write_bytes(other)


@pytest.mark.parametrize("replace", [overwrite_in_place, rename_over, remove_and_make])
@pytest.mark.parametrize(("records", "left"), [(1, b"1"), (5, b"5")])
def test_a_commit_into_a_replaced_file_is_refused_and_leaves_what_is_there(
    log: str, replace: Callable[[str, bytes], None], records: int, left: bytes
) -> None:
    commit(log, records)
    other = cursor_file(log).read_bytes()
    cursor_file(log).unlink()
    with aolog.Reader(log, cursor="c") as reader:
        for _ in range(3):
            reader.read()
            reader.commit()
        replace(log, other)
        reader.read()
        for _ in range(2):
            with pytest.raises(aolog.CursorReplaced, match="nothing is committed") as caught:
                reader.commit()
        assert (caught.value.code, caught.value.exit_status) == ("cursor_replaced", 4)
        assert cursor_file(log).read_bytes() == other
    assert rest(log)[0] == left


def test_no_commit_goes_to_another_log_in_the_place_of_its_own(log: str) -> None:
    for is_first in (True, False):
        with aolog.Reader(log, cursor="c") as reader:
            reader.read()
            if not is_first:
                reader.commit()
            shutil.rmtree(log)
            with pytest.raises(aolog.StorageError):
                reader.commit()
            fill(log, [b"another", b"log's"])
            with pytest.raises(aolog.CursorReplaced):
                reader.commit()
        assert aolog.cursors(log) == []


def test_a_commit_that_failed_halfway_is_no_replaced_file() -> None:
    system = SimulatedSystem()
    fill("/log", [b"0", b"1", b"2"], storage=Storage(system))
    with aolog.Reader("/log", cursor="c", storage=Storage(system)) as reader:
        for _ in range(2):
            reader.read()
            reader.commit()
        reader.read()
        system.faults = [Fault("fdatasync", "*.cursor", errno=errno.EIO)]
        with pytest.raises(aolog.SyncFailed):
            reader.commit()
        system.faults = []
        reader.commit()
        [cursor] = aolog.cursors("/log", storage=Storage(system))
        assert cursor.address == reader.tell()


def test_a_damaged_copy_is_no_replaced_file(log: str) -> None:
    with aolog.Reader(log, cursor="c") as reader:
        for at in (0, 4096, 0):  # each copy in its turn, then the newest one
            reader.read()
            reader.commit()
            flip(cursor_file(log), at + 20)
        reader.read()
        reader.commit()
        [cursor] = aolog.cursors(log)
        assert cursor.address == reader.tell()
