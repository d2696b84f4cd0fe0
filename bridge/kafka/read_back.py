"""Looks into destination partitions: what has arrived there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from bridge.kafka.client import (
    ANSWER_S,
    NoAnswer,
    NotReachable,
    Refused,
    ToldToStop,
    consumer,
    lacking,
    words,
)
from bridge.kafka.error_table import NO_READ, Kind, kind_of
from bridge.kafka.identity import Identity
from bridge.kafka.origin import Stamp, decode_stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from bridge.deliver.at_least_once.deduplicate import Deduplicator as Claims
    from bridge.kafka.lane import LaneKey

__all__ = ["ReadBack"]

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 -- a public name
_PURPOSE = (
    "the bridge reads what has arrived before it sends again, so that nothing arrives twice; grant"
    " it, or go on without with --no-read-back"
)


class ReadBack:
    """Looks into destination partitions: their ends, and our stamps in them. No group is joined
    and nothing is committed. identity: which cluster it has to be, if that is not known already.
    reads: whether records are read; if not, only ends are known, and no partition has any of
    ours. purpose: what the right to read is for, said where it is missing."""

    def __init__(
        self,
        settings: dict[str, Any],
        give_up: Callable[[], bool],
        identity: Identity | None = None,
        *,
        reads: bool = True,
        purpose: str = _PURPOSE,
    ) -> None:
        self.reads = reads
        self._purpose = purpose
        self._give_up = give_up
        self._identity = identity or Identity()
        self._servers = str(settings.get("bootstrap.servers"))
        self._consumer = consumer(
            settings,
            "aolog-bridge-read-back",
            isolation_level="read_uncommitted",
            enable_partition_eof=True,
        )

    def leaders(self, topic: str) -> dict[int, int]:
        """The broker that leads each partition of a topic, -1 where none does; nothing if there
        is no such topic, or none for us, and none is created. Raises NotReachable, OtherCluster."""
        try:
            told = self._consumer.list_topics(topic, timeout=ANSWER_S)
        except KafkaException as error:
            raise NotReachable(words(error)) from error
        self._identity.meet(told.cluster_id, self._servers)
        found = told.topics[topic]
        if found.error is not None and kind_of(found.error.name()) not in {
            Kind.TOPIC_MISSING,
            Kind.TOPIC_FORBIDDEN,
        }:
            raise NotReachable(found.error.str())
        return {number: partition.leader for number, partition in found.partitions.items()}

    def ends(self, lane: LaneKey, timeout_s: float | None = None) -> tuple[int, int]:
        """(first offset, offset after the last). Raises NoAnswer, ToldToStop, and Refused where the
        right to read is missing."""
        self._mind()
        timeout_s = ANSWER_S if timeout_s is None else timeout_s
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(*lane), timeout=timeout_s)
        except KafkaException as error:
            self._check(error.args[0], lane[0])
            raise NoAnswer(words(error)) from error
        if found is None:
            raise NoAnswer(f"no answer for the ends of {lane[0]}/{lane[1]}")
        return int(found[0]), int(found[1])

    def last_own(self, lane: LaneKey, claims: Claims, begin: int, end: int) -> int | None:
        """The greatest address of a record of the log in [begin, end); None if there is none.
        Records of strangers are passed over. Raises NoAnswer if nothing comes for so long,
        ToldToStop, and Refused without the right to read."""
        if not self.reads:
            return None
        at = begin
        patience_s = ANSWER_S * 2
        self._consumer.assign([TopicPartition(*lane, begin)])
        try:
            while at < end:
                messages = self._consumer.consume(min(10_000, end - at), timeout=0.2)
                self._mind()
                if not messages:
                    patience_s -= 0.2
                    if patience_s <= 0:
                        raise NoAnswer(f"{lane[0]}/{lane[1]} could not be read back")
                    at = max(at, self._position(lane))
                for message in messages:
                    if (error := message.error()) is not None:
                        self._check(error, lane[0])
                        continue
                    at = (message.offset() or 0) + 1
                    if at <= end:
                        claims.add(message.headers(), message.key(), message.value())
        except KafkaException as failure:
            raise NoAnswer(words(failure)) from failure
        finally:
            self._consumer.unassign()
        return claims.last()

    def check_readable(self, lane: LaneKey, end: int, timeout_s: float | None = None) -> None:
        """Reads at the end of a partition, where nothing comes. Raises as last_own."""
        if not self.reads:
            return
        patience_s = ANSWER_S if timeout_s is None else timeout_s
        self._consumer.assign([TopicPartition(*lane, end)])
        try:
            while patience_s > 0:
                for message in self._consumer.consume(1, timeout=0.2):
                    error = message.error()
                    if error is None or error.code() == _END:
                        return
                    self._check(error, lane[0])
                self._mind()
                patience_s -= 0.2
        except KafkaException as error:
            raise NoAnswer(words(error)) from error
        finally:
            self._consumer.unassign()
        raise NoAnswer(f"{lane[0]}/{lane[1]} could not be read")

    def stamp_at(self, lane: LaneKey, offset: int) -> Stamp | None:
        """The stamp of the message at an offset, or of the next one behind it; None if it has
        none, or there is no message. Raises as message_at."""
        message = self._message_from(lane, offset)
        return None if message is None else decode_stamp(message.headers())

    def message_at(self, lane: LaneKey, offset: int) -> Message | None:
        """The message at an offset, None if there is none. Raises NoAnswer, NotReachable, and
        Refused without the right to read."""
        message = self._message_from(lane, offset)
        return message if message is not None and message.offset() == offset else None

    def _message_from(self, lane: LaneKey, offset: int) -> Message | None:
        """The message at an offset, or the next one behind it."""
        first, end = self.ends(lane)
        if not first <= offset < end:
            return None
        self._consumer.assign([TopicPartition(*lane, offset)])
        patience_s = ANSWER_S
        try:
            while patience_s > 0:
                for message in self._consumer.consume(1, timeout=0.2):
                    if (error := message.error()) is None:
                        return message
                    self._check(error, lane[0])
                self._mind()
                patience_s -= 0.2
        except KafkaException as error:
            raise NoAnswer(words(error)) from error
        finally:
            self._consumer.unassign()
        raise NoAnswer(f"{lane[0]}/{lane[1]} could not be read")

    def _check(self, error: KafkaError, topic: str) -> None:
        """Raises Refused where the right to read is missing."""
        if kind_of(error.name()) is Kind.TOPIC_FORBIDDEN:
            raise Refused(lacking("Read", topic, self._purpose), NO_READ)

    def _mind(self) -> None:
        """Raises where it is to give up: many lanes, or a long one, take long."""
        if self._give_up():
            raise ToldToStop

    def _position(self, lane: LaneKey) -> int:
        """Where the consumer stands: behind control records, which are not handed out."""
        (found,) = self._consumer.position([TopicPartition(*lane)])
        return int(found.offset)

    def close(self) -> None:
        """Leaves the cluster."""
        self._consumer.close()
