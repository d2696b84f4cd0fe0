"""The simulated file system: what survives a power cut, what a kill leaves, what may go wrong."""

from __future__ import annotations

import doctest
import errno
import fcntl
import os
from collections.abc import Iterable

import pytest

import aolog
import aolog.testing
from aolog.errors import StorageFull, SyncFailed
from aolog.storage.directory import beside
from aolog.storage.storage import Storage
from aolog.testing import Effect, Fault, Killed, SimulatedSystem

CREATE = os.O_RDWR | os.O_CREAT
A, B = b"a" * 512, b"b" * 512


def durable_file(**options: object) -> tuple[SimulatedSystem, int]:
    """A system with an empty file /f, its name durable; a descriptor of it."""
    system = SimulatedSystem(piece_bytes=512, **options)  # type: ignore[arg-type]
    fd = system.open("/f", CREATE)
    sync_directory(system)
    return system, fd


def sync_directory(system: SimulatedSystem, path: str = "/") -> None:
    fd = system.open(path, os.O_RDONLY | os.O_DIRECTORY)
    system.fsync(fd)
    system.close(fd)


def left(system: SimulatedSystem, path: str = "/f", limit: int = 1000) -> list[bytes | None]:
    """Every content that the file may have after a power cut, each once; None: no such file."""
    found = [survivor.system.files().get(path) for survivor in system.power_cut(limit)]
    return sorted(set(found), key=lambda content: content or b"")


def names(system: SimulatedSystem) -> set[frozenset[str]]:
    return {frozenset(survivor.system.files()) for survivor in system.power_cut(1000)}


def test_the_example_in_the_docstring_is_true():
    assert doctest.testmod(aolog.testing).failed == 0
    assert doctest.testmod(aolog.testing).attempted > 8


# --- bytes ------------------------------------------------------------------------------------------


def test_what_was_synced_survives_and_nothing_else_can_be_found():
    system, fd = durable_file()
    system.pwritev(fd, [A], 0)
    system.fdatasync(fd)
    assert left(system) == [A]


def test_pieces_and_size_survive_in_any_combination():
    system, fd = durable_file()
    system.pwritev(fd, [A, B], 0)
    zeros = bytes(512)
    assert set(left(system)) == {
        b"", A, zeros, A + B, A + zeros, zeros + B, zeros + zeros
    }  # fmt: skip  # sizes 0, 512 and 1024; where bytes are missing, zeros


# --- names ------------------------------------------------------------------------------------------


def test_a_name_needs_its_directory_synced_and_a_file_its_own():
    system = SimulatedSystem(piece_bytes=512)
    fd = system.open("/f", CREATE)
    system.pwritev(fd, [A], 0)
    system.fsync(fd)
    assert left(system) == [None, A]


def test_any_subset_of_changes_survives_and_a_rename_is_whole():
    system = SimulatedSystem()
    system.open("/old", CREATE)
    sync_directory(system)
    system.replace("/old", "/new")
    system.open("/other", CREATE)
    assert names(system) == {
        frozenset(kept) for kept in (["/old"], ["/new"], ["/old", "/other"], ["/new", "/other"])
    }


def test_a_directory_that_is_not_durable_takes_everything_in_it_along():
    system = SimulatedSystem()
    system.mkdir("/d")
    fd = system.open("/d/f", CREATE)
    system.fsync(fd)
    sync_directory(system, "/d")
    assert names(system) == {frozenset(), frozenset(["/d", "/d/f"])}


# --- processes ---------------------------------------------------------------------------------------


def test_a_kill_keeps_the_page_cache_and_drops_descriptors_and_locks():
    system, fd = durable_file()
    system.pwritev(fd, [A], 0)
    system.flock(fd, fcntl.LOCK_EX)
    other = system.process()
    theirs = other.open("/f", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        other.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    after = system.kill()
    with pytest.raises(Killed):
        system.pread(fd, 1, 0)
    system.close(fd)  # as a finaliser does
    other.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert after.files() == {"/f": A}
    assert after.boot_id() == system.boot_id()


# --- faults --------------------------------------------------------------------------------------------


def asked(system: SimulatedSystem, faults: Iterable[Fault]) -> SimulatedSystem:
    system.faults = faults  # type: ignore[assignment]  # a plan becomes a rule
    return system


def test_a_planned_fault_strikes_the_nth_call_on_matching_paths():
    system, fd = durable_file()
    asked(system, [Fault("pwritev", "*/f", nth=2, errno=errno.EIO, short=3)])
    assert system.pwritev(fd, [b"one"], 0) == 3
    with pytest.raises(OSError) as failed:
        system.pwritev(fd, [b"second"], 3)
    assert failed.value.errno == errno.EIO
    assert system.files()["/f"] == b"onesec"
    assert system.pwritev(fd, [b"!"], 0) == 1


@pytest.mark.parametrize("nth", range(3))
def test_storage_finishes_short_writes_and_reads_and_interrupted_calls(nth):
    faults = lambda call: Effect(short=1) if call.number % 3 == nth and call.size > 1 else None
    system = SimulatedSystem(faults=faults)
    file = Storage(system).create(beside("/f"))
    file.pwrite_all([b"abc", b"defgh"], 0)
    assert file.pread(8, 0) == b"abcdefgh"
    system.faults = [Fault("fdatasync", errno=errno.EINTR, times=3)]  # type: ignore[assignment]
    file.datasync()


def test_a_full_disk_takes_what_fits_and_overwriting_needs_no_room():
    system = SimulatedSystem(capacity=8192)
    storage = Storage(system)
    file = storage.create(beside("/f"))
    with pytest.raises(StorageFull):
        file.pwrite_all([b"x" * 10_000], 0)
    assert len(system.files()["/f"] or b"") == 8192
    file.pwrite_all([b"y" * 8192], 0)
    file.truncate(4096)
    storage.create(beside("/g")).pwrite_all([b"z" * 4096], 0)
    file.close()
    storage.unlink(beside("/f"))
    assert system.used() == 4096


def test_a_sync_that_lies_says_success_later_and_loses_the_bytes():
    system, fd = durable_file()
    asked(system, [Fault("fdatasync", errno=errno.EIO, lies=True)])
    system.pwritev(fd, [A], 0)
    with pytest.raises(OSError):
        system.fdatasync(fd)
    system.fdatasync(fd)
    assert b"" in left(system.snapshot())
    assert A in left(system.snapshot())
    system.pwritev(fd, [A], 0)  # written again, it is dirty again
    system.pwritev(fd, [B], 512)
    system.fdatasync(fd)
    assert left(system) == [A + B]


def test_a_log_on_a_sync_that_lies_refuses_and_keeps_what_it_said_was_durable():
    system = SimulatedSystem()
    writer = aolog.Writer("/log", storage=Storage(system), flush_seconds=None, sync="never")
    writer.append(b"safe")
    writer.sync()
    asked(system, [Fault("fdatasync", errno=errno.EIO, lies=True)])
    writer.append(b"lost")
    with pytest.raises(SyncFailed):
        writer.sync()
    with pytest.raises(SyncFailed):
        writer.append(b"refused")
    for survivor in system.power_cut(100):
        with aolog.Reader("/log", storage=Storage(survivor.system)) as reader:
            assert next(iter(reader)).value == b"safe"
