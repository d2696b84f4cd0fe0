"""The delivery as a whole, from log to Kafka, against a model of Kafka: topics grow between any two
steps, also while no bridge runs; bridges are killed with requests on the wire; anybody copies messages
into any partition; topics are made anew. Random walks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest

from aolog import Writer
from aolog.read.batch import Batch
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from bridge.config.routing import Routing, Rule
from bridge.config.run_options import Poison
from bridge.deliver import committer
from bridge.deliver.at_least_once import deduplicate, driver, engine, topics
from bridge.deliver.at_least_once.driver import AtLeastOnce
from bridge.deliver.backoff import Backoff
from bridge.deliver.checkpoints import Checkpoints, checkpoints_path
from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.forwarder_options import ForwarderOptions, Waits
from bridge.deliver.log_source import LogSource
from bridge.deliver.verdicts import Aside
from tests.bridge.deliver.at_least_once.kafka_model import BAD, Client, Kafka, Message

LOG = "/log"
TOPICS = ("t", "u")
LONG_S = 61.0  # topics in use are asked for again each minute


class _Killed(Exception):
    """Within a turn."""


class World:
    """A log, a cluster, and bridges one after the other. now_s: the time."""

    def __init__(self, seed: int, *, poison: Poison = "stop", has_ids: bool = True) -> None:
        self.chance = random.Random(seed)
        self.poison = poison
        self.now_s = 0.0
        self.system = SimulatedSystem(seed=seed)
        self.kafka = Kafka(self.chance, has_ids=has_ids)
        for name in TOPICS:
            self.kafka.make(name, self.chance.choice([1, 2, 3]))
        self.writer = Writer(
            LOG, storage=Storage(self.system.process()), topic="t", sync="never", flush_seconds=None
        )
        self.values: list[bytes] = []
        self.addresses: list[int] = []
        self.bridge: AtLeastOnce | None = None
        self.copies = 0

    # --- time, as the delivery takes it

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.kafka.arrive_late()  # a read-back after a crash waits as long as requests may arrive

    # --- steps

    def append(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.values)
            if self.poison != "stop" and self.chance.random() < 0.03:
                value = BAD + value
            key = self.chance.choice([None, *(b"k%d" % i for i in range(9))])
            address = self.writer.append(value, key=key, topic=self.chance.choice([None, "u"]))
            self.values.append(value)
            self.addresses.append(address)
        self.writer.flush()

    def start(self) -> None:
        self._process = self.system.process()
        storage = Storage(self._process)
        waits = Waits(idle_s=0.0, busy_s=0.0)
        options = ForwarderOptions(
            bootstrap_servers="", commit_s=0.5, poison=self.poison, waits=waits
        )
        source = LogSource(LOG, options, storage=storage)
        reader = source.reader
        checkpoints = Checkpoints.load(
            reader.path, "bridge", storage, reader.topic_uuid, begun=reader.has_cursor_position
        )
        rules = [Rule(record_topic="u", partition="round-robin")]
        routing = Routing("t", rules)
        routing.of_log(reader.topic)
        self.bridge = AtLeastOnce(
            source, checkpoints, options, routing=routing, give_up=lambda: False
        )

    @property
    def client(self) -> Client | None:
        """The running bridge's."""
        return clients[-1] if self.bridge is not None and clients else None

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            if self.bridge is not None:
                self.now_s += 0.01
                try:
                    self.bridge.turn(self.now_s)
                except _Killed:
                    self.kill()

    def may_be_killed(self) -> None:
        """While poison is set aside; what is queued may arrive before."""
        if self.chance.random() < 0.1:
            self.move(20)
            raise _Killed

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.turn()

    def move(self, steps: int) -> None:
        """What is on its way goes on, in one lane or another."""
        client = self.client
        for _ in range(steps if client is not None else 0):
            assert client is not None
            lanes = client.lanes
            if lanes:
                what = self.chance.choice([client.send, client.arrive])
                what(self.chance.choice(lanes))
            if self.chance.random() < 0.5:
                client.answer()

    def kill(self) -> None:
        if self.bridge is not None:
            self.copies += self.bridge.status().copies
            if self.client is not None:
                self.client.disconnect()
            self._process.kill()
            self.bridge = None

    def lose_notes(self) -> None:
        """The bridge is killed, and the notes beside its cursor are lost."""
        self.kill()
        storage = Storage(self.system.process())
        path = checkpoints_path(LOG, "bridge")
        if storage.exists(path):
            storage.unlink(path)

    def stop(self) -> None:
        """In good order, if the cluster lets it."""
        if self.bridge is not None:
            self.bridge.engine.stop(now_s=self.now_s)
            for _ in range(40):
                self.move(20)
                self.turn()
            self.pass_time(10.0)
            if self.bridge is not None and self.bridge.engine.over:
                self.copies += self.bridge.status().copies
                self.bridge.committer.finish()
                self.bridge.finish()
                self.bridge.committer.close()
                self.bridge.dead.close()
                self._process.kill()
                self.bridge = None

    def away_or_back(self) -> None:
        topic = self.kafka.topics.get(self.chance.choice(TOPICS))
        if topic is not None:
            name = next(n for n in TOPICS if self.kafka.topics.get(n) is topic)
            self.kafka.away ^= {(name, self.chance.randrange(len(topic.partitions)))}

    # --- the end

    def settle(self) -> None:
        """Time and a healthy cluster bring everything there."""
        self.kafka.away.clear()
        self.kafka.learn()
        for name in TOPICS:
            if name not in self.kafka.topics:
                self.kafka.make(name, 2)
        end = self.writer.end
        for i in range(4000):
            if self.bridge is None:
                self.start()
            assert self.bridge is not None
            self.turn()
            self.move(40)
            if self.bridge is not None and self.bridge.engine.position.address >= end:
                break
            if i % 10 == 9:
                self.pass_time(self.chance.choice([1.1, 11.0]))
        assert self.bridge is not None
        assert self.bridge.engine.position.address >= end, self.bridge.status()

    def stored(self, *, also_deleted: bool = False) -> Iterator[list[Message]]:
        """What bridges wrote, by partition."""
        for topic in [*self.kafka.topics.values(), *(self.kafka.deleted if also_deleted else ())]:
            for partition in topic.partitions:
                yield [message for message in partition.messages if not message.is_copy]

    @property
    def wanted(self) -> set[int]:
        return {a for a, v in zip(self.addresses, self.values, strict=True) if v[:3] != BAD}

    def check_nothing_is_lost(self) -> None:
        there = {m.address for each in self.stored(also_deleted=True) for m in each}
        assert self.wanted <= there, f"{sorted(self.wanted - there)} lost"

    def check_nothing_is_repeated_and_the_order_is_kept(self) -> None:
        stored = list(self.stored())
        counts = Counter(message.address for each in stored for message in each)
        assert not [address for address, count in counts.items() if count > 1], "repeated"
        for messages in stored:
            assert all(one.address < two.address for one, two in pairwise(messages)), "order"
        assert counts.keys() == self.wanted


