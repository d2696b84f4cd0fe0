"""The cursor: the durable position of a reader, in two pre-allocated copies.

    LOG/cursors/NAME.cursor, 8192 bytes, a copy at 0 and one at 4096, written in turn

A commit writes the older copy in place and syncs: it needs no free block, so a log on a full
disk can still drain and free itself, and a commit that is cut off leaves the copy before it.

The cursor carries the log's UUID and epoch. It belongs to one log, and where the log took
another course below it (restored from a backup, then written) it says so instead of reading on.
In format 1, which has no UUID, it is bound to its directory and to the first slab's first frame.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from aolog.errors import (
    CursorCorrupt,
    CursorLocked,
    LogClosed,
    NoSuchCursor,
    StorageError,
    UsageError,
)
from aolog.log.directory import CURSOR_DIRECTORY
from aolog.storage import clock
from aolog.storage.files import Inside

if TYPE_CHECKING:
    from aolog.record import Gap, Lag
    from aolog.storage.files import File, Storage

__all__ = [
    "NOTES_SUFFIX",
    "Cursor",
    "CursorFile",
    "Position",
    "cursor_names",
    "cursor_path",
    "encode_copies",
    "position_in",
    "read_copies",
    "read_position",
]

COPIES = (0, 4096)  # a sector each, whatever the device's sector is
_MAGIC = b"AOCURSOR"
_COPY = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version, 1
    "H"  # flags: bit 0 protects from retention; bit 1 ordinal is unknown
    "I"  # epoch of the slab that holds the address
    "Q"  # sequence: the higher of the two copies counts
    "16s"  # topic UUID, or what stands for it in format 1
    "Q"  # address of the next record to be read
    "Q"  # ordinal of that record
    "q"  # committed_us
    "I"  # xxh32 of the bytes before
)
_HASHED_LEN = _COPY.size - 4
_FLAG_PROTECTS = 0x1
_FLAG_NO_ORDINAL = 0x2
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_SUFFIX = ".cursor"
NOTES_SUFFIX = ".lanes"  # of what the bridge keeps beside a cursor: no part of the log


class Position(NamedTuple):
    """What a cursor says. ordinal: None in format 1."""

    address: int
    ordinal: int | None
    topic_uuid: bytes
    epoch: int
    protects: bool
    committed_us: int = 0


class Cursor(NamedTuple):
    """A cursor as `aolog.cursors` lists it. lag: up to the log's end at the time of the call.

    address: of the next record to be read. ordinal: records of the log before it, None in
    format 1. protects: whether retention keeps what it has not passed. pruned: the unread records
    that retention removed all the same, as the gap that its reader will meet; None if it lost none.
    """

    name: str
    address: int
    ordinal: int | None
    lag: Lag
    protects: bool
    pruned: Gap | None = None


def check_name(name: str) -> None:
    """Raises UsageError if it is no name for a cursor."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a cursor",
            hint="use up to 128 letters, digits, '.', '_' and '-', not beginning with '.' or '-'",
        )


def cursor_path(log_path: str, name: str, suffix: str = _SUFFIX) -> Inside:
    """Where the cursor's file is."""
    check_name(name)
    return Inside(log_path, CURSOR_DIRECTORY, name + suffix)


def cursor_names(log_path: str, storage: Storage) -> list[str]:
    """Names of the log's cursors, sorted."""
    directory = Inside(log_path, CURSOR_DIRECTORY)
    if not storage.exists(directory):
        return []
    names = (n.removesuffix(_SUFFIX) for n in storage.list_names(directory) if n.endswith(_SUFFIX))
    return sorted(filter(_NAME.fullmatch, names))  # a file of another kind of name is none of ours


def _encode(position: Position, sequence: int) -> bytes:
    flags = _FLAG_PROTECTS * position.protects | _FLAG_NO_ORDINAL * (position.ordinal is None)
    hashed = _COPY.pack(
        _MAGIC,
        1,
        flags,
        position.epoch,
        sequence,
        position.topic_uuid,
        position.address,
        position.ordinal or 0,
        position.committed_us,
        0,
    )[:_HASHED_LEN]
    return hashed + struct.pack("<I", xxhash.xxh32_intdigest(hashed))


def encode_copies(position: Position) -> list[bytes]:
    """A new cursor file: the first copy, and room for the second."""
    sector = COPIES[1] - COPIES[0]
    first = _encode(position, 0).ljust(sector, b"\0")
    return [first, bytes(sector)]


def _decode(copy: bytes) -> tuple[int, Position] | None:
    if len(copy) < _COPY.size or not copy.startswith(_MAGIC):
        return None
    _, version, flags, epoch, sequence, uuid, address, ordinal, committed_us, stored = _COPY.unpack(
        copy
    )
    if stored != xxhash.xxh32_intdigest(copy[:_HASHED_LEN]) or version != 1:
        return None
    known = None if flags & _FLAG_NO_ORDINAL else ordinal
    protects = bool(flags & _FLAG_PROTECTS)
    return sequence, Position(address, known, uuid, epoch, protects, committed_us)


