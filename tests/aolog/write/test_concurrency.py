"""Many at once: threads on one writer, readers beside it, writers after one another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import aolog
from aolog.format.frame import KIND_RECORDS
from aolog.storage.file import File
from tests.aolog.conftest import (
    NEVER,
    SOON_S,
    Child,
    WatchedStorage,
    assert_clean,
    frames_of,
    in_thread,
    kill,
    read_all,
    slab_files,
    values,
    wait_until,
)
from tests.aolog.write.test_commit import Device

# --- threads on one writer ---------------------------------------------------------------------


def test_append_many_is_not_torn_apart_by_other_threads(log_path: str) -> None:
    def work(which: int) -> None:
        for i in range(100):
            writer.append(b"between")
            writer.append_many([b"%d %d" % (which, i)] * 7)

    with aolog.Writer(log_path, slab_bytes=12_000) as writer:
        for thread in [in_thread(lambda which=which: work(which)) for which in range(4)]:
            thread.result()
    sizes = [frame.records for frame in frames_of(log_path) if frame.kind == KIND_RECORDS]
    assert sizes.count(7) == 400
    batches = [value for value in values(log_path) if value != b"between"]
    assert all(batches[i : i + 7] == [batches[i]] * 7 for i in range(0, len(batches), 7))


def test_a_thread_that_flushes_all_the_time_leaves_the_others_their_turns(log_path: str) -> None:
    """It has the writer's lock nearly whenever another thread can run."""
    with aolog.Writer(log_path, sync="interval", sync_seconds=0.02) as writer:
        seen = {writer.durable}
        until_s = time.monotonic() + 15  # two are enough
        while len(seen) < 40:
            writer.append(b"x")
            writer.flush()
            seen.add(writer.durable)
            assert time.monotonic() < until_s, f"{len(seen)} syncs"


def test_what_a_sync_promises_was_written_before_it_began(log_path: str) -> None:
    """Bytes that come while fdatasync runs are not counted as durable by it."""
    device = Device()
    with aolog.Writer(log_path, storage=device.storage, **NEVER) as writer:
        first = writer.append(b"a")
        device.armed = True
        syncing = in_thread(writer.sync)
        wait_until(lambda: device.inside == 1)
        second = writer.append(b"b")
        writer.flush()
        device.release()
        assert first < syncing.result() <= second
        assert writer.durable <= second
        assert writer.sync() > second


class AppendsAfterAFlush(aolog.Writer):
    """A record comes right after the first flush of the writer's own thread."""

    flushed = False

    def flush(self) -> int:
        end = super().flush()
        if threading.current_thread().name.startswith("aolog-writer") and not self.flushed:
            self.append(b"b")
            self.flushed = True
        return end


@pytest.mark.parametrize("kind", ["aolog", "queuefka"])
def test_a_record_that_comes_right_after_a_flush_that_was_due_is_flushed_in_time(
    log_path: str, kind: Literal["aolog", "queuefka"]
) -> None:
    options = {"flush_seconds": 0.1, "sync": "never"}
    with AppendsAfterAFlush(log_path, format=kind, **options) as writer:
        while not writer.flushed:
            writer.append(b"a")
            writer.flush()  # from now on flushes are compiled, also that of the thread
            time.sleep(0.002)
        wait_until(lambda: b"b" in values(log_path), seconds=10)


def test_threads_that_append_while_it_is_closed_are_told(log_path: str) -> None:
    writer = aolog.Writer(log_path, flush_seconds=0.001)
    taken = []

    def work() -> None:
        while True:
            taken.append(writer.append(b"x"))

    threads = [in_thread(work) for _ in range(3)]
    time.sleep(0.1)
    writer.close()
    for thread in threads:
        with pytest.raises(aolog.LogClosed):
            thread.result()
    assert sorted(taken) == [record.address for record in read_all(log_path)]
    assert_clean(log_path)


# --- readers beside a writer -------------------------------------------------------------------

WRITE_IN_CHILD = """
import random, sys, time, aolog
path, n, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(5)
with aolog.Writer(path, slab_bytes=300_000, batch_bytes=2000, flush_seconds=0.002,
                  sync_seconds=0.005, format=kind) as w:
    print("open", flush=True)
    i = 0
    while i < n:
        kind = rng.randrange(30)
        if kind == 0:
            many = [b"%d" % (i + j) + bytes(500) for j in range(rng.randrange(1, 200))]
            w.append_many(many)
            i += len(many)
        else:
            w.append(b"%d" % i + bytes(rng.randrange(300)))
            i += 1
        if kind == 1:
            w.flush()
        elif kind == 2:
            w.sync()
        elif kind == 3:
            time.sleep(0.001)
"""


