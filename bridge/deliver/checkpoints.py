"""What each lane is known to hold, kept beside the cursor: where reading back begins.

    LOG/cursors/NAME.lanes   JSON, replaced in place, durable before a lane is first used

The cursor says what every lane has acknowledged; a lane may be further. After a crash the bridge
reads each destination partition from the offset noted here to its end, finds the last stamp of
its own, and does not send again what it has seen. An older note only makes it read more.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aolog.errors import StorageError, SyncFailed
from aolog.log.names import NOTES_SUFFIX, cursor_path
from bridge.deliver.checkpoint_file import CheckpointFile
from bridge.kafka.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog import Reader
    from aolog.storage.directory import Inside
    from aolog.storage.storage import Storage
    from bridge.kafka.lane import LaneKey

__all__ = ["Checkpoint", "Checkpoints", "checkpoints_path"]

_log = logging.getLogger("bridge")
_VERSION = 1


def checkpoints_path(log_path: str, cursor: str) -> Inside:
    """Where the notes of a cursor are."""
    return cursor_path(log_path, cursor, NOTES_SUFFIX)


@dataclass(slots=True)
class Checkpoint:
    """offset: reading back begins there. address: the last that the lane is known to hold, -1
    if none. distrusted: a hole was found in it, so what it is seen to hold proves nothing."""

    offset: int
    address: int = -1
    distrusted: bool = False


@dataclass(slots=True)
class Checkpoints:
    """All lanes of one log and cursor. source: the UUID in the stamps: the log's, or in format
    1, which has none, one of the bridge's own. clean: nothing was in flight when it stopped.
    lost: the file was gone or unreadable once, so for a lane that is not noted since, nothing
    bounds how far to read back. delivery: whose records may be under way unless clean. unsure:
    the cluster may have left something open (see hanging_transactions). cluster: whose lanes these are.
    aside_from: from this address of the dead-letter log on its letters are of that cluster.
    routing: its fingerprint when records were last sent, "" where that is not known. partitions: how
    many of a topic's partitions are in use; fewer than it has, where it grew."""

    path: Inside
    storage: Storage
    source: bytes
    clean: bool = True
    lost: bool = False
    delivery: str = "at_least_once"
    unsure: bool = False
    lanes: dict[LaneKey, Checkpoint] = field(default_factory=dict)
    cluster: Identity = field(default_factory=Identity)
    aside_from: int = 0
    routing: str = ""
    partitions: dict[str, int] = field(default_factory=dict)
    # How often it was said what to save, and the last of those that is saved.
    _told: int = field(default=0, init=False, repr=False, compare=False)
    _saved: int = field(default=0, init=False, repr=False, compare=False)
    _file: CheckpointFile = field(init=False, repr=False, compare=False)
    _saves: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._file = CheckpointFile(self.path, self.storage)

    @classmethod
    def of(cls, reader: Reader, cursor: str, storage: Storage) -> Checkpoints:
        """What was saved for a cursor of the reader's log, or notes that hold nothing."""
        return cls.load(reader.path, cursor, storage, topic_uuid=reader.topic_uuid, begun=False)

    @classmethod
    def load(
        cls, log_path: str, cursor: str, storage: Storage, *, topic_uuid: bytes | None, begun: bool
    ) -> Checkpoints:
        """What was saved. begun: whether there is a cursor, so that there ought to be notes."""
        path = checkpoints_path(log_path, cursor)
        fresh = cls(path, storage, topic_uuid or os.urandom(16), lost=begun, cluster=Identity(path))
        try:
            text = fresh._file.read()
        except FileNotFoundError:
            if begun:
                _log.warning("%s is missing: destinations are read back from their begin", path)
            return fresh
        try:
            if text is None:
                raise ValueError("neither copy is intact")
            saved: dict[str, Any] = json.loads(text)
            source = bytes.fromhex(saved["source"])
            lanes = {
                (str(lane["topic"]), int(lane["partition"])): Checkpoint(
                    int(lane["offset"]), int(lane["address"]), bool(lane.get("distrusted"))
                )
                for lane in saved["lanes"]
            }
            if saved["version"] != _VERSION or topic_uuid not in {None, source}:
                raise ValueError("of another log or version")
            cluster, name = (str(saved.get(key) or "") for key in ("cluster", "cluster_name"))
            return cls(
                path,
                storage,
                source,
                clean=bool(saved["clean"]),
                lost=bool(saved["lost"]),
                delivery=str(saved.get("delivery", "at_least_once")),
                unsure=bool(saved.get("unsure")),
                lanes=lanes,
                cluster=Identity(path, cluster, name),
                aside_from=int(saved.get("aside_from", 0)),
                routing=str(saved.get("routing") or ""),
                partitions={str(t): int(n) for t, n in saved.get("partitions", {}).items()},
            )
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            _log.warning("%s is unreadable (%s): destinations are read back whole", path, error)
            fresh.lost = True
            return fresh

    def saving(self) -> Callable[[], None]:
        """What saves the notes as they are now when it is called, in whichever thread, unless later
        ones are saved by then. Older notes only make a restart read more, so no room is no reason
        to stop. Raises SyncFailed."""
        save = self._saving()

        def save_if_possible() -> None:
            try:
                save()
            except SyncFailed:
                raise
            except StorageError as error:
                _log.warning("lane notes were not saved: %s", error)

        return save_if_possible

    def save(self) -> None:
        """Durable on return. Raises StorageFull and the like; what was saved before stays."""
        self._saving()()

    def _saving(self) -> Callable[[], None]:
        text = self._text()
        self._told += 1
        number = self._told

        def save() -> None:
            with self._saves:
                if number > self._saved:
                    self._write(text)
                    self._saved = number

        return save

    def _text(self) -> bytes:
        lanes = [
            {
                "topic": topic,
                "partition": partition,
                "offset": note.offset,
                "address": note.address,
                "distrusted": note.distrusted,
            }
            for (topic, partition), note in sorted(self.lanes.items())
        ]
        saved = {
            "version": _VERSION,
            "source": self.source.hex(),
            "clean": self.clean,
            "lost": self.lost,
            "delivery": self.delivery,
            "unsure": self.unsure,
            "cluster": self.cluster.known,
            "cluster_name": self.cluster.name,
            "aside_from": self.aside_from,
            "routing": self.routing,
            "partitions": self.partitions,
            "lanes": lanes,
        }
        return json.dumps(saved, separators=(",", ":")).encode()

    def _write(self, text: bytes) -> None:
        self._file.write(text)
