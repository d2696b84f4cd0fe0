"""`Storage`: opens, creates, lists, renames and removes files and directories.

Everything else in this project that needs a file takes a `Storage`. Nothing inside a log is opened through a
link (directory.py). Root does not change another user's log: the owner could not open what root creates there,
and root should not trust what the owner puts there. A new file in a log gets its directory's permissions for
reading and writing; a new directory in it gets its mode. A user's path may be the URL of an object store, or a
log with its archive: an open directory keeps its system.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import (
    NotALog,
    PermissionDenied,
    StorageError,
    StorageFailed,
    SyncFailed,
    UsageError,
    load_optional,
)
from aolog.storage.directory import Directory, Inside, beside
from aolog.storage.file import PERMISSIONS, File, as_storage_error, refuse_others
from aolog.storage.mounts import Mount, parse_mount
from aolog.storage.objects.url import archive_of, is_url
from aolog.storage.system import REAL, System

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aolog.format.frame import Buffer

_ROOT = 0
_READ_WRITE = 0o666
DIRECTORY_MODE = 0o700  # default mode of a new log
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Another file system; no permission, or no hard links; too many links.
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def parent_of(path: str) -> str:
    """The directory of a path that does not end with a slash. (pathlib takes 20 times as long.)"""
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


def checked_path(path: str | os.PathLike[str]) -> str:
    """The path as text. Raises UsageError for anything else, and for "": an unset variable gives that, and
    it would name the working directory."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        hint = "os.fsdecode(path) is its text" if isinstance(text, bytes) else None
        raise UsageError(f"the path {path!r} is neither str nor os.PathLike of str", hint=hint)
    if not text:
        raise UsageError("the path is empty", hint='name a directory; "." is the working directory')
    try:
        if b"\0" not in os.fsencode(text):
            return text
    except UnicodeEncodeError:
        pass
    raise UsageError(
        f"no file can have the path {text!r}",
        hint="remove the bytes or code points that are not characters",
    )


def absolute(path: str | os.PathLike[str]) -> str:
    """The absolute path; it stays valid when the process changes its directory. `..` stays, as its meaning
    depends on links. (As pathlib's, whose import takes a sixth of aolog's.) Raises UsageError as
    `checked_path`, for a relative path if the working directory was removed, and for a URL: pathlib would
    make `s3:/` of `s3://`, and so name a directory `s3:`."""
    if isinstance(path, Inside) and isinstance(path.base, str):
        return Inside(absolute(path.base), *path.names, in_log=path.in_log)
    text = checked_path(path)
    if not text.startswith("/"):
        scheme, colon, _ = text.partition(":/")
        if colon and len(scheme) > 1 and scheme.isascii() and scheme.isalnum():
            raise UsageError(
                f"{path}: a URL is not a directory",
                hint="name a directory of a local file system: only what reads takes the URL of an object "
                f"store; write ./{text} if this is a directory",
            )
        try:
            text = f"{os.getcwd()}/{text}"  # noqa: PTH109 -- light, as above
        except FileNotFoundError:
            raise UsageError(
                f"{text}: the working directory was removed", hint="give an absolute path"
            ) from None
    return "/" + "/".join(name for name in text.split("/") if name not in {"", "."})


class Entry(NamedTuple):
    """An entry of a directory. kind: "file", "directory", "link" or "other"."""

    kind: str
    size: int