def _newest(file: File) -> tuple[int, Position] | None:
    found = [copy for at in COPIES if (copy := _decode(file.pread(_COPY.size, at))) is not None]
    return max(found, key=lambda copy: copy[0], default=None)


def position_in(file: File) -> Position | None:
    """The position in an open cursor file; None if no copy is intact."""
    found = _newest(file)
    return None if found is None else found[1]


def _read(file: File) -> tuple[int, Position]:
    found = _newest(file)
    if found is None:
        raise CursorCorrupt(
            "both copies of the cursor are damaged",
            hint="set it anew with `aolog cursor set`",
            path=file.path,
        )
    return found


def read_copies(log_path: str, name: str, storage: Storage) -> list[tuple[int, Position] | None]:
    """Sequence and position of the copies that were written, in their order, None where one is
    damaged. Raises FileNotFoundError."""
    file = storage.open_read(cursor_path(log_path, name))
    try:
        raw = [file.pread(_COPY.size, at) for at in COPIES]
    finally:
        file.close()
    first, second = map(_decode, raw)
    if first is not None and first[0] == 0 and _is_blank(raw[1]):
        return [first]  # its turn comes with the second commit
    return [first, second]


def _is_blank(data: bytes) -> bool:
    return data.count(0) == len(data)


def read_position(log_path: str, name: str, storage: Storage, *, durable: bool = False) -> Position:
    """What the cursor says, without opening it for commits.

    durable: makes what is read durable first, as whoever prunes by it must. Raises
    NoSuchCursor, CursorCorrupt.
    """
    path = cursor_path(log_path, name)
    try:
        file = storage.open_read(path)
    except FileNotFoundError:
        raise NoSuchCursor(
            f"no cursor {name!r}", hint="`aolog cursor list` shows which there are", path=log_path
        ) from None
    try:
        if durable:
            file.datasync()
        return _read(file)[1]
    finally:
        file.close()


class CursorFile:
    """A cursor open for commits: held by one reader at a time, by flock on its file.

    Not thread-safe. Raises CursorLocked while another reader has it, and PermissionDenied for root
    in another user's log.
    """

    def __init__(self, log_path: str, name: str, storage: Storage) -> None:
        self.name = name
        self.path = cursor_path(log_path, name)
        self._storage = storage
        self._log_path = log_path
        self._file: File | None = None
        self._closed = False
        self._sequence = 0
        # Whether what was found is durable, the name too: whoever wrote it may have been killed.
        self._settled = False
        try:
            self._open()
        except FileNotFoundError:
            self.position: Position | None = None  # created by the first commit
            directory = storage.open_directory(log_path)
            try:
                storage.refuse_root(directory)
            finally:
                directory.close()

    def _open(self) -> None:
        file = self._storage.open_write(self.path)
        try:
            if not file.try_lock():
                raise CursorLocked(
                    f"cursor {self.name!r} is in use by another reader",
                    hint="wait for it to end, or use another name",
                    path=self._log_path,
                )
            self._sequence, self.position = _read(file)
            if not self._storage.leads_to(self.path, file):
                raise FileNotFoundError(self.path)  # deleted or replaced since it was opened
        except BaseException:
            file.close()
            raise
        self._file = file
        if self._closed:  # meanwhile, by another thread, which found no file yet
            self.close()
            self._refuse_closed()

    def commit(self, position: Position) -> None:
        """The position is durable on return. Nothing is written if it is the same already. Raises
        LogClosed behind `close`, which may come from another thread, in the middle of this too."""
        try:
            self._refuse_closed()
            self._commit(position)
        except (StorageError, ValueError):  # of a file that was closed meanwhile
            self._refuse_closed()
            raise

    def _refuse_closed(self) -> None:
        if self._closed:  # no file, as where none was created yet
            raise LogClosed(
                "the reader of the cursor is closed",
                hint="commit before it is",
                path=self._log_path,
            )

    def _commit(self, position: Position) -> None:
        same = self.position is not None and position[:5] == self.position[:5]
        if same and self._settled:
            return
        position = position._replace(committed_us=clock.now_us())
        file = self._file
        if file is None:
            self._create(position)
            return
        if not self._settled:  # before the other copy is written over, which may be the durable one
            self._storage.sync_directory(Inside(self._log_path, CURSOR_DIRECTORY))
            file.datasync()
            self._settled = True
        if same:
            return
        sequence = self._sequence + 1
        file.pwrite_all([_encode(position, sequence)], COPIES[sequence % 2])
        file.datasync()
        self._sequence, self.position = sequence, position

    def _create(self, position: Position) -> None:
        parent = Inside(self._log_path, CURSOR_DIRECTORY)
        self._storage.make_directory(parent)
        directory = self._storage.open_directory(parent)
        try:
            directory.lock()  # two that create it at once: the second finds the first's
            if not self._storage.exists(self.path):
                self._storage.write_file(self.path, encode_copies(position))
                self._settled = True
            self._open()
        finally:
            directory.close()
        self._commit(position)

    def close(self) -> None:
        """Idempotent; gives the cursor to the next reader."""
        self._closed = True  # first: who opens the file just now looks at it behind that
        file, self._file = self._file, None
        if file is not None:
            file.close()
