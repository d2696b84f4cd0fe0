"""The compiled `flush` and `sync` of the open frame, and the lock that they take."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aolog.format.native import inlet
from tests.aolog.conftest import in_thread
from tests.aolog.format.test_inlet import (
    BASE,
    KINDS,
    NOW_US,
    OFFSET,
    RECORDS,
    CompiledTaker,
    PythonTaker,
    bytes_of,
    compiled,
    face,
    frames_of,
    outcome,
    pytestmark_frames,
)

pytestmark = pytestmark_frames


class Flushing(CompiledTaker):
    """Flushes to a file, and syncs it, as a writer does."""

    flushed_by_hand = synced_by_hand = 0

    def __init__(
        self,
        file: tuple[int, Path],
        *,
        seconds: float = 600,
        syncs: bool = False,
        limit: int = 1000,
    ) -> None:
        super().__init__(BASE + OFFSET)
        self.fd, self.path = file
        self.directory = os.open(self.path.parent, os.O_RDONLY)
        self.lock, self.device, self.turn = inlet.Lock(), inlet.Lock(), inlet.Lock()
        self.syncing: set[int] = set()
        self._prepare(self.lock, self.device, self.turn, self.syncing, limit, limit, 7, syncs)
        self.frames = frames_of(KINDS[0])
        self.frames.zeros_end = 1 << 40
        self.attach()
        self._admit(limit, 7)
        self._admit_flush(self.frames, int(seconds * 1e9))

    def attach(self) -> None:
        found = self.path.stat()
        self.frames.attach(self.fd, self.directory, self.path.name, found.st_ino, found.st_dev)

    def _flush(self) -> int:
        self.flushed_by_hand += 1
        return -1

    def _sync(self) -> int:
        self.synced_by_hand += 1
        return -1

    def __del__(self) -> None:
        os.close(self.directory)

    def syncs_itself(self) -> bool:
        """Whether `sync` makes a record durable without the writer."""
        before, address = self.synced_by_hand, self.append(b"x")
        self.sync()
        return self.synced_by_hand == before and self.frames.durable > address


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A descriptor and the path of a file that has a slab's header."""
    path = tmp_path / "a.slab"
    path.write_bytes(bytes(OFFSET))
    with path.open("r+b") as opened:
        yield opened.fileno(), path


# --- flush ------------------------------------------------------------------------------------------


@settings(deadline=None)  # it waits for a device
@given(RECORDS, st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=10))
def test_a_flush_and_a_sync_write_what_python_s_frames_would_be(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[dict[str, Any]],
    groups: list[tuple[int, bool]],
) -> None:
    path = tmp_path_factory.getbasetemp() / "flushed"
    path.write_bytes(bytes(OFFSET))
    python_frames = frames_of(KINDS[1])
    with path.open("r+b") as file:
        flushing, left = Flushing((file.fileno(), path)), list(records)
        compiled_frames = flushing.frames
        for group, syncs in groups:
            some, left = left[:group], left[group:]
            python = PythonTaker(BASE + python_frames.offset)
            for record in some:
                stamped = {**record, "timestamp": record.get("timestamp") or 0}
                assert outcome(flushing.append, stamped) == outcome(python.append, stamped)
            python.cut(python_frames)
            end = BASE + python_frames.offset
            assert (flushing.sync() if syncs else flushing.flush()) == end
            if syncs:
                python_frames.durable, python_frames.synced_records = end, python_frames.records
            assert compiled_frames.durable == python_frames.durable
            assert compiled_frames.synced_records == python_frames.synced_records
            assert flushing.state()[1:] == (0, 0, 0)
        assert os.pread(file.fileno(), 1 << 20, OFFSET) == bytes_of(python_frames)
    assert (flushing.passed_on, flushing.flushed_by_hand, flushing.synced_by_hand) == (0, 0, 0)
    assert compiled_frames.written == compiled_frames.offset
    assert compiled_frames.flushed_records == compiled_frames.records
    python_frames.pending.clear()
    assert face(compiled_frames)[:2] == face(python_frames)[:2]
    assert face(compiled_frames)[4:] == face(python_frames)[4:]


@pytest.mark.parametrize("size", [10, 40_000, 100_000])
def test_a_flush_writes_frames_of_any_size(file: tuple[int, Path], size: int) -> None:
    flushing = Flushing(file, limit=1 << 20)
    for at in range(3):
        flushing.append(bytes([at]) * size)
        assert flushing.flush() == BASE + flushing.frames.offset
    assert (flushing.passed_on, flushing.flushed_by_hand) == (0, 0)
    written = file[1].read_bytes()
    assert len(written) == flushing.frames.offset
    assert all(bytes([at]) * size in written for at in range(3))


def test_a_record_that_comes_after_a_flush_has_its_own_time(file: tuple[int, Path]) -> None:
    flushing = Flushing(file)
    before_us = time.time_ns() // 1000
    for _ in range(2):
        flushing.append(b"first")
        flushing.flush()
    assert flushing.frames.least_us == NOW_US  # of the frame that was begun by hand
    assert before_us <= flushing.frames.greatest_us <= time.time_ns() // 1000


@pytest.mark.parametrize("call", ["flush", "sync"])
def test_a_write_that_fails_is_the_writer_s_and_loses_nothing(
    file: tuple[int, Path], call: str
) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        flushing = Flushing((full.fileno(), file[1]))
        flushing.append(b"kept")
        assert getattr(flushing, call)() == -1
        assert flushing.flushed_by_hand + flushing.synced_by_hand == 1
        frames = flushing.frames
        assert b"kept" in bytes_of(frames)
        assert (frames.written, frames.flushed_records, frames.records) == (OFFSET, 0, 1)
        assert frames.durable == -1
        flushing.append(b"not without the lock")
        assert flushing.passed_on == 1


