"""Transactions that the cluster left open: quarantined here, because a defect of Kafka causes them.

KAFKA-20734 (https://github.com/apache/kafka/pull/22680), in Kafka 4.3 and 4.4: a coordinator that finds a
partition without a leader (the only replica is on a node that restarts) takes the partition for
deleted, and omits its marker. Records that were aborted then stay open. They hide everything after
them from consumers that read committed records, and the next transaction of the same producer would
commit them, so they would arrive twice. Kafka 4.2 and earlier are not affected. No release ends it yet:
4.3.0, 4.3.1 and 4.4.0, the newest on 2026-11-25, lose the marker of a node that was killed, 4.2.2 waits.

In a healthy cluster nothing of a producer's predecessors is open after `init_transactions`. Anything
that is open nevertheless is found here, and ended by a transaction of the new producer.

Delete this module when no supported cluster runs such a Kafka. `transactional_producer`
calls `end_in_cursor_topic` and `end_in_lanes`, and nothing else depends on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message, Producer

from bridge.errors import DestinationError, ReadForbidden, Unanswered
from bridge.kafka.catalog import Catalog
from bridge.kafka.client import ANSWER_S, ToldToStop
from bridge.kafka.consumed import stamp_of
from bridge.kafka.cursor_record import CursorName, decode_cursor
from bridge.kafka.lane import LaneKey
from bridge.kafka.read_back import ReadBack

_log = logging.getLogger("bridge.kafka")
_OPEN_PAUSE_S = 0.05
# Other producers' transactions may hide ours. Those of live producers end within milliseconds, unless
# one is written for minutes.
OTHERS_MAX_S = 10.0
_PURPOSE = "the first record of an open transaction shows whose it is; grant it"


@dataclass(eq=False)
class HangingTransactions:
    """Of one log and cursor. Makes clients as it needs them, in its caller's thread."""

    settings: dict[str, Any]
    give_up: Callable[[], bool]  # asked now and then
    name: CursorName
    _skipped: dict[LaneKey, int] = field(default_factory=dict)  # where others' stayed open

    def end_in_cursor_topic(self, producer: Producer, topic: str, known: int) -> bool:
        """Ends this log's open transaction there; whether there was one. A producer that ended one must not be used
        on: the next one looks again. known: everything before this address is certainly committed, so the cursor
        record of such a transaction is committed as well. Raises KafkaException, Unanswered."""
        key, keys = self.name.key, self.name.keys
        found = self.find([(topic, 0)], lambda message: message.key() in keys)
        addresses = [_cursor_address(message) for message in found if message.key() == key]
        return _end(producer, found, commit=any(0 <= each <= known for each in addresses))

    def end_in_lanes(self, producer: Producer, lanes: Collection[LaneKey], address: int) -> bool:
        """As end_in_cursor_topic; aborts this log's open transactions in these partitions, from the address on."""

        def address_of(message: Message) -> int | None:
            stamp = stamp_of(message)
            ours = stamp is not None and stamp.topic_uuid == self.name.topic_uuid
            return stamp.address if stamp is not None and ours else None

        uncommitted = []
        for message in self.find(lanes, lambda message: address_of(message) is not None):
            if (address_of(message) or 0) >= address:
                uncommitted.append(message)
            else:
                _log.warning("%s: committed, visible with the next commit", _place(message))
        return _end(producer, uncommitted, commit=False)

    def find(self, lanes: Collection[LaneKey], ours: Callable[[Message], bool]) -> list[Message]:
        """The first message of each open transaction there that is `ours`. Raises Unanswered."""
        cluster = Catalog(str(self.settings.get("bootstrap.servers")), self.settings)
        ends = _ends(cluster, lanes)
        until_s = time.monotonic() + OTHERS_MAX_S
        found: list[Message] = []
        foreign: dict[LaneKey, int] = {}
        while True:
            stable = _ends(cluster, ends, committed_only=True)
            hidden = {
                lane: offset
                for lane, offset in stable.items()
                if offset < ends[lane] and offset != self._skipped.get(lane)
            }
            if not hidden:
                return found
            new = {lane: offset for lane, offset in hidden.items() if foreign.get(lane) != offset}
            for lane, message in self._first(new).items():
                if ours(message):
                    found.append(message)
                    del hidden[lane]
                else:
                    foreign[lane] = new[lane]
            if self.give_up():
                raise ToldToStop
            if time.monotonic() > until_s:
                for lane, offset in hidden.items():
                    _log.warning("%s/%s: a transaction stays open at offset %s", *lane, offset)
                self._skipped.update(hidden)
            ends = {lane: ends[lane] for lane in hidden}
            time.sleep(_OPEN_PAUSE_S if hidden else 0.0)

    def _first(self, offsets: dict[LaneKey, int]) -> dict[LaneKey, Message]:
        """The messages at these offsets, committed or not, as far as there are any yet."""
        found: dict[LaneKey, Message] = {}
        if not offsets:
            return found
        with closing(ReadBack(self.settings, self.give_up, purpose=_PURPOSE)) as reader:
            for lane, offset in offsets.items():
                try:
                    message = reader.message_at(lane, offset)
                except ReadForbidden as error:
                    _log.warning("%s/%d: cannot see whose transaction is open: %s", *lane, error)
                    self._skipped[lane] = offset
                    continue
                if message is not None:
                    found[lane] = message
        return found


def _ends(
    cluster: Catalog, lanes: Collection[LaneKey], *, committed_only: bool = False
) -> dict[LaneKey, int]:
    """Where the partitions end. Raises Unanswered."""
    try:
        return cluster.offsets(lanes, "latest", committed_only=committed_only)
    except DestinationError as error:
        raise Unanswered(error.reason) from error


def _end(producer: Producer, found: Sequence[Message], *, commit: bool) -> bool:
    """Ends the transactions that begin with these messages; whether there were any. The producer writes one record
    to each of their partitions, and aborts or commits that: the markers end everything that is open there. A
    commit repeats the messages. Raises KafkaException, Unanswered."""
    if not found:
        return False
    producer.begin_transaction()
    for message in found:
        outcome = "committed" if commit else "aborted"
        _log.warning(
            "%s: the cluster left a transaction open; it is %s now", _place(message), outcome
        )
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        assert partition is not None
        value = message.value() if commit else None
        producer.produce(topic, value, message.key(), partition)
    if producer.flush(ANSWER_S):
        raise Unanswered("no answer to the end of a transaction that was left open")
    if commit:
        producer.commit_transaction(ANSWER_S)
    else:
        producer.abort_transaction(ANSWER_S)
    return True


def _cursor_address(message: Message) -> int:
    """Of a cursor record; -1 if it has none."""
    try:
        return decode_cursor(message.value() or b"").address
    except ValueError:
        return -1


def _place(message: Message) -> str:
    return f"{message.topic()}/{message.partition()} from offset {message.offset()} on"
