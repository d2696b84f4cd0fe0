"""Buffer: its four modes, with providers that fail, in one process and in one that is killed."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

import aolog
from aolog.errors import (
    Forked,
    LogClosed,
    LogLocked,
    RecordRefused,
    RecordTooLarge,
    UsageError,
)
from aolog.format.native.inlet import PythonInlet
from aolog.storage.storage import Storage
from aolog.write.writer import Writer
from bridge.client.buffer.aio import AsyncBuffer
from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.file_provider import FileProvider
from bridge.client.buffer.memory_queue import MemoryQueue
from bridge.client.buffer.provider import Message, NotDelivered
from bridge.client.buffer.settings import Mode
from bridge.client.buffer.store_forward import StoreForward
from bridge.testing.providers import FaultyProvider, MemoryProvider
from tests.bridge.providers import Limited
from tests.stalling import StallingSystem
from tests.waiting import Child, in_thread, wait_until

QUICK: dict[str, Any] = {"live_after_s": 0.1, "retry_max_s": 0.05, "close_s": 20.0}


class Destination(FaultyProvider):
    """Memory that can be taken away."""

    retry_wait_s: float

    def __init__(self) -> None:
        self.memory = MemoryProvider()
        super().__init__(self.memory)
        self.retry_wait_s = 0.01

    @property
    def values(self) -> list[bytes | None]:
        return [message.value for message in self.memory.messages]


@pytest.fixture
def destination() -> Destination:
    return Destination()


def numbered(*numbers: Iterable[int]) -> list[bytes]:
    return [b"%d" % n for some in numbers for n in some]


def send(buffer: Buffer, numbers: Iterable[int]) -> None:
    for value in numbered(numbers):
        buffer.send("t", value, b"k")


def test_the_collector_of_cycles_visits_no_plain_message(destination: Destination) -> None:
    """Visiting those that waited took a tenth of the time of sending."""
    with Buffer(destination, mode="block") as buffer:
        buffer.send("t", b"first", b"k", (("a", b"b"),))
        send(buffer, range(3))
    tracked = [gc.is_tracked(message) for message in destination.memory.messages]
    is_compiled = aolog.backend == "compiled" and find_spec("bridge.client._report") is not None
    assert tracked == [True, *[not is_compiled] * 3]


@pytest.mark.parametrize("mode", get_args(Mode))
def test_everything_that_is_sent_is_delivered_once_and_in_order(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    with Buffer(destination, tmp_path / "log", mode=mode, **QUICK) as buffer:
        send(buffer, range(3_000))
        assert buffer.flush(20)
    assert destination.values == numbered(range(3_000))
    assert (tmp_path / "log").exists() == (mode in {"buffer", "always"})


def test_mode_buffer_goes_through_the_log_in_an_outage_and_back_to_live(
    destination: Destination, tmp_path: Path
) -> None:
    with Buffer(destination, tmp_path / "log", mode="buffer", **QUICK) as buffer:
        send(buffer, range(100))
        assert buffer.flush(20)
        assert buffer.status().state == "live"
        destination.down = True
        send(buffer, range(100, 300))
        wait_until(lambda: buffer.status().state == "buffering")
        send(buffer, range(300, 400))
        assert buffer.flush(20), "what is in the log is safe"
        status = buffer.status()
        assert (status.in_memory, status.in_backlog) == (0, 300)
        assert status.error is not None
        destination.down = False
        wait_until(lambda: buffer.status().state == "live")
        assert buffer.status().error is None
        send(buffer, range(400, 500))
    assert destination.values == numbered(range(500))


def test_a_disk_that_stalls_holds_up_no_send(destination: Destination, tmp_path: Path) -> None:
    """Each time the log is found empty, its cursor follows; only who delivers waits for that."""

    def send_slowly() -> None:
        for n in range(10, 20):
            send(buffer, [n])
            time.sleep(0.02)  # so that the one before was delivered, or is held up

    disk = StallingSystem()
    log = tmp_path / "log"
    with Buffer(destination, log, mode="always", storage=Storage(disk), **QUICK) as buffer:
        send(buffer, range(10))
        wait_until(lambda: len(destination.values) == 10)
        with disk.stalled():
            in_thread(send_slowly).result(30)
    assert destination.values == numbered(range(20))


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_mode_block_waits_and_delivers_all(destination: Destination) -> None:
    with Buffer(destination, mode="block", memory_messages=10, **QUICK) as buffer:
        destination.down = True
        sending = in_thread(lambda: send(buffer, range(50)))
        wait_until(lambda: buffer.status().state == "blocked")
        assert sending.waits(0)
        assert destination.values == []
        destination.down = False
        sending.result(20)
    assert destination.values == numbered(range(50))


def test_mode_error_gives_back_what_was_not_delivered_and_goes_on(
    destination: Destination,
) -> None:
    with Buffer(destination, mode="error", **QUICK) as buffer:
        send(buffer, range(10))
        assert buffer.flush(20)
        destination.down = True
        buffer.send("t", b"10", b"k")
        with pytest.raises(NotDelivered) as caught:
            buffer.flush(20)
        assert [message.value for message in caught.value.undelivered] == [b"10"]
        assert caught.value.code == "not_delivered"
        destination.down = False
        wait_until(lambda: _sends(buffer, b"11"))
    assert destination.values == numbered(range(10), [11])


def _sends(buffer: Buffer, value: bytes) -> bool:
    """Whether a message is accepted and delivered."""
    try:
        buffer.send("t", value, b"k")
        return buffer.flush(20)
    except NotDelivered:
        return False


@pytest.mark.parametrize("mode", ["block", "error"])
def test_closing_without_a_log_gives_back_what_is_left(
    destination: Destination, mode: Mode
) -> None:
    buffer = Buffer(destination, mode=mode, retry_max_s=0.05, close_s=0.1)
    destination.down = True
    buffer.send("t", b"1")
    with pytest.raises(NotDelivered) as caught:
        buffer.close()
    assert [message.value for message in caught.value.undelivered] == [b"1"]
    buffer.close()


def test_closing_with_a_log_keeps_what_is_left_and_the_next_delivers_it_first(
    destination: Destination, tmp_path: Path
) -> None:
    destination.down = True
    with Buffer(destination, tmp_path / "log", **QUICK) as buffer:
        send(buffer, range(5))
        wait_until(lambda: buffer.status().error is not None)
    destination.down = False
    with Buffer(destination, tmp_path / "log", **QUICK) as buffer:
        send(buffer, range(5, 10))
    assert destination.values == numbered(range(10))


def test_closing_tries_once_more_whatever_failed_before(
    destination: Destination, tmp_path: Path
) -> None:
    """A close just after an outage once delivered nothing of what it could have."""
    destination.down, destination.retry_wait_s = True, 60.0
    options = {**QUICK, "retry_max_s": 60.0, "close_s": 100.0}
    buffer = Buffer(destination, tmp_path / "log", **options)
    send(buffer, range(5))
    wait_until(lambda: buffer.status().error is not None)
    destination.down = False
    buffer.close()
    assert destination.values == numbered(range(5))


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_message_wakes_a_buffer_that_is_idle(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    """In mode always a message may come while the sending thread decides to rest."""
    with Buffer(destination, tmp_path / "log", mode=mode, **QUICK) as buffer:
        for i in range(300):
            send(buffer, [i])
            wait_until(lambda: buffer.status().delivered == i + 1)  # noqa: B023 -- called at once
        assert buffer.status().in_backlog == 0


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_message_that_is_rejected_comes_back_and_holds_up_nothing(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    destination.reject = lambda message: message.value == b"2"
    buffer = Buffer(destination, tmp_path / "log", mode=mode, **QUICK)
    send(buffer, range(5))
    with pytest.raises(NotDelivered) as caught:
        wait_until(lambda: buffer.status().rejected == 1)
        buffer.flush(20)
    assert [message.value for message in caught.value.undelivered] == [b"2"]
    assert buffer.flush(20)
    assert buffer.status().error is None, "the destination has not failed"
    send(buffer, range(5, 8))  # in mode block such a send waited for ever
    buffer.close()
    assert destination.values == numbered([0, 1, 3, 4, 5, 6, 7])


def test_a_provider_that_raises_anything_is_tried_again(tmp_path: Path) -> None:
    class Odd(MemoryProvider):
        def __init__(self) -> None:
            super().__init__()
            self.left = 3

        def send(self, message: Message) -> None:
            self.left -= 1
            if self.left >= 0:
                raise ZeroDivisionError
            super().send(message)

        def close(self) -> None:
            raise OSError("closing fails too")

    odd = Odd()
    with Buffer(odd, tmp_path / "log", **QUICK) as buffer:
        buffer.send("t", b"1")
        wait_until(lambda: len(odd.messages) == 1)


@pytest.mark.parametrize(
    "parts",
    [{"value": bytes(1_000)}, {"value": None, "key": bytes(1_000)},
     {"value": b"", "headers": (("h", bytes(500)), ("i", None), ("h", bytes(500)))}],
    ids=["value", "key", "headers"],
)  # fmt: skip  # the parts of a message
def test_the_bound_of_memory_counts_all_bytes_of_a_message(parts: dict[str, Any]) -> None:
    """Those of headers did not count."""
    held = Held()
    with Buffer(held, mode="error", memory_bytes=100_000) as buffer:
        with pytest.raises(NotDelivered, match="does not keep up"):
            for _ in range(1_000):
                buffer.send("t", **parts)
        assert buffer.status().in_memory == 77  # 1,300 bytes each
        held.let_go.set()


def test_many_threads_keep_their_own_order(destination: Destination, tmp_path: Path) -> None:
    def work(name: int) -> None:
        for number in range(300):
            buffer.send("t", b"%d" % number, b"%d" % name)

    with Buffer(destination, tmp_path / "log", memory_messages=50, **QUICK) as buffer:
        threads = [in_thread(lambda name=name: work(name)) for name in range(4)]
        for down in (True, False, True, False):
            destination.down = down
            time.sleep(0.02)
        for thread in threads:
            thread.result()
    for name in range(4):
        values = [m.value for m in destination.memory.messages if m.key == b"%d" % name]
        assert list(dict.fromkeys(values)) == numbered(range(300))


@pytest.mark.parametrize("mode", ["buffer", "always"])
def test_where_the_log_is_full_and_blocks_only_send_waits(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    """The writer once waited for room under the lock that making room needs."""
    from aolog import Retention

    destination.down = True
    buffer = Buffer(
        destination, tmp_path / "log", mode=mode, commit_s=0.01, memory_messages=20,
        retention=Retention(max_bytes=200_000, when_full="block"), **QUICK,
    )  # fmt: skip  # the settings in few lines
    sent: list[int] = []

    def work() -> None:
        for number in range(300):
            buffer.send("t", b"%d" % number + bytes(5_000))
            sent.append(number)

    sending = in_thread(work)
    before = -1

    def stands() -> bool:
        nonlocal before
        before, now = len(sent), before
        time.sleep(0.3)  # whether it stands is asked, not how long it takes
        return 0 < before == now

    wait_until(stands)
    assert len(sent) < 100
    assert buffer.status().lost == 0
    destination.down = False
    sending.result()
    buffer.close()
    numbers = [int(m.value.rstrip(b"\0")) for m in destination.memory.messages if m.value]
    assert list(dict.fromkeys(numbers)) == list(range(300))
    assert buffer.status().lost == 0


# --- the end -------------------------------------------------------------------------------------


class Held(Destination):
    """Does not answer until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = threading.Event(), threading.Event()
        self.closings = 0

    def flush(self) -> Iterable[int]:
        self.asked.set()
        self.let_go.wait(60)
        return super().flush()

    def close(self) -> None:
        self.closings += 1
        super().close()


