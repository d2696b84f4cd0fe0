"""CheckpointFile: a short JSON text in a file that is replaced in place, in two slots of the same size.

    0          slot 0      header: magic, sequence, length and hash of the text; then the text
    size / 2   slot 1      the intact slot with the higher sequence counts

Writes alternate between the slots, so a write that is cut off leaves the other one. Replacing the text
takes no free block, so a log on a full disk can be drained, which then frees space. A text that
outgrows its slot needs room: the file is created again, with slots twice as large as the text. A file
without slots, written by an earlier version, is the text itself. Checkpoints and losses are such texts.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import xxhash

from aolog.errors import MALFORMED, StorageFull
from aolog.storage.directory import Inside
from aolog.storage.file import File
from aolog.storage.storage import Storage

_T = TypeVar("_T")
_log = logging.getLogger("bridge")
_MAGIC = b"AONOTES1"
_HEADER = struct.Struct(
    "<"
    "8s"  # magic
    "Q"  # sequence, from 1 on; its lowest bit is the slot's number
    "I"  # bytes of the text
    "I"  # zeros
    "Q"  # xxh3_64 of the sequence and the text
)
_SLOT_BYTES_MIN = 16 << 10  # about 100 partitions
_BLOCK_BYTES = 4096


class CheckpointFile:
    """The file at a path. Not thread-safe."""

    def __init__(self, path: Inside, storage: Storage) -> None:
        self._path = path
        self._storage = storage
        self._is_durable = False  # a process that was killed may have left a slot that is not

    def load(self, parse: Callable[[Any], _T], otherwise: str) -> _T | None:
        """What `parse` makes of the JSON. If the file is damaged, or `parse` finds it malformed, it logs a
        warning and returns None; otherwise: what happens then. Raises FileNotFoundError, StorageError."""
        with self._storage.open_read(self._path) as file:
            size = file.stat().size
            if file.pread(1, 0) != _MAGIC[:1] and file.pread(1, size // 2) != _MAGIC[:1]:
                text: bytes | None = file.pread(size, 0)
            else:
                text = _newest(file, size // 2)[1]
        try:
            if text is None:
                raise ValueError("neither copy is intact")
            return parse(json.loads(text))
        except MALFORMED as error:
            _log.warning("%s is unreadable (%s): %s", self._path, error, otherwise)
            return None

    def save(self, value: dict[str, Any]) -> None:
        """Durable on return, as JSON, or as before. Raises SyncFailed; StorageFull if the file must be created."""
        text = json.dumps(value, separators=(",", ":")).encode()
        try:
            file = self._storage.open_write(self._path)
        except FileNotFoundError:
            self._create(text)
            return
        with file:
            slot_bytes = file.stat().size // 2
            sequence, before = _newest(file, slot_bytes)
            if before is None or _HEADER.size + len(text) > slot_bytes:
                self._create(text)
                return
            if not self._is_durable:  # the other slot may be the only durable one
                file.datasync()
                self._is_durable = True
            sequence += 1
            file.pwrite_all(_slot(sequence, text), sequence % 2 * slot_bytes)
            file.datasync()

    def _create(self, text: bytes) -> None:
        needed = 2 * (_HEADER.size + len(text))
        slot_bytes = max(_SLOT_BYTES_MIN, -(-needed // _BLOCK_BYTES) * _BLOCK_BYTES)
        first = b"".join(_slot(2, text))
        try:
            self._storage.make_directory(Inside(self._path.base, *self._path.names[:-1]))
            self._storage.write_file(
                self._path, [first.ljust(slot_bytes, b"\0"), bytes(slot_bytes)]
            )
        except StorageFull as error:
            raise StorageFull(
                "no room for the bridge's notes on its cursor",
                hint=f"free {2 * slot_bytes >> 10} KiB, and 8 KiB for its cursor: after that the "
                "bridge needs no room to drain the log and to prune it",
                **{**error.details, "path": self._path},
            ) from error
        self._is_durable = True


def _slot(sequence: int, text: bytes) -> list[bytes]:
    return [_HEADER.pack(_MAGIC, sequence, len(text), 0, _hash(sequence, text)), text]


def _hash(sequence: int, text: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(text, seed=sequence))


def _newest(file: File, slot_bytes: int) -> tuple[int, bytes | None]:
    """Sequence and text of the intact slot with the higher sequence; (0, None) if none is intact."""
    found: list[tuple[int, bytes]] = []
    for at in (0, slot_bytes):
        header = file.pread(_HEADER.size, at)
        if len(header) < _HEADER.size:
            continue
        magic, sequence, length, _, digest = _HEADER.unpack(header)
        if magic != _MAGIC or _HEADER.size + length > slot_bytes:
            continue
        text = file.pread(length, at + _HEADER.size)
        if _hash(sequence, text) == digest:
            found.append((sequence, text))
    return max(found, default=(0, None))
