"""Store and forward against a model: whatever the destination, the disk and kills do, nothing that
was accepted and had to be kept is missing, and each key's messages arrive in order."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aolog import Reader, Retention
from aolog.errors import StorageFull
from aolog.format.native.inlet import PythonInlet
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from aolog.write.writer import Writer
from bridge.client.buffer.backlog import Backlog
from bridge.client.buffer.provider import Message, NotDelivered
from bridge.client.buffer.settings import Mode, Settings
from bridge.client.buffer.store_forward import StoreForward
from bridge.testing.providers import FaultyProvider, MemoryProvider
from tests.bridge.providers import Limited

LIVE_AGE_S = 5.0
LIVE_AFTER_S = 3.0


class Interrupted(FaultyProvider):
    """A faulty provider; while it flushes, something else may happen."""

    def __init__(self, inner: MemoryProvider, seed: int) -> None:
        super().__init__(inner, seed=seed)
        self.meanwhile: list[Message] = []
        self.takes_s = LIVE_AGE_S + 1  # long enough to count as not keeping up
        self.core: StoreForward | None = None
        self.machine: Sending | None = None

    def flush(self) -> Iterable[int]:
        meanwhile, self.meanwhile = self.meanwhile, []
        if meanwhile and self.machine is not None:
            self.machine.now_s += self.takes_s
            for message in meanwhile:
                self.machine.offer(message)
        return super().flush()


class Sending(RuleBasedStateMachine):
    """One program after another on the same log; the last one drains it."""

    MODES: ClassVar[list[Mode]] = ["buffer", "always", "block", "error"]

    @initialize(seed=st.integers(0, 10**6), mode=st.sampled_from(MODES), rejects=st.booleans())
    def begin(self, seed: int, mode: Mode, rejects: bool = False) -> None:
        self.mode = mode
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.system = SimulatedSystem(seed=seed)
        self.destination = MemoryProvider()
        self.provider = Interrupted(self.destination, seed)
        if rejects:
            self.provider.reject = lambda message: int(message.value or b"") % 5 == 0
        self.set_aside: list[int] = []
        self.aside_is_full = self.was_killed = False
        self.sent: dict[bytes, list[int]] = {}
        self.must_arrive: set[int] = set()
        self.may_be_lost: set[int] = set()
        self.number = 0
        self.answers_all_arrived = True
        self.given_back: set[int] = set()
        self.start()

    def start(self) -> None:
        self.provider.close()
        self.provider.machine = self
        self.backlog = None
        if self.mode in {"buffer", "always"}:
            self.backlog = Backlog("/log", storage=Storage(self.system))
        self.core = StoreForward(
            self.provider,
            self.backlog,
            Settings(
                self.mode,
                memory_messages=20,
                live_age_s=LIVE_AGE_S,
                live_after_s=LIVE_AFTER_S,
                batch_messages=6,
                commit_s=2.0,
                retry_max_s=4.0,
            ),
            self.rejected,
            clock=lambda: self.now_s,
            entropy=self.random,
        )

    def rejected(self, message: Message, why: str) -> None:
        assert "by the plan" in why
        if self.aside_is_full:
            raise StorageFull("no room for what is rejected", path="/aside")
        self.set_aside.append(int(message.value or b""))

    def new(self) -> Message:
        self.number += 1
        return Message("t", b"%d" % self.number, b"k%d" % self.random.randrange(3))

    def offer(self, message: Message) -> None:
        message = message._replace(timestamp_us=int(self.now_s * 1e6))
        number = int(message.value or b"")
        try:
            if not self.core.offer(message):
                return
        except StorageFull:
            return
        except NotDelivered as error:
            for given_back in error.undelivered:
                self.may_be_lost.add(int(given_back.value or b""))
                self.must_arrive.discard(int(given_back.value or b""))
            return
        self.sent.setdefault(message.key or b"", []).append(number)
        self.must_arrive.add(number)

    def arrived(self) -> set[int]:
        return {int(message.value or b"") for message in self.destination.messages}

    # --- what happens

    @rule(count=st.integers(1, 30))
    def send(self, count: int) -> None:
        for _ in range(count):
            self.offer(self.new())

    @rule(count=st.integers(1, 8), meanwhile=st.integers(0, 30))
    def turn(self, count: int, meanwhile: int) -> None:
        self.provider.meanwhile = [self.new() for _ in range(meanwhile)]
        for _ in range(count):
            wait_s = self.core.turn()
            self.now_s += min(wait_s, self.random.choice([0.0, 1.0, LIVE_AFTER_S]))

    @rule(seconds=st.sampled_from([0.1, 1.0, LIVE_AFTER_S, LIVE_AGE_S + 1]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(
        down=st.sampled_from([False, False, True]),
        error_rate=st.sampled_from([0.0, 0.2]),
        lost_answers=st.sampled_from([0.0, 0.0, 0.3]),
    )
    def change_the_weather(self, *, down: bool, error_rate: float, lost_answers: float) -> None:
        self.answers_all_arrived &= not down and not lost_answers
        self.provider.down = down
        self.provider.error_rate = error_rate
        self.provider.lost_answers = lost_answers

    @rule(full=st.booleans())
    def fill_the_disk(self, *, full: bool) -> None:
        self.system.capacity = 8192 if full else None

    @rule(full=st.booleans())
    def fill_the_place_of_what_is_rejected(self, *, full: bool) -> None:
        self.aside_is_full = full

    @precondition(lambda self: self.backlog is not None)
    @rule()
    def flush(self) -> None:
        """What is in the backlog survives a kill from now on."""
        assert self.backlog is not None
        try:
            self.backlog.flush()
        except StorageFull:
            return

    @rule()
    def kill(self) -> None:
        """Only what was delivered, or flushed to the backlog, has to arrive."""
        self.answers_all_arrived = False
        self.was_killed = True
        self.system = self.system.kill()
        self.system.capacity = None
        kept = self.arrived() | set(self.set_aside)
        if self.backlog is not None:
            kept |= {int(value) for value in values_in_log(self.system)}
        self.may_be_lost |= self.must_arrive - kept
        self.must_arrive &= kept
        self.start()

    @rule()
    def close(self) -> None:
        """What the log does not keep is given back, and the next program begins with the rest."""
        is_refused = False
        with self.core.changed:
            try:
                self.core.store_rest()
            except StorageFull:  # a Buffer then warns that what was delivered last may be repeated
                is_refused = True
            left = {int(message.value or b"") for message in self.core.left()}
        self.core.sender.close()
        if self.answers_all_arrived:
            self.given_back |= left
        # Of a batch, messages after a failed one were delivered.
        if is_refused or self.core.sender.error is not None:
            self.answers_all_arrived = False
        self.may_be_lost |= left
        self.must_arrive -= left
        if self.backlog is not None:
            self.system.capacity = None  # otherwise the program closes again when there is room
            self.backlog.close()
        self.start()

    def kill_and_look(self) -> None:
        """What another program would deliver if this one were killed now."""
        known = self.system, self.core, self.backlog
        messages, set_aside = list(self.destination.messages), list(self.set_aside)
        self.system = self.system.snapshot()
        self.start()
        for _ in range(100):
            if self.core.all_delivered:
                break
            self.core.turn()
        self.the_last_of_each_key_stands_last()
        self.destination.messages[:], self.set_aside[:] = messages, set_aside
        self.system, self.core, self.backlog = known

    # --- what must hold

    @invariant()
    def each_key_arrives_in_order(self) -> None:
        """First arrivals grow. Nothing is repeated unless an answer was lost."""
        for key, numbers in getattr(self, "sent", {}).items():
            arrived = [int(m.value or b"") for m in self.destination.messages if m.key == key]
            firsts = list(dict.fromkeys(arrived))
            assert firsts == [number for number in numbers if number in set(firsts)]
            assert arrived == firsts or not self.answers_all_arrived

    @invariant()
    def what_is_rejected_is_set_aside_once(self) -> None:
        set_aside = getattr(self, "set_aside", [])
        assert len(set_aside) == len(set(set_aside)) or self.was_killed

    def the_last_of_each_key_stands_last(self) -> None:
        """Once all is delivered: what is repeated is repeated to its end."""
        for key, numbers in self.sent.items():
            arrived = [int(m.value or b"") for m in self.destination.messages if m.key == key]
            known = set(arrived)
            assert arrived[-1:] == [number for number in numbers if number in known][-1:]

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.change_the_weather(down=False, error_rate=0.0, lost_answers=0.0)
        self.system.capacity, self.aside_is_full = None, False
        for _ in range(1000):
            with self.core.changed:
                if self.core.all_delivered:
                    break
            self.now_s += min(self.core.turn(), 60.0)
        else:
            raise AssertionError("it does not end")
        try:
            with self.core.changed:
                self.core.raise_given_back()
        except NotDelivered as error:
            self.must_arrive -= {int(message.value or b"") for message in error.undelivered}
        arrived = self.arrived()
        assert not arrived.intersection(self.set_aside)
        assert arrived.union(self.set_aside) >= self.must_arrive
        assert not arrived & self.given_back
        assert arrived <= {number for numbers in self.sent.values() for number in numbers}
        self.each_key_arrives_in_order()
        if self.backlog is not None:  # else what was to be repeated may have ended in memory
            self.the_last_of_each_key_stands_last()
            self.backlog.close()


def values_in_log(system: SimulatedSystem) -> list[bytes]:
    """All that a new process finds in the log, read without a cursor."""
    with Reader("/log", storage=Storage(system.snapshot())) as reader:
        return [record.value or b"" for record in reader]


def live_again(buffered: int) -> Sending:
    """As live begins after so many messages of the backlog, which is never found empty: with each
    delivery something comes."""
    machine = Sending()
    machine.begin(1, "buffer")
    machine.provider.down = True
    machine.send(buffered)
    machine.turn(1, 0)
    assert machine.core.status().state == "buffering"
    machine.provider.down = False
    machine.provider.takes_s = 1.0
    for _ in range(100):
        if machine.core.status().state == "live":
            break
        assert machine.now_s < 60.0
        machine.provider.meanwhile = [machine.new()]
        machine.now_s += min(max(machine.core.turn(), 0.1), 1.0)
    assert machine.core.status().state == "live"
    machine.provider.meanwhile = []
    return machine


def test_live_begins_again_although_the_program_never_pauses() -> None:
    machine = live_again(30)
    machine.teardown()
    assert len(machine.destination.messages) == len(machine.must_arrive)


def test_a_kill_after_live_began_does_not_repeat_old_messages_after_new_ones() -> None:
    """What live begins with is let go by the backlog before what came later is delivered: else
    only the old would be delivered again, and stand last."""
    machine = live_again(6)
    assert machine.core.status().in_backlog  # read last, and not delivered
    machine.send(9)
    while not machine.core.all_delivered:
        machine.core.turn()
        machine.kill_and_look()
    machine.teardown()


def test_nothing_is_sent_after_a_rejected_message_that_cannot_be_stored() -> None:
    """Each program that ends then would have it sent again."""
    machine = Sending()
    machine.begin(1, "always", rejects=True)
    machine.send(9)
    machine.aside_is_full = True
    for _ in range(3):
        machine.turn(2, 0)
        assert machine.arrived() == {1, 2, 3, 4}
        machine.close()
    machine.aside_is_full = False
    machine.turn(3, 0)
    machine.each_key_arrives_in_order()
    assert len(machine.destination.messages) == 8
    machine.teardown()


def test_a_batch_is_not_delivered_again_if_a_full_disk_took_a_part_of_it_meanwhile() -> None:
    """Live ends on a disk that is full while a batch is under way: its end stays in memory."""
    system, now_s, refused = SimulatedSystem(), 0.0, 0

    class Slow(MemoryProvider):
        def flush(self) -> Iterable[int]:
            nonlocal now_s, refused
            if not refused:
                system.capacity = system.used() + (2 << 20)
                now_s += 10.0
                with pytest.raises(StorageFull):
                    core.offer(Message("t", b"last", b"k", (), int(now_s * 1e6)))
                refused = core.status().in_memory
                system.capacity = None
            return ()

    slow = Slow()
    backlog = Backlog("/log", storage=Storage(system))
    core = StoreForward(
        slow, backlog, Settings(live_after_s=0.0), lambda *_: None, clock=lambda: now_s
    )
    values = [b"%d" % number + bytes(600_000) for number in range(10)]
    for value in values:
        assert core.offer(Message("t", value, b"k"))
    core.turn()
    assert 0 < refused < 10
    assert core.status()[:4] == ("buffering", 0, 0, 10)
    assert core.offer(Message("t", b"next", b"k"))
    for _ in range(10):
        core.turn()
    assert [message.value for message in slow.messages] == [*values, b"next"]
    backlog.close()


@pytest.mark.parametrize("room", [0, 5_000, 20_000, 300_000, 900_000])
@pytest.mark.parametrize("close", [False, True], ids=["recover", "close"])
def test_a_recovery_that_a_full_disk_stopped_goes_on_with_the_rest(
    monkeypatch: pytest.MonkeyPatch, room: int, *, close: bool
) -> None:
    system = SimulatedSystem()
    backlog = Backlog("/log", storage=Storage(system))
    values = [b"%d" % number + bytes(100_000) for number in range(10)]
    for value in values:
        backlog.append(Message("t", value, b"k"))
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "append", PythonInlet.append)  # the compiled one takes it at once
        patched.setattr(Writer, "_put", interrupt)
        with pytest.raises(KeyboardInterrupt):
            backlog.append(Message("t", b"refused", b"k"))
    system.capacity = system.used() + room
    with pytest.raises(StorageFull):
        backlog.recover()
    system.capacity = None
    if not close:
        backlog.recover()
    backlog.close()
    with Reader("/log", storage=Storage(system)) as reader:
        assert list(dict.fromkeys(reader.values())) == values  # some twice


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_messages_delivered_before_retention_removed_them_are_not_counted_as_lost() -> None:
    """It was counted twice, and there were less than no messages in the log."""
    now_s, sent = 0.0, 0

    class Slow(MemoryProvider):
        def flush(self) -> Iterable[int]:
            nonlocal now_s
            if sent == 10:
                now_s += 10.0  # live ends, and so many come that these are removed
                offer(100)
            return ()

    def offer(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            message = Message("t", b"%d" % sent + bytes(5_000), b"k", (), int(now_s * 1e6))
            assert core.offer(message)
            sent += 1

    slow = Slow()
    backlog = Backlog(
        "/log", retention=Retention(max_bytes=200_000), storage=Storage(SimulatedSystem())
    )
    core = StoreForward(
        slow, backlog, Settings(live_after_s=0.0), lambda *_: None, clock=lambda: now_s
    )
    offer(10)
    core.turn()
    assert len(slow.messages) == 10
    for _ in range(100):
        core.turn()
    status = core.status()
    assert (status.in_memory, status.in_backlog) == (0, 0)
    assert 0 < status.lost == 110 - len(slow.messages)
    backlog.close()


@pytest.mark.parametrize("more", [0, 30, 100])
@pytest.mark.parametrize("taken", [0, 3, 15])
def test_messages_that_retention_removed_before_a_close_are_counted_as_lost(
    taken: int, more: int
) -> None:
    """Of what was read and not delivered: none, some or all. The cursor once passed all that
    was removed, and nothing reported it."""

    limited, system = Limited(taken), SimulatedSystem()

    def start() -> tuple[Backlog, StoreForward]:
        backlog = Backlog("/log", retention=Retention(max_bytes=200_000), storage=Storage(system))
        core = StoreForward(
            limited, backlog, Settings("always"), lambda *_: None, clock=lambda: 0.0
        )
        return backlog, core

    def send(core: StoreForward, numbers: range) -> None:
        for number in numbers:
            assert core.offer(Message("t", b"%d" % number + bytes(5_000), b"k"))

    backlog, core = start()
    send(core, range(20))
    backlog.flush()
    core.turn()
    assert len(limited.messages) == taken
    send(core, range(20, 20 + more))
    with core.changed:
        core.store_rest()
    lost = core.status().lost
    backlog.close()
    limited.most = 1_000
    backlog, core = start()
    for _ in range(100):
        core.turn()
    lost += core.status().lost
    numbers = [int((message.value or b"").rstrip(b"\0")) for message in limited.messages]
    assert numbers == sorted(set(numbers))
    assert lost == 20 + more - len(numbers)
    assert (lost > 0) is (more > 0)
    assert core.status().in_backlog == 0
    backlog.close()


TestSending = Sending.TestCase
TestSending.settings = settings(max_examples=150, stateful_step_count=30)