def test_an_interrupted_send_fails_the_buffer_and_the_next_one_delivers_what_it_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    buffer = Buffer(held, tmp_path / "log", mode="always", **{**QUICK, "close_s": 0.01})
    send(buffer, range(10))
    held.asked.wait(60)
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "append", PythonInlet.append)  # the compiled one takes it at once
        patched.setattr(Writer, "_put", interrupt)
        with pytest.raises(KeyboardInterrupt):
            buffer.send("t", b"10", headers=[("h", b"")])  # a plain message joins in one call
    calls: list[Callable[[], object]] = [lambda: send(buffer, [11]), buffer.flush]
    for call in calls:
        with pytest.raises(UsageError, match="the buffer failed: KeyboardInterrupt"):
            call()
    assert buffer.status().error == "failed: KeyboardInterrupt()"
    held.down = True
    held.let_go.set()
    buffer.close()
    destination = Destination()
    with Buffer(destination, tmp_path / "log", **QUICK):
        pass
    assert list(dict.fromkeys(destination.values)) == numbered(range(10))  # some twice


@pytest.mark.parametrize("call", ["send", "flush", "close"])
def test_a_call_that_a_signal_handler_makes_in_the_middle_of_a_send_is_refused(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A close waited for the thread that waited for the lock of that send, for ever."""
    buffer = Buffer(destination, tmp_path / "log", **QUICK)
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: buffer.send("t", b"nested"),
        "flush": buffer.flush,
        "close": buffer.close,
    }

    def handle(*_: object) -> None:
        calls[call]()

    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(MemoryQueue, "append", interrupted)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(UsageError, match="within another call of the same buffer"):
            buffer.send("t", b"refused")
        send(buffer, range(5))
        signal.raise_signal(signal.SIGUSR1)  # outside it is carried out
    finally:
        signal.signal(signal.SIGUSR1, before)
    buffer.close()
    assert destination.values == numbered(range(5)) + [b"nested"] * (call == "send")


@pytest.mark.parametrize("call", ["send", "flush", "close"])
def test_a_call_of_the_provider_that_would_wait_for_itself_is_refused(call: str) -> None:
    """It waited for ever, and the next `close` for it."""

    class Calling(MemoryProvider):
        def send(self, message: Message) -> None:
            if not self.messages:
                self.messages += [message] * 2
                calls[call]()

    provider = Calling()
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: [buffer.send("t", b"%d" % n) for n in range(9)],
        "flush": lambda: buffer.flush(),
        "close": lambda: buffer.close(),
    }
    with Buffer(provider, mode="block", memory_messages=5, retry_max_s=60.0) as buffer:
        buffer.send("t", b"first")
        wait_until(lambda: buffer.status().error is not None)
        assert "the provider's call would wait for itself" in str(buffer.status().error)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_send_that_a_close_overtakes_is_refused(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """It was accepted, and neither delivered nor given back."""
    buffer = Buffer(destination, tmp_path / "log", mode=mode, **QUICK)
    offer = StoreForward.offer

    def overtaken(core: StoreForward, message: Message) -> bool:
        buffer.close()
        return offer(core, message)

    monkeypatch.setattr(StoreForward, "offer", overtaken)
    with pytest.raises(LogClosed):
        buffer.send("t", b"1")
    assert buffer.status().in_memory == 0


def test_status_reports_a_destination_that_does_not_answer_before_anything_fails(
    tmp_path: Path,
) -> None:
    held = Held()
    with Buffer(held, tmp_path / "log", **QUICK) as buffer:
        assert buffer.status().error is None
        buffer.send("t", b"1")
        wait_until(lambda: buffer.status().error is not None)
        status = buffer.status()
        assert (status.state, status.in_memory) == ("live", 1)
        assert str(status.error).startswith("no answer for ")
        held.let_go.set()
        assert buffer.flush(60)
        assert buffer.status().error is None


class Hanging(MemoryProvider):
    """Its calls do not return until they are released. error: of the call before, if any."""

    retry_wait_s = 0.01

    def __init__(self, *, fails_first: bool) -> None:
        super().__init__()
        self.fails_first = fails_first
        self.entered, self.released = threading.Event(), threading.Event()
        self.closed = threading.Event()

    def open(self) -> None:
        if self.fails_first:
            self.fails_first = False
            raise ConnectionError("refused")
        self.entered.set()
        assert self.released.wait(60)

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize(("fails", "close_s", "most_s"), [(True, 60.0, 20.0), (False, 0.5, 20.0)])
def test_a_close_does_not_wait_for_a_call_of_the_provider_where_the_log_keeps_what_is_left(
    tmp_path: Path, fails: bool, close_s: float, most_s: float
) -> None:
    """A second for a destination that fails; else `close_s`. Nothing is lost, and the thread ends
    with the call."""
    provider, path = Hanging(fails_first=fails), tmp_path / "log"
    buffer = Buffer(provider, path, **{**QUICK, "mode": "always", "close_s": close_s})
    send(buffer, range(100))
    assert buffer.flush(20)
    assert provider.entered.wait(20)
    provider.closed.clear()  # by the call that failed
    begun_s = time.monotonic()
    buffer.close()
    assert time.monotonic() - begun_s < most_s
    assert not provider.closed.is_set(), "its call is under way"
    provider.released.set()
    assert provider.closed.wait(20)
    again = MemoryProvider()
    with Buffer(again, path, **{**QUICK, "mode": "always"}):
        pass
    assert [message.value for message in again.messages] == numbered(range(100))


@pytest.mark.parametrize("close_s", [20.0, 0.0])
def test_a_buffer_that_is_closed_in_the_middle_of_its_log_repeats_nothing(
    tmp_path: Path, close_s: float
) -> None:
    """All since the last commit was, and the whole of a batch of which a part was delivered."""

    limited = Limited(0)
    large = [b"%d" % number + bytes(100_000) for number in range(10)]  # few of them a batch
    options = {**QUICK, "mode": "always", "commit_s": 3600.0, "close_s": close_s}
    with Buffer(limited, tmp_path / "log", **options) as buffer:
        for value in large:
            buffer.send("t", value, b"k")
        assert buffer.flush(20)
        limited.most = 7
        wait_until(lambda: len(limited.messages) == 7)
    limited.most = 10
    with Buffer(limited, tmp_path / "log", **{**options, "close_s": 20.0}) as buffer:
        assert buffer.status().in_backlog <= 3
    assert [message.value for message in limited.messages] == large


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_buffer_is_not_copied_and_the_error_says_what_to_do(
    destination: Destination, tmp_path: Path, way: Callable[[object], object]
) -> None:
    with Buffer(destination, tmp_path / "log", **QUICK) as buffer:
        for held in (buffer, AsyncBuffer(destination)):
            with pytest.raises(TypeError, match="make a Buffer where it is used"):
                way(held)
        send(buffer, range(3))
    assert destination.values == numbered(range(3))


def test_a_forked_child_is_refused_and_closes_nothing_of_its_parents() -> None:
    """Also where a thread of the parent's held the lock at the fork."""
    held = Held()
    held.let_go.set()
    with Buffer(held, mode="block", **QUICK) as buffer:
        send(buffer, range(3))
        assert buffer.flush(20)
        with buffer._core.changed:
            child = os.fork()
            if not child:
                signal.alarm(30)
                try:
                    buffer.send("t", b"")
                except Forked:
                    buffer.close()
                    os._exit(7 + held.closings)
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("mode", ["buffer", "always"])
def test_a_message_too_large_for_the_log_is_refused_at_once(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    """Accepted while live, it once stood before everything when live had ended."""
    options = {**QUICK, "memory_bytes": 1 << 30}
    with Buffer(destination, tmp_path / "log", mode=mode, **options) as buffer:
        with pytest.raises(RecordTooLarge):
            buffer.send("t", bytes(64 << 20))
        destination.down = True
        send(buffer, range(5))
        assert buffer.flush(20)
        destination.down = False
        wait_until(lambda: len(destination.values) == 5)
    assert destination.values == numbered(range(5))


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sometimes"},
        {"mode": "buffer"},
        {"mode": "always"},
        {"mode": "block", "memory_messages": 0},
        {"mode": "block", "live_age_s": -1.0},
        {"path": "log", "mode": "always", "retention": 10**9},
        {"mode": "always", "path": ""},
    ],
)
def test_wrong_options_are_refused_before_anything_is_made(
    destination: Destination, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError) as caught:
        Buffer(destination, **options)
    assert next(reversed(options)) in str(caught.value)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_an_error_of_arguments_names_the_call_that_the_program_made(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    with Buffer(destination, tmp_path / "log", mode=mode, **QUICK) as buffer:
        for given, named in [
            (("t",), {}),
            (("t", b"v"), {"another": 1}),
            (("t", b"v", b"k"), {"key": b"k"}),
        ]:
            with pytest.raises(TypeError, match=r"^Buffer\.send\(\) "):
                buffer.send(*given, **named)


@pytest.mark.parametrize("mode", ["block", "always"])
def test_an_invalid_message_is_refused(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    with Buffer(destination, tmp_path / "log", mode=mode, **QUICK) as buffer:
        wrong: list[tuple[Any, ...]] = [
            ("t", "text"), ("", b""), (None, b""), (7, b""), ("t", b"", "key"),
            ("t", b"", None, [("h", 1)]), ("t", b"", None, 5),
        ]  # fmt: skip  # a table
        for arguments in wrong:
            with pytest.raises(RecordRefused):
                buffer.send(*arguments)
    assert destination.values == []
    with pytest.raises(LogClosed):
        buffer.send("t", b"")


def test_a_second_buffer_on_the_log_is_refused(destination: Destination, tmp_path: Path) -> None:
    with Buffer(destination, tmp_path / "log", **QUICK), pytest.raises(LogLocked):
        Buffer(destination, tmp_path / "log", **QUICK)


# --- the file's provider -------------------------------------------------------------------------


def test_a_line_that_a_write_cut_off_is_ended_before_the_next_message(tmp_path: Path) -> None:
    """They were one line, which nothing can read."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"topic')
    for value in (b"0", b"1"):
        with Buffer(FileProvider(path), mode="block", **QUICK) as buffer:
            buffer.send("t", value)
    cut, *rest = path.read_text().splitlines()
    assert (cut, [json.loads(line)["value"] for line in rest]) == ('{"topic', ["0", "1"])


# --- killed --------------------------------------------------------------------------------------

PROGRAM = """
import sys
from bridge.client.buffer.backlog import Backlog
from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.file_provider import FileProvider
from bridge.testing.providers import FaultyProvider
mode, log, out, down = sys.argv[1:]
provider = FaultyProvider(FileProvider(out))
provider.retry_wait_s = 0.01
with Buffer(provider, log, mode=mode, retry_max_s=0.05, memory_messages=10**9,
            memory_bytes=10**9, live_age_s=10**9) as buffer:
    for number in range(10**9):
        if down == "True" and number == 2000:
            provider.down = True
        buffer.send("t", b"%d" % number, b"k")
        if number % 100 == 99 and buffer.flush(30 if mode != "block" else 1):
            print(number, flush=True)
"""


def run_until_killed(mode: str, tmp_path: Path, *, down: bool) -> int:
    """The last number that a flush covered, as the program printed it."""
    until = 4_999 if not down or mode in {"buffer", "always"} else 1_899
    with Child(PROGRAM, mode, str(tmp_path / "log"), str(tmp_path / "out"), str(down)) as child:
        while (acknowledged := child.line()) and int(acknowledged) < until:
            pass
        return int([acknowledged, *child.kill()][-1])


@pytest.mark.parametrize(
    ("mode", "down"),
    [("block", False), ("error", True), ("buffer", False), ("buffer", True), ("always", True)],
)
def test_what_a_flush_covered_survives_a_kill(tmp_path: Path, mode: Mode, *, down: bool) -> None:
    """In every mode: delivered, or in the log from where the next program delivers it."""
    acknowledged = run_until_killed(mode, tmp_path, down=down)
    assert acknowledged >= 1_899
    if mode in {"buffer", "always"}:
        with Buffer(FileProvider(tmp_path / "out"), tmp_path / "log", close_s=60.0) as buffer:
            assert buffer.status().error is None
    lines = (tmp_path / "out").read_text().splitlines()
    numbers = [int(json.loads(line)["value"]) for line in lines if line.endswith("}")]
    firsts = list(dict.fromkeys(numbers))
    assert firsts == list(range(len(firsts)))
    assert len(firsts) > acknowledged
