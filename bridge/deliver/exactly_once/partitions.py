"""Partitions: how many each topic has, for exactly_once: asked on each connection and each minute. A
transaction needs no checkpoints, and closes no lane."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import suppress

from aolog.errors import counted
from bridge.deliver.forwarder_options import Waits
from bridge.deliver.intake import PartitionsOf
from bridge.deliver.partition_counts import PartitionCounts
from bridge.errors import Unanswered
from bridge.kafka.connection import Connection
from bridge.kafka.lane import Refusal
from bridge.kafka.stalls import STALLED_S

_log = logging.getLogger("bridge")


class Partitions:
    """The topics of one log's records on one cluster. Not thread-safe."""

    def __init__(self, connection: Connection, waits: Waits) -> None:
        self._connection = connection
        self._waits = waits
        self._partitions: dict[str, int] = {}
        self._asked_s: dict[str, float] = {}
        self._found_s: dict[str, float] = {}
        self._look_due_s = 0.0

    def forget(self) -> None:
        """A new connection may find other numbers. How long a topic has been missing is kept."""
        self._partitions.clear()

    @property
    def topics(self) -> list[str]:
        """The topics that were found on this connection."""
        return sorted(self._partitions)

    def of(self, topics: Collection[str]) -> PartitionsOf | None:
        """How many partitions each topic has, or why it cannot be used. None, after a pause: ask again."""
        found: dict[str, PartitionCounts | Refusal] = {}
        for topic in topics:
            partitions = self._find(topic)
            if partitions is None:
                time.sleep(self._waits.topic_pause_s)
                return None
            found[topic] = partitions
        return found.__getitem__

    def _find(self, topic: str) -> PartitionCounts | Refusal | None:
        """How many partitions the topic has, or why it cannot be used. None: call again in a moment; the
        cluster does not answer, or may be creating it (one that was found before gets less time)."""
        now_s = time.monotonic()
        if topic in self._partitions:
            if now_s - self._found_s[topic] >= self._waits.reread_s:
                # It may have grown: records of one key may then be in two partitions. If it is gone, or nothing
                # answers, the next transaction will find out more.
                self._found_s[topic] = now_s
                with suppress(Unanswered):
                    again = self._connection.partitions(topic, self._waits.silent_answer_s)
                    if isinstance(again, int) and again > self._partitions[topic]:
                        _log.info("topic %s: %s in use", topic, counted(again, "partition"))
                        self._partitions[topic] = again
            return PartitionCounts.always(self._partitions[topic])
        found: int | Refusal | str
        try:
            found = self._connection.partitions(topic)
        except Unanswered as error:
            found = str(error)
        if isinstance(found, str):
            self._connection.unanswered(found)
            return None
        if isinstance(found, Refusal):
            wait_s = STALLED_S if topic in self._found_s else self._waits.topic_s
            waits = now_s - self._asked_s.setdefault(topic, now_s) <= wait_s
            return None if found.passing and waits else found._replace(passing=False)
        self._partitions[topic], self._found_s[topic] = found, now_s
        self._asked_s.pop(topic, None)
        return PartitionCounts.always(found)

    def gone(self, now_s: float) -> str | None:
        """Why a topic that was found is missing now; None if none is. Asks every ten seconds at most."""
        if now_s < self._look_due_s:
            return None
        self._look_due_s = now_s + self._waits.stuck_reread_s
        for topic in self.topics:
            with suppress(Unanswered):
                found = self._connection.partitions(topic, self._waits.silent_answer_s)
                if isinstance(found, Refusal) and found.passing:
                    del self._partitions[topic]
                    return found.reason
        return None