clients: list[Client] = []


class _Inline:
    """An executor without a thread."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*arguments))
        return done

    def shutdown(self) -> None:
        pass


World_ = Callable[..., World]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World_:
    """Makes one: the delivery's modules take their time, and their cluster, from it."""
    set_aside = DeadLetters.take

    def make(seed: int, *, found_max: int = 1000, **options: Any) -> World:
        made = World(seed, **options)
        clients.clear()

        def take(dead: DeadLetters, asides: Sequence[Aside], batch: Batch) -> str | None:
            made.may_be_killed()
            failure = set_aside(dead, asides, batch)
            made.may_be_killed()
            return failure

        def client(*arguments: object, **others: object) -> Client:
            clients.append(Client(made.kafka, *arguments, **others))
            return clients[-1]

        for module in (committer, deduplicate, driver, topics):
            monkeypatch.setattr(module, "time", made)
        monkeypatch.setattr(engine, "Backoff", lambda: Backoff(entropy=made.chance))
        monkeypatch.setattr(deduplicate, "FOUND_MAX", found_max)
        monkeypatch.setattr(deduplicate, "FOUND_MIN", 1)
        monkeypatch.setattr(driver, "IdempotentProducer", client)
        monkeypatch.setattr(committer, "ThreadPoolExecutor", _Inline)
        monkeypatch.setattr(DeadLetters, "take", take)
        return made

    return make


