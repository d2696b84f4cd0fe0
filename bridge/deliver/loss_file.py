"""LossFile: what a cursor has lost since it exists, kept beside it.

    LOG/cursors/NAME.losses   JSON, replaced in place; durable before the cursor passes a loss

A file of its own: the checkpoints are saved with each commit, also on a full disk, and many gaps must
not make them outgrow their room.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from aolog.errors import StorageError, SyncFailed
from aolog.log.names import LOSSES_SUFFIX, cursor_path
from bridge.deliver.checkpoint_file import CheckpointFile
from bridge.deliver.known_gaps import KnownGaps

if TYPE_CHECKING:
    from aolog import Reader
    from aolog.storage.storage import Storage

_log = logging.getLogger("bridge")


class LossFile:
    """gaps: what was saved for a cursor of the reader's log; add to it, and save. Losses of another log at
    this path are dropped. Raises StorageError. One thread at a time."""

    def __init__(self, reader: Reader, cursor: str, storage: Storage) -> None:
        self._path = cursor_path(reader.path, cursor, LOSSES_SUFFIX)
        self._file = CheckpointFile(self._path, storage)
        self._source = "" if reader.topic_uuid is None else reader.topic_uuid.hex()
        self.gaps = self._load()

    def _load(self) -> KnownGaps:
        try:
            text = self._file.read()
        except FileNotFoundError:
            return KnownGaps()
        try:
            saved = json.loads(text or b"")
            return KnownGaps.from_json(saved) if saved["source"] == self._source else KnownGaps()
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            _log.warning("%s is unreadable (%s): earlier losses are forgotten", self._path, error)
            return KnownGaps()

    def save(self) -> None:
        """Saves them if one is new; durable on return. Where there is no room for them, it logs a
        warning. Raises SyncFailed."""
        if not self.gaps.changed:
            return
        self.gaps.changed = False
        saved = {"source": self._source, **self.gaps.to_json()}
        try:
            self._file.write(json.dumps(saved, separators=(",", ":")).encode())
        except SyncFailed:
            raise
        except StorageError as error:
            _log.warning("losses were not saved: %s", error)