def test_a_flush_is_the_writer_s_if_another_call_is_under_way_or_something_is_due(
    file: tuple[int, Path],
) -> None:
    busy = Flushing(file)
    with busy.lock:  # as in a signal handler that interrupts a call of its thread
        busy.flush()
        in_thread(busy.flush).result()
    assert busy.flushed_by_hand == 2
    busy.flush()
    assert busy.flushed_by_hand == 2
    busy.shut()
    busy.flush()
    late = Flushing(file, seconds=0)
    late.flush()
    assert (busy.flushed_by_hand, late.flushed_by_hand) == (3, 1)
    two = Flushing(file)
    two.frames.add_records(1, 0, [b"given"], 0, 0, 0)
    two.append(b"x")
    two.flush()  # more than one buffer
    assert (two.flushed_by_hand, two.frames.written) == (1, OFFSET)


@pytest.mark.parametrize("name", ["flush", "sync"])
def test_both_halves_promise_the_same_of_flush_and_sync(name: str) -> None:
    compiled_one = getattr(compiled.Inlet, name)
    assert inspect.getdoc(compiled_one) == inspect.getdoc(getattr(inlet.PythonInlet, name))


# --- sync -------------------------------------------------------------------------------------------


def test_a_sync_is_the_writer_s_while_another_call_is_under_way(file: tuple[int, Path]) -> None:
    busy = Flushing(file)
    assert busy.syncs_itself()
    for lock in (busy.lock, busy.device, busy.turn):
        with lock:
            assert not in_thread(busy.syncs_itself).result()
            assert (
                not busy.syncs_itself()
            )  # as in a signal handler that interrupts a call of its thread
        assert busy.syncs_itself()
    busy.syncing.add(5)
    assert not busy.syncs_itself()
    busy.syncing.clear()
    assert busy.syncs_itself()


def test_a_sync_is_the_writer_s_past_the_zeros_and_when_something_is_due(
    file: tuple[int, Path],
) -> None:
    flushing = Flushing(file)
    flushing.frames.zeros_end = flushing.frames.offset
    assert not flushing.syncs_itself()
    assert not Flushing(file, seconds=0).syncs_itself()
    shut = Flushing(file)
    shut.shut()
    shut.sync()
    assert shut.synced_by_hand == 1


@pytest.mark.parametrize("how", ["removed", "replaced", "cut"])
def test_a_sync_is_the_writer_s_if_its_file_is_not_the_one_of_its_name(
    file: tuple[int, Path], how: str
) -> None:
    flushing = Flushing(file)
    assert flushing.syncs_itself()
    path = file[1]
    if how == "cut":
        os.truncate(path, flushing.frames.written - 1)
    else:
        path.unlink()
    if how == "replaced":
        path.write_bytes(bytes(1 << 20))
    written = flushing.frames.written
    assert not flushing.syncs_itself()
    assert flushing.frames.written == written  # it looks first: a write would hide the cut


def test_a_sync_that_fails_is_the_writer_s_and_never_tried_again(file: tuple[int, Path]) -> None:
    end, other = os.pipe()  # no such file can be synced
    try:
        flushing = Flushing(file)
        flushing.append(b"x")
        flushing.flush()
        flushing.fd = other
        flushing.attach()
        assert flushing.sync() == -1
        assert flushing.frames.sync_errno
        flushing.fd = file[0]
        flushing.attach()
        assert flushing.sync() == -1
        assert (flushing.synced_by_hand, flushing.frames.durable) == (2, -1)
    finally:
        os.close(end)
        os.close(other)


def test_with_sync_flush_each_flush_is_a_sync(file: tuple[int, Path]) -> None:
    flushing = Flushing(file, syncs=True)
    address = flushing.append(b"x")
    assert flushing.flush() == flushing.frames.durable > address
    flushing.shut()
    flushing.flush()
    assert flushing.flushed_by_hand == 1


# --- the lock ---------------------------------------------------------------------------------------


def test_one_thread_at_a_time_has_the_lock_and_each_gets_it() -> None:
    lock, inside, most, rounds = inlet.Lock(), 0, 0, 300

    def work() -> None:
        nonlocal inside, most
        for _ in range(rounds):
            with lock, lock:
                inside += 1
                most = max(most, inside)
                time.sleep(0)  # lets another thread run
                inside -= 1

    calls = [in_thread(work) for _ in range(6)]
    for call in calls:
        call.result(60)
    assert (most, inside) == (1, 0)


def test_a_lock_is_released_by_its_thread_alone() -> None:
    lock = inlet.Lock()
    with pytest.raises(RuntimeError):
        lock.release()
    lock.acquire()
    with pytest.raises(RuntimeError):
        in_thread(lock.release).result()
    waiting = in_thread(lock.acquire)
    assert waiting.waits()
    lock.release()
    waiting.result()


def test_a_condition_waits_without_the_lock() -> None:
    condition = threading.Condition(inlet.Lock())

    def notify() -> None:
        with condition:
            condition.notify_all()

    with condition, condition:
        other = in_thread(notify)
        assert condition.wait(20)  # another thread took the lock, which was taken twice here
    other.result()


def test_an_interrupt_ends_a_wait_for_the_lock() -> None:
    lock, locked, go = inlet.Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            locked.set()
            assert go.wait(20)

    def interrupt(*_: object) -> None:
        raise InterruptedError

    holder = in_thread(hold)
    assert locked.wait(20)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(InterruptedError):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            lock.acquire()
    finally:
        signal.signal(signal.SIGALRM, before)
    go.set()
    holder.result()
    with lock:
        pass
