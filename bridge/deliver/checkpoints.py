"""Checkpoints: what each lane is known to hold, kept beside the cursor. Reading back begins there.

    LOG/cursors/NAME.lanes   JSON, replaced in place, durable before a lane is first used

All lanes have acknowledged the records before the cursor; a lane may be further on. After a crash
the bridge reads each partition from the offset in its checkpoint to the end, and does not send again
what arrived (see at_least_once.found). An older checkpoint only makes it read more.

How many partitions of a topic are in use, for which records (see partition_counts), is durable here
before the first of these records is sent. Offsets are of the topic with the id that is noted: one that
was made anew under the name has another id, and is read back from its beginning.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from aolog.errors import StorageError, SyncFailed
from aolog.format.names import NOTES_SUFFIX
from aolog.log.cursor_file import cursor_path
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage
from bridge.config.routing import Routing
from bridge.deliver.checkpoint_file import CheckpointFile
from bridge.deliver.partition_counts import PartitionCounts
from bridge.deliver.verdicts import Aside
from bridge.kafka.identity import Identity
from bridge.kafka.lane import LaneKey, lane_name

_log = logging.getLogger("bridge")
_VERSION = 1
_SAVED = {
    "clean": bool,
    "lost": bool,
    "delivery": str,
    "unsure": bool,
    "aside_from": int,
    "routing": str,
    "epoch": int,
}
"""Fields that are saved under their own names, as they are."""

FROM_END = -1
"""The offset of a lane that is read back from its end: what it holds now does not count."""


def checkpoints_path(log_path: str, cursor: str) -> Inside:
    """The file with the checkpoints of a cursor."""
    return cursor_path(log_path, cursor, NOTES_SUFFIX)


@dataclass(slots=True)
class Checkpoint:
    """What a lane is known to hold."""

    offset: int  # reading back begins there
    address: int = -1  # the last that it is known to hold; -1 if none
    dropped: tuple[int, ...] = ()  # the records after it that were dropped: not expected

    def reached(self, address: int, offset: int) -> None:
        """The lane holds all its records up to an address, the last at that offset; -1: unknown."""
        self.address, self.offset = max(self.address, address), max(self.offset, offset)
        if self.dropped:  # later records have proved the others
            self.dropped = tuple(each for each in self.dropped if each > self.address)


@dataclass(slots=True)
class Checkpoints:
    """All lanes of one log and cursor. One thread changes them, and replaces `lanes` whole while another may save."""

    file: CheckpointFile = field(repr=False, compare=False)
    source: bytes  # the UUID in the stamps: the log's, or the bridge's own if it has none
    clean: bool = True  # nothing was in flight when the bridge stopped
    lost: bool = False  # the file was missing or damaged: lanes that it lacks are read back whole
    delivery: str = "at_least_once"  # the kind whose records may be in flight unless clean
    unsure: bool = False  # the cluster may have a hanging transaction (see hanging_transactions)
    lanes: dict[LaneKey, Checkpoint] = field(default_factory=dict)
    cluster: Identity = field(default_factory=Identity)  # the cluster of these lanes
    aside_from: int = 0  # dead letters from this address of their log on are of that cluster
    epoch: int = 0  # of the log up to where it was read when the lanes were noted; 0 if unknown
    routing: str = ""  # the fingerprint when records were last sent; "" if unknown
    partitions: dict[str, PartitionCounts] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)  # of topics, as far as the cluster told them
    _saves: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    @classmethod
    def load(
        cls,
        log_path: str,
        cursor: str,
        storage: Storage,
        topic_uuid: bytes | None,
        *,
        begun: bool = False,
    ) -> Checkpoints:
        """What was saved, or empty ones. topic_uuid: the log's, if known. begun: the cursor exists; so should they."""
        path = checkpoints_path(log_path, cursor)
        file, source = CheckpointFile(path, storage), topic_uuid or os.urandom(16)
        fresh = cls(file, source, lost=begun, cluster=Identity(path))
        try:
            saved = file.load(
                lambda saved: fresh._parsed(saved, topic_uuid),
                "scanning partitions from the earliest offset",
            )
        except FileNotFoundError:
            if begun:
                _log.warning(
                    "%s does not exist: no bridge has used this cursor yet, as after `aolog cursor set`, "
                    "or the file was lost. Scanning partitions from the earliest offset, so that what "
                    "arrived is not sent again",
                    path,
                )
            return fresh
        fresh.lost = True
        return saved or fresh

    def _parsed(self, saved: dict[str, Any], topic_uuid: bytes | None) -> Checkpoints:
        """What was saved, in place of what these hold."""
        source = bytes.fromhex(saved["source"])
        if None in {saved["clean"], saved["lost"]}:  # every version has saved them
            raise ValueError("incomplete")
        lanes = {
            (str(lane["topic"]), int(lane["partition"])): Checkpoint(
                # 0.1.0 wrote `distrusted`.
                FROM_END if lane.get("distrusted") else int(lane["offset"]),
                int(lane["address"]),
                tuple(map(int, lane.get("dropped", ()))),
            )
            for lane in saved["lanes"]
        }
        # 0.1.0 saved no numbers of partitions, and all lanes of a topic.
        counts = {**Counter(topic for topic, _ in lanes), **saved.get("partitions", {})}
        if saved["version"] != _VERSION or topic_uuid not in {None, source}:
            raise ValueError("of another log or version")
        cluster, name = (str(saved.get(key) or "") for key in ("cluster", "cluster_name"))
        return replace(
            self,
            source=source,
            lanes=lanes,
            cluster=Identity(self.cluster.path, cluster, name),
            **{n: kind(saved[n]) for n, kind in _SAVED.items() if saved.get(n) is not None},
            partitions={str(t): PartitionCounts.parsed(n) for t, n in counts.items()},
            ids={str(topic): str(of) for topic, of in saved.get("ids", {}).items()},
        )

    def reroute(self, routing: Routing, position: int) -> None:
        """Records from the position on may go to other lanes than before. What such a lane holds from there on no
        longer proves that it has all before: it is sent again. Saved with the next save; a crash repeats this."""
        ahead = [
            key
            for key, checkpoint in self.lanes.items()
            if (checkpoint.address >= position or not self.clean)
            and self.routing
            and routing.may_reroute_to(key[0], self.routing)
        ]
        for key in ahead:
            self.lanes[key] = Checkpoint(FROM_END)
        if ahead:
            _log.warning(
                "the routing has changed, and records that wait may go to %s now: what these partitions "
                "received from address %d on is sent again",
                ", ".join(map(lane_name, sorted(ahead))),
                position,
            )
        self.routing = routing.fingerprint

    def add(self, lanes: dict[LaneKey, Checkpoint], partitions: dict[str, PartitionCounts]) -> None:
        """Adds lanes, and how many partitions of topics are in use; durable on return. Records may be
        in flight from then on, so `clean` ends. After an error all is as before; see `save`."""
        before = self.lanes, self.partitions, self.clean
        self.lanes = {**self.lanes, **lanes}
        self.partitions = {**self.partitions, **partitions}
        self.clean = self.clean and not lanes
        if (self.lanes, self.partitions) == before[:2]:
            return
        try:
            self.save()
        except StorageError:
            self.lanes, self.partitions, self.clean = before
            raise

    def drop(self, asides: Iterable[Aside]) -> None:
        """Notes dropped records, so that a restart does not expect them; saved as `save_if_possible` does."""
        for aside in asides:
            if (checkpoint := self.lanes.get(aside.lane)) is not None:
                checkpoint.dropped = (*checkpoint.dropped, aside.position.address)
        self.save_if_possible()

    def hold_none_from(self, address: int) -> None:
        """The log has other records from there on than those that the lanes held; saved with the next save."""
        for checkpoint in self.lanes.values():
            checkpoint.address = min(checkpoint.address, address - 1)
            checkpoint.dropped = tuple(each for each in checkpoint.dropped if each < address)

    def meet(self, topic: str, found: str) -> None:
        """The topic has this id. If that is new, what is in the topic has other offsets."""
        if self.ids.get(topic, found) != found:
            for (name, _), checkpoint in self.lanes.items():
                if name == topic and checkpoint.offset != FROM_END:
                    checkpoint.offset = 0
        self.ids = {**self.ids, topic: found}

    def start_over(self, topic: str, partitions: int) -> None:
        """The topic is another one now, with fewer partitions: nothing that its lanes held counts, and
        their partitions are read back from the beginning."""
        kept = {key: of for key, of in self.lanes.items() if key[0] != topic}
        self.lanes = {**kept, **{(topic, p): Checkpoint(0) for p in range(partitions)}}
        self.partitions = {**self.partitions, topic: PartitionCounts.always(partitions)}
        self.ids = {name: of for name, of in self.ids.items() if name != topic}

    def forget_lanes(self) -> None:
        """Nothing that was sent counts any more."""
        self.lanes, self.partitions, self.ids = {}, {}, {}
        self.lost = False

    def save_if_possible(self) -> None:
        """As save; on a full disk only a warning: older checkpoints make a restart read more. Raises SyncFailed."""
        try:
            self.save()
        except SyncFailed:
            raise
        except StorageError as error:
            _log.warning("checkpoints were not saved: %s", error)

    def save(self) -> None:
        """Durable on return, in any thread. Raises StorageFull and the like; then the file is as before."""
        with self._saves:
            self.file.save(self._to_json())

    def _to_json(self) -> dict[str, Any]:
        # An offset, and what was dropped, are read before the address, and written after it: the address
        # is never too old. Nor is an offset too old for an id.
        ids = self.ids
        lanes = [
            {"topic": topic, "partition": partition, "offset": of.offset}
            | ({"dropped": dropped} if (dropped := of.dropped) else {})
            | {"address": of.address}
            for (topic, partition), of in sorted(self.lanes.items())
        ]
        return {
            "version": _VERSION,
            "source": self.source.hex(),
            **{name: getattr(self, name) for name in _SAVED},
            "cluster": self.cluster.known,
            "cluster_name": self.cluster.name,
            "partitions": {topic: of.saved for topic, of in self.partitions.items()},
            "ids": ids,
            "lanes": lanes,
        }