def walk(world: World, steps: int, *weights: tuple[Callable[[], None], int]) -> None:
    """The usual steps, and these with their weights."""
    chance = world.chance
    usual = [
        (lambda: world.append(chance.randint(1, 40)), 10),
        (world.turn, 20),
        (lambda: world.move(chance.randint(1, 60)), 30),
        (lambda: world.pass_time(chance.choice([0.3, 0.6, 1.5])), 10),
        (lambda: world.pass_time(LONG_S), 2),
        (lambda: world.start() if world.bridge is None else None, 15),
        (world.kill, 4),
        (world.stop, 1),
        (world.away_or_back, 2),
        (world.kafka.learn, 5),
        *weights,
    ]
    calls, numbers = zip(*usual, strict=True)
    for _ in range(steps):
        chance.choices(calls, numbers)[0]()
    world.settle()


def grow(world: World) -> None:
    world.kafka.grow(world.chance.choice(TOPICS), world.chance.randint(1, 3))


def make_anew(world: World) -> None:
    """A topic is deleted, and made anew at once or later."""
    name = world.chance.choice(TOPICS)
    if name in world.kafka.topics and world.chance.random() < 0.3:
        world.kafka.delete(name)
    else:
        world.kafka.make(name, world.chance.choice([1, 2, 3, 4]))


POLICIES: list[Poison] = ["stop", "drop", "dead-letter"]
# Seeds that find mutants (tests/mutants), as long as the walks do not change.
FINDERS = [0, 1, 7]


def walk_while_topics_grow_and_messages_are_copied(make: World_, seeds: Iterable[int]) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        world = make(seed, poison=chance.choice(POLICIES), found_max=chance.choice([10, 1000]))
        walk(world, 120, (lambda w=world: grow(w), 4), (world.kafka.copy, 8))
        world.check_nothing_is_lost()
        world.check_nothing_is_repeated_and_the_order_is_kept()


@pytest.mark.parametrize("seeds", [FINDERS, range(8, 55)], ids=["finders", "others"])
def test_topics_that_grow_and_messages_that_are_copied_cost_no_record_and_no_repeat(
    world: World_, seeds: Iterable[int]
) -> None:
    walk_while_topics_grow_and_messages_are_copied(world, seeds)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_topics_that_grow_and_messages_that_are_copied_for_long(world: World_) -> None:
    walk_while_topics_grow_and_messages_are_copied(world, range(1000, 6000))


def test_topics_that_are_made_anew_as_well_cost_no_record(world: World_) -> None:
    """What was under way to the old one may arrive twice."""
    for seed in range(30):
        made = world(seed, has_ids=seed % 3 > 0)
        walk(
            made, 120, (lambda w=made: make_anew(w), 3), (lambda w=made: grow(w), 3),
            (made.kafka.copy, 5),
        )  # fmt: skip  # one call
        made.check_nothing_is_lost()


def test_retention_and_compaction_of_what_arrived_cost_no_record(world: World_) -> None:
    """What arrived and is gone may arrive twice, and what followed it."""
    for seed in range(20):
        made = world(seed)
        walk(
            made, 120, (made.kafka.forget, 8), (lambda w=made: grow(w), 3), (made.kafka.copy, 5)
        )  # fmt: skip  # one call
        made.check_nothing_is_lost()


def test_without_the_notes_beside_the_cursor_topics_that_grow_cost_no_record(
    world: World_,
) -> None:
    for seed in range(20):
        made = world(seed, found_max=20)
        walk(
            made, 100, (made.lose_notes, 4), (lambda w=made: grow(w), 3), (made.kafka.copy, 5)
        )  # fmt: skip  # one call
        made.check_nothing_is_lost()


def test_without_the_notes_beside_the_cursor_nothing_is_repeated_if_no_topic_grows(
    world: World_,
) -> None:
    for seed in range(20):
        made = world(seed, found_max=20)
        walk(made, 100, (made.lose_notes, 4), (made.kafka.copy, 5))
        made.check_nothing_is_lost()
        made.check_nothing_is_repeated_and_the_order_is_kept()


def test_a_broker_that_has_not_learnt_of_a_growth_costs_no_connection(world: World_) -> None:
    made = world(0)
    made.kafka.make("t", 2)
    made.start()
    made.append(20)
    made.settle()
    made.kafka.grow("t", 1)
    made.kafka.learn()
    for _ in range(9):
        made.pass_time(LONG_S)
    assert made.bridge is not None
    assert ("t", 2) in made.bridge.engine.lanes
    before, made.kafka.topics["t"].known = made.kafka.producers, 2
    for _ in range(20):  # half of the answers come from it
        made.pass_time(LONG_S)
    assert made.kafka.producers == before
