"""The cursor file: the durable position of a reader, in two pre-allocated copies.

    LOG/cursors/NAME.cursor, 8192 bytes, a copy at 0 and one at 4096, written in turn

A commit overwrites the older copy in place and syncs. It needs no free block, so a reader can commit
on a full disk, which lets retention free space. An interrupted commit leaves the other copy.

Before each commit a reader looks whether its file is still there, as it was left. If only the file was
removed, the commit makes it anew, with its lock, and warns. If it was replaced or overwritten, or removed
with its directory, the commit raises: the position in the file may be another reader's, or a restore's.

The cursor stores the log's UUID and epoch. It belongs to one log; if that log's history below the
cursor changed (it was restored from a backup, then written), resuming raises an error. Without headers
there is no UUID: the cursor is bound to its directory and to the first slab's first frame.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from aolog.errors import CursorCorrupt, CursorReplaced, LogClosed, NoSuchCursor, warn
from aolog.log.lock import lock_cursor, lock_directory
from aolog.log.names import (
    BRIDGE_SUFFIXES,
    CURSOR_DIRECTORY,
    CURSOR_SUFFIX,
    cursor_name,
    cursor_path,
)
from aolog.record import Position
from aolog.storage import clock
from aolog.storage.directory import Inside
from aolog.storage.file import Presence

if TYPE_CHECKING:
    from aolog.record import Gap, Lag
    from aolog.storage.directory import Directory
    from aolog.storage.file import File
    from aolog.storage.storage import Storage

COPIES = (0, 4096)  # in different sectors on any device
_MAGIC = b"AOCURSOR"
_COPY = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version, 1
    "H"  # flags: bit 0 protects from retention; bit 1 ordinal is unknown
    "I"  # epoch of the slab that contains the address
    "Q"  # sequence: the higher of the two copies counts
    "16s"  # topic UUID, or its replacement in a log without headers
    "Q"  # address of the next record to be read
    "Q"  # ordinal of that record
    "q"  # committed_us
    "I"  # xxh32 of the bytes before
)
_HASHED_LEN = _COPY.size - 4
_FLAG_PROTECTS = 0x1
_FLAG_NO_ORDINAL = 0x2


class CursorPosition(NamedTuple):
    """What a cursor stores. ordinal: None if it is unknown."""

    address: int
    ordinal: int | None
    topic_uuid: bytes
    epoch: int
    protects: bool
    committed_us: int = 0

    @property
    def position(self) -> Position:
        """In the log."""
        return Position(self.address, self.ordinal)


class Cursor(NamedTuple):
    """A cursor as `aolog.cursors` lists it. lag: up to the log's end at the time of the call.

    address: of the next record to read. ordinal: records of the log before it; None if unknown.
    protects: whether retention keeps the records after it. pruned: unread records that retention
    removed nevertheless, as the gap that its reader will report; None if there are none.
    """

    name: str
    address: int
    ordinal: int | None
    lag: Lag
    protects: bool
    pruned: Gap | None = None


def cursor_names(log_path: str | Directory, storage: Storage) -> list[str]:
    """The names of the log's cursors, sorted."""
    directory = Inside(log_path, CURSOR_DIRECTORY)
    if not storage.exists(directory):
        return []
    found = map(cursor_name, storage.list_names(directory))
    return sorted(name for name in found if name is not None)


def encode_copy(position: CursorPosition, sequence: int) -> bytes:
    """The bytes of a copy."""
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


def encode_copies(position: CursorPosition) -> list[bytes]:
    """A new cursor file: the first copy, and room for the second."""
    sector = COPIES[1] - COPIES[0]
    first = encode_copy(position, 0).ljust(sector, b"\0")
    return [first, bytes(sector)]


def _decode(copy: bytes) -> tuple[int, CursorPosition] | None:
    if len(copy) < _COPY.size or not copy.startswith(_MAGIC):
        return None
    _, version, flags, epoch, sequence, uuid, address, ordinal, committed_us, stored = _COPY.unpack(
        copy
    )
    if stored != xxhash.xxh32_intdigest(copy[:_HASHED_LEN]) or version != 1:
        return None
    known = None if flags & _FLAG_NO_ORDINAL else ordinal
    protects = bool(flags & _FLAG_PROTECTS)
    return sequence, CursorPosition(address, known, uuid, epoch, protects, committed_us)


def _copies(file: File) -> list[tuple[int, CursorPosition] | None]:
    return [_decode(file.pread(_COPY.size, at)) for at in COPIES]


def _newest(file: File) -> tuple[int, CursorPosition] | None:
    return max(filter(None, _copies(file)), default=None)


def position_in(file: File) -> CursorPosition | None:
    """The position in an open cursor file; None if no copy is intact."""
    found = _newest(file)
    return None if found is None else found[1]


def _read(file: File) -> tuple[int, CursorPosition]:
    found = _newest(file)
    if found is None:
        raise CursorCorrupt(
            "both copies of the cursor are damaged",
            hint="set it again with `aolog cursor set`",
            path=file.path,
        )
    return found


def read_copies(
    log_path: str, name: str, storage: Storage
) -> list[tuple[int, CursorPosition] | None]:
    """Sequence and position of each copy that was written, in their order in the file; None for a
    damaged copy. Raises FileNotFoundError."""
    with storage.open_read(cursor_path(log_path, name)) as file:
        copies = _copies(file)
        first = copies[0]
        if first is not None and first[0] == 0 and file.is_blank(COPIES[1], COPIES[1] + _COPY.size):
            return [first]  # the second commit writes the other copy
    return copies


