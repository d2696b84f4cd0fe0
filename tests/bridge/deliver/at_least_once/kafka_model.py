"""A model of Kafka and of its client, in memory and without a clock of its own.

Topics grow, are deleted and made anew; leaders are away; brokers answer with what they knew before;
anybody copies messages, headers included; retention and compaction take messages. A producer is idempotent and gapless as Kafka's is (see
engines.Partition). Its requests outlive it: they may arrive after the bridge was killed, until the next
read-back has waited for them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from aolog.format.origin import HEADER_NAME
from bridge.errors import Unanswered
from bridge.kafka.admission import Admission
from bridge.kafka.events import Delivered, Failed, KafkaEvent, Put
from bridge.kafka.lane import LaneKey, Refusal
from bridge.kafka.stamp import unpack_stamp

BAD = b"bad"  # the broker refuses messages whose values begin so
REFUSED = "INVALID_RECORD"
REQUEST_RECORDS = 7
IN_FLIGHT = 5


class Message(NamedTuple):
    """As it is stored. is_copy: no bridge wrote it."""

    stamp: bytes
    key: bytes | None
    value: bytes | None
    is_copy: bool = False

    @property
    def address(self) -> int:
        return unpack_stamp(self.stamp).address


class Outgoing(NamedTuple):
    """A message on its way, and its delivery callback."""

    message: Message
    callback: Callable[..., None] | None


class Request:
    """Some messages of one producer to one partition."""

    def __init__(self, producer: int, lane: LaneKey, sequence: int, sent: list[Outgoing]) -> None:
        self.producer = producer
        self.lane = lane
        self.sequence = sequence
        self.sent = sent
        self.failure = ""
        self.end = 0


class Partition:
    """messages: also those that are gone. gone: their offsets. first: retention took all before this offset."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.gone: set[int] = set()
        self.first = 0
        self._known: int | None = None
        self._next = 0

    def take(self, request: Request) -> str:
        """Why the request is refused, if it is."""
        values = [out.message.value for out in request.sent]
        if any(value is not None and value.startswith(BAD) for value in values):
            return REFUSED
        if self._known == request.producer and request.sequence != self._next:
            return "OUT_OF_ORDER_SEQUENCE_NUMBER"
        self._known, self._next = request.producer, request.sequence + len(values)
        self.messages += [out.message for out in request.sent]
        request.end = len(self.messages)
        return ""


class Topic:
    """number: the cluster's id. known: how many partitions a broker says that has not learnt better."""

    def __init__(self, number: int, partitions: int) -> None:
        self.number = number
        self.partitions = [Partition() for _ in range(partitions)]
        self.known = partitions


