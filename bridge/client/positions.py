"""Where a consumer begins in each partition that it is assigned, and how far the program has come.

Offsets are committed as the Java client commits them: those of the records that one poll returned, at
the next poll. A program that dies between the two receives them again. Not thread-safe.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bridge.kafka.client import ANSWER_S, group_protocol, words

if TYPE_CHECKING:
    from bridge.client.files.log_tap import LogTap
    from bridge.kafka.catalog import Place

_log = logging.getLogger("bridge.client")


class Positions:
    """keeper: of positions of its own; None: what the group has committed counts."""

    def __init__(self, consumer: Consumer, settings: dict[str, Any], keeper: LogTap | None) -> None:
        self._consumer = consumer
        self._incremental = (  # whether the group's protocol assigns partitions one by one
            "cooperative" in str(settings.get("partition.assignment.strategy", ""))
            or group_protocol(settings) == "consumer"
        )
        self._keeper = keeper
        self._since_ms: int | None = None
        self._moved: set[Place] = set()  # partitions that began at _since_ms
        self._returned: dict[Place, int] = {}

    def backfill(self, ago_s: float) -> None:
        """Every partition goes back to the first record that is at most so old, once."""
        self._since_ms = int((time.time() - ago_s) * 1_000)
        self._moved.clear()
        self._returned.clear()
        for place in self._earlier(self._consumer.assignment()):
            self._consumer.seek(place)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """For confluent-kafka, when partitions are assigned."""
        places = {(p.topic, p.partition): p for p in partitions}
        for place in self._earlier(partitions):
            places[place.topic, place.partition] = place
        if self._keeper is not None:
            places |= self._own_starts(self._keeper, partitions)
        assign = consumer.incremental_assign if self._incremental else consumer.assign
        assign(list(places.values()))

    def _own_starts(
        self, keeper: LogTap, partitions: list[TopicPartition]
    ) -> dict[Place, TopicPartition]:
        found: dict[Place, TopicPartition] = {}
        asked = partitions
        try:
            asked = self._consumer.committed(partitions, timeout=ANSWER_S)
        except KafkaException as error:
            _log.warning("no answer about committed offsets: %s", words(error))
        for p in asked:
            low = high = None
            try:
                low, high = self._consumer.get_watermark_offsets(p, timeout=ANSWER_S)
            except KafkaException as error:
                _log.warning("no answer about %s/%d: %s", p.topic, p.partition, words(error))
            offset = keeper.start_of((p.topic, p.partition), p.offset, p.metadata or "", low, high)
            if offset is not None:
                found[p.topic, p.partition] = TopicPartition(p.topic, p.partition, offset)
        return found

    def revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """For confluent-kafka. What the program received and has not polled past is not committed:
        the next owner of the partition returns it again."""
        for p in partitions:
            self._returned.pop((p.topic, p.partition), None)

    def _earlier(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Where the backfill begins in partitions that have not had it."""
        if self._since_ms is None:
            return []
        new = [p for p in partitions if (p.topic, p.partition) not in self._moved]
        asked = [TopicPartition(p.topic, p.partition, self._since_ms) for p in new]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=ANSWER_S) if asked else []
        except KafkaException as error:
            _log.error("backfill: %s; records from the committed offsets on follow", words(error))
            return []
        self._moved.update((p.topic, p.partition) for p in found)
        return [p for p in found if p.error is None]

    # --- how far the program has come ---------------------------------------------------------

    def passed(self, topic: str, partition: int, offset: int) -> None:
        """A record that is returned to the program, or never: a heartbeat, or one that was dropped."""
        self._returned[topic, partition] = offset + 1

    def store(self) -> None:
        """The program has processed what was returned: librdkafka may commit it."""
        for (topic, partition), offset in self._returned.items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(topic, partition, offset)])
            except KafkaException as error:  # the partition has another owner now
                _log.debug("offset of %s/%d: %s", topic, partition, words(error))
        self._returned.clear()

    def commit(self) -> None:
        """Commits what was returned, and waits for it. Raises KafkaException."""
        keeper = self._keeper
        offsets = [
            TopicPartition(t, p, offset, keeper.note_of(t) if keeper is not None else "")
            for (t, p), offset in self._returned.items()
        ]
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        self._returned.clear()
