"""Topics: into how many lanes each is cut, found and noted before the first record is sent."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from bridge.arrivals import read_back
from bridge.kafka import Cluster, Refused
from bridge.lanes import LaneNote, LaneNotes

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.engine import Engine

__all__ = ["NotedTopics", "Topics"]

_log = logging.getLogger("bridge")
TOPIC_WAIT_S = 30.0  # a topic that is being created appears within seconds


class Topics:
    """The topics of one log's records on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._partitions: dict[str, int] = {}
        self._asked_s: dict[str, float] = {}

    def forget(self) -> None:
        """A new connection may find other partitions."""
        self._partitions.clear()
        self._asked_s.clear()

    def partitions(self, topic: str) -> int:
        """How many a topic that was found has."""
        return self._partitions[topic]

    def find(self, topic: str) -> bool:
        """Whether the topic's lanes are known; else ask again in a moment. Raises Refused if
        there is no such topic and none appears, NotReachable, and what `_use` raises."""
        if topic in self._partitions:
            return True
        asked_s = self._asked_s.setdefault(topic, time.monotonic())
        try:
            partitions = self._use(topic, self._cluster.partitions(topic))
        except BaseException:
            del self._asked_s[topic]
            raise
        if partitions:
            self._partitions[topic] = partitions
            del self._asked_s[topic]
        elif time.monotonic() - asked_s > TOPIC_WAIT_S:
            raise Refused(f"there is no topic {topic!r}")
        return bool(partitions)

    def _use(self, topic: str, partitions: int) -> int:  # noqa: ARG002 -- told to who overrides it
        """Into how many lanes a topic of so many partitions is cut."""
        return partitions


class NotedTopics(Topics):
    """Topics whose lanes are noted, durably, before they are first used.

    below: the log's end; stamps beyond it are not ours. give_up: asked now and then.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        notes: LaneNotes,
        *,
        below: Callable[[], int],
        give_up: Callable[[], bool],
    ) -> None:
        super().__init__(cluster)
        self._engine = engine
        self._notes = notes
        self._below = below
        self._give_up = give_up

    def _use(self, topic: str, partitions: int) -> int:
        """Raises NotReachable, and StorageError where the notes cannot be saved."""
        partitions = self._in_use(topic, partitions)
        if partitions:
            self._note(topic, partitions)
        return partitions

    def _in_use(self, topic: str, partitions: int) -> int:
        """Into how many lanes the topic's records are cut. Where one has records that the cursor
        has not passed, as many as they were cut into: in a topic that has grown since, they would
        be looked for in other lanes, and missing ones be taken for held."""
        noted = sum(name == topic for name, _ in self._notes.lanes)
        position = self._engine.position.address
        lanes = self._engine.lanes.items()
        ahead = any(name == topic and lane.last_address >= position for (name, _), lane in lanes)
        return noted if ahead and 0 < noted < partitions else partitions

    def _note(self, topic: str, partitions: int) -> None:
        """Before a lane is first used it is durable from where to read it back."""
        notes = self._notes
        new = [key for p in range(partitions) if (key := (topic, p)) not in notes.lanes]
        if not new:
            return
        reader = self._cluster.reader(self._give_up)
        try:
            for key in new:
                first, end = reader.ends(key)
                notes.lanes[key] = LaneNote(first if notes.lost else end)
            if notes.lost:
                _log.warning("reading %s back from its begin", topic)
                held = read_back(
                    reader,
                    {key: notes.lanes[key] for key in new},
                    notes.source,
                    below=self._below(),
                    clean=notes.clean,
                    distrusts=self._engine.distrusts,
                )
                for key, address in held.items():
                    self._engine.note_held(key, address)
            notes.clean = False
            notes.save()
        except BaseException:
            for key in new:
                notes.lanes.pop(key, None)
            raise
        finally:
            reader.close()