class Storage:
    """The files and directories of a system: the operating system's by default."""

    system: System = REAL

    def __init__(self, system: System = REAL) -> None:
        self.system = system

    def on(self, path: str) -> System:
        """The system that has a user's path. Raises UsageError with the extra that it needs."""
        if not is_url(path) and archive_of(path) is None:
            return self.system
        found: System = load_optional("aolog.storage.objects.tiers").system_of(path, self.system)
        return found

    # --- directories, whose paths are the user's ------------------------------------------------

    def list_names(self, path: str | Directory) -> list[str]:
        """The names in a directory, unsorted. Raises NotALog if it is not a directory."""
        if not isinstance(path, Directory):
            with self.open_directory(path) as directory:
                return self.list_names(directory)
        with self._as_no_log(path, "list"):
            found = path.system.listdir(path.fd)
            if not found and not path.system.fstat(path.fd).st_nlink:
                raise FileNotFoundError  # removed since it was opened
            return found

    def open_directory(self, path: str | Directory) -> Directory:
        """Opens a directory. Opens an open one a second time, even if its path leads elsewhere now.
        Raises NotALog if there is none."""
        where = path.path if isinstance(path, Directory) else path
        with self._as_no_log(where, "open"):
            if isinstance(path, Directory):
                fd = path.system.open(".", _DIRECTORY, dir_fd=path.fd)
                return self._directory(where, fd, path.system)
            if isinstance(path, Inside):
                with self._entered(path) as (above, name):
                    return self._open_below(above, name)
            return self._opened(path)

    @contextmanager
    def _as_no_log(self, path: str | Directory, what: str) -> Iterator[None]:
        """Turns the error for a missing directory into NotALog, any other OSError as usual."""
        with as_storage_error(path if isinstance(path, str) else path.path, what):
            try:
                yield
            except (FileNotFoundError, NotADirectoryError) as error:
                raise self._no_directory(error, path) from error

    def _no_directory(self, error: OSError, path: str | Directory) -> NotALog:
        if isinstance(path, Directory):
            return NotALog("was removed", hint="open it again where it is", path=path.path)
        missing = isinstance(error, FileNotFoundError)
        reason = "no such directory" if missing else "is a file, or a part of its path is one"
        return NotALog(reason, hint="name the directory of a log", path=path)

    def _opened(self, path: str) -> Directory:
        """A directory by the user's path. Raises OSError."""
        system = self.on(path)
        return self._directory(path, system.open(path, _DIRECTORY), system)

    def _directory(self, path: str, fd: int, system: System) -> Directory:
        return Directory(path, fd, system)

    def make_directory(self, path: str, mode: int | None = None) -> None:
        """Creates the directory if it does not exist, and its parents if the path is the user's;
        durable on return. mode: of new directories, whatever the umask is. Default: the mode of the
        directory above if that is in a log, else DIRECTORY_MODE."""
        if isinstance(path, Inside):
            self._make(path, mode)
            return
        missing: list[str] = []
        at = absolute(path)
        while not self.exists(at):
            missing.append(at)
            at = parent_of(at)
        if (parent := parent_of(at)) != at:
            self._sync_existing(parent)
        for child in reversed(missing):
            self._make(beside(child), mode)

    def _make(self, path: Inside, mode: int | None) -> None:
        with as_storage_error(path, "create directory"):
            try:
                self._make_entered(path, mode)
            except NotADirectoryError as error:
                if not path.in_log:
                    raise self._no_directory(error, path) from error
                raise StorageFailed(
                    "is not a directory", hint="move it out of the log", path=path
                ) from None

    def _make_entered(self, path: Inside, mode: int | None) -> None:
        with self._entered(path, change=True) as (above, name):
            if mode is None:
                mode = above.mode() if path.in_log else DIRECTORY_MODE
            try:
                above.system.mkdir(name, mode & PERMISSIONS, dir_fd=above.fd)
            except FileExistsError:
                self._open_below(above, name).close()
                self._sync_existing(above)
                return
            with self._open_below(above, name) as made:
                made.set_mode(mode)
            if path.in_log and isinstance(path.base, str):  # the log's own entry
                self._sync_existing(parent_of(absolute(path.base)))
            above.sync()

    def _sync_existing(self, path: str | Directory) -> None:
        """Syncs a directory: the creator of an entry may have been killed before its sync. Ignores one that is
        unreadable or read-only (EINVAL on an image): we cannot have created the entry there."""
        try:
            self.sync_directory(path)
        except PermissionDenied:
            return
        except SyncFailed as error:
            if error.details.get("errno") != errno.EINVAL:
                raise

    def sync_directory(self, path: str | Directory) -> None:
        """The directory's entries are on the device on return."""
        if isinstance(path, Directory):
            path.sync()
            return
        with self.open_directory(path) as directory:
            directory.sync()

    # --- what is inside ---------------------------------------------------------------------------

    @contextmanager
    def _entered(self, path: Inside, *, change: bool = False) -> Iterator[tuple[Directory, str]]:
        """Opens the directory that holds the path's last name; yields it and the name. change: the
        caller creates, changes or removes the name. Raises OSError, and StorageError for a link and
        for another user's log."""
        opened: Directory | None = None
        if isinstance(path.base, str):
            opened = self._opened(path.base)
        here = opened or path.base
        assert isinstance(here, Directory)
        try:
            for name in path.names[:-1]:
                below = self._open_below(here, name)
                if opened is not None:
                    opened.close()
                here = opened = below
            if change and path.in_log:
                self.refuse_root(here)
            yield here, path.names[-1]
        finally:
            if opened is not None:
                opened.close()

    def _open_below(self, above: Directory, name: str) -> Directory:
        """Raises OSError, and StorageFailed for a link."""
        where = f"{above.path}/{name}"
        return self._directory(where, self._open_at(above, name, _DIRECTORY, where), above.system)

    def _open_at(self, above: Directory, name: str, flags: int, path: str, mode: int = 0) -> int:
        """Follows no link. path: for messages. Raises OSError, and StorageFailed for a link."""
        try:
            return above.system.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=above.fd)
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR} or not stat.S_ISLNK(
                above.system.lstat(name, dir_fd=above.fd).st_mode
            ):
                raise
        raise StorageFailed(
            "is a symbolic link, and nothing inside a log is opened through a link",
            hint="replace it by the file that it leads to, or remove it",
            path=path,
        )

    def refuse_root(self, directory: Directory) -> None:
        """Raises PermissionDenied if the process is root's and the directory another user's."""
        if directory.system.euid() != _ROOT:
            return
        owner = directory.system.fstat(directory.fd).st_uid
        if owner == _ROOT:
            return
        name = directory.system.user_name(owner) or f"#{owner}"
        raise PermissionDenied(
            f"belongs to {name}, and root does not change another user's log",
            hint=f"run the command as its owner: `sudo -u {shlex.quote(name)} ...`, or, in a service's "
            f"unit, User={name.removeprefix('#')}",
            path=directory.path,
            owner=owner,
        )

    def open_read(self, path: Inside) -> File:
        """Raises FileNotFoundError: a listed file may be removed before it is opened."""
        return self._open(path, os.O_RDONLY)

    def open_write(self, path: Inside) -> File:
        """An existing file, for reading and writing. Raises FileNotFoundError."""
        return self._open(path, os.O_RDWR)

    def open_lock(self, path: Inside) -> File:
        """A file that exists only for its lock; created if it does not exist."""
        return self._open(path, os.O_RDWR | os.O_CREAT)

    def create(self, path: Inside) -> File:
        """An empty file, for reading and writing. Truncates an existing one."""
        return self._open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def _open(self, path: Inside, flags: int) -> File:
        how = flags | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe must not block
        mode = 0
        creates = bool(flags & os.O_CREAT)
        with as_storage_error(path, "open", but=() if creates else (FileNotFoundError,)):
            with self._entered(path, change=flags != os.O_RDONLY) as (above, name):
                if creates:
                    mode = above.mode() & _READ_WRITE
                file = File(path, self._open_at(above, name, how, path, mode), above.system)
            with file.closed_on_error():
                found = file.system.fstat(file.fd).st_mode
                if not stat.S_ISREG(found):
                    raise StorageFailed(
                        "is not a regular file", hint="move it out of the log", path=path
                    )
                if creates and (found ^ mode) & PERMISSIONS:
                    file.set_mode(mode)
        return file

    def rename(self, old: Inside, new: Inside) -> None:
        """Atomic; durable after the directory's sync."""
        with (
            as_storage_error(new, "rename"),
            self._entered(old, change=True) as (source, name),
            self._entered(new, change=True) as (target, new_name),
        ):
            source.system.replace(name, new_name, src_dir_fd=source.fd, dst_dir_fd=target.fd)

    def link(self, old: Inside, new: Inside) -> bool:
        """Gives a file a second name; durable after the directory's sync. False if the file system, or
        a permission, does not allow it."""
        with (
            as_storage_error(new, "link"),
            self._entered(old) as (source, name),
            self._entered(new, change=True) as (target, new_name),
        ):
            try:
                source.system.link(name, new_name, src_dir_fd=source.fd, dst_dir_fd=target.fd)
            except OSError as error:
                if error.errno in _NO_LINKS:
                    return False
                raise
        return True

    def unlink(self, path: Inside) -> None:
        """Durable after the directory's sync. A missing file is not an error."""
        with (
            as_storage_error(path, "remove"),
            suppress(FileNotFoundError),
            self._entered(path, change=True) as (above, name),
        ):
            above.system.unlink(name, dir_fd=above.fd)

    def remove_directory(self, path: Inside) -> None:
        """Removes an empty directory; durable after the sync of the directory above. A missing one
        is no error."""
        with (
            as_storage_error(path, "remove"),
            suppress(FileNotFoundError),
            self._entered(path, change=True) as (above, name),
        ):
            above.system.rmdir(name, dir_fd=above.fd)

    def write_file(self, path: Inside, parts: Iterable[Buffer]) -> None:
        """Writes a whole file or nothing; durable on return."""
        with self.appearing(path) as file:
            at = 0
            for part in parts:
                file.pwrite_all([part], at)
                at += len(part)
        file.close()

    @contextmanager
    def appearing(self, path: Inside) -> Iterator[File]:
        """Yields a temporary file, which the block writes. Then it is synced and renamed, and stays open:
        the file and its name are durable when the block has ended. Closed if that fails."""
        with ExitStack() as held:
            with as_storage_error(path, "open"):
                above, name = held.enter_context(self._entered(path))
            whole = Inside(above, name, in_log=path.in_log)
            temporary = whole + ".tmp"
            with self.create(temporary).closed_on_error() as file:
                try:
                    yield file
                    file.datasync()
                    self.rename(temporary, whole)
                    self.sync_directory(above)
                except StorageError:
                    with suppress(StorageError):  # on a full disk it would occupy the last space
                        self.unlink(temporary)
                    raise
            file.path = path

    def exists(self, path: str) -> bool:
        """Whether there is an entry with this name."""
        try:
            self._look(path)
        except OSError as error:
            refuse_others(error)
            return False
        return True

    def _look(self, path: str) -> Entry:
        if isinstance(path, Inside):
            with self._entered(path) as (above, name):
                found = above.system.lstat(name, dir_fd=above.fd)
        else:
            found = self.on(path).lstat(path)
        return Entry(_KINDS.get(stat.S_IFMT(found.st_mode), "other"), found.st_size)

    def mount_of(self, path: str) -> Mount | None:
        """The mount of a file or directory; None if the system does not report it. By the kernel's
        number of the mount: mount points may hide each other, and device numbers differ on btrfs."""
        try:
            number, listed = self.on(path).mounts(path)
            return parse_mount(listed, number)
        except (OSError, KeyError, ValueError):  # not reported
            return None

    def entry(self, path: str) -> Entry | None:
        """The entry with this name, links not followed; None if there is none."""
        with as_storage_error(path, "stat"):
            try:
                return self._look(path)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def leads_to(self, path: Inside, file: File) -> bool:
        """Whether the path still leads to the open file, which may be removed or replaced."""
        inode = file.stat().inode
        try:
            with self.open_read(path) as there:
                return there.stat().inode == inode
        except FileNotFoundError:
            return False

    def free_bytes(self, path: str) -> int:
        """Free bytes on a directory's file system, without the reserve for root."""
        with as_storage_error(path, "statvfs"):
            return self.on(path).free_bytes(path)
