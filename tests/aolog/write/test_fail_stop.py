"""Fail-stop: what interrupts a call of a writer makes it failed, and reopening recovers the log."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from aolog.testing.faults import Call
from aolog.write.active_slab import FormatTwoSlab
from aolog.write.group_commit import GroupCommit
from aolog.write.log_tail import LogTail
from tests.aolog.conftest import (
    FROM_A_HANDLER,
    NEVER,
    PACKAGE,
    Interrupted,
    Operation,
    Tracer,
    WatchedStorage,
    assert_clean,
    fill,
    in_thread,
    open_below,
    refuse_threads,
    values,
    wait_until,
)


def interrupt(*_: object, **__: object) -> None:
    raise Interrupted


CALLS: dict[str, Callable[[aolog.Writer], object]] = {
    "append": lambda writer: writer.append(b"x", key=memoryview(b"k")),  # not plain: in Python
    "append a value": lambda writer: writer.append(b"x"),
    "append many": lambda writer: writer.append_many([b"x"]),
    "flush": lambda writer: writer.flush(),
    "sync": lambda writer: writer.sync(),
}
# A call, and a part of the library within it that is interrupted.
PLACES = [
    ("append", aolog.Writer, "_put"),
    ("append", aolog.Writer, "_flush_if_full"),
    ("append many", FormatTwoSlab, "add_records"),
    ("flush", aolog.Writer, "_cut"),
    ("flush", FormatTwoSlab, "write_pending"),
    ("sync", LogTail, "datasync"),
    ("sync", GroupCommit, "enter"),
    ("sync", GroupCommit, "leave"),
]


@pytest.mark.parametrize(("how", "part", "name"), PLACES, ids=[f"{a}-{c}" for a, _, c in PLACES])
def test_a_writer_whose_call_was_interrupted_refuses_all_others_until_it_is_opened_again(
    log_path: str, monkeypatch: pytest.MonkeyPatch, how: str, part: type, name: str
) -> None:
    watched = {"storage": WatchedStorage()} if how == "flush" else {}  # so that it is not compiled
    writer = aolog.Writer(log_path, **NEVER, **watched)
    synced = writer.append(b"synced")
    writer.sync()
    writer.append(b"in memory", key=b"k")
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(part, name, interrupt)
        CALLS[how](writer)
    for call in CALLS.values():
        with pytest.raises(aolog.UsageError, match=r"writer failed: Interrupted\(\).*open the log"):
            call(writer)
    assert writer.durable > synced
    with pytest.raises(aolog.UsageError, match="writer failed"):
        writer.close()
    writer.close()
    assert open_below(log_path) == []
    with pytest.raises(aolog.LogClosed):
        writer.append(b"x")
    with aolog.Writer(log_path) as writer:
        assert writer.append(b"next") > synced
    found = values(log_path)
    assert (found[0], found[-1]) == (b"synced", b"next")
    assert aolog.verify(log_path).ok


@pytest.mark.parametrize("where", ["seal", "join"])
def test_a_close_that_was_interrupted_takes_nothing_more_and_releases_the_log(
    log_path: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    writer = aolog.Writer(log_path, flush_seconds=600)
    writer.append(b"a")
    writer.flush()
    part = FormatTwoSlab if where == "seal" else threading.Thread
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(part, where, interrupt)
        writer.close()
    with pytest.raises(aolog.LogClosed):
        writer.append(b"b")
    writer.close()
    assert open_below(log_path) == []
    aolog.Writer(log_path).close()
    assert values(log_path) == [b"a"]


def test_the_interrupt_leaves_a_with_block_and_not_the_error_of_the_close(log_path: str) -> None:
    with pytest.raises(KeyboardInterrupt), aolog.Writer(log_path, **NEVER) as writer:
        writer.append(b"a")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LogTail, "flush", lambda _: signal.raise_signal(signal.SIGINT))
            writer.flush()
    aolog.Writer(log_path).close()


def test_a_bug_in_the_writers_own_thread_is_met_by_the_next_call(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    writer = aolog.Writer(log_path, flush_seconds=0.01)
    with monkeypatch.context() as patched:
        patched.setattr(LogTail, "flush", lambda _: 1 // 0)
        writer.append(b"a")
        wait_until(lambda: reported)
    with pytest.raises(aolog.UsageError, match="writer failed: ZeroDivisionError"):
        writer.append(b"b")
    with pytest.raises(aolog.UsageError, match="writer failed"):
        writer.close()
    aolog.Writer(log_path).close()


def test_threads_that_wait_for_a_sync_do_not_wait_for_one_that_was_interrupted(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go = threading.Event(), threading.Event()

    def wait_and_raise(*_: object) -> None:
        inside.set()
        assert go.wait(20)
        raise Interrupted

    writer = aolog.Writer(log_path, **NEVER)
    monkeypatch.setattr(LogTail, "datasync", wait_and_raise)

    def work() -> None:
        writer.append(b"x")
        writer.sync()

    calls = [in_thread(work)]
    assert inside.wait(20)
    calls += [in_thread(work) for _ in range(3)]
    assert all(call.waits() for call in calls)
    go.set()
    with pytest.raises(Interrupted):
        calls[0].result()
    for call in calls[1:]:
        with pytest.raises(aolog.UsageError, match="writer failed"):
            call.result()
    monkeypatch.undo()
    with pytest.raises(aolog.UsageError):
        writer.close()


def test_an_interrupt_just_before_the_device_syncs_leaves_it_free_for_a_slab_that_ends(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = aolog.Writer(log_path, slab_bytes=8300, **NEVER)
    writer.append(b"x" * 1000)
    enders = []

    def wait_and_raise(*_: object) -> None:
        enders.append(in_thread(lambda: writer.append(b"first of the next slab")))
        assert enders[0].waits()  # for the device, with the writer's lock
        raise Interrupted

    monkeypatch.setattr(LogTail, "sync_written", wait_and_raise)
    call = in_thread(writer.sync)
    with pytest.raises(Interrupted):
        call.result()
    assert enders[0].result() > 8300
    with pytest.raises(aolog.UsageError, match="writer failed"):
        writer.append(b"x")
    with pytest.raises(aolog.UsageError):
        writer.close()


def test_a_slab_is_not_made_anew_while_a_follower_may_have_it_open(log_path: str) -> None:
    """It has its name before the name is durable, and readers go by names."""

    def before(operation: Operation) -> None:
        if operation == Operation("sync", "log") and armed:
            followed.extend(reader)
            raise Interrupted

    armed = False
    storage = WatchedStorage(before)
    writer = aolog.Writer(log_path, slab_bytes=8300, storage=storage, **NEVER)
    writer.append_many([b"x" * 1000])
    writer.flush()
    with aolog.Reader(log_path) as reader:
        followed = list(reader)
        armed = True
        with pytest.raises(Interrupted):
            writer.append(b"interrupted")
        armed = False
        with pytest.raises(aolog.UsageError, match="writer failed"):
            writer.close()
        fill(log_path, [b"second"])
        followed += reader
        assert [record.value for record in followed] == [b"x" * 1000, b"second"]
        assert reader.gaps == []


# --- at every line --------------------------------------------------------------------------------

ROOMS = ("write/", "format/", "queuefka/", "log/", "storage/")
LARGE = b"x" * 9_000  # fills a slab


SWEPT: dict[str, Callable[[aolog.Writer], object]] = {
    "append": lambda writer: writer.append(memoryview(b"called")),  # not plain: in Python
    "append many": lambda writer: writer.append_many([b"called"]),
    "flush": lambda writer: writer.flush(),
    "sync": lambda writer: writer.sync(),
    "roll": lambda writer: [writer.append_many([LARGE]), writer.append_many([b"called"])],
    "close": aolog.Writer.close,
    "give up": aolog.Writer.give_up,
    "append arrow": lambda writer: writer.append_arrow(pa.record_batch({"value": [b"called"]})),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # at a finalizer
@pytest.mark.parametrize(
    ("kind", "error"), [*(("aolog", error) for error in FROM_A_HANDLER), ("queuefka", "full")]
)
@pytest.mark.parametrize("how", SWEPT)
def test_a_call_that_was_interrupted_at_any_line_loses_nothing_that_was_synced(
    tracer: Tracer, how: str, kind: str, error: str
) -> None:
    """The writer refuses all that comes after, or syncs what was appended before the call and after it,
    each once. A handler's error of another log is no error of this one."""
    if (how, kind) == ("append arrow", "queuefka"):
        pytest.skip("format 1 has no columns")
    make = FROM_A_HANDLER[error]
    nth, refused, raised = 0, 0, True
    while raised:
        nth += 1
        storage = Storage(SimulatedSystem())
        options = {**NEVER, "slab_bytes": 9_000, "format": kind, "storage": storage}
        writer = aolog.Writer("/log", **options)
        writer.append(b"synced")
        writer.sync()
        writer.append(b"in memory")
        tracer.begin(nth, ROOMS, make)
        with suppress(type(make())):
            SWEPT[how](writer)
        raised = tracer.end()
        synced = [b"synced"]
        try:
            writer.append(b"after")
            writer.sync()
            synced += [b"in memory", b"after"]
        except (aolog.CallInterrupted, aolog.LogClosed):
            refused += 1
        for _ in range(2):
            with suppress(aolog.CallInterrupted, type(make())):
                writer.close()
        aolog.Writer("/log", **options).close()
        with aolog.Reader("/log", storage=storage) as reader:
            found = list(reader.values())
            assert reader.gaps == [], nth
        assert len(found) == len(set(found)), nth
        assert [value for value in found if value in synced] == synced, nth
    assert refused > 5


