"""The topic of cursor records: made, checked, and read to what is committed.

One of the modules that speak to a Kafka cluster as a client; see `kafka`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported, not said so
    AdminClient,
    ConfigResource,
    NewTopic,
)

from bridge.cursor_record import CursorRecord, decode_cursor
from bridge.errors import CursorTopicUnfit, DestinationError, NotIsolated
from bridge.librdkafka import (
    ANSWER_S,
    CLIENT_LOG,
    FORBIDDEN,
    MOCK_CLUSTER,
    NO_TOPIC,
    PRODUCER_ONLY,
    NotReachable,
    words,
)
from bridge.read_back import ReadBack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from bridge.identity import Identity

__all__ = ["CursorTopic"]

_log = logging.getLogger("bridge.kafka")
_PARTITION = 0
# Cursor records are small and each supersedes the one before: segments that close soon let the
# cleaner remove them.
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
_TAIL = 1_000  # offsets looked at first; an active log's cursor is among the last
_WIDER = 10
_OPEN_PAUSE_S = 0.05
# How long another bridge's transaction may hide what lies behind it: those of bridges that live
# end within milliseconds, a dead one's when the cluster gives it up (transaction.timeout.ms).
_OPEN_MAX_S = 90.0


class CursorTopic:
    """Reads in a thread of its caller's; makes clients as it needs them. give_up: asked now and
    then. identity: which cluster it has to be."""

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        give_up: Callable[[], bool],
        identity: Identity,
    ) -> None:
        self.name = name
        self._identity = identity
        self._settings = settings
        self._give_up = give_up

    # --- there and fit ------------------------------------------------------------------------

    def require(self) -> None:
        """Makes it if it is missing. Raises CursorTopicUnfit, NotIsolated, NotReachable,
        OtherCluster."""
        admin = AdminClient(self._settings, logger=CLIENT_LOG)
        until_s = time.monotonic() + ANSWER_S * 2
        while not (partitions := self._partitions(admin)):
            self._create(admin)
            if self._give_up() or time.monotonic() > until_s:
                raise NotReachable(f"topic {self.name!r} was made and does not appear")
            time.sleep(_OPEN_PAUSE_S)
        if partitions != 1:
            raise CursorTopicUnfit(
                f"topic {self.name!r} has {partitions} partitions: cursor records need an order, "
                "and so exactly one",
                hint="name another topic with --cursor-topic",
            )
        policy = self._policy(admin)
        if policy != "compact":
            raise CursorTopicUnfit(
                f"topic {self.name!r} has cleanup.policy={policy}: a cursor record that is deleted "
                "for its age would let a log be sent again",
                hint="set cleanup.policy=compact, or name another topic with --cursor-topic",
            )

    def _partitions(self, admin: AdminClient) -> int:
        try:
            told = admin.list_topics(self.name, timeout=ANSWER_S)
        except KafkaException as error:
            raise self._told(error) from error
        if (told.cluster_id or "").startswith(MOCK_CLUSTER):  # it has no controller to ask for more
            raise NotIsolated(
                "this is the embedded broker, which does not isolate transactions",
                hint="use --delivery at_least_once, or a Kafka",
            )
        self._identity.meet(told.cluster_id, str(self._settings["bootstrap.servers"]))
        found = told.topics[self.name]
        if found.error is None:
            return len(found.partitions)
        if found.error.code() in NO_TOPIC:
            return 0
        if found.error.code() == KafkaError.TOPIC_EXCEPTION:
            raise CursorTopicUnfit(f"{self.name!r} is no name for a topic")
        raise self._told(KafkaException(found.error))

    def _create(self, admin: AdminClient) -> None:
        topic = NewTopic(self.name, num_partitions=1, config=_CONFIG)
        try:
            admin.create_topics([topic], operation_timeout=ANSWER_S, request_timeout=ANSWER_S)[
                self.name
            ].result(ANSWER_S * 2)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._told(error) from error
        except TimeoutError as error:
            raise NotReachable(f"no answer to the making of topic {self.name!r}") from error

    def _policy(self, admin: AdminClient) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            asked = admin.describe_configs([resource], request_timeout=ANSWER_S)
            return str(asked[resource].result(ANSWER_S * 2)["cleanup.policy"].value)
        except KafkaException as error:
            raise self._told(error) from error
        except TimeoutError as error:
            raise NotReachable(f"no answer for the settings of {self.name!r}") from error

    def _told(self, error: KafkaException) -> Exception:
        said = words(error)
        if error.args[0].code() in {*FORBIDDEN, KafkaError.TOPIC_AUTHORIZATION_FAILED}:
            said += (
                "; exactly once needs the rights to describe, read and write it, to describe its"
                " settings, and where it is missing to create it"
            )
        return NotReachable(f"topic {self.name!r}: {said}")

    # --- reading ------------------------------------------------------------------------------

    def end(self) -> int:
        """Offset behind the last record of any kind. Raises NotReachable."""
        return self._ends()[1]

    def last(self, key: bytes, *, open_keys: Collection[bytes] = ()) -> CursorRecord | None:
        """The last committed cursor record of a key, None if there is none or it was deleted. Everything
        that was written before the call counts; or up to where a transaction is open that begins
        with one of open_keys. Raises NotReachable, DestinationError."""
        first, end = self._ends()
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
                hint="a newer release wrote it, or somebody else; delete it with a null value of "
                f"the key {key.decode()} to go on from the local cursor",
            ) from error

    def committed(
        self, begin: int, end: int, open_keys: Collection[bytes] = ()
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        """(key, value) of the committed records in [begin, end), once nothing that lies there is
        open any more; open_keys: see `last`. Raises NotReachable."""
        kept = {k: v for k, v in self._settings.items() if k not in PRODUCER_ONLY}
        consumer = Consumer(
            {
                **kept,
                "group.id": "aolog-bridge-cursors",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            },
            logger=CLIENT_LOG,
        )
        at, until_s = begin, time.monotonic() + _OPEN_MAX_S
        heard_s = time.monotonic()
        try:
            consumer.assign([TopicPartition(self.name, _PARTITION, begin)])
            while at < end:
                message = consumer.poll(0.2)
                now_s = time.monotonic()
                if self._give_up() or now_s > until_s or now_s > heard_s + ANSWER_S * 2:
                    raise NotReachable(f"topic {self.name!r} could not be read to its end")
                if message is None:
                    continue
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    heard_s, at = now_s, offset + 1
                    if offset < end:
                        yield message.key(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 -- a public name
                    heard_s, at = now_s, offset
                    if at < end:  # somebody's open transaction hides what follows
                        if open_keys and self._key_at(at) in open_keys:
                            return
                        _log.debug("waiting for an open transaction at offset %d", at)
                        time.sleep(_OPEN_PAUSE_S)
                        consumer.assign([TopicPartition(self.name, _PARTITION, at)])
        except KafkaException as error:
            raise NotReachable(words(error)) from error
        finally:
            consumer.close()

    def _key_at(self, offset: int) -> bytes | None:
        """Of the record there, committed or not."""
        reader = ReadBack(self._settings, self._give_up)
        try:
            message = reader.message_at((self.name, _PARTITION), offset)
        finally:
            reader.close()
        return None if message is None else message.key()

    def _ends(self) -> tuple[int, int]:
        reader = ReadBack(self._settings, self._give_up)
        try:
            return reader.ends((self.name, _PARTITION))
        finally:
            reader.close()
