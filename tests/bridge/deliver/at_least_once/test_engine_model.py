"""The engine's promises, kept against a model of Kafka: a destination that refuses, delays, forgets
and lets other producers in. Random walks, and hypothesis."""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from aolog.record import Position
from bridge.config.run_options import Poison
from bridge.deliver.at_least_once.engine import Engine, State
from bridge.deliver.backoff import Backoff
from bridge.deliver.verdicts import Given, Judge
from bridge.kafka.lane import LaneKey, Refusal
from tests.bridge.deliver.at_least_once.engines import Outgoing, Partition, Request


def at(address: int) -> Position:
    return Position(address, address // 10)


class Bridge(RuleBasedStateMachine):
    """The driver as the forwarder is one: a log, a client with requests in flight, a cluster of
    which a partition may be away, a topic that may be missing, and a dead-letter log."""

    LANES: ClassVar[list[LaneKey]] = [("t", 0), ("t", 1), ("u", 0)]
    MISSING: ClassVar[LaneKey] = ("u", -1)

    @initialize(
        seed=st.integers(0, 10**6),
        poison=st.sets(st.integers(0, 60), max_size=6),
        policy=st.sampled_from(["stop", "dead-letter"]),
    )
    def begin(self, seed: int, poison: set[int], policy: Poison) -> None:
        self.random = random.Random(seed)
        self.policy = policy
        self.now_s = 0.0
        self.log: list[int] = []  # addresses
        self.lane_by_address: dict[int, LaneKey] = {}
        self.partitions = {lane: Partition() for lane in self.LANES}
        self.poison = {number * 10 for number in poison}
        self.dead: list[int] = []
        self.away: set[LaneKey] = set()
        self.missing = False
        self.committed = at(0)
        self.producer = 0
        self.start()

    def start(self) -> None:
        self.engine = Engine(
            self.committed,
            now_s=self.now_s,
            outstanding_max=12,
            mark_every=3,
            backoff=Backoff(max_s=2.0, entropy=self.random),
        )
        self.judge = Judge(self.policy)
        self.judge.aside |= {a for a in self.dead if a >= self.committed.address}
        self.crashed = self.is_connected = self.has_read_back = False
        self.forget()

    def forget(self) -> None:
        self.producer += 1
        self.waiting: list[Outgoing] = []
        self.queues: dict[LaneKey, deque[Outgoing]] = {lane: deque() for lane in self.LANES}
        self.sequences = dict.fromkeys(self.LANES, 0)
        self.flights: dict[LaneKey, deque[Request]] = {lane: deque() for lane in self.LANES}
        self.answers: deque[tuple[LaneKey, Request]] = deque()

    def follow(self) -> None:
        """What the engine's state asks for."""
        if self.engine.pending:
            self.set_aside()
        if self.engine.state is State.CONNECTING and not self.is_connected:
            self.connect()
        if self.engine.state in {State.BACKING_OFF, State.STOPPED} and self.is_connected:
            self.disconnect()

    def connect(self) -> None:
        self.is_connected = True
        reads_back = self.engine.in_doubt or not self.has_read_back
        self.has_read_back = True
        self.engine.connected()
        for lane in self.partitions.keys() - self.away if reads_back else ():
            self.read_back(lane)
        for lane in self.LANES:
            if lane in self.away:
                self.engine.close(lane, Refusal("away", "away", passing=True))
            else:
                self.engine.open(lane) if not self.is_standing(lane) else None

    def read_back(self, lane: LaneKey, begin: int = 0) -> None:
        """The next messages of a partition, some or all."""
        engine, partition = self.engine, self.partitions[lane]
        end = begin + self.random.choice([1, 3, 1000])
        since = max(engine.position.address, engine.lanes[lane].last_address + 1)
        engine.found(lane, partition.found(begin, end, since))

    def disconnect(self) -> None:
        self.is_connected = False
        for lane, flight in self.flights.items():  # what is under way may still arrive
            for request in flight:
                if lane not in self.away and self.random.random() < 0.5:
                    self.offer(lane, request)
                else:
                    break
        self.forget()

    @rule()
    def commit(self) -> None:
        self.committed = max(self.committed, self.engine.position)
        self.judge.passed(self.engine.position.address)

    def is_standing(self, lane: LaneKey) -> bool:
        return lane in self.engine.lanes.standing

    def set_aside(self) -> None:
        what = self.random.random()
        if what < 0.1:
            self.engine.failed("disk full", now_s=self.now_s)
            return
        self.dead += [aside.position.address for aside in self.engine.pending]
        if what < 0.3:  # the process dies between the two
            self.crashed = True
            return
        self.judge.set_aside(self.engine.pending)
        self.engine.set_aside()

    def offer(self, lane: LaneKey, request: Request) -> None:
        partition = self.partitions[lane]
        addresses = [out.address for out in request.records]
        taken = partition.offer(self.producer, request.sequence, addresses, self.poison)
        request.refused = not taken
        request.offset = len(partition.messages) - 1

    # --- what happens

    @rule(count=st.integers(1, 12))
    def append(self, count: int) -> None:
        for _ in range(count):
            address = 10 * len(self.log)
            self.lane_by_address[address] = self.random.choice(self.LANES)
            self.log.append(address)

    def lane_of(self, address: int) -> LaneKey:
        key = self.lane_by_address[address]
        return self.MISSING if self.missing and key[0] == "u" else key

    @rule(count=st.integers(1, 8))
    def read(self, count: int) -> None:
        for lane, state in self.engine.lanes.items():
            if state.found is not None and state.is_unread and lane not in self.away:
                self.read_back(lane, state.found.end)
        if not self.engine.wants_batch or self.waiting:
            return
        begin = self.engine.begin()
        first = begin.address // 10
        batch = self.log[first : first + count]
        end = batch[-1] + 10 if batch else begin.address
        to = list(map(self.lane_of, batch))
        lanes, verdicts = self.judge.without_aside(batch, to), self.judge.verdicts({})
        given = Given(batch, array("q", [0] * len(batch)), lanes, first, verdicts, lambda: batch)
        planned = self.engine.admit(given, at(end), now_s=self.now_s)
        marked = {mark.last_address for _, mark in planned.marks}
        self.waiting = [Outgoing(batch[i], to[i], batch[i] in marked) for i in planned.sent]
        self.follow()
        if self.crashed:
            self.crash()
        self.send()

    @rule()
    def send(self) -> None:
        for out in self.waiting:
            self.queues[out.lane].append(out)
        self.waiting = []

    @rule(which=st.integers(0, 2), size=st.integers(1, 5))
    def request(self, which: int, size: int) -> None:
        """The client puts queued records on the wire; up to five requests may be in flight."""
        lane = self.LANES[which]
        queue, flight = self.queues[lane], self.flights[lane]
        if not queue or len(flight) >= 5:
            return
        records = [queue.popleft() for _ in range(min(size, len(queue)))]
        flight.append(Request(self.sequences[lane], records))
        self.sequences[lane] += len(records)

    @rule(which=st.integers(0, 2))
    def arrive(self, which: int) -> None:
        """The oldest request in flight reaches the broker."""
        lane = self.LANES[which]
        if self.flights[lane] and lane not in self.away:
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
            reports = [out.address for out in request.records if out.marked]
            guilty = {out.address for out in request.records} & self.poison
            named: list[int] = []
            code = "INVALID_RECORD"
            if 1 < len(guilty) < len(request.records):  # then the cluster names them
                named = [address for address in reports if address in guilty]
                code = code if named else "_INVALID_DIFFERENT_RECORD"
            where = lane if reports else None
            to_blame = self.engine.suspect("no", code, where, named=named, now_s=self.now_s)
            self.judge.refuse(to_blame, Refusal("no", code))
            self.follow()
            return
        for i, out in enumerate(request.records):
            if out.marked:
                offset = request.offset - len(request.records) + 1 + i
                self.engine.delivered(lane, out.address, offset, now_s=self.now_s)

    @rule()
    def lose_the_connection(self) -> None:
        self.engine.failed("away", now_s=self.now_s)
        self.follow()

    @rule(which=st.integers(0, 2))
    def leader_away_or_back(self, which: int) -> None:
        lane = self.LANES[which]
        self.away ^= {lane}
        closed = self.engine.lanes[lane].closed
        if lane not in self.away and closed is not None and closed.passing:
            self.read_back(lane)  # before it is used
            self.engine.open(lane)

    @rule(which=st.integers(0, 2), to=st.integers(0, 2))
    def copy(self, which: int, to: int) -> None:
        """Somebody copies a message, stamp included, into any partition."""
        messages = self.partitions[self.LANES[which]].messages
        if messages:
            address, _ = self.random.choice(messages)
            self.partitions[self.LANES[to]].messages.append((address, True))

    @rule()
    def topic_gone_or_back(self) -> None:
        if self.engine.lanes[self.LANES[2]].outstanding or self.waiting:
            return
        self.missing = not self.missing
        if self.missing:
            self.engine.close(self.MISSING, Refusal("missing", "X", passing=True))
        else:
            self.engine.open(self.MISSING)

    @rule(seconds=st.floats(0.01, 3.0))
    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.engine.tick(self.now_s)
        self.follow()

    @rule()
    def crash(self) -> None:
        self.disconnect()
        self.start()
        if self.missing:
            self.engine.close(self.MISSING, Refusal("missing", "X", passing=True))

    @rule(late=st.booleans())
    def stop_and_start(self, late: bool) -> None:
        self.engine.stop(now_s=self.now_s)
        self.now_s += 5.0 if late else 0.1
        self.engine.tick(self.now_s)
        if late:
            assert self.engine.over
        self.commit()
        self.crash()

    # --- what is promised

    def arrived(self) -> set[int]:
        return {address for part in self.partitions.values() for address in part.stored}

    @invariant()
    def the_cursor_never_passes_a_record_that_has_not_arrived(self) -> None:
        if hasattr(self, "engine"):
            arrived = self.arrived() | set(self.dead)
            position = self.engine.position.address
            assert all(address in arrived for address in self.log if address < position)
            assert self.committed.address <= position

    @invariant()
    def nothing_arrives_twice_or_out_of_order(self) -> None:
        if hasattr(self, "engine"):
            for part in self.partitions.values():
                assert all(one < two for one, two in pairwise(part.stored))

    @invariant()
    def only_poison_is_set_aside_and_only_once(self) -> None:
        if hasattr(self, "engine"):
            assert len(self.dead) == len(set(self.dead))
            assert set(self.dead) <= self.poison

    @invariant()
    def what_is_outstanding_is_what_the_marks_say_and_bounded(self) -> None:
        if hasattr(self, "engine") and not self.engine.over:
            lanes = self.engine.lanes.values()
            marked = sum(m.records for lane in lanes for m in lane.outstanding)
            assert self.engine.outstanding == marked
            held = sum(lane.records for lane in lanes if lane.held)
            assert self.engine.lanes.held_records == held
            assert 0 <= self.engine.outstanding < 2 * (12 + 8)

    def drive(self, rounds: int) -> None:
        """Time passes, and what can arrive does."""
        for _ in range(rounds):
            self.tick(0.2)
            for _ in range(4):
                self.read(8)
                self.send()
                for which in range(3):
                    self.request(which, 5)
                    self.arrive(which)
                    self.answer()

    def teardown(self) -> None:
        """Time and a healthy destination bring everything there, except for records after poison
        that stops its lane."""
        if not hasattr(self, "engine"):
            return
        if self.engine.over:
            self.start()
        if self.missing:
            self.topic_gone_or_back()
        for which, lane in enumerate(self.LANES):
            if lane in self.away:
                self.leader_away_or_back(which)
        poison = {a for a in self.poison if a < 10 * len(self.log)}
        wanted: set[int] = set()
        stopped: set[LaneKey] = set()
        for address in self.log:
            lane = self.lane_by_address[address]
            if address in poison and self.policy == "stop":
                stopped.add(lane)
            elif address not in poison and lane not in stopped:
                wanted.add(address)
        for _ in range(300):
            self.drive(5)
            read = self.engine.frontier.address == 10 * len(self.log)
            if read and wanted <= self.arrived() and self.engine.stopped_short:
                break
        assert wanted <= self.arrived(), sorted(wanted - self.arrived())
        if self.policy == "stop":
            assert set(self.engine.lanes.standing) == stopped
            assert self.engine.position.address == min(poison, default=10 * len(self.log))
        else:
            assert set(self.dead) == poison
            assert self.engine.position.address == 10 * len(self.log)


@pytest.mark.parametrize("seed", range(20))
def test_a_lane_that_stays_away_does_not_keep_others_from_getting_everything(seed: int) -> None:
    bridge = Bridge()
    bridge.begin(seed, {3, 17}, "dead-letter")
    bridge.append(150)
    if seed % 2:
        bridge.drive(3)
    bridge.leader_away_or_back(seed % 3)
    bridge.append(150)
    bridge.drive(400)
    (away,) = bridge.away
    wanted = {a for a, lane in bridge.lane_by_address.items() if lane != away} - bridge.poison
    assert wanted <= bridge.arrived()
    assert bridge.engine.position.address < 10 * 150
    bridge.teardown()


Bridge.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
TestTheEngineAgainstADestination = Bridge.TestCase


class LongBridge(Bridge):
    """The same, for longer."""


LongBridge.TestCase.settings = settings(max_examples=4000, stateful_step_count=120)
TestTheEngineAgainstADestinationForLong = pytest.mark.slow(
    pytest.mark.timeout(1800)(LongBridge.TestCase)
)


def walk(seed: int) -> None:
    """The model's rules at random, more of what moves records than of what disturbs them."""
    chance = random.Random(seed)
    bridge = Bridge()
    poison = {chance.randrange(30) for _ in range(chance.choice([2, 8]))}
    bridge.begin(seed, poison, chance.choice(["stop", "dead-letter"]))
    steps: list[Callable[[], None]] = [
        lambda: bridge.append(chance.randint(1, 12)),
        lambda: bridge.read(chance.randint(1, 8)),
        bridge.send,
        lambda: bridge.request(chance.randrange(3), chance.randint(1, 5)),
        lambda: bridge.arrive(chance.randrange(3)),
        bridge.answer,
        bridge.commit,
        lambda: bridge.tick(chance.uniform(0.01, 2.0)),
        lambda: bridge.leader_away_or_back(chance.randrange(3)),
        bridge.topic_gone_or_back,
        bridge.crash,
        lambda: bridge.copy(chance.randrange(3), chance.randrange(3)),
    ]
    for _ in range(120):
        chance.choices(steps, (10, 20, 10, 20, 20, 10, 5, 10, 3, 3, 1, 3))[0]()
        bridge.the_cursor_never_passes_a_record_that_has_not_arrived()
        bridge.nothing_arrives_twice_or_out_of_order()
        bridge.only_poison_is_set_aside_and_only_once()
        bridge.what_is_outstanding_is_what_the_marks_say_and_bounded()
    bridge.teardown()


# finders: seeds that find mutants (tests/mutants), as long as the walks do not change.
@pytest.mark.parametrize("seeds", [[134, 0, 1, 2], range(3, 100)], ids=["finders", "others"])
def test_walks_at_random_keep_every_promise(seeds: Iterable[int]) -> None:
    for seed in seeds:
        walk(seed)