class Kafka:
    """The cluster. has_ids: whether it tells the ids of topics. away: partitions without a leader. late:
    requests of producers that have ended. deleted: earlier topics."""

    def __init__(self, chance: random.Random, *, has_ids: bool = True) -> None:
        self.chance = chance
        self.has_ids = has_ids
        self.topics: dict[str, Topic] = {}
        self.deleted: list[Topic] = []
        self.away: set[LaneKey] = set()
        self.late: deque[Request] = deque()
        self.producers = 0

    def make(self, name: str, partitions: int) -> None:
        """Makes a topic; one of that name is deleted first."""
        self.delete(name)
        self.topics[name] = Topic(len(self.deleted), partitions)

    def delete(self, name: str) -> None:
        if name in self.topics:
            self.deleted.append(self.topics.pop(name))
            self.away = {lane for lane in self.away if lane[0] != name}

    def grow(self, name: str, more: int) -> None:
        if name in self.topics:
            topic = self.topics[name]
            topic.known = len(topic.partitions)
            topic.partitions += [Partition() for _ in range(more)]

    def learn(self) -> None:
        """All brokers know how many partitions there are."""
        for topic in self.topics.values():
            topic.known = len(topic.partitions)

    def copy(self) -> None:
        """Somebody copies a message into any partition."""
        partitions = [p for topic in self.topics.values() for p in topic.partitions]
        full = [p for p in partitions if p.messages]
        if full:
            message = self.chance.choice(self.chance.choice(full).messages)
            self.chance.choice(partitions).messages.append(message._replace(is_copy=True))

    def forget(self) -> None:
        """Retention takes the beginning of a partition, or compaction some messages."""
        partitions = [p for topic in self.topics.values() for p in topic.partitions if p.messages]
        if partitions:
            partition = self.chance.choice(partitions)
            offsets = range(partition.first, len(partition.messages))
            if self.chance.random() < 0.5:
                partition.first += self.chance.randint(0, len(offsets))
            else:
                partition.gone |= {offset for offset in offsets if self.chance.random() < 0.2}

    def shown(self, name: str) -> int:
        """How many partitions of a topic a broker tells; 0 if there is no such topic."""
        topic = self.topics.get(name)
        if topic is None:
            return 0
        return self.chance.choice([topic.known, len(topic.partitions)])

    def partition(self, lane: LaneKey) -> Partition | None:
        """None if it does not exist, or has no leader."""
        topic = self.topics.get(lane[0])
        if topic is None or lane[1] >= len(topic.partitions) or lane in self.away:
            return None
        return topic.partitions[lane[1]]

    def offer(self, request: Request) -> None:
        """The request reaches its leader."""
        partition = self.partition(request.lane)
        request.failure = "no leader" if partition is None else partition.take(request)

    def arrive_late(self, count: int = 1 << 30) -> None:
        """Requests of producers that have ended arrive, the oldest first."""
        for _ in range(min(count, len(self.late))):
            self.offer(self.late.popleft())