def read_position(
    log_path: str | Directory, name: str, storage: Storage, *, durable: bool = False
) -> CursorPosition:
    """The cursor's position, without opening the cursor for commits.

    durable: sync the file first. A caller that prunes by the position needs that. Raises
    NoSuchCursor, CursorCorrupt.
    """
    try:
        with storage.open_read(cursor_path(log_path, name)) as file:
            if durable:
                file.datasync()
            return _read(file)[1]
    except FileNotFoundError:
        raise NoSuchCursor(
            f"no cursor {name!r}",
            hint="`aolog cursor list` lists the cursors",
            path=log_path if isinstance(log_path, str) else log_path.path,
        ) from None


def delete_cursor(log_path: str, name: str, storage: Storage, *, notes: bool = True) -> None:
    """Deletes a cursor; durable on return. notes: first the bridge's notes, which another cursor of this
    name must not inherit. Raises NoSuchCursor, CursorLocked while a reader holds it, StorageError."""
    try:
        file = lock_cursor(log_path, name, storage)
    except FileNotFoundError:
        raise NoSuchCursor(f"no cursor {name!r}", path=log_path) from None
    with file:
        for suffix in (*(BRIDGE_SUFFIXES if notes else ()), CURSOR_SUFFIX):
            storage.unlink(cursor_path(log_path, name, suffix))
        storage.sync_directory(Inside(log_path, CURSOR_DIRECTORY))


class CursorFile:
    """A cursor open for commits. One reader at a time holds the lock of its file.

    Not thread-safe. Raises CursorLocked while another reader holds it, and PermissionDenied for root
    in another user's log.
    """

    def __init__(self, log_path: str, name: str, storage: Storage) -> None:
        self.name = name
        self.path = cursor_path(log_path, name)
        self._storage = storage
        self._log_path = log_path
        self._file: File | None = None
        self._directory: Directory | None = None  # of its file; before the first commit, of the log
        self._presence: Presence | None = None  # of its file
        self._closed = False
        self._sequence = 0
        self._written: tuple[int, CursorPosition] | None = None  # by a commit that may have failed
        # Whether the position and the file's name are durable: its writer may have been killed.
        self._settled = False
        try:
            self._open()
        except FileNotFoundError:
            self.position: CursorPosition | None = None  # the first commit creates the file
            with storage.open_directory(log_path).closed_on_error() as directory:
                storage.refuse_root(directory)
            self._directory = directory

    def _open(self) -> None:
        storage = self._storage
        file = lock_cursor(self._log_path, self.name, storage)
        with file.closed_on_error():
            self._sequence, self.position = _read(file)
            directory = storage.open_directory(Inside(self._log_path, CURSOR_DIRECTORY))
        with directory.closed_on_error():
            self._presence = Presence(file, directory, self.path.names[-1], storage.system)
        self._release()
        self._file, self._directory = file, directory

    def commit(self, position: CursorPosition) -> None:
        """The position is durable on return. Writes nothing if it did not change. Raises LogClosed
        after `close`, CursorReplaced; then the position before stays."""
        if self._closed:  # then there is no file, as before the first commit
            raise LogClosed(
                "the reader of the cursor is closed",
                hint="commit before you close it",
                path=self._log_path,
            )
        removed = self._is_removed()
        same = self.position is not None and position[:5] == self.position[:5] and not removed
        if same and self._settled:
            return
        position = position._replace(committed_us=clock.now_us())
        file = self._file
        if file is None or removed:
            self._create(position)
            return
        if not self._settled:  # before overwriting the other copy, which may be the durable one
            self._storage.sync_directory(Inside(self._log_path, CURSOR_DIRECTORY))
            file.datasync()
            self._settled = True
        if same:
            return
        sequence = self._sequence + 1
        self._written = sequence, position
        file.pwrite_all([encode_copy(position, sequence)], COPIES[sequence % 2])
        file.datasync()
        self._sequence, self.position = sequence, position

    def _is_removed(self) -> bool:
        """Whether the file was removed, and only the file. Raises CursorReplaced for anything else that
        another program did to it."""
        file, presence = self._file, self._presence
        if file is None or presence is None:
            return False
        displaced = presence.check()
        if displaced is not None:
            if not displaced.name_is_free:
                raise self._replaced(displaced.text)
            return True
        found = _newest(file)
        # A damaged copy leaves the one before it, or none.
        if (
            found is not None
            and found not in {(self._sequence, self.position), self._written}
            and found[0] != self._sequence - 1
        ):
            raise self._replaced("was overwritten")
        return False

    def _replaced(self, what: str) -> CursorReplaced:
        return CursorReplaced(
            f"cursor {self.name!r}: its file {what} while it was in use, and nothing is committed",
            hint="open the reader again: it goes on where the file says, or at its start if there is none",
            path=self._log_path,
        )

    def _create(self, position: CursorPosition) -> None:
        if self._directory is not None and self._directory.is_elsewhere():
            raise self._replaced("would be in another log, which took the place of this one,")
        parent = Inside(self._log_path, CURSOR_DIRECTORY)
        self._storage.make_directory(parent)
        with lock_directory(parent, self._storage):  # of two creators the second finds the file
            if not self._storage.exists(self.path):
                self._storage.write_file(self.path, encode_copies(position))
                self._settled = True
                if self._file is not None:
                    warn(
                        "%s: the file of cursor %r was removed while it was in use. It is made anew at "
                        "address %d; until now retention did not keep its records",
                        self._log_path,
                        self.name,
                        position.address,
                    )
            elif self._file is not None:
                raise self._replaced("was removed, and another one made,")
            self._open()
        self.commit(position)

    def close(self) -> None:
        """Releases the cursor for the next reader. Idempotent."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        file, directory = self._file, self._directory
        self._file = self._directory = None
        if file is not None:
            file.close()
        if directory is not None:
            directory.close()