OPENED: dict[str, Callable[[Storage], aolog.Writer | aolog.Reader]] = {
    "writer": lambda storage: aolog.Writer("/log", storage=storage, **NEVER),
    "reader": lambda storage: aolog.Reader("/log", cursor="c", storage=storage),
}


@pytest.mark.parametrize("what", OPENED)
def test_an_error_that_a_handler_raises_at_any_line_of_an_opening_comes_out(
    tracer: Tracer, what: str
) -> None:
    """It is not taken for an unreadable cursor or slab. The next opening recovers the log."""
    system = SimulatedSystem()
    with aolog.Writer("/log", storage=Storage(system), **NEVER) as writer:
        writer.append(b"a")
    writer = aolog.Writer("/log", storage=Storage(system), **NEVER)
    writer.append(b"b")
    writer.flush()
    with aolog.Reader("/log", cursor="c", storage=Storage(system)) as reader:
        reader.read()
        reader.commit()
    killed = system.kill()
    nth, raised = 0, True
    while raised:
        nth += 1
        storage, opened = Storage(killed.snapshot()), None
        tracer.begin(nth, ROOMS, FROM_A_HANDLER["full"])
        with suppress(aolog.StorageFull):
            opened = OPENED[what](storage)
        raised = tracer.end()
        assert raised is (opened is None), nth
        if opened is not None:
            opened.close()
        aolog.Writer("/log", storage=storage).close()
        assert values("/log", storage=storage) == [b"a", b"b"], nth
    assert nth > 100


