"""The topic of cursor records: created, checked, and read as far as it is committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported, not said so
    AdminClient,
    ConfigResource,
    NewTopic,
    TopicMetadata,
)

from bridge.errors import CursorTopicUnfit, DestinationError, NotIsolated, Unanswered
from bridge.kafka.client import ANSWER_S, MOCK_CLUSTER, ToldToStop, admin_client, lacking, words
from bridge.kafka.cursor_record import CursorRecord, decode_cursor
from bridge.kafka.error_table import Kind, kind_of
from bridge.kafka.identity import Identity
from bridge.kafka.lane import LaneKey
from bridge.kafka.read_back import ReadBack

_log = logging.getLogger("bridge.kafka")
_PARTITION = 0
# Cursor records are small, and each replaces the one before. The cleaner removes old ones only from
# closed segments, so segments are small.
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
_TAIL = 1_000  # offsets read first: the cursor of an active log is among the last ones
_WIDER = 10
_OPEN_PAUSE_S = 0.05
# How long another bridge's open transaction may hide what follows it. A live bridge ends its own within
# milliseconds; the cluster aborts a dead one's after transaction.timeout.ms.
_OPEN_MAX_S = 90.0
_PURPOSE = "exactly once keeps the cursor there; grant it"


@dataclass(eq=False)
class CursorTopic:
    """Makes clients as it needs them, in its caller's thread."""

    name: str
    settings: dict[str, Any]
    give_up: Callable[[], bool]  # asked now and then
    identity: Identity  # which cluster it has to be
    creates: bool  # whether a missing topic is created

    @property
    def _lane(self) -> LaneKey:
        return self.name, _PARTITION

    # --- checking -----------------------------------------------------------------------------

    def require(self) -> None:
        """Finds or creates a fit topic. Raises CursorTopicUnfit, NotIsolated, Unanswered, OtherCluster."""
        admin = admin_client(self.settings)
        until_s = time.monotonic() + ANSWER_S * 2
        created = False
        while (found := self._look(admin)) is None:
            if not self.creates:
                raise Unanswered(
                    f"there is no topic {self.name!r}, and --create-topics=never creates none: "
                    "create it with one partition and cleanup.policy=compact"
                )
            if self.give_up():
                raise ToldToStop
            if time.monotonic() > until_s:
                raise Unanswered(f"topic {self.name!r} was created and does not appear")
            created = self._create(admin) or created
            time.sleep(_OPEN_PAUSE_S)
        if created:
            _log.info(
                "topic %s was not there and has been created, with 1 partition, replication factor "
                "%d and cleanup.policy=compact",
                self.name,
                len(found.partitions[_PARTITION].replicas),
                extra={"event": "topic_created"},
            )
        partitions = len(found.partitions)
        if partitions != 1:
            raise CursorTopicUnfit(
                f"topic {self.name!r} has {partitions} partitions: cursor records need an order, "
                "and so exactly one",
                hint="name another topic with --cursor-topic; or delete this one if nothing uses "
                "it, and the bridge creates it anew",
            )
        policy = self._policy(admin)
        if policy != "compact":
            raise CursorTopicUnfit(
                f"topic {self.name!r} has cleanup.policy={policy}: a cursor record that is deleted "
                "for its age would let a log be sent again",
                hint="set cleanup.policy=compact, or name another topic with --cursor-topic",
            )

    def _look(self, admin: AdminClient) -> TopicMetadata | None:
        """The cluster's description of the topic; None if there is no such topic."""
        try:
            answer = admin.list_topics(self.name, timeout=ANSWER_S)
        except KafkaException as error:
            raise self._failure(error, "Describe") from error
        if (answer.cluster_id or "").startswith(MOCK_CLUSTER):  # it has no controller for more
            raise NotIsolated(
                "this is the embedded broker, which does not isolate transactions",
                hint="use --delivery at_least_once, or a Kafka",
            )
        self.identity.meet(answer.cluster_id, str(self.settings["bootstrap.servers"]))
        found: TopicMetadata = answer.topics[self.name]
        if found.error is None:
            return found
        kind = kind_of(found.error.name())
        if kind is Kind.TOPIC_MISSING:
            return None
        if kind is Kind.POISON:
            raise CursorTopicUnfit(f"{self.name!r} is not a valid topic name")
        raise self._failure(KafkaException(found.error), "Describe")

    def _create(self, admin: AdminClient) -> bool:
        """Whether this process created it: another bridge may have been faster."""
        topic = NewTopic(self.name, num_partitions=1, config=_CONFIG)
        asked = admin.create_topics([topic], operation_timeout=ANSWER_S, request_timeout=ANSWER_S)
        try:
            asked[self.name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failure(error, "Create") from error
            return False
        return True

    def _policy(self, admin: AdminClient) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            asked = admin.describe_configs([resource], request_timeout=ANSWER_S)
            return str(asked[resource].result()["cleanup.policy"].value)
        except KafkaException as error:
            raise self._failure(error, "DescribeConfigs") from error

    def _failure(self, error: KafkaException, right: str) -> Exception:
        """right: the one that the call needs."""
        if kind_of(error.args[0].name()) is Kind.TOPIC_FORBIDDEN:
            return Unanswered(self.lacks(right))
        return Unanswered(f"topic {self.name!r}: {words(error)}")

    def lacks(self, right: str) -> str:
        """The text for a missing right to the topic."""
        return lacking(right, self.name, _PURPOSE)

    # --- reading ------------------------------------------------------------------------------

    def ends(self) -> tuple[int, int]:
        """(first offset, offset after the last record of any kind). Raises Unanswered."""
        with closing(self._reader()) as reader:
            return reader.ends(self._lane)

    def last(self, key: bytes, *, open_keys: Collection[bytes] = ()) -> CursorRecord | None:
        """The last committed cursor record of a key, None if there is none or it was deleted. Waits for
        open transactions, so that everything written before the call counts; but not for one whose
        first record has one of open_keys. Raises Unanswered, DestinationError."""
        first, end = self.ends()
        tail = _TAIL
        while True:
            begin = max(first, end - tail)
            found = [value for k, value in self.committed(begin, end, open_keys) if k == key]
            if found:
                return None if found[-1] is None else self._decode(key, found[-1])
            if begin == first:
                return None
            tail *= _WIDER

    def _decode(self, key: bytes, value: bytes) -> CursorRecord:
        try:
            return decode_cursor(value)
        except ValueError as error:
            raise DestinationError(
                f"the cursor record in topic {self.name!r} cannot be read: {error}",
                hint="a newer release or another program wrote it; to go on from the local cursor, write "
                f"a null value with the key {key.decode()}",
            ) from error

    def committed(
        self, begin: int, end: int, open_keys: Collection[bytes] = ()
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        """(key, value) of the committed records in [begin, end). Waits until no transaction is open there;
        open_keys: see `last`. Raises Unanswered."""
        at, until_s = begin, time.monotonic() + _OPEN_MAX_S
        with closing(self._reader(committed=True)) as reader:
            while True:
                messages = reader.until_end(self._lane, at, end, ANSWER_S * 2)
                for message in messages:
                    at = message.offset() or 0
                    if message.error() is not None:
                        break
                    yield message.key(), message.value()
                else:
                    return
                messages.close()
                if at >= end or (open_keys and self._key_at(at) in open_keys):
                    return
                if time.monotonic() > until_s:
                    raise Unanswered(f"topic {self.name!r} could not be read to its end")
                _log.debug("waiting for an open transaction at offset %d", at)
                time.sleep(_OPEN_PAUSE_S)

    def _key_at(self, offset: int) -> bytes | None:
        """Of the record at an offset, committed or not."""
        with closing(self._reader()) as reader:
            message = reader.message_at(self._lane, offset)
        return None if message is None else message.key()

    def _reader(self, *, committed: bool = False) -> ReadBack:
        return ReadBack(self.settings, self.give_up, purpose=_PURPOSE, committed=committed)