class Client:
    """What at-least-once delivery needs of bridge.kafka.producer.IdempotentProducer, and of its
    connection: put, then `move`."""

    def __init__(self, kafka: Kafka, *_: object, **options: object) -> None:
        self.kafka = kafka
        self.connection = self
        self.reachable = False
        self.sent: dict[LaneKey, Any] = {}
        self.admission = Admission(1 << 20, 1 << 16, compresses=False)
        self.topic_settings = SimpleNamespace(forget=lambda: None, too_few_in_sync=lambda *_: None)
        self._producer = 0
        self._forget()

    def _forget(self) -> None:
        self._queues: dict[LaneKey, deque[Outgoing]] = {}
        self._sequences: dict[LaneKey, int] = {}
        self._flights: dict[LaneKey, deque[Request]] = {}
        self._answers: deque[Request] = deque()
        self._events: deque[KafkaEvent] = deque()

    # --- what the delivery calls

    def connect(self, *, careful: bool = False) -> None:
        self.disconnect()
        self.kafka.producers += 1
        self._producer = self.kafka.producers
        self.reachable = True

    def disconnect(self) -> None:
        """Of what is under way some arrives later, in each partition up to some request."""
        for flight in self._flights.values():
            kept = self.kafka.chance.randint(0, len(flight))
            self.kafka.late.extend(list(flight)[:kept])
        self._forget()
        self.reachable = False

    def reporting(self, lane: LaneKey, address: int, time_ms: int) -> Callable[..., None]:
        producer = self._producer

        def report(failure: str, offset: int) -> None:
            if producer != self._producer:
                return
            if failure == REFUSED:
                self._events.append(Failed("refused", REFUSED, lane, address, time_ms))
            elif failure:
                self._events.append(Failed(failure))
            else:
                self._events.append(Delivered(lane, address, offset))

        return report

    def put(self, rows: Any) -> Put:
        begin = rows.at
        for topic, value, key, partition, callback, _, _, headers in rows.calls(rows.end):
            (stamp,) = (of for name, of in headers if name == HEADER_NAME)
            out = Outgoing(Message(stamp, key, value), callback)
            self._queues.setdefault((topic, partition), deque()).append(out)
        rows.at = rows.end
        return Put(rows.end - begin, None)

    def poll(self, _: float) -> Iterator[KafkaEvent]:
        while self._events:
            yield self._events.popleft()

    def serve(self, _: float = 0.0) -> None:
        pass

    def refused_alone(self, *_: object) -> None:
        """The model refuses no timestamp."""

    def learn(self, _: object) -> bool:
        return False

    def trouble(self, failure: str | None) -> str | None:
        return failure

    def unanswered(self, error: object) -> str:
        return str(error)

    def partitions(self, topic: str, _: float = 0.0) -> int | Refusal:
        shown = self.kafka.shown(topic)
        return shown or Refusal("no such topic", "UNKNOWN_TOPIC_OR_PART", passing=True)

    def reader(self, _: Callable[[], bool], _answer_s: float | None = None) -> Reader:
        return Reader(self.kafka)

    # --- what the test does

    def send(self, lane: LaneKey) -> None:
        """Queued messages of a lane go onto the wire."""
        queue = self._queues.get(lane)
        flight = self._flights.setdefault(lane, deque())
        if not queue or len(flight) >= IN_FLIGHT:
            return
        count = min(self.kafka.chance.randint(1, REQUEST_RECORDS), len(queue))
        sent = [queue.popleft() for _ in range(count)]
        sequence = self._sequences.get(lane, 0)
        self._sequences[lane] = sequence + count
        flight.append(Request(self._producer, lane, sequence, sent))

    def arrive(self, lane: LaneKey) -> None:
        """The oldest request of a lane reaches its leader, if there is one."""
        flight = self._flights.get(lane)
        if flight and self.kafka.partition(lane) is not None:
            self.kafka.offer(flight[0])
            self._answers.append(flight.popleft())

    def answer(self) -> None:
        """The oldest answer reaches the client."""
        if not self._answers:
            return
        request = self._answers.popleft()
        begin = request.end - len(request.sent)
        callbacks = [out.callback for out in request.sent]
        if request.failure == REFUSED and not any(callbacks):
            self._events.append(Failed("refused", REFUSED))
        for offset, callback in enumerate(callbacks, begin):
            if callback is not None:
                callback(request.failure, offset)

    @property
    def lanes(self) -> list[LaneKey]:
        """Those to which something is on its way."""
        return sorted({*self._queues, *self._flights})


class Reader:
    """What at-least-once delivery needs of bridge.kafka.read_back.ReadBack."""

    reads = True

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def leaders(self, topic: str) -> dict[int, int]:
        shown = self._kafka.shown(topic)
        return {p: -1 if (topic, p) in self._kafka.away else p for p in range(shown)}

    def identities(self, topics: Collection[str]) -> dict[str, tuple[str, int]]:
        known = self._kafka.topics
        return {
            name: (f"id {known[name].number}", self._kafka.shown(name))
            for name in sorted(topics)
            if name in known and self._kafka.has_ids
        }

    def ends(self, lane: LaneKey) -> tuple[int, int]:
        partition = self._of(lane)
        return partition.first, len(partition.messages)

    def messages(self, lane: LaneKey, begin: int, end: int) -> Iterator[Any]:
        partition = self._of(lane)
        for offset, message in enumerate(partition.messages[begin:end], begin):
            if offset not in partition.gone:
                yield _Found(message, offset)

    def check_readable(self, lane: LaneKey, _: int) -> None:
        self._of(lane)

    def _of(self, lane: LaneKey) -> Partition:
        partition = self._kafka.partition(lane)
        if partition is None:
            raise Unanswered("no leader")
        return partition

    def close(self) -> None:
        pass


class _Found:
    """A message as the client returns it."""

    def __init__(self, message: Message, offset: int) -> None:
        self._message = message
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes]]:
        return [(HEADER_NAME, self._message.stamp)]

    def key(self) -> bytes | None:
        return self._message.key

    def value(self) -> bytes | None:
        return self._message.value
