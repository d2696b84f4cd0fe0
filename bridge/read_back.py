"""Looks into destination partitions: what has arrived there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition

from bridge.error_table import Kind, kind_of
from bridge.identity import Identity
from bridge.librdkafka import (
    ANSWER_S,
    NoAnswer,
    NotReachable,
    Refused,
    consumer,
    words,
)
from bridge.stamp import Stamp, decode_stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from bridge.lane import LaneKey
    from bridge.recognise import Claims

__all__ = ["ReadBack"]


class ReadBack:
    """Looks into destination partitions: their ends, and our stamps in them. No group is joined
    and nothing is committed. identity: which cluster it has to be, if that is not known already."""

    def __init__(
        self,
        settings: dict[str, Any],
        give_up: Callable[[], bool],
        identity: Identity | None = None,
    ) -> None:
        self._give_up = give_up
        self._identity = identity or Identity()
        self._servers = str(settings.get("bootstrap.servers"))
        self._consumer = consumer(
            settings, "aolog-bridge-read-back", isolation_level="read_uncommitted"
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
        """(first offset, offset behind the last). Raises NoAnswer, and NotReachable where it is
        to give up."""
        self._mind(lane)
        timeout_s = ANSWER_S if timeout_s is None else timeout_s
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(*lane), timeout=timeout_s)
        except KafkaException as error:
            raise NoAnswer(words(error)) from error
        if found is None:
            raise NoAnswer(f"no answer for the ends of {lane[0]}/{lane[1]}")
        return int(found[0]), int(found[1])

    def last_own(self, lane: LaneKey, claims: Claims, begin: int, end: int) -> int | None:
        """The greatest address of a record of the log in [begin, end); None if there is none.
        Records of strangers are passed over. Raises NoAnswer if nothing comes for so long, and
        NotReachable where it is to give up."""
        at = begin
        patience_s = ANSWER_S * 2
        self._consumer.assign([TopicPartition(*lane, begin)])
        try:
            while at < end:
                messages = self._consumer.consume(min(10_000, end - at), timeout=0.2)
                self._mind(lane)
                if not messages:
                    patience_s -= 0.2
                    if patience_s <= 0:
                        raise NoAnswer(f"{lane[0]}/{lane[1]} could not be read back")
                    at = max(at, self._position(lane))
                for message in messages:
                    if message.error() is not None:
                        continue
                    at = (message.offset() or 0) + 1
                    if at <= end:
                        claims.add(message.headers(), message.key(), message.value())
        except KafkaException as error:
            raise NoAnswer(words(error)) from error
        finally:
            self._consumer.unassign()
        return claims.last()

    def stamp_at(self, lane: LaneKey, offset: int) -> Stamp | None:
        """The stamp of the message at an offset, or of the next one behind it; None if it has
        none, or there is no message. Raises NoAnswer, NotReachable."""
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
                    error = message.error()
                    if error is None:
                        return message
                    if kind_of(error.name()) is Kind.TOPIC_FORBIDDEN:
                        raise Refused(f"topic {lane[0]!r} is not ours to read", error.name())
                self._mind(lane)
                patience_s -= 0.2
        except KafkaException as error:
            raise NoAnswer(words(error)) from error
        finally:
            self._consumer.unassign()
        raise NoAnswer(f"{lane[0]}/{lane[1]} could not be read")

    def _mind(self, lane: LaneKey) -> None:
        """Raises where it is to give up: many lanes, or a long one, take long."""
        if self._give_up():
            raise NotReachable(f"told to stop before {lane[0]}/{lane[1]} was read back")

    def _position(self, lane: LaneKey) -> int:
        """Where the consumer stands: behind control records, which are not handed out."""
        (found,) = self._consumer.position([TopicPartition(*lane)])
        return int(found.offset)

    def close(self) -> None:
        """Leaves the cluster."""
        self._consumer.close()
