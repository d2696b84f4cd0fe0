"""Group commit: one sync answers all that wait, nobody waits for ever, each learns its own outcome."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import aolog
from aolog.format.frame import KIND_RECORDS
from tests.aolog.conftest import (
    NEVER,
    PACKAGE,
    ROOT,
    SOON_S,
    Operation,
    WatchedStorage,
    assert_clean,
    frames_of,
    in_thread,
    open_below,
    slab_files,
    values,
    wait_until,
)


class Device:
    """A device that waits in fdatasync of a slab, once armed, until it is told to go on."""

    def __init__(self, *, fails: bool = False) -> None:
        self.armed = False
        self.fails = fails
        self.inside = 0
        self.go = threading.Semaphore(0)
        self.storage = WatchedStorage(self._before)

    def _before(self, operation: Operation) -> None:
        if self.armed and operation.what == "datasync" and operation.name.endswith(".slab"):
            self.inside += 1
            assert self.go.acquire(timeout=SOON_S)
            if self.fails:
                raise aolog.SyncFailed("injected", path=operation.name)

    def release(self) -> None:
        self.armed = False
        self.go.release(1000)


@pytest.mark.parametrize("how", ["sync", "flush", "append"])
def test_those_that_wait_become_one_frame_one_write_and_one_sync(log_path: str, how: str) -> None:
    device = Device()
    options = {"sync": "never"} if how == "sync" else {"sync": "flush"}
    options |= {"flush_records": 1} if how == "append" else {}
    with aolog.Writer(log_path, storage=device.storage, flush_seconds=None, **options) as writer:

        def work(i: int) -> None:
            address = writer.append(b"%d" % i)
            reached = address + 1 if how == "append" else getattr(writer, how)()
            assert address < reached <= writer.durable

        device.armed = True
        first = in_thread(lambda: work(0))
        wait_until(lambda: device.inside == 1)
        durable, begin = writer.durable, writer.end
        others = [in_thread(lambda i=i: work(i)) for i in range(1, 9)]
        wait_until(lambda: writer.end == begin + 8)  # taken while the device works
        assert all(call.waits() for call in others)
        writes = device.storage.count("write")
        assert writer.durable == durable
        device.release()
        for call in [first, *others]:
            call.result()
        assert device.inside == 1
        assert device.storage.count("write") == writes + 1
    frames = [frame.records for frame in frames_of(log_path) if frame.kind == KIND_RECORDS]
    assert frames == [1, 8]
    assert sorted(values(log_path)) == [b"%d" % i for i in range(9)]


@pytest.mark.parametrize("how", ["sync", "append"])
def test_a_failed_fsync_is_told_to_the_one_that_met_it_and_to_all_in_line(
    log_path: str, how: str
) -> None:
    device = Device(fails=True)
    options = {"sync": "never"} if how == "sync" else {"sync": "flush", "flush_records": 1}
    writer = aolog.Writer(log_path, storage=device.storage, flush_seconds=None, **options)
    writer.append(b"durable")
    durable = writer.sync()

    def work() -> None:
        writer.append(b"doubtful")
        writer.sync()

    device.armed = True
    calls = [in_thread(work)]
    wait_until(lambda: device.inside == 1)
    calls += [in_thread(work) for _ in range(5)]
    assert all(call.waits() for call in calls)
    device.release()
    for call in calls:
        with pytest.raises(aolog.SyncFailed) as caught:
            call.result()
        assert caught.value.details["durable"] == durable
    assert device.inside == 1  # nobody tried again
    assert writer.durable == durable
    with pytest.raises(aolog.SyncFailed):
        writer.close()


def is_slab_of(log: str, path: str) -> bool:
    return path.startswith(f"{log}/") and path.endswith(".slab")


def test_a_sync_that_the_system_refuses_is_never_tried_again(log_path: str) -> None:
    writer = aolog.Writer(log_path, **NEVER)
    for _ in range(20):  # from some syncs in a row on the compiled half does them
        writer.append(b"durable")
        durable = writer.sync()
    writer.append(b"doubtful")
    writer.flush()
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    slab = next(int(link.name) for link in links if is_slab_of(log_path, str(link.readlink())))
    kept, pipe = os.dup(slab), os.pipe()
    os.dup2(pipe[1], slab)  # no pipe can be synced
    with pytest.raises(aolog.SyncFailed, match="fdatasync: Invalid argument") as caught:
        writer.sync()
    os.dup2(kept, slab)
    for fd in (kept, *pipe):
        os.close(fd)
    assert caught.value.details["durable"] == durable
    for call in (writer.sync, writer.flush, writer.close):
        with pytest.raises(aolog.SyncFailed):
            call()
    assert writer.durable == durable


def test_a_full_disk_is_told_to_each_that_waits_and_costs_none_of_them_its_record(
    log_path: str,
) -> None:
    device = Device()
    full = False
    before = device.storage.before

    def fill(operation: Operation) -> None:
        assert before is not None
        before(operation)
        if full and operation.what == "write":
            raise aolog.StorageFull("injected", path=operation.name)

    device.storage.before = fill
    with aolog.Writer(log_path, storage=device.storage, **NEVER) as writer:

        def work() -> None:
            writer.append(b"x")
            writer.sync()

        device.armed = True
        first = in_thread(work)
        wait_until(lambda: device.inside == 1)
        others = [in_thread(work) for _ in range(4)]
        assert all(call.waits() for call in others)
        full = True
        device.release()
        first.result()
        for call in others:
            with pytest.raises(aolog.StorageFull):
                call.result()
        full = False
        assert writer.sync() == writer.end
    assert values(log_path) == [b"x"] * 5
    assert_clean(log_path)


def test_a_slab_that_is_full_is_not_closed_under_the_sync_that_works_on_it(log_path: str) -> None:
    device = Device()
    with aolog.Writer(log_path, storage=device.storage, slab_bytes=8300, **NEVER) as writer:
        device.armed = True
        syncing = in_thread(lambda: [writer.append_many([b"a" * 200]), writer.sync()])
        wait_until(lambda: device.inside == 1)
        opened = open_below(log_path)
        rolling = in_thread(lambda: [writer.append(b"b"), writer.sync()])
        assert rolling.waits()
        assert open_below(log_path) == opened
        device.release()
        syncing.result()
        rolling.result()
    assert len(slab_files(log_path)) == 2
    assert [value[:1] for value in values(log_path)] == [b"a", b"b"]
    assert_clean(log_path)


@pytest.mark.parametrize("policy", ["flush", "interval"])
def test_threads_that_sync_across_many_slabs_are_never_told_too_early(
    log_path: str, policy: str
) -> None:
    """Reads back after each sync what it promised; a second."""
    taken: set[int] = set()

    def work(which: int) -> None:
        for i in range(40):
            address = writer.append(b"%d %d" % (which, i) + bytes(200))
            if policy == "interval":
                assert writer.sync() > address
            assert writer.durable > address
            with aolog.Reader(log_path, start=address) as reader:
                assert reader.read().value.rstrip(b"\0") == b"%d %d" % (which, i)
            taken.add(address)

    with aolog.Writer(
        log_path, slab_bytes=12_000, sync=policy, flush_records=1 if policy == "flush" else None
    ) as writer:
        for call in [in_thread(lambda which=which: work(which)) for which in range(6)]:
            call.result()
    with aolog.Reader(log_path, strict=True) as reader:
        assert {record.address for record in reader} == taken
    assert len(taken) == 240
    assert_clean(log_path)


def test_a_sync_crosses_few_modules_and_python_calls(log_path: str) -> None:
    """Of one record, where the slab is filled with zeros ahead already."""
    seen: list[str] = []

    def count(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and code.co_filename.startswith(PACKAGE):
            seen.append(code.co_filename)

    with aolog.Writer(log_path, flush_seconds=600, sync_seconds=600) as writer:
        for _ in range(20):
            writer.append(b"x")
            writer.sync()
        writer.append(b"x")
        sys.setprofile(count)
        try:
            writer.sync()
        finally:
            sys.setprofile(None)
    assert len(seen) <= 20
    assert len(set(seen)) <= 8


SYNC_IN_CHILD = """
import sys, aolog
with aolog.Writer(sys.argv[1], slab_bytes=1 << 20, flush_seconds=None, sync="never") as writer:
    writer.append(b"a")
    print("before", flush=True)
    writer.sync()
    print("after", flush=True)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_sync_really_is_fdatasync_of_the_file_and_fsync_of_the_directory(
    log_path: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    names = "trace=openat,fdatasync,fsync,rename,renameat,renameat2,pwritev,pwritev2,pwrite64,write"
    ran = subprocess.run(
        ["strace", "-f", "-y", "-e", names, "-o", str(trace),
         sys.executable, "-c", SYNC_IN_CHILD, log_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if "ptrace" in ran.stderr.lower():
        pytest.skip(f"strace may not trace: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    text = trace.read_text()
    name, log = re.escape("00000000000000000000.slab"), re.escape(log_path)
    slab = f"{log}/{name}"
    born = [
        rf"fdatasync\(\d+<{slab}\.tmp>\) += 0",
        rf"renameat\S*\(\d+<{log}>, \"{name}\.tmp\", \d+<{log}>, \"{name}\"\S*\) += 0",
        rf"fsync\(\d+<{log}>\) += 0",
        r'write\(1<.*"before',
    ]
    at = 0
    for step in [*born, rf"pwritev2?\(\d+<{slab}>", rf"fdatasync\(\d+<{slab}>\) += 0", r'"after']:
        found = re.compile(step).search(text, at)
        assert found, f"{step} in {text[at:]}"
        at = found.end()
    assert re.search(rf"fsync\(\d+<{re.escape(str(tmp_path))}>\) += 0", text)  # the log's own entry
