"""The delivery engine: its table row by row, and its promises against a destination that refuses,
delays, forgets and lets strangers in, as Kafka does."""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aolog import Record
from bridge import engine as engine_module
from bridge.engine import (
    Command,
    Commit,
    Connect,
    Disconnect,
    Engine,
    LaneKey,
    Mark,
    Position,
    State,
)
from bridge.planning import Outgoing, plan

A: LaneKey = ("t", 0)
B: LaneKey = ("t", 1)


def at(address: int) -> Position:
    return Position(address, address // 10)


def mark(first: int, last: int | None = None, records: int = 1) -> Mark:
    return Mark(at(first), first if last is None else last, records)


def engine(**options: object) -> Engine:
    return Engine(at(0), now_s=0.0, entropy=random.Random(1), **options)  # type: ignore[arg-type]


def connecting(**options: object) -> Engine:
    e = engine(**options)
    assert e.tick(0.0) == [Connect(careful=False)]
    return e


def sending(**options: object) -> Engine:
    e = connecting(**options)
    assert e.connected({}) == []
    return e


def under_way(**options: object) -> Engine:
    """Four records sent, ten addresses apart: 0 and 20 to A, 10 and 30 to B, each a mark."""
    e = sending(**options)
    e.read(at(40), [(A, mark(0)), (B, mark(10)), (A, mark(20)), (B, mark(30))])
    return e


def careful() -> Engine:
    """Connected again after a refusal."""
    e = under_way()
    e.suspect("no", now_s=1.0)
    assert e.tick(2.0) == [Connect(careful=True)]
    e.connected({})
    return e


def stopping() -> Engine:
    e = under_way()
    assert e.stop(now_s=1.0) == []
    return e


# --- the table ------------------------------------------------------------------------------


def _fail_connecting() -> tuple[Engine, list[Command]]:
    e = connecting()
    return e, e.failed("no", now_s=0.0)


def _connected() -> tuple[Engine, list[Command]]:
    e = connecting()
    return e, e.connected({A: 5})


def _delivered() -> tuple[Engine, list[Command]]:
    e = under_way()
    return e, e.delivered(A, 0, 0, now_s=0.0)


def _fail_sending() -> tuple[Engine, list[Command]]:
    e = under_way()
    return e, e.failed("no", now_s=0.0)


def _commit_due() -> tuple[Engine, list[Command]]:
    e = under_way()
    e.delivered(A, 0, 0, now_s=0.5)
    return e, e.tick(1.0)


def _stop_sending() -> tuple[Engine, list[Command]]:
    e = under_way()
    return e, e.stop(now_s=0.0)


def _delay_over() -> tuple[Engine, list[Command]]:
    e = engine()
    return e, e.tick(0.0)


def _late() -> tuple[Engine, list[Command]]:
    e = stopping()
    return e, e.tick(6.0)


def _fail_stopping() -> tuple[Engine, list[Command]]:
    e = stopping()
    return e, e.failed("no", now_s=1.0)


def _suspect() -> tuple[Engine, list[Command]]:
    e = under_way()
    return e, e.suspect("no", now_s=0.0)


def _nothing_refused() -> tuple[Engine, list[Command]]:
    e = careful()
    e.read(at(40), [(A, mark(0))])
    return e, e.delivered(A, 0, 0, now_s=2.0)


def _refused_at() -> tuple[Engine, list[Command]]:
    e = under_way()
    return e, e.refused("no", 20, now_s=0.0)


def _stands() -> tuple[Engine, list[Command]]:
    e = under_way()
    e.refused("no", 20, now_s=0.0)
    e.tick(0.0)
    e.connected({})
    e.read(at(20), [(A, mark(0)), (B, mark(10))])
    e.delivered(A, 0, 0, now_s=0.0)
    return e, e.delivered(B, 10, 0, now_s=0.0)


def _refused_all() -> tuple[Engine, list[Command]]:
    e = under_way()
    return e, e.refused("no", None, now_s=0.0)


def _stop_early() -> tuple[Engine, list[Command]]:
    e = connecting()
    return e, e.stop(now_s=0.0)


ROWS: dict[tuple[str, str], Callable[[], tuple[Engine, list[Command]]]] = {
    ("connecting", "connected"): _connected,
    ("connecting", "failed, to be tried again"): _fail_connecting,
    ("sending", "delivered"): _delivered,
    ("sending", "failed, to be tried again"): _fail_sending,
    ("sending", "tick, commit due"): _commit_due,
    ("sending", "stop"): _stop_sending,
    ("backing_off", "tick, delay over"): _delay_over,
    ("stopping", "all acknowledged, or late"): _late,
    ("stopping", "failed, to be tried again"): _fail_stopping,
    ("sending", "suspect"): _suspect,
    ("sending", "nothing refused carefully"): _nothing_refused,
    ("sending", "refused at an address"): _refused_at,
    ("sending", "all before it acknowledged"): _stands,
    ("any", "refused, no address"): _refused_all,
    ("connecting, backing_off: stop", ""): _stop_early,
}


def table() -> list[tuple[str, str, str, list[str]]]:
    """Rows of the docstring: state, event, next state, names of the commands."""
    assert engine_module.__doc__ is not None
    block = engine_module.__doc__.split("\n\n")[1].splitlines()[1:]
    rows = []
    for line in block:
        state, event = line[4:16].strip(), line[16:43].strip()
        if ":" in line:  # the last row says states and event in one
            state, event = line[4:43].strip(), ""
        after, commands = line[43:56].strip(), line[56:].partition(";")[0].strip()
        names = [] if commands == "-" else commands.split(", ")
        rows.append((state, event, after, names))
    return rows


def test_every_row_of_the_table_is_tested_and_no_other() -> None:
    assert {(state, event) for state, event, _, _ in table()} == set(ROWS)
    assert len(table()) == len(ROWS)


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_the_engine_does_what_its_table_says(row: tuple[str, str, str, list[str]]) -> None:
    state, event, after, names = row
    e, commands = ROWS[state, event]()
    assert [type(command).__name__ for command in commands] == names
    assert e.state.value == after


@pytest.mark.parametrize(
    "make", [engine, connecting, under_way, stopping, careful], ids=lambda make: make.__name__
)
def test_a_refusal_without_an_address_ends_it_in_every_state(make: Callable[[], Engine]) -> None:
    e = make()
    commands = e.refused("no rights", None, now_s=1.0)
    assert commands == [Commit(at(0)), Disconnect()]
    assert (e.state, e.failed_at, e.failure) == (State.FAILED, None, "no rights")


@pytest.mark.parametrize("ending", ["stopped", "failed"])
def test_an_engine_that_is_over_says_nothing_more(ending: str) -> None:
    e = under_way()
    if ending == "failed":
        e.refused("no", None, now_s=0.0)
    else:
        e.stop(now_s=0.0)
        assert e.tick(100.0)
    assert e.over
    assert not e.wants_batch
    said = [
        e.tick(200.0),
        e.connected({A: 99}),
        e.delivered(A, 0, 0, now_s=200.0),
        e.failed("x", now_s=200.0),
        e.suspect("x", now_s=200.0),
        e.refused("x", 5, now_s=200.0),
        e.refused("x", None, now_s=200.0),
        e.stop(now_s=200.0),
    ]
    assert said == [[]] * len(said)
    assert e.state.value == ending


# --- the cursor -----------------------------------------------------------------------------


def test_the_cursor_is_the_least_address_that_no_lane_has_acknowledged() -> None:
    e = under_way()
    seen = [e.position.address]
    for lane, address in ((B, 10), (A, 0), (B, 30), (A, 20)):
        e.delivered(lane, address, address, now_s=0.0)
        seen.append(e.position.address)
    assert seen == [0, 0, 20, 20, 40]
    assert (e.outstanding, e.acknowledged) == (0, 4)


def test_a_mark_stands_for_its_predecessors_in_its_lane_and_for_no_other_lane() -> None:
    e = sending()
    e.read(at(100), [(A, mark(0, 80, 5)), (B, mark(10, 90, 5))])
    e.delivered(A, 80, 4, now_s=0.0)
    assert (e.position, e.outstanding, e.acknowledged) == (at(10), 5, 5)
    assert e.holds(A, 40)
    assert not e.holds(B, 10)


def test_a_late_acknowledgement_stands_for_all_marks_before_it() -> None:
    e = under_way()
    e.delivered(A, 20, 7, now_s=0.0)
    assert (e.position, e.outstanding) == (at(10), 2)


def test_an_acknowledgement_that_nobody_waits_for_changes_nothing() -> None:
    e = under_way()
    e.delivered(A, 0, 0, now_s=0.0)
    before = (e.position, e.outstanding, e.acknowledged)
    assert e.delivered(A, 0, 0, now_s=0.0) == []
    assert e.delivered(("other", 3), 0, 0, now_s=0.0) == []
    assert (e.position, e.outstanding, e.acknowledged) == before


def test_a_commit_is_asked_for_when_due_and_only_if_there_is_progress() -> None:
    e = under_way(commit_s=2.0)
    assert e.tick(2.0) == []
    e.delivered(A, 0, 0, now_s=2.5)
    assert e.tick(3.9) == []
    assert e.tick(4.0) == [Commit(at(10))]
    e.committed_at(at(10))
    assert e.tick(6.0) == []
    assert e.committed == at(10)


def test_after_a_failure_everything_not_acknowledged_is_read_again_from_the_cursor() -> None:
    e = under_way()
    e.delivered(A, 0, 0, now_s=0.0)
    assert e.failed("gone", now_s=0.0) == [Commit(at(10)), Disconnect()]
    assert (e.read_to, e.position, e.outstanding) == (at(10), at(10), 0)
    assert e.holds(A, 0)
    assert not e.holds(A, 20)


def test_what_was_seen_in_the_destination_is_held_and_the_rest_is_not() -> None:
    e = connecting()
    e.connected({A: 20})
    assert e.holds(A, 0)
    assert e.holds(A, 20)
    assert not e.holds(A, 30)
    assert not e.holds(B, 0)


# --- holes ----------------------------------------------------------------------------------


def opened_with_a_hole() -> tuple[Engine, list[Command]]:
    """Two marks of 256 in one lane, of which the second comes three offsets too early."""
    e = sending()
    e.read(at(10), [(A, mark(0))])
    e.delivered(A, 0, 100, now_s=0.0)
    e.read(at(6000), [(A, mark(10, 2560, 256)), (A, mark(2570, 5120, 256))])
    e.delivered(A, 2560, 356, now_s=0.0)
    return e, e.delivered(A, 5120, 609, now_s=0.0)


def test_fewer_offsets_than_records_are_noticed_and_the_cursor_stays_before_them() -> None:
    e, commands = opened_with_a_hole()
    assert commands == [Commit(at(2570)), Disconnect()]
    assert e.state is State.BACKING_OFF
    assert e.failure == "3 records before address 5120 have no offset in t/0"
    assert e.acknowledged == 257


def test_what_stands_behind_a_hole_is_not_taken_for_proof_of_what_is_before_it() -> None:
    e, _ = opened_with_a_hole()
    e.tick(100.0)
    e.connected({A: 5120})  # read back: it is there, but not all before it
    assert e.distrusts(A)
    assert e.holds(A, 2560)
    assert not e.holds(A, 2570)


@pytest.mark.parametrize("offset", [612, 613, 5000, -1])
def test_offsets_of_others_in_between_and_an_offset_not_told_are_no_hole(offset: int) -> None:
    e = sending()
    e.read(at(10), [(A, mark(0))])
    e.delivered(A, 0, 100, now_s=0.0)
    e.read(at(6000), [(A, mark(10, 5120, 512))])
    assert e.delivered(A, 5120, offset, now_s=0.0) == []
    assert e.position == at(6000)


def test_offsets_may_begin_anew_on_a_new_connection() -> None:
    e = under_way()
    e.delivered(A, 0, 1000, now_s=0.0)
    e.failed("the topic was deleted", now_s=0.0)
    e.tick(10.0)
    e.connected({})
    e.read(at(40), [(A, mark(20))])
    assert e.delivered(A, 20, 0, now_s=10.0) == []


def test_a_lane_is_open_once_it_has_acknowledged_something_on_this_connection() -> None:
    e = under_way()
    assert not e.opened(A)
    e.delivered(A, 0, 0, now_s=0.0)
    assert e.opened(A)
    assert not e.opened(B)
    e.failed("gone", now_s=0.0)
    assert not e.opened(A)


# --- refusals -------------------------------------------------------------------------------


def test_a_refusal_is_looked_into_carefully_up_to_what_was_sent_and_no_further() -> None:
    e = careful()
    assert e.careful_to == 40
    assert e.wants_batch
    e.read(at(40), [(A, mark(0)), (B, mark(10))])
    assert not e.wants_batch
    assert e.delivered(A, 0, 0, now_s=3.0) == []
    assert e.delivered(B, 10, 0, now_s=3.0) == [Commit(at(40)), Disconnect()]
    assert e.tick(3.0) == [Connect(careful=False)]


def test_where_everything_suspect_turns_out_to_have_arrived_it_goes_on_at_full_speed() -> None:
    e = careful()
    e.read(at(40), [])  # all of it was held
    assert e.stands(now_s=3.0) == [Commit(at(40)), Disconnect()]
    assert e.tick(3.0) == [Connect(careful=False)]
    e.connected({})
    assert e.wants_batch


def test_a_refusal_with_nothing_under_way_leaves_nothing_to_look_into() -> None:
    e = sending()
    e.suspect("no", now_s=0.0)
    assert e.tick(1.0) == [Connect(careful=False)]


def test_it_stands_before_a_refused_record_with_everything_before_it_delivered() -> None:
    e = careful()
    e.read(at(40), [(A, mark(0)), (B, mark(10)), (A, mark(20)), (B, mark(30))])
    e.delivered(A, 0, 0, now_s=2.0)
    assert e.refused("too large", 20, now_s=2.0) == [Commit(at(10)), Disconnect()]
    assert e.tick(2.0) == [Connect(careful=False)]
    assert e.connected({A: 0}) == []
    assert e.wants_batch
    e.read(at(20), [(B, mark(10))])
    assert not e.wants_batch
    assert e.delivered(B, 10, 0, now_s=2.0) == [Commit(at(20)), Disconnect()]
    assert (e.state, e.failed_at, e.failure) == (State.FAILED, 20, "too large")


def test_of_several_refused_records_it_stands_before_the_first() -> None:
    e = under_way()
    e.refused("b", 30, now_s=0.0)
    e.refused("a", 10, now_s=0.0)
    e.refused("c", 20, now_s=0.0)
    assert e.failed_at == 10


def test_where_the_rest_was_held_already_it_stands_at_once() -> None:
    e = under_way()
    e.refused("no", 10, now_s=0.0)
    e.tick(0.0)
    e.connected({A: 0})
    e.read(at(10), [])
    assert e.stands(now_s=0.0) == [Commit(at(10)), Disconnect()]
    assert e.state is State.FAILED


# --- time -----------------------------------------------------------------------------------


def delays(seed: int) -> list[float]:
    e = Engine(at(0), now_s=0.0, backoff_s=0.5, backoff_max_s=8.0, entropy=random.Random(seed))
    now_s, found = 0.0, []
    for _ in range(40):
        assert e.tick(now_s) == [Connect(careful=False)]
        e.failed("no", now_s=now_s)
        found.append(e.seconds_to_tick(now_s))
        assert e.tick(now_s + found[-1] * 0.999) == []
        now_s += found[-1] + 1e-6
    return found


def test_the_delay_doubles_up_to_its_bound_and_is_jittered_to_no_less_than_half() -> None:
    for number, delay in enumerate(delays(7)):
        full = min(8.0, 0.5 * 2**number)
        assert full / 2 <= delay <= full
    assert delays(7) != delays(8)


def test_the_delay_is_short_again_after_something_was_delivered() -> None:
    e = under_way(backoff_s=1.0)
    for _ in range(5):
        e.failed("no", now_s=0.0)
        e.tick(1000.0)
        e.connected({})
    e.read(at(40), [(A, mark(0))])
    e.delivered(A, 0, 0, now_s=0.0)
    e.failed("no", now_s=0.0)
    assert e.seconds_to_tick(0.0) <= 1.0


def test_what_failed_is_forgotten_once_connected_again() -> None:
    e = under_way()
    e.failed("broker away", now_s=0.0)
    assert e.failure == "broker away"
    e.tick(10.0)
    e.connected({})
    assert e.failure is None


def test_a_stop_waits_for_what_is_under_way_and_ends_with_the_last_acknowledgement() -> None:
    e = under_way()
    assert e.stop(now_s=1.0) == []
    assert not e.wants_batch
    for lane, address in ((A, 0), (B, 10), (A, 20)):
        assert e.delivered(lane, address, address, now_s=1.5) == []
    assert e.delivered(B, 30, 30, now_s=1.5) == [Commit(at(40)), Disconnect()]
    assert e.state is State.STOPPED
    assert not e.in_doubt


def test_a_stop_ends_in_its_time_whatever_is_missing_and_commits_what_is_there() -> None:
    e = under_way(stop_s=3.0)
    e.stop(now_s=1.0)
    e.delivered(A, 0, 0, now_s=1.0)
    assert e.tick(3.9) == []
    assert e.tick(4.0) == [Commit(at(10)), Disconnect()]
    assert (e.state, e.outstanding) == (State.STOPPED, 3)


def test_a_second_stop_does_not_extend_the_first() -> None:
    e = under_way(stop_s=3.0)
    e.stop(now_s=1.0)
    assert e.stop(now_s=3.5) == []
    assert e.tick(4.0) == [Commit(at(0)), Disconnect()]


def test_an_idle_engine_stops_at_once() -> None:
    e = sending()
    assert e.stop(now_s=0.0) == [Commit(at(0)), Disconnect()]


def test_nothing_is_due_before_the_time_it_says() -> None:
    e = under_way(commit_s=2.0)
    e.delivered(A, 0, 0, now_s=0.0)
    wait = e.seconds_to_tick(0.5)
    assert wait == 1.5
    assert e.tick(0.5 + wait) == [Commit(at(10))]


# --- doubt ----------------------------------------------------------------------------------


def test_records_under_way_at_a_failure_are_in_doubt_until_the_next_connection() -> None:
    e = under_way()
    assert not e.in_doubt
    e.failed("gone", now_s=0.0)
    assert e.in_doubt
    e.tick(10.0)
    assert e.in_doubt
    e.connected({})
    assert not e.in_doubt


def test_a_predecessors_doubt_stays_if_nothing_was_ever_reached() -> None:
    e = connecting(in_doubt=True)
    e.failed("gone", now_s=0.0)
    e.stop(now_s=0.0)
    assert e.in_doubt


# --- bounds ---------------------------------------------------------------------------------


def test_no_batch_is_wanted_beyond_the_bound_nor_while_not_sending() -> None:
    e = sending(outstanding_max=3)
    assert e.wants_batch
    e.read(at(20), [(A, mark(0, 10, 2))])
    assert e.wants_batch
    e.read(at(40), [(A, mark(20, 30, 2))])
    assert not e.wants_batch
    e.delivered(A, 10, 1, now_s=0.0)
    assert e.wants_batch
    assert not engine().wants_batch
    assert not connecting().wants_batch


# --- against a destination ------------------------------------------------------------------


class Partition:
    """A partition as Kafka keeps it for idempotent producers. known: the producer whose order is
    checked; any other may begin anywhere, which is the hole that openers close."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.known: int | None = None
        self.next_sequence = 0

    def offer(self, producer: int, sequence: int, addresses: list[int], refused: set[int]) -> bool:
        if refused & set(addresses):
            return False
        if self.known == producer and sequence != self.next_sequence:
            return False
        self.known, self.next_sequence = producer, sequence + len(addresses)
        self.stored += addresses
        return True


class Request:
    def __init__(self, sequence: int, records: list[Outgoing]) -> None:
        self.sequence = sequence
        self.records = records
        self.refused = False
        self.offset = -1


class Bridge(RuleBasedStateMachine):
    """The driver as the forwarder is one: a log, a client with requests in flight, a cluster."""

    LANES: ClassVar[list[LaneKey]] = [("t", 0), ("t", 1), ("u", 0)]

    @initialize(seed=st.integers(0, 10**6), poison=st.sets(st.integers(0, 60), max_size=2))
    def begin(self, seed: int, poison: set[int]) -> None:
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.log: list[Record] = []
        self.lane_by_address: dict[int, LaneKey] = {}
        self.partitions = {lane: Partition() for lane in self.LANES}
        self.poison = {number * 10 for number in poison}
        self.committed = at(0)
        self.producer = 0
        self.start()

    def start(self) -> None:
        self.engine = Engine(
            self.committed,
            now_s=self.now_s,
            backoff_max_s=2.0,
            outstanding_max=12,
            entropy=self.random,
        )
        self.forget()

    def forget(self) -> None:
        self.producer += 1
        self.careful = False
        self.waiting: list[Outgoing] = []
        self.opening: set[LaneKey] = set()
        self.queues: dict[LaneKey, deque[Outgoing]] = {lane: deque() for lane in self.LANES}
        self.sequences = dict.fromkeys(self.LANES, 0)
        self.flights: dict[LaneKey, deque[Request]] = {lane: deque() for lane in self.LANES}
        self.answers: deque[tuple[LaneKey, Request]] = deque()

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Commit):
                if command.position.address > self.engine.committed.address:
                    self.committed = command.position
                    self.engine.committed_at(command.position)
            elif isinstance(command, Disconnect):
                for lane, flight in self.flights.items():  # what is under way may still arrive
                    for request in flight:
                        if self.random.random() < 0.5:
                            self.offer(lane, request)
                        else:
                            break
                self.forget()
            else:
                self.careful = command.careful
                held = {k: p.stored[-1] for k, p in self.partitions.items() if p.stored}
                self.do(self.engine.connected(held))

    def offer(self, lane: LaneKey, request: Request) -> None:
        partition = self.partitions[lane]
        addresses = [out.record.address for out in request.records]
        taken = partition.offer(self.producer, request.sequence, addresses, self.poison)
        request.refused = not taken
        request.offset = len(partition.stored) - 1

    # --- what happens

    @rule(count=st.integers(1, 12))
    def append(self, count: int) -> None:
        for _ in range(count):
            address = 10 * len(self.log)
            self.lane_by_address[address] = self.random.choice(self.LANES)
            self.log.append(Record(address, 0, None, b"", (), None))

    @rule(count=st.integers(1, 8))
    def read(self, count: int) -> None:
        if not self.engine.wants_batch or self.waiting:
            return
        first = self.engine.read_to.address // 10
        batch = self.log[first : first + count]
        if self.engine.failed_at is not None:
            batch = [record for record in batch if record.address < self.engine.failed_at]
        end = batch[-1].address + 10 if batch else self.engine.read_to.address
        outgoing, marks = plan(
            batch,
            first,
            lambda record: self.lane_by_address[record.address],
            self.engine.holds,
            self.engine.opened,
            mark_every=1 if self.careful else 3,
        )
        self.engine.read(at(end), marks)
        self.waiting = outgoing
        self.do(self.engine.stands(now_s=self.now_s))
        self.send()

    @rule()
    def send(self) -> None:
        for number, out in enumerate(self.waiting):
            if out.lane in self.opening:
                if not self.engine.opened(out.lane):
                    self.waiting = self.waiting[number:]
                    return
                self.opening.discard(out.lane)
            self.queues[out.lane].append(out)
            if out.marked and not self.engine.opened(out.lane):
                self.opening.add(out.lane)
        self.waiting = []

    @rule(which=st.integers(0, 2), size=st.integers(1, 5))
    def request(self, which: int, size: int) -> None:
        """The client puts queued records on the wire; up to five requests may be in flight."""
        lane = self.LANES[which]
        queue, flight = self.queues[lane], self.flights[lane]
        if not queue or len(flight) >= (1 if self.careful else 5):
            return
        records = [queue.popleft() for _ in range(min(1 if self.careful else size, len(queue)))]
        flight.append(Request(self.sequences[lane], records))
        self.sequences[lane] += len(records)

    @rule(which=st.integers(0, 2))
    def arrive(self, which: int) -> None:
        """The oldest request in flight reaches the broker."""
        lane = self.LANES[which]
        if self.flights[lane]:
            request = self.flights[lane].popleft()
            self.offer(lane, request)
            self.answers.append((lane, request))

    @rule()
    def answer(self) -> None:
        """The oldest answer reaches the client: callbacks, or the end of the producer."""
        if not self.answers:
            return
        lane, request = self.answers.popleft()
        if request.refused:
            address = request.records[0].record.address
            if self.careful and address in self.poison:
                self.do(self.engine.refused("poison", address, now_s=self.now_s))
            else:
                self.do(self.engine.suspect("gap", now_s=self.now_s))
            return
        for i, out in enumerate(request.records):
            if out.marked:
                offset = request.offset - len(request.records) + 1 + i
                self.do(self.engine.delivered(lane, out.record.address, offset, now_s=self.now_s))

    @rule()
    def lose_the_connection(self) -> None:
        self.do(self.engine.failed("away", now_s=self.now_s))

    @rule(seconds=st.floats(0.01, 3.0))
    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.do(self.engine.tick(self.now_s))

    @rule()
    def crash(self) -> None:
        self.do([Disconnect()])
        self.start()

    @rule(late=st.booleans())
    def stop_and_start(self, late: bool) -> None:
        self.do(self.engine.stop(now_s=self.now_s))
        self.now_s += 5.0 if late else 0.1
        self.do(self.engine.tick(self.now_s))
        if late:
            assert self.engine.over
        self.do([Disconnect()])
        self.start()

    # --- what is promised

    def arrived(self) -> set[int]:
        return {address for part in self.partitions.values() for address in part.stored}

    @invariant()
    def the_cursor_never_passes_a_record_that_has_not_arrived(self) -> None:
        if hasattr(self, "engine"):
            arrived = self.arrived()
            position = self.engine.position.address
            assert all(r.address in arrived for r in self.log if r.address < position)
            assert self.engine.committed.address <= position

    @invariant()
    def nothing_arrives_twice_or_out_of_order(self) -> None:
        if hasattr(self, "engine"):
            for part in self.partitions.values():
                assert all(one < two for one, two in pairwise(part.stored))

    @invariant()
    def what_is_outstanding_is_what_the_marks_say_and_bounded(self) -> None:
        if hasattr(self, "engine"):
            lanes = self.engine.lanes.values()
            marked = sum(m.records for lane in lanes for m in lane.outstanding)
            assert self.engine.over or self.engine.outstanding == marked
            assert 0 <= self.engine.outstanding < 12 + 8

    @precondition(lambda self: hasattr(self, "engine") and self.engine.failed_at is not None)
    @invariant()
    def it_stands_only_before_poison(self) -> None:
        assert self.engine.failed_at in self.poison

    def teardown(self) -> None:
        """Time and a healthy destination bring everything there, up to the first poison."""
        if not hasattr(self, "engine"):
            return
        if self.engine.over:
            self.start()
        first = min((a for a in self.poison if a < 10 * len(self.log)), default=10 * len(self.log))
        for _ in range(3000):
            self.tick(0.5)
            self.read(8)
            self.send()
            for which in range(3):
                self.request(which, 5)
                self.arrive(which)
            self.answer()
            if self.engine.over or self.engine.position.address >= 10 * len(self.log):
                break
        assert self.engine.position.address == first
        wanted = {r.address for r in self.log if r.address < first}
        assert wanted <= self.arrived()
        assert (self.engine.state is State.FAILED) == (first < 10 * len(self.log))


Bridge.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestTheEngineAgainstADestination = Bridge.TestCase


class LongBridge(Bridge):
    """The same, for longer."""


LongBridge.TestCase.settings = settings(max_examples=4000, stateful_step_count=120, deadline=None)
TestTheEngineAgainstADestinationForLong = pytest.mark.slow(
    pytest.mark.timeout(1800)(LongBridge.TestCase)
)


def test_the_model_finds_the_hole_if_lanes_are_not_opened_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A canary: with every lane taken for open, records are lost."""
    monkeypatch.setattr(Engine, "opened", lambda _self, _key: True)
    canary = type("Canary", (Bridge,), {})
    quick = settings(
        max_examples=5000,
        stateful_step_count=60,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(canary, settings=quick)
    assert re.search("position|arrived|wanted|one < two", str(caught.traceback[-1].statement))
