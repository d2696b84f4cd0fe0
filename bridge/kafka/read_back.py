"""Reads destination partitions: what has arrived there already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import closing
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
    Uuid,
)

from bridge.errors import ReadForbidden, Unanswered
from bridge.kafka.client import (
    ANSWER_S,
    MOCK_CLUSTER,
    ToldToStop,
    admin_client,
    advertised,
    answers,
    consumer,
    lacking,
    words,
)
from bridge.kafka.error_table import Kind, kind_of
from bridge.kafka.identity import Identity
from bridge.kafka.lane import LaneKey

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 -- a public name
_BATCH = 10_000
_POLL_S = 0.2
_ID_ANSWER_S = 2.0  # without the id a topic counts as the one before
_NO_ID = str(Uuid(0, 0))
_PURPOSE = (
    "the bridge reads what has arrived before it sends again, so that nothing arrives twice; grant"
    " it, or go on without with --no-read-back"
)


class ReadBack:
    """Reads partitions: their ends, and this log's stamps in them. Joins no group and commits nothing."""

    def __init__(
        self,
        settings: dict[str, Any],
        give_up: Callable[[], bool],
        identity: Identity | None = None,  # which cluster it has to be, if that is known
        *,
        reads: bool = True,  # otherwise only ends are known, and no partition has messages
        purpose: str = _PURPOSE,  # of the right Read, for the error if it is missing
        committed: bool = False,  # a partition then ends where the first open transaction begins
        answer_s: float = ANSWER_S,  # how long the cluster may take
        lane_answer_s: float | None = None,  # and a partition, for its ends; None: as the cluster
    ) -> None:
        self.reads = reads
        self._answer_s = answer_s
        self._lane_s = lane_answer_s or answer_s
        self._purpose = purpose
        self._give_up = give_up
        self._identity = identity or Identity()
        self._settings = settings
        self._servers = str(settings.get("bootstrap.servers"))
        self._leaders: dict[LaneKey, str] = {}  # their addresses, where `leaders` was asked
        self._consumer = consumer(
            Consumer,
            settings,
            "aolog-bridge-read-back",
            isolation_level="read_committed" if committed else "read_uncommitted",
            enable_partition_eof=True,
        )

    def leaders(self, topic: str) -> dict[int, int]:
        """The broker that leads each partition of a topic, -1 if none does; empty if there is no such
        topic, or the right to see it is missing. Creates none. Raises Unanswered, OtherCluster."""
        answer = self._metadata(topic)
        found = answer.topics[topic]
        if found.error is not None and kind_of(found.error.name()) not in {
            Kind.TOPIC_MISSING,
            Kind.TOPIC_FORBIDDEN,
        }:
            raise Unanswered(found.error.str())
        leaders = {number: partition.leader for number, partition in found.partitions.items()}
        for number, leader in leaders.items():
            if (broker := answer.brokers.get(leader)) is not None:
                self._leaders[topic, number] = f"{broker.host}:{broker.port}"
        return leaders

    def _no_answer(self, lane: LaneKey, why: str) -> Unanswered:
        """Names the leader, if it is known: the client's reason does not."""
        if (leader := self._leaders.get(lane)) is None:
            return Unanswered(why)
        return Unanswered(f"{leader}: {why}{advertised(leader, self._servers)}")

    def _metadata(self, topic: str) -> Any:
        try:
            answer = self._consumer.list_topics(topic, timeout=self._answer_s)
        except KafkaException as error:
            raise Unanswered(words(error)) from error
        self._identity.meet(answer.cluster_id, self._servers)
        return answer

    def identities(self, topics: Collection[str]) -> dict[str, tuple[str, int]]:
        """The id of each of these topics and how many partitions it has, as far as the cluster tells: no Kafka before
        2.8 has ids, nor has the embedded broker. Creates no topic. Raises Unanswered, OtherCluster."""
        if not topics:
            return {}
        if str(self._metadata(min(topics)).cluster_id).startswith(MOCK_CLUSTER):
            return {}  # it has no controller, which would be asked
        admin = admin_client(self._settings)  # its answers end with it
        wanted = TopicCollection(sorted(topics))
        asked = admin.describe_topics(wanted, request_timeout=_ID_ANSWER_S)
        return {
            topic: (str(found.topic_id), len(found.partitions))
            for topic, found in answers(asked, _ID_ANSWER_S).items()
            if str(found.topic_id) != _NO_ID
        }

    def ends(self, lane: LaneKey) -> tuple[int, int]:
        """(first offset, offset after the last). Raises Unanswered, ToldToStop, and ReadForbidden if the right Read
        is missing."""
        if self._give_up():
            raise ToldToStop
        at = TopicPartition(*lane)
        try:
            found = self._consumer.get_watermark_offsets(at, timeout=self._lane_s)
        except KafkaException as error:
            self._check(error.args[0], lane[0])
            raise self._no_answer(lane, words(error)) from error
        if found is None:
            raise self._no_answer(lane, f"no answer for the ends of {lane[0]}/{lane[1]}")
        return int(found[0]), int(found[1])

    def messages(self, lane: LaneKey, begin: int, end: int) -> Generator[Message, None, None]:
        """The messages in [begin, end), in order. Raises Unanswered after ten seconds without one,
        ToldToStop, and ReadForbidden without the right Read."""
        if self.reads:
            with closing(
                self.until_end(lane, begin, end, self._answer_s * 2, batch=_BATCH)
            ) as found:
                yield from (message for message in found if message.error() is None)

    def check_readable(self, lane: LaneKey, end: int) -> None:
        """Reads at a partition's end: is the right Read there? Raises as messages."""
        if self.reads:
            with closing(self.until_end(lane, end, end + 1, self._lane_s)) as messages:
                next(messages)

    def message_at(self, lane: LaneKey, offset: int) -> Message | None:
        """The message at an offset, None if there is none. Raises as message_from."""
        message = self.message_from(lane, offset)
        return message if message is not None and message.offset() == offset else None

    def message_from(self, lane: LaneKey, offset: int) -> Message | None:
        """The message at an offset, or the next one after it; None if there is none. Raises Unanswered,
        ToldToStop, and ReadForbidden without the right Read."""
        first, end = self.ends(lane)
        if not first <= offset < end:
            return None
        with closing(self.until_end(lane, offset, end, self._answer_s)) as messages:
            return next((each for each in messages if each.error() is None), None)

    def until_end(
        self, lane: LaneKey, begin: int, end: int, patience_s: float, *, batch: int = 1
    ) -> Generator[Message, None, None]:
        """The messages at [begin, end), in order; where the partition ends meanwhile, one with an error
        and that offset. patience_s: how long the cluster may give nothing, in total. batch: a larger one
        is faster, but waits until it is full. Raises as messages."""
        at = begin
        self._consumer.assign([TopicPartition(*lane, begin)])
        try:
            while at < end:
                messages = self._consumer.consume(min(batch, end - at), timeout=_POLL_S)
                if self._give_up():
                    raise ToldToStop
                if not messages:
                    patience_s -= _POLL_S
                    if patience_s <= 0:
                        raise self._no_answer(lane, f"{lane[0]}/{lane[1]} could not be read back")
                for message in messages:
                    error = message.error()
                    if error is None:
                        at = (message.offset() or 0) + 1
                        if at <= end:
                            yield message
                    elif error.code() == _END:  # also passes control records, which never come
                        at = max(at, message.offset() or 0)
                        yield message
                    else:
                        self._check(error, lane[0])
        except KafkaException as error:
            raise self._no_answer(lane, words(error)) from error
        finally:
            self._consumer.unassign()

    def _check(self, error: KafkaError, topic: str) -> None:
        """Raises ReadForbidden if the right Read is missing."""
        if kind_of(error.name()) is Kind.TOPIC_FORBIDDEN:
            raise ReadForbidden(lacking("Read", topic, self._purpose))

    def close(self) -> None:
        """Leaves the cluster."""
        self._consumer.close()
