"""The disk says no: a full one loses nothing and resumes, a failed fsync ends the writer, loudly."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.testing import Fault, SimulatedSystem
from tests.aolog.conftest import (
    NEVER,
    SOON_S,
    Operation,
    WatchedStorage,
    assert_clean,
    fill,
    read_all,
    slab_files,
    values,
    wait_until,
)


class Faults:
    """Makes operations of a kind fail while it is switched on. name: of the files concerned."""

    def __init__(self, what: str, error: Callable[..., aolog.AologError], name: str = "") -> None:
        self.on = False
        self.what = what
        self.error = error
        self.name = name
        self.met = 0

    def __call__(self, operation: Operation) -> None:
        if self.on and operation.what == self.what and self.name in operation.name:
            self.met += 1
            raise self.error("injected", path=operation.name)


# --- a full disk, really -----------------------------------------------------------------------


@pytest.fixture
def disk(small_disk: Callable[[int], Path]) -> Path:
    return small_disk(1 << 20)


def ballast(disk: Path, leave: int = 0) -> Path:
    """Takes all room but so many bytes."""
    free = os.statvfs(disk).f_bavail * 4096
    path = disk / "ballast"
    path.write_bytes(bytes(max(0, free - leave)))
    return path


@pytest.mark.parametrize("batch_bytes", [0, 2000, 64 << 10])
def test_a_full_disk_loses_nothing_and_appends_resume_when_there_is_room(
    disk: Path, batch_bytes: int
) -> None:
    path = str(disk / "log")
    writer = aolog.Writer(path, slab_bytes=50_000, batch_bytes=batch_bytes, **NEVER)
    taken: dict[int, bytes] = {}

    def append(i: int) -> None:
        value = b"%d" % i + b"x" * 500
        taken[writer.append(value)] = value

    for i in range(10):
        append(i)
    writer.flush()
    weight = ballast(disk, leave=20_000)
    refused = 0
    for i in range(10, 400):
        try:
            append(i)
            writer.flush()
        except aolog.StorageFull:
            refused += 1
            if refused > 30:
                break
    assert refused > 0
    for _ in range(3):
        with pytest.raises(aolog.StorageFull) as caught:
            append(1000)
            writer.flush()
        assert caught.value.exit_status == 4
    for record in read_all(path):  # what is readable is right
        assert taken[record.address] == record.value
    weight.unlink()
    for i in range(2000, 2030):
        append(i)
    assert writer.flush() == writer.end
    assert {record.address: record.value for record in read_all(path)} == taken
    writer.close()
    assert {record.address: record.value for record in read_all(path)} == taken
    assert_clean(path)


def test_closing_on_a_full_disk_raises_and_may_be_repeated(disk: Path) -> None:
    path = str(disk / "log")
    writer = aolog.Writer(path, **NEVER)
    writer.append(b"a")
    writer.flush()
    weight = ballast(disk)
    writer.append(b"b" * 10_000)
    for _ in range(3):
        with pytest.raises(aolog.StorageFull):
            writer.close()
    with pytest.raises(aolog.LogLocked):  # it is still open
        aolog.Writer(path)
    weight.unlink()
    writer.append(b"c")
    writer.close()
    writer.close()
    assert [value[:1] for value in values(path)] == [b"a", b"b", b"c"]
    assert_clean(path)


@pytest.mark.parametrize("failing", [None, "ftruncate", "fdatasync"])
@pytest.mark.parametrize("kind", ["aolog", "zeros ahead", "queuefka"])
def test_a_writer_that_gives_up_says_what_is_in_the_log(kind: str, failing: str | None) -> None:
    """The disk is full behind any byte of the last frames; or it also fails as that is cut."""
    options: dict[str, Any] = NEVER | {"batch_bytes": 0, "slab_bytes": 1 << 14}
    options |= {"format": "queuefka"} if kind == "queuefka" else {}
    ends = set()
    for room in range(1, 320 if kind == "queuefka" else 500, 7):  # behind it: a seal's, if any
        system = SimulatedSystem()
        storage = Storage(system)
        writer = aolog.Writer("/log", storage=storage, **options)
        taken = {writer.append(b"durable"): b"durable"}
        durable = writer.sync()
        for _ in range(8 if kind == "zeros ahead" else 0):
            taken[writer.append(b"durable")] = b"durable"
            durable = writer.sync()
        taken |= {writer.append(bytes([i]) * 100): bytes([i]) * 100 for i in range(3)}
        no_room = Fault("pwritev", "*.slab", nth=2, times=None, errno=errno.ENOSPC)
        system.faults = [Fault("pwritev", "*.slab", short=room), no_room]
        with pytest.raises(aolog.StorageFull):
            writer.close()
        if failing:
            system.faults = [Fault(failing, "*.slab", times=None, errno=errno.EIO)]
        end = writer.give_up()
        system.faults = []
        ends.add(end)
        assert durable <= writer.durable <= end
        assert failing or writer.durable == end
        assert writer.give_up() == writer.durable
        with pytest.raises(aolog.LogClosed):
            writer.append(b"no")
        inside = {at: value for at, value in taken.items() if at < end}
        with aolog.Reader("/log", storage=storage) as reader:
            assert {record.address: record.value for record in reader} == inside
        if not failing:
            with aolog.Writer("/log", storage=storage, **options) as again:
                assert again.opening.cut_bytes == 0
                assert again.append(b"next") >= end
            with aolog.Reader("/log", storage=storage, strict=True) as reader:
                assert [record.value for record in reader] == [*inside.values(), b"next"]
    assert len(ends) == (3 if kind == "queuefka" else 4)  # behind each of the frames


def test_a_new_log_on_a_full_disk_leaves_nothing_in_the_way(disk: Path) -> None:
    (disk / "log").mkdir()
    weight = ballast(disk)
    with pytest.raises(aolog.StorageFull):
        aolog.Writer(disk / "log")
    assert not list((disk / "log").glob("*.slab*"))
    weight.unlink()
    fill(disk / "log", [b"a"])
    assert values(str(disk / "log")) == [b"a"]


def test_a_log_on_a_full_disk_is_drained_and_frees_itself(disk: Path) -> None:
    path = str(disk / "log")
    keep = aolog.Retention(max_slabs=2)
    writer = aolog.Writer(path, slab_bytes=100_000, retention=keep, batch_bytes=0, **NEVER)
    writer.append(b"first")
    writer.flush()
    with aolog.Reader(path, cursor="c") as reader:
        reader.read()
        reader.commit()
        with pytest.raises(aolog.StorageFull):
            for i in range(2000):
                writer.append(b"%d" % i + bytes(1000))
                writer.flush()
        n = len(list(reader))
        assert n > 500
        reader.commit()
        until = time.monotonic() + SOON_S
        while time.monotonic() < until:
            try:
                writer.append(b"again" + bytes(150_000))
                writer.flush()
                break
            except aolog.StorageFull:
                list(reader)
                reader.commit()
        assert len(slab_files(path)) <= 2
        assert list(reader)[-1].value.startswith(b"again")
        assert reader.gaps == []
    writer.close()


# --- writes that fail ---------------------------------------------------------------------------


def test_a_write_that_was_cut_short_is_repeated_over_what_it_left(log_path: str) -> None:
    """As a full disk does: some of the bytes are there."""

    def half(operation: Operation) -> None:
        if on and operation.what == "write":
            slab = slab_files(log_path)[0]
            with slab.open("ab") as file:
                file.write(b"half a frame")
            raise aolog.StorageFull("injected", path=operation.name)

    on = False
    with aolog.Writer(log_path, storage=WatchedStorage(half), **NEVER) as writer:
        writer.append(b"a")
        writer.flush()
        on = True
        address = writer.append(b"b" * 100)
        with pytest.raises(aolog.StorageFull):
            writer.flush()
        assert values(log_path) == [b"a"]
        on = False
        writer.flush()
        assert [record.address for record in read_all(log_path)][-1] == address
    assert_clean(log_path)


@pytest.mark.parametrize("policy", ["flush_records", "flush_seconds"])
def test_a_flush_by_policy_that_failed_surfaces_at_the_next_call(
    log_path: str, policy: str
) -> None:
    faults = Faults("write", aolog.StorageFailed)
    options = {
        **NEVER,
        policy: {"flush_records": 1, "flush_seconds": 0.02}[policy],
    }
    writer = aolog.Writer(log_path, storage=WatchedStorage(faults), **options)
    faults.on = True
    address = writer.append(b"a")  # taken: its address was given
    wait_until(lambda: faults.met > 0)
    for call in (lambda: writer.append(b"no"), writer.flush, writer.sync,
                 lambda: writer.append_many([b"no"]), writer.close):  # fmt: skip
        with pytest.raises(aolog.StorageFailed):
            call()
    faults.on = False
    writer.append(b"b")
    writer.close()
    assert [record.value for record in read_all(log_path)] == [b"a", b"b"]
    assert read_all(log_path)[0].address == address
    assert_clean(log_path)


# --- fsync that fails ---------------------------------------------------------------------------


def failing_sync() -> tuple[Faults, WatchedStorage]:
    faults = Faults("datasync", aolog.SyncFailed, ".slab")
    return faults, WatchedStorage(faults)


def test_after_a_failed_fsync_appends_are_refused_and_the_durable_address_is_named(
    log_path: str,
) -> None:
    faults, storage = failing_sync()
    writer = aolog.Writer(log_path, storage=storage, **NEVER)
    writer.append(b"durable")
    durable = writer.sync()
    writer.append(b"doubtful")
    faults.on = True
    with pytest.raises(aolog.SyncFailed) as caught:
        writer.sync()
    assert caught.value.details["durable"] == durable
    assert str(durable) in str(caught.value)
    faults.on = False  # the device may say yes again: what it lost it does not tell
    for call in (
        lambda: writer.append(b"no"),
        lambda: writer.append_many([b"no"]),
        writer.flush,
        writer.sync,
    ):
        with pytest.raises(aolog.SyncFailed) as caught:
            call()
        assert caught.value.details["durable"] == durable
    assert writer.durable == durable
    with pytest.raises(aolog.SyncFailed):
        writer.close()
    writer.close()
    with aolog.Writer(log_path) as writer:  # reopening is the way on
        assert writer.opening.epoch == 2
        writer.append(b"next")
    assert values(log_path) == [b"durable", b"doubtful", b"next"]


@pytest.mark.parametrize("no_room", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_at_a_sync_is_a_failed_sync(no_room: int) -> None:
    """Where blocks are allocated late: what was written may be gone from the page cache."""
    system = SimulatedSystem()
    writer = aolog.Writer("/log", storage=Storage(system), **NEVER)
    writer.append(b"a")
    durable = writer.durable
    system.faults = [Fault("fdatasync", "*.slab", errno=no_room)]
    with pytest.raises(aolog.SyncFailed):
        writer.sync()
    system.faults = []
    with pytest.raises(aolog.SyncFailed) as caught:
        writer.append(b"b")
    assert caught.value.details["durable"] == durable


def test_a_write_that_failed_in_the_thread_that_syncs_is_tried_again_without_a_call(
    log_path: str,
) -> None:
    refused: list[str] = []
    is_full = False

    def before(operation: Operation) -> None:
        if is_full and operation.what == "write":
            refused.append(operation.name)
            raise aolog.StorageFull("injected", path=operation.name)

    options = {"flush_seconds": None, "sync_seconds": 0.3}
    with aolog.Writer(log_path, storage=WatchedStorage(before), **options) as writer:
        writer.append(b"a")
        writer.flush()
        is_full = True
        last = writer.append(b"b")  # in memory when the thread syncs
        wait_until(lambda: refused)
        is_full = False
        wait_until(lambda: writer.durable > last)


@pytest.mark.parametrize("policy", ["interval", "flush"])
def test_a_background_fsync_that_failed_surfaces_at_the_next_call(
    log_path: str, policy: str
) -> None:
    for how in ("append", "flush", "sync", "close"):
        faults, storage = failing_sync()
        path = log_path + how
        writer = aolog.Writer(
            path, storage=storage, flush_seconds=0.02, sync=policy, sync_seconds=0.02
        )
        faults.on = True
        writer.append(b"a")
        wait_until(lambda faults=faults: faults.met > 0)
        call = partial(writer.append, b"no") if how == "append" else getattr(writer, how)
        with pytest.raises(aolog.SyncFailed):
            call()
            until = time.monotonic() + SOON_S  # its thread notes the failure a moment later
            while how in {"append", "flush"} and time.monotonic() < until:
                call()
                time.sleep(0.001)
        if how != "close":
            with pytest.raises(aolog.SyncFailed):
                writer.close()
        with aolog.Writer(path):
            pass
        assert values(path) == [b"a"]


def test_a_failed_fsync_of_the_directory_ends_the_writer(log_path: str) -> None:
    faults = Faults("sync", aolog.SyncFailed)
    writer = aolog.Writer(log_path, storage=WatchedStorage(faults), slab_bytes=8300, **NEVER)
    writer.append_many([b"x" * 200])
    faults.on = True
    with pytest.raises(aolog.SyncFailed):
        writer.append(b"y")
    faults.on = False
    with pytest.raises(aolog.SyncFailed) as caught:
        writer.append(b"y")
    assert caught.value.details["durable"] == writer.durable > 8192
    with pytest.raises(aolog.SyncFailed):
        writer.close()
    fill(log_path, [b"z"])
    assert [value[:1] for value in values(log_path)] == [b"x", b"z"]


# --- reads that fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("open_", [aolog.Writer, aolog.verify])
def test_a_failed_read_is_no_damage(open_: Callable[..., object]) -> None:
    """Whichever read it is, nothing is cut or called corrupt. (Of a reader: test_reader.py.)"""
    system = SimulatedSystem()
    writer = aolog.Writer("/log", storage=Storage(system), **NEVER)
    for i in range(6):
        writer.append_many([b"%d" % i])
    writer.flush()
    killed = system.kill()
    for nth in range(1, 60):
        system = killed.snapshot()
        before = system.files()
        system.faults = [Fault("pread", nth=nth, times=None, errno=errno.EIO)]
        try:
            open_("/log", storage=Storage(system))
        except aolog.StorageFailed:
            assert system.files() == before
        else:
            break  # it reads less often
    assert 3 < nth < 59