@pytest.mark.parametrize("where", ["pwritev", "fdatasync"])
def test_an_error_of_another_log_that_a_signal_handler_raises_makes_the_writer_failed(
    tmp_path: Path, where: str
) -> None:
    other = aolog.Writer(tmp_path / "other")
    other.close()
    armed = False

    def before(call: Call) -> None:
        if armed and call.name == where:
            signal.raise_signal(signal.SIGALRM)

    system = SimulatedSystem(before=before)
    writer = aolog.Writer("/log", storage=Storage(system), **NEVER)
    writer.append(b"a")
    previous = signal.signal(signal.SIGALRM, lambda *_: other.append(b"x"))
    armed = True
    with pytest.raises(aolog.LogClosed):
        writer.sync()
    armed = False
    signal.signal(signal.SIGALRM, previous)
    for call in (*CALLS.values(), aolog.Writer.close):
        with pytest.raises(aolog.CallInterrupted, match=r"LogClosed.*open the log again"):
            call(writer)
    aolog.Writer("/log", storage=Storage(system)).close()
    assert values("/log", storage=Storage(system)) == [b"a"] * (where == "fdatasync")


# --- a signal handler, or a finalizer, in the middle of a call ------------------------------------


def nested_at(n: int, writer: aolog.Writer, call: Callable[[], object]) -> str:
    """What became of a call within another one, at the n-th place where a handler may run."""
    outcome = "never"

    def handle() -> None:
        nonlocal outcome
        outcome = "carried out"
        try:
            call()
        except aolog.UsageError as error:
            outcome = "refused" if "within another call" in error.reason else "failed"

    left = n

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in {"call", "c_return"} and frame.f_code.co_filename.startswith(PACKAGE):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                handle()

    def work() -> None:  # in a thread of its own: one that waits for itself is a failure
        sys.setprofile(count)
        try:
            with suppress(aolog.LogClosed):  # by the handler, before the call began
                writer.append(b"outer", key=b"k")
                writer.sync()
        finally:
            sys.setprofile(None)

    in_thread(work).result()
    return outcome


@pytest.mark.parametrize("how", [*CALLS, "close", "give up"])
def test_a_call_within_another_is_carried_out_or_refused_and_never_waits_for_itself(
    tmp_path: Path, how: str
) -> None:
    outcomes = set()
    for n in range(0, 60, 4):
        log = str(tmp_path / str(n))
        writer = aolog.Writer(log, **NEVER)
        calls = {**CALLS, "close": aolog.Writer.close, "give up": aolog.Writer.give_up}
        outcomes.add(nested_at(n, writer, lambda: calls[how](writer)))  # noqa: B023 -- in this turn
        with suppress(aolog.UsageError):
            writer.close()
        aolog.Writer(log).close()
        assert aolog.verify(log).ok
    assert "refused" in outcomes
    assert "failed" not in outcomes


# --- no thread ------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["aolog-writer", "aolog-sync"])
@pytest.mark.parametrize("how", ["append", "append a value", "append many"])
def test_an_append_that_needs_a_thread_takes_nothing_where_there_is_none(
    log_path: str, monkeypatch: pytest.MonkeyPatch, how: str, missing: str
) -> None:
    with aolog.Writer(log_path) as writer:
        end = writer.end
        with monkeypatch.context() as patched:
            refuse_threads(patched, missing)
            for _ in range(2):
                with pytest.raises(aolog.StorageFailed, match="cannot start the writer's thread"):
                    CALLS[how](writer)
            assert writer.end == end
        CALLS[how](writer)
    assert values(log_path) == [b"x"]
    assert_clean(log_path)


def test_a_writer_that_needs_no_thread_appends_where_there_is_none(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_threads(monkeypatch)
    with aolog.Writer(log_path, flush_seconds=None, sync="flush") as writer:
        assert writer.append(b"a") < writer.flush() == writer.durable
