"""An exception at any line of a call of a Buffer loses no message that it accepted: a signal handler's, or a
MemoryError in the sending thread."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, get_args

import pytest

from aolog.errors import UsageError
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from bridge.client.buffer.backlog import Backlog
from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.provider import Message, NotDelivered
from bridge.client.buffer.settings import Mode, Settings
from bridge.client.buffer.store_forward import Abandoned, StoreForward
from bridge.testing.providers import FaultyProvider, MemoryProvider
from tests.aolog.conftest import Interrupted, Tracer, tracer  # noqa: F401 -- a fixture
from tests.waiting import wait_until

ROOMS = ["../bridge/client/buffer"]


class Partial(MemoryProvider):
    """Its first flush calls something, and then delivers each second message."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = meanwhile
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def flush(self) -> Iterable[int]:
        sent, self.sent = self.sent, []
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            self.messages += sent[::2]
            return range(1, len(sent), 2)
        self.messages += sent
        return ()

    def close(self) -> None:
        self.sent = []


@pytest.mark.parametrize("mode", ["block", "error", "buffer"])
@pytest.mark.parametrize("where", ["offer", "turn", "store_rest"])
def test_what_was_accepted_is_delivered_or_left_whatever_line_an_exception_ends(
    tracer: Tracer,  # noqa: F811 -- the fixture
    where: str,
    mode: Mode,
) -> None:
    class Run:
        """One program, interrupted at the nth line of a call, and the next one."""

        def __init__(self, nth: int) -> None:
            self.nth, self.raised = nth, False
            self.system = SimulatedSystem()
            self.accepted: list[bytes] = []
            self.given_back: list[Message] = []
            self.provider = Partial(lambda: self.call("offer", lambda: self.offer(9)))
            self.begin()
            self.offer(5)
            self.call("turn", self.core.turn)
            with self.core.lock:
                self.call("store_rest", self.core.store_rest)
                self.core.store_rest()
                self.given_back += self.core.left()
            self.end()
            self.provider.meanwhile = None
            self.begin()
            for _ in range(9):
                self.core.turn()
            self.end()

        def begin(self) -> None:
            self.backlog = (
                Backlog("/log", storage=Storage(self.system)) if mode == "buffer" else None
            )
            self.core = StoreForward(
                self.provider,
                self.backlog,
                Settings(mode, memory_messages=6),
                lambda *_: None,
                clock=lambda: 0.0,
            )

        def end(self) -> None:
            if self.backlog is not None:
                self.backlog.close()

        def offer(self, count: int) -> None:
            for _ in range(count):
                value = b"%d" % len(self.accepted)
                if self.core.offer(Message("t", value, value)):
                    self.accepted.append(value)

        def call(self, name: str, call: Callable[[], object]) -> None:
            if where == name:
                tracer.begin(self.nth, ROOMS, Interrupted)
            try:
                call()
            except (Interrupted, Abandoned) as error:
                if name == "turn":
                    self.core.fail(error)  # as the sending thread does
            finally:
                if where == name:
                    self.raised = tracer.end()

    nth, run = 0, None
    while run is None or run.raised:
        nth += 1
        run = Run(nth)
        found = [message.value for message in run.provider.messages + run.given_back]
        assert set(run.accepted) <= set(found), nth
    assert nth > 2


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # in the sending thread
@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_close_that_was_interrupted_at_any_line_goes_on_when_it_is_called_again(
    tracer: Tracer,  # noqa: F811 -- the fixture
    mode: Mode,
) -> None:
    nth, raised = 0, True
    while raised:
        nth += 1
        memory = MemoryProvider()
        provider = FaultyProvider(memory, reject=lambda message: message.value == b"0")
        storage = Storage(SimulatedSystem())
        options: dict[str, Any] = {"mode": mode, "retry_max_s": 0.05, "storage": storage}
        buffer = Buffer(provider, "/log", close_s=0.01, **options)
        buffer.send("t", b"0")
        wait_until(lambda buffer=buffer: buffer.status().rejected)
        provider.down = True
        with suppress(NotDelivered):
            buffer.send("t", b"not accepted")
        given_back = [b"0"]
        for value in (b"1", b"2", b"3"):
            buffer.send("t", value)
        tracer.begin(nth, ROOMS, Interrupted)
        try:
            buffer.close()
        except NotDelivered as error:
            given_back += [message.value for message in error.undelivered]
        except Interrupted as error:
            if isinstance(error.__context__, NotDelivered):
                given_back += [message.value for message in error.__context__.undelivered]
        raised = tracer.end()
        try:
            buffer.close()
        except NotDelivered as error:
            given_back += [message.value for message in error.undelivered]
        buffer.close()
        provider.down, provider.reject = False, None
        if mode in {"buffer", "always"}:
            Buffer(provider, "/log", **options).close()
        found = [message.value for message in memory.messages] + given_back
        assert set(found) == {b"0", b"1", b"2", b"3"}, nth
    assert nth > 20


class Alarm(BaseException):
    """What a signal handler raises."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
def test_after_signals_that_raise_at_any_time_a_buffer_is_closed_and_everything_is_accounted_for() -> (
    None
):
    """One that came while the lock was taken or released left it locked: nothing was delivered, and `close`
    refused."""
    is_armed = False

    def handle(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise Alarm

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
        for seed in range(20):
            memory, accepted, given_back = MemoryProvider(), list[bytes | None](), list[Message]()
            buffer = Buffer(memory, mode="block", memory_messages=20)
            for number in range(200):
                value = b"%d" % number
                try:
                    is_armed = True
                    buffer.send("t", bytearray(value))  # not plain: it takes the lock
                    is_armed = False
                    accepted.append(value)
                except UsageError:
                    is_armed = False
                    assert buffer.status().error == "failed: Alarm()"
                    break
                except (Alarm, RuntimeError):
                    pass
            while True:
                try:
                    is_armed = True
                    buffer.close()
                    break
                except NotDelivered as error:
                    is_armed = False
                    given_back += error.undelivered
                    break
                except Alarm:
                    pass
            is_armed = False
            found = {message.value for message in memory.messages + given_back}
            assert found >= set(accepted), seed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupt_while_a_message_wakes_the_sending_thread_delays_no_later_message(
    tracer: Tracer,  # noqa: F811 -- the fixture
) -> None:
    """They waited for up to an hour."""
    nth, raised = 0, True
    while raised:
        nth += 1
        memory = MemoryProvider()
        with Buffer(memory, mode="block") as buffer:
            buffer.send("t", b"0")
            wait_until(lambda memory=memory: memory.messages)
            time.sleep(0.05)  # the sending thread rests
            tracer.begin(nth, ROOMS, Interrupted)
            with suppress(Interrupted):
                buffer.send("t", b"1")
            raised = tracer.end()
            if buffer.status().error is None:
                buffer.send("t", b"2")
                wait_until(lambda memory=memory: memory.messages[-1].value == b"2", 10)
