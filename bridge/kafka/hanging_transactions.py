"""What a cluster left open: our transactions that it ended without a marker in each partition.

One of the modules that speak to a Kafka cluster as a client; see `producer`.

A coordinator that finds no leader for a partition may take it for deleted and leave out its marker
(KAFKA-20734: Kafka 4.3, where a node restarts that had the only replica). What was aborted stays
open there then: it hides all that follows from readers of what is committed, and would be
committed with the next transaction of the same producer, and so arrive twice. Once a producer was
initialised nothing of its predecessors is open in a cluster that is well; what is nevertheless is
found here, and ended by `TransactionalCluster` with a transaction that it aborts.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # re-exported, not said so

from bridge.kafka.client import ANSWER_S, NotReachable, Refused, ToldToStop, admin_client, words
from bridge.kafka.read_back import ReadBack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from confluent_kafka import Message, Producer
    from confluent_kafka.admin import AdminClient

    from bridge.kafka.lane import LaneKey

__all__ = ["LeftOpen", "end_again", "place_of"]

_log = logging.getLogger("bridge.kafka")
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as it stands
_OPEN_PAUSE_S = 0.05
# How long transactions of others are waited for: ours may lie behind them. Those of producers that
# live end within milliseconds, unless they write for minutes into one.
_OTHERS_MAX_S = 10.0
_PURPOSE = "whose transaction is open there is read from its first record; grant it"


class LeftOpen:
    """Looks into partitions in a thread of its caller's; makes clients as it needs them. give_up:
    asked now and then."""

    def __init__(self, settings: dict[str, Any], give_up: Callable[[], bool]) -> None:
        self._settings = settings
        self._give_up = give_up
        self._given_up: dict[LaneKey, int] = {}  # where somebody else's stayed open

    def find(self, lanes: Collection[LaneKey], ours: Callable[[Message], bool]) -> list[Message]:
        """In each of the partitions where a transaction of ours is open its first message. Raises
        NotReachable."""
        admin = admin_client(self._settings)
        ends = self._ends(admin, lanes, IsolationLevel.READ_UNCOMMITTED)
        until_s = time.monotonic() + _OTHERS_MAX_S
        found: list[Message] = []
        others: dict[LaneKey, int] = {}
        while True:
            stable = self._ends(admin, ends, IsolationLevel.READ_COMMITTED)
            hidden = {
                lane: offset
                for lane, offset in stable.items()
                if offset < ends[lane] and offset != self._given_up.get(lane)
            }
            if not hidden:
                return found
            new = {lane: offset for lane, offset in hidden.items() if others.get(lane) != offset}
            for lane, message in self._first(new).items():
                if ours(message):
                    found.append(message)
                    del hidden[lane]
                else:
                    others[lane] = new[lane]
            if self._give_up():
                raise ToldToStop
            if time.monotonic() > until_s:
                for lane, offset in hidden.items():
                    _log.warning("%s/%s: a transaction stays open at offset %s", *lane, offset)
                self._given_up.update(hidden)
            ends = {lane: ends[lane] for lane in hidden}
            time.sleep(_OPEN_PAUSE_S if hidden else 0.0)

    def _ends(
        self, admin: AdminClient, lanes: Collection[LaneKey], isolation: IsolationLevel
    ) -> dict[LaneKey, int]:
        """Where the partitions end for a reader."""
        if not lanes:
            return {}
        try:
            asked = admin.list_offsets(
                dict.fromkeys((TopicPartition(*lane) for lane in lanes), _LATEST),
                isolation_level=isolation,
                request_timeout=ANSWER_S,
            )
            return {
                (place.topic, place.partition): int(answer.result(ANSWER_S * 2).offset)
                for place, answer in asked.items()
            }
        except KafkaException as error:
            raise NotReachable(words(error)) from error
        except TimeoutError as error:
            raise NotReachable("no answer for the ends of partitions") from error

    def _first(self, offsets: dict[LaneKey, int]) -> dict[LaneKey, Message]:
        """The messages at these offsets, committed or not, but for those that are not there."""
        found: dict[LaneKey, Message] = {}
        if not offsets:
            return found
        reader = ReadBack(self._settings, self._give_up, purpose=_PURPOSE)
        try:
            for lane, offset in offsets.items():
                try:
                    message = reader.message_at(lane, offset)
                except Refused as error:
                    _log.warning("%s/%d: what is open there is not known: %s", *lane, error)
                    self._given_up[lane] = offset
                    continue
                if message is not None:
                    found[lane] = message
        finally:
            reader.close()
        return found


def end_again(producer: Producer, left: Sequence[Message], *, commit: bool) -> None:
    """Ends what begins with these messages by a transaction of its own producer with a record in
    each of their partitions, that is aborted, or committed: its markers end all that is open. What
    is committed are the messages once more. Raises KafkaException, NotReachable."""
    producer.begin_transaction()
    for message in left:
        _log.warning(
            "%s: the cluster left a transaction open, which is %s now",
            place_of(message),
            "committed" if commit else "aborted",
        )
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        assert partition is not None
        value = message.value() if commit else None
        producer.produce(topic, value, message.key(), partition)
    if producer.flush(ANSWER_S):
        raise NotReachable("no answer to the end of what was left open")
    if commit:
        producer.commit_transaction(ANSWER_S)
    else:
        producer.abort_transaction(ANSWER_S)


def place_of(message: Message) -> str:
    """For logs."""
    return f"{message.topic()}/{message.partition()} from offset {message.offset()} on"