@pytest.mark.parametrize("kind", ["aolog", "queuefka"])
def test_a_reader_beside_a_writing_process_meets_no_gap_and_no_error(
    log_path: str, kind: str
) -> None:
    n = 15_000

    def number(value: bytes) -> int:
        return int(value.rstrip(b"\0"))

    def follow_one_by_one() -> int:
        with aolog.Reader(log_path, strict=True) as reader:
            for i, record in enumerate(reader.follow(timeout=SOON_S)):
                assert number(record.value) == i
                if i % 500 == 0:
                    reader.lag()
                if i >= n - 1:
                    return i
            raise AssertionError(f"ended at {reader.tell()}")

    def follow_in_batches() -> int:
        i = 0
        with aolog.Reader(log_path, strict=True) as reader:
            while i < n:
                batch = reader.read_batch(timeout=SOON_S)
                assert batch is not None
                for record in batch:
                    assert number(record.value) == i
                    i += 1
        return i

    with Child(WRITE_IN_CHILD, log_path, str(n), kind) as child:
        assert child.line() == "open"

        def writing() -> bool:
            return child.process.poll() is None

        threads = [in_thread(call) for call in (follow_one_by_one, follow_in_batches)]
        verified = 0
        while writing():
            report = aolog.verify(log_path)
            assert report.gaps == []
            assert report.ok, report
            verified += 1
            time.sleep(0.05)
        for thread in threads:
            thread.result()
        child.wait()
    assert verified > 0
    assert len(slab_files(log_path)) > 3
    assert_clean(log_path)


class FinishesAWrite(WatchedStorage):
    """Another process finishes its write just before the n-th read."""

    def __init__(self, n: int, finish: Callable[[], object]) -> None:
        super().__init__()
        self.left = n
        self.finish = finish

    def _open(self, path: str, flags: int) -> File:
        file = super()._open(path, flags)
        real = file.pread

        def pread(size: int, offset: int) -> bytes:
            self.left -= 1
            if self.left == 0:
                self.finish()
            return real(size, offset)

        file.pread = pread  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("shown", ["half", "half_and_zeros", "hole"])
@pytest.mark.parametrize("kind", ["aolog", "queuefka"])
def test_a_write_that_is_finished_between_two_reads_is_no_gap(
    log_path: str, kind: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aolog.log.walk.CHUNK_BYTES", 64)  # so that each look is a read of its own
    writer = aolog.Writer(log_path, batch_bytes=0, format=kind, **NEVER)
    for i in range(5):
        writer.append(b"%d" % i * 50)
    writer.flush()
    kill(writer)
    (slab,) = slab_files(log_path)
    whole = slab.read_bytes()
    third = frames_of(log_path)[2]
    middle = third.begin + 20
    part = {
        "half": whole[:middle],
        "half_and_zeros": whole[:middle] + bytes(len(whole) - middle),
        "hole": whole[:middle] + bytes(third.end - middle) + whole[third.end :],
    }[shown]
    finished = 0
    for n in range(1, 60):
        slab.write_bytes(part)
        storage = FinishesAWrite(n, lambda: slab.write_bytes(whole))
        with aolog.Reader(log_path, storage=storage) as reader:
            found = list(reader)
            if storage.left > 0:  # it never was: a hole is one then
                assert (len(reader.gaps) == 1) == (shown == "hole")
                break
            finished += 1
            found += list(reader)
            if shown == "hole" and reader.gaps:  # told before it was finished
                assert len(found) == 4
                continue
            assert reader.gaps == []
            assert [record.value[:1] for record in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert 3 < finished < 59


def test_readers_never_disturb_a_writer(log_path: str) -> None:
    """Nor does one that is in the middle of a slab which is then pruned, cut or sealed."""
    with aolog.Writer(
        log_path, slab_bytes=20_000, retention=aolog.Retention(max_slabs=3), **NEVER
    ) as writer:
        stop = threading.Event()

        def read() -> int:
            n = 0
            while not stop.is_set():
                with aolog.Reader(log_path) as reader:
                    n += len(list(reader))
            return n

        threads = [in_thread(read) for _ in range(3)]
        for i in range(3000):
            writer.append(b"%0100d" % i)
            if i % 10 == 0:
                writer.flush()
        stop.set()
        for thread in threads:
            thread.result()
    assert values(log_path)[-1] == b"%0100d" % 2999
    assert_clean(log_path)


# --- writers after one another -------------------------------------------------------------------

FORGETFUL = """
import gc, sys, threading, time, aolog
gc.set_threshold(3, 10, 10)
class Cycle:
    pass
for i in range(12):
    gc.disable()
    writer = aolog.Writer(f"{sys.argv[1]}/{i}", flush_seconds=0.002, sync_seconds=0.003)
    for _ in range(4):
        writer.append(b"y")
        time.sleep(0.004)
    cycle = Cycle()
    cycle.writer, cycle.itself = writer, cycle
    writer.append(b"z")
    del writer, cycle
    gc.enable()
    time.sleep(0.05)  # its own thread collects it
gc.collect()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(20)
        assert not thread.is_alive(), thread.name
"""


def test_a_writer_that_its_own_thread_collects_is_closed_by_it(tmp_path: Path) -> None:
    with Child(FORGETFUL, str(tmp_path)) as child:
        child.wait()
    for log in tmp_path.iterdir():
        assert values(str(log)) == [b"y"] * 4 + [b"z"]
