"""The cursor file: the durable position of a reader, in two copies (FORMAT.md, *Cursor file*).

A commit overwrites the older copy in place, which needs no free block. An interrupted commit leaves the other
copy. Before each commit a reader looks whether its file is still there, as it was left. If only the file was
removed, the commit makes it anew, with its lock, and warns. If it was replaced or overwritten, or removed
with its directory, the commit raises: the position in the file may be another reader's, or a restore's.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from aolog.errors import (
    AologError,
    CursorCorrupt,
    CursorLocked,
    CursorReplaced,
    LogClosed,
    NoSuchCursor,
    warn,
)
from aolog.format.cursor_copy import COPIES, CursorPosition, copies_in, encode_copies, encode_copy
from aolog.format.names import (
    BRIDGE_SUFFIXES,
    CURSOR_DIRECTORY,
    CURSOR_SUFFIX,
    check_cursor_name,
    cursor_name,
)
from aolog.log.interruption import pass_on
from aolog.log.lock import lock_directory
from aolog.storage import clock
from aolog.storage.directory import Inside
from aolog.storage.file import Presence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.storage.directory import Directory
    from aolog.storage.file import File
    from aolog.storage.storage import Storage


def cursor_path(log_path: str | Directory, name: str, suffix: str = CURSOR_SUFFIX) -> Inside:
    """The path of a cursor's file, or of the file with its notes. Raises UsageError."""
    return Inside(log_path, CURSOR_DIRECTORY, check_cursor_name(name) + suffix)


def cursor_names(log_path: str | Directory, storage: Storage) -> list[str]:
    """The names of the log's cursors, sorted."""
    directory = Inside(log_path, CURSOR_DIRECTORY)
    if not storage.exists(directory):
        return []
    found = map(cursor_name, storage.list_names(directory))
    return sorted(name for name in found if name is not None)


def _newest(file: File) -> tuple[int, CursorPosition] | None:
    return max(filter(None, copies_in(file.pread)), default=None)


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
    """As `copies_in`. Raises FileNotFoundError."""
    with storage.open_read(cursor_path(log_path, name)) as file:
        return copies_in(file.pread)


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


def read_positions(
    log_path: str | Directory, storage: Storage, *, durable: bool = False
) -> Iterator[tuple[str, CursorPosition | AologError]]:
    """As `read_position`, of each cursor by name; the error of one that cannot be read."""
    for name in cursor_names(log_path, storage):
        try:
            yield name, read_position(log_path, name, storage, durable=durable)
        except NoSuchCursor:  # deleted since the listing
            continue
        except AologError as error:
            pass_on(error)
            yield name, error


def _locked(log_path: str, name: str, storage: Storage) -> File:
    """A cursor's file with its lock, for reading and writing. Raises FileNotFoundError if there is no such
    cursor, CursorLocked, StorageError."""
    path = cursor_path(log_path, name)
    with storage.open_write(path).closed_on_error() as file:
        if not file.try_lock():
            raise CursorLocked(
                f"cursor {name!r} is in use by another reader",
                hint="wait for it to end, or stop it; another name would read all records again",
                path=log_path,
            )
        if not storage.leads_to(path, file):
            raise FileNotFoundError(path)  # deleted or replaced since it was opened
    return file


def delete_cursor(log_path: str, name: str, storage: Storage, *, notes: bool = True) -> None:
    """Deletes a cursor; durable on return. notes: first the bridge's notes, which another cursor of this
    name must not inherit. Raises NoSuchCursor, CursorLocked while a reader holds it, StorageError."""
    try:
        file = _locked(log_path, name, storage)
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
        self.position: CursorPosition | None = None  # the first commit creates the file
        self._storage = storage
        self._log_path = log_path
        self._parent = Inside(log_path, CURSOR_DIRECTORY)
        self._file: File | None = None
        self._directory: Directory  # of its file; before the first commit, of the log
        self._presence: Presence  # of its file, if there is one
        self._held = ExitStack()  # closes file and directory
        self._closed = False
        self._sequence = 0
        self._written: tuple[int, CursorPosition] | None = None  # by a commit that may have failed
        # Whether the position and the file's name are durable: its writer may have been killed.
        self._settled = False
        try:
            self._open()
        except FileNotFoundError:
            with storage.open_directory(log_path).closed_on_error() as directory:
                storage.refuse_root(directory)
            self._directory = self._held.enter_context(directory)

    def _open(self) -> None:
        storage = self._storage
        with ExitStack() as held:
            file = held.enter_context(_locked(self._log_path, self.name, storage))
            self._sequence, self.position = _read(file)
            directory = held.enter_context(storage.open_directory(self._parent))
            self._presence = Presence(file, directory, self.path.names[-1], storage.system)
            self._held.close()
            self._held = held.pop_all()
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
            self._storage.sync_directory(self._parent)
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
        if self._file is None:
            return False
        displaced = self._presence.check()
        if displaced is not None:
            if not displaced.name_is_free:
                raise self._replaced(displaced.text)
            return True
        found = _newest(self._file)
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
        if self._directory.is_elsewhere():
            raise self._replaced("would be in another log, which took the place of this one,")
        self._storage.make_directory(self._parent)
        # Of two creators the second finds the file.
        with lock_directory(self._parent, self._storage):
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
        self._held.close()
