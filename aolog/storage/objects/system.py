"""Logs in object stores as files: a read-only `System` of storage. Below a URL is one of

    an archive    `archive.json` lists its slabs (aolog/docs/reference/archive.md); nothing else is seen
    a copy        of a log's directory, as a tool copied it: its objects are its files
    a folder      of either

A look at an archive reads its manifest again if it is older than a second. If a longer beginning of a slab
has replaced a shorter one, or a slab was packed with others, reading goes on in the new object. Every range
demands the ETag that was listed: an object that was replaced by another is an error.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from bisect import bisect_right
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from aolog.errors import AologError, StorageFailed, UsageError
from aolog.format.archive import MANIFEST, Entry, decode_manifest
from aolog.format.slab import ADDRESS_END, slab_base, slab_name
from aolog.storage.objects.client import Client
from aolog.storage.objects.overlay import Overlay
from aolog.storage.objects.packs import Packs, unpacked
from aolog.storage.objects.read_ahead import ReadAhead
from aolog.storage.objects.requests import Absent, Answer, Found, Get, Refused, Tag
from aolog.storage.objects.url import as_part, normal_url
from aolog.storage.system import System

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aolog.format.frame import Buffer
    from aolog.format.packed import Packed
    from aolog.format.slab import SlabHeader

REFRESH_S = 1.0  # a follower sees a commit after it; one request of 0.0000004 USD
_THREADS = 8  # of all open objects: ranges under way
FDS_BEGIN = 1 << 30  # no descriptor of the kernel's
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_READABLE = 0o444


class Status(NamedTuple):
    """As os.stat_result, as far as storage looks."""

    st_mode: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_dev: int = 0
    st_uid: int = 0
    st_gid: int = 0
    st_nlink: int = 1


class _Object(NamedTuple):
    name: str
    size: int
    etag: str
    is_final: bool  # whether it never grows
    header: SlabHeader | None = None  # in place of the one in the object
    packed: Packed | None = None  # where the slab is in the object; None: it is the whole object
    pack_end: int = 0  # of the last slab in the object


class Folder:
    """What is directly below a URL, read again when it is old. Thread-safe."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url)
        self.folders: list[str] = []  # as parts of a URL
        self._objects: Mapping[str, _Object] = {}
        self._tag: Tag | None = None  # of the manifest; None: there is none
        self._seen_s: float | None = None  # None: not read yet, or out of date
        self.changed_ns = 0
        self.uuid = ""  # of the archived log, in hex; "": this is no archive
        self.end = 0  # the address after the last archived byte
        # The slab that a scan opens next; what it reads first is already requested. `open` takes it from here.
        self.next_file: _OpenFile | None = None
        self.packs = Packs(self.fetch)
        self._lock = Lock()

    def fetch(self, name: str, tag: Tag | None, begin: int, end: int) -> Buffer:
        """Bytes of an object. Raises _Gone if it has another tag."""
        answer = self.client.ask(Get(name, tag, (begin, end)))
        if isinstance(answer, Found):
            return answer.body
        assert isinstance(answer, Absent | Refused), answer
        raise _Gone(name)

    def objects(self, *, fresh: bool = True) -> Mapping[str, _Object]:
        """By file name. fresh: not older than a second."""
        with self._lock:
            age_s = None if self._seen_s is None else time.monotonic() - self._seen_s
            if age_s is None or (fresh and age_s > REFRESH_S):
                self._look()
            return self._objects

    def object(self, name: str) -> _Object:
        """By file name, as of the last look. Raises FileNotFoundError."""
        found = self.objects(fresh=False).get(name)
        if found is None:  # another thread has looked since this one did
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{name}")
        return found

    def forget(self) -> None:
        """The next look asks the store."""
        with self._lock:
            self._seen_s = None

    def _look(self) -> None:
        seen_s, listing = time.monotonic(), None
        # A folder or a copy: its list shows a manifest, too.
        if self.changed_ns and self._tag is None:
            listing = self.client.entries("")
        answer: Answer = Absent()
        if listing is None or any(name == MANIFEST for name, _, _ in listing[0]):
            answer = self.client.ask(Get(MANIFEST))
        if isinstance(answer, Found):
            if answer.tag != self._tag:
                manifest = decode_manifest(bytes(answer.body), f"{self.url}/{MANIFEST}")
                self._set(_slabs(manifest.entries), [])
                self._tag, self.uuid, self.end = answer.tag, manifest.uuid, manifest.end
        else:
            listed, folders = listing or self.client.entries("")
            found = {n: _Object(n, size, etag, is_final=False) for n, size, etag in listed}
            folders = [as_part(name) for name in folders]
            self._tag, self.uuid, self.end = None, "", 0
            if (found, folders) != (self._objects, self.folders) or not self.changed_ns:
                self._set(found, folders)
        self._seen_s = seen_s

    def _set(self, objects: Mapping[str, _Object], folders: list[str]) -> None:
        self._objects, self.folders = objects, folders
        # When it was noticed, as if it were some time ago: a look in the same moment is no doubt.
        self.changed_ns = (time.time_ns() - 1_000_000_000) | 1


def _slabs(entries: Sequence[Entry]) -> dict[str, _Object]:
    ends: dict[str, int] = {}
    for entry in entries:
        ends[entry.pack] = max(ends.get(entry.pack, 0), entry.at + sum(entry.chunks))
    return {
        slab_name(entry.base): _Object(
            entry.object_name, entry.size, entry.etag, entry.final,
            entry.own_header(), entry.packed, ends[entry.pack],
        )
        for entry in entries
    }  # fmt: skip  # one table


class _OpenFile:
    """An open object. It grows if its folder lists a longer one under its name."""

    def __init__(self, folder: Folder, name: str, pool: ThreadPoolExecutor) -> None:
        self.folder, self.name, self._pool = folder, name, pool
        self._until = ADDRESS_END  # of the log: a scan ends here
        self._object = folder.object(name)
        self._data = self._open()

    def _open(self) -> ReadAhead:
        at = self._object
        tag = Tag(at.etag) if at.etag else None
        fetch = partial(self.folder.fetch, at.name, tag)
        if at.packed is not None and tag is not None:
            pack = self.folder.packs.open(at.name, tag, at.pack_end)
            path = f"{self.folder.url}/{at.name}"
            fetch = partial(unpacked, at.packed, pack, path)
        data = ReadAhead(at.size, fetch, self._pool, self._start_next)
        self._overlay = None if at.header is None else Overlay(at.header, at.size, data.read)
        return data

    def _start_next(self) -> None:
        """Opens the next slab of the archive, whose beginning a scan reads next."""
        names = sorted(self.folder.objects(fresh=False)) if self.folder.uuid else []
        after = bisect_right(names, self.name)
        if after < len(names) and names[after] < slab_name(self._until):
            _prepare(self.folder, names[after], self._pool, 0, self._until)

    def start(self, begin: int, end: int) -> None:
        """Requests what a scan of the log's addresses [begin, end) reads first in it."""
        base, self._until = slab_base(self.name), end
        assert base is not None, self.name  # an archive has nothing else
        self._data.start(max(0, begin - base), max(0, end - base))

    def is_listed(self) -> bool:
        """Whether its folder has still this object below its name."""
        return self.folder.objects(fresh=False).get(self.name) == self._object

    def size(self) -> int:
        if not self._object.is_final:
            self._follow()
        return self._object.size

    def _follow(self) -> bool:
        """Goes on in the object that its folder lists now. Whether that is another one. A copy's file that
        changed is another file, and not followed."""
        now = self.folder.objects().get(self.name)
        if now is None or now == self._object or not self.folder.uuid:
            return False
        if now.size < self._object.size:
            return False
        self._object = now
        self._data = self._open()
        return True

    def pread(self, size: int, offset: int) -> bytes:
        try:
            found = self._data.read(size, offset)
            return found if self._overlay is None else self._overlay.over(found, offset)
        except _Gone as gone:
            self.folder.forget()
            if not self._follow():
                raise StorageFailed(
                    f"the object {gone} was replaced or removed while it was read",
                    hint="open the log again",
                    path=self.folder.url,
                ) from None
        return self.pread(size, offset)


def _prepare(
    folder: Folder, name: str, pool: ThreadPoolExecutor, begin: int, end: int
) -> _OpenFile | None:
    """Opens the slab that a scan of the addresses [begin, end) opens next, and requests what it reads first."""
    with suppress(FileNotFoundError):
        following = _OpenFile(folder, name, pool)
        following.start(begin, end)
        folder.next_file = following
        return following
    return None


class _Gone(Exception):
    """An object does not exist with the listed ETag."""


class ObjectSystem(System):
    """Object stores as a file system. Paths are URLs. Thread-safe."""

    def __init__(self) -> None:
        self._folders: dict[str, Folder] = {}
        self._open: dict[int, Folder | _OpenFile] = {}
        self._next = FDS_BEGIN
        self._coming: dict[str, Future[None]] = {}  # by URL: looks ahead that are under way
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="aolog-objects")

    def looked_at(self) -> list[Folder]:
        """What was opened so far, with the requests that it took."""
        with self._lock:
            return list(self._folders.values())

    def folder(self, url: str) -> Folder:
        """What is below the URL. Raises FileNotFoundError if nothing is."""
        url = normal_url(url)
        with self._lock:
            coming = self._coming.get(url)
        if coming is not None:
            coming.result()  # its error is the caller's: asking again would take as long again
        return self._folder(url)

    def _folder(self, url: str) -> Folder:
        with self._lock:
            folder = self._folders.get(url)
        if folder is None:
            folder = Folder(url)
        if not folder.objects() and not folder.folders and not folder.uuid:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        with self._lock:
            return self._folders.setdefault(url, folder)

    def prefetch(self, path: str, begin: int, end: int, /) -> None:
        url = normal_url(path)
        with self._lock:
            if url not in self._coming:
                self._coming[url] = self._pool.submit(self._look_ahead, url, begin, end)

    def _look_ahead(self, url: str, begin: int, end: int) -> None:
        try:
            with self._lock:
                known = self._folders.get(url)
            # By the last look, while the manifest is read again; mostly it lists the same object.
            ready = None if known is None else self._start(known, begin, end)
            folder = self._folder(url)
            if ready is None or not ready.is_listed():
                self._start(folder, begin, end)
        finally:
            with self._lock:
                self._coming.pop(url, None)

    def _start(self, folder: Folder, begin: int, end: int) -> _OpenFile | None:
        names = sorted(folder.objects(fresh=False)) if folder.uuid else []
        at = bisect_right(names, slab_name(begin)) - 1
        return None if at < 0 else _prepare(folder, names[at], self._pool, begin, end)

    def _give(self, opened: Folder | _OpenFile) -> int:
        with self._lock:
            self._next += 1
            self._open[self._next] = opened
            return self._next

    def _dir(self, fd: int) -> Folder:
        found = self._open.get(fd)
        if not isinstance(found, Folder):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return found

    def _find(self, path: str, dir_fd: int | None) -> tuple[Folder, str]:
        """(folder, name of an object in it, or "" for the folder itself)."""
        above = None if dir_fd is None else self._dir(dir_fd)
        if above is not None:
            if path == ".":
                return above, ""
            if path in above.objects(fresh=False):
                return above, path
            if path in above.folders:
                return self.folder(f"{above.url}/{path}"), ""
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        path = path.removesuffix("/.")
        head, _, name = path.rpartition("/")
        with self._lock:
            known = self._folders.get(head)
        if known is not None and name in known.objects(fresh=False):
            return known, name
        return self.folder(path), ""

    def open(  # type: ignore[override]  # a method here, the function itself there
        self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        del mode
        if flags & _CHANGES:
            _refuse_change(path)
        folder, name = self._find(path, dir_fd)
        if not name:
            return self._give(folder)
        if flags & os.O_DIRECTORY:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        with self._lock:  # it is given to one caller
            ready, folder.next_file = folder.next_file, None
        if ready is None or ready.name != name or not ready.is_listed():
            ready = _OpenFile(folder, name, self._pool)
        return self._give(ready)

    def close(self, fd: int, /) -> None:
        with self._lock:
            closed = self._open.pop(fd, None)
        if isinstance(closed, Folder):
            closed.packs.close()

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        found = self._open.get(fd)
        if not isinstance(found, _OpenFile):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return found.pread(size, offset)

    def listdir(self, path: str | int, /) -> list[str]:
        folder = self._dir(path) if isinstance(path, int) else self.folder(path)
        if len(folder.folders) > 1:  # who lists them looks at each, one after the other
            list(self._pool.map(self._see, [f"{folder.url}/{name}" for name in folder.folders]))
        return [*folder.objects(), *folder.folders]

    def _see(self, url: str) -> None:
        with suppress(AologError, OSError):  # which comes to the caller, too
            self.folder(url).objects()

    def fstat(self, fd: int, /) -> Status:  # type: ignore[override]
        found = self._open.get(fd)
        if isinstance(found, Folder):
            return _folder_status(found)
        if found is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return _file_status(found.folder, found.name, found.size())

    def lstat(self, path: str, *, dir_fd: int | None = None) -> Status:  # type: ignore[override]
        folder, name = self._find(path, dir_fd)
        if not name:
            return _folder_status(folder)
        return _file_status(folder, name, folder.object(name).size)

    def realpath(self, path: str, /) -> str:
        return path

    def mounts(self, path: str, /) -> tuple[int, str]:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), path)

    def log_uuid(self, fd: int, /) -> bytes | None:
        return bytes.fromhex(self._dir(fd).uuid) or None

    def generation(self, fd: int, /) -> int:
        del fd
        return 0

    def free_bytes(self, path: str, /) -> int:
        del path
        return 0

    def leads_to(self, *_: object) -> bool:
        return True

    def _change(self, *paths: object, **_: object) -> NoReturn:
        _refuse_change(next((path for path in paths if isinstance(path, str)), "an archive"))

    pwritev = fdatasync = fsync = ftruncate = replace = link = unlink = mkdir = rmdir = _change
    fchmod = flock = adopt = _change


def _refuse_change(path: str) -> NoReturn:
    raise UsageError(
        "nothing is written to a log in an object store: it has no writer, no cursors and no locks",
        hint="`aolog archive LOG URL` writes an archive, `aolog restore URL DIR` makes a log of it",
        path=path,
    )


def _folder_status(folder: Folder) -> Status:
    folder.objects()
    changed = folder.changed_ns
    inode = hash((folder.url, folder.uuid)) & 0x7FFF_FFFF_FFFF
    return Status(stat.S_IFDIR | _READABLE, inode, 0, changed, changed)


def _file_status(folder: Folder, name: str, size: int) -> Status:
    inode = hash((folder.url, folder.uuid, name)) & 0x7FFF_FFFF_FFFF
    changed = folder.changed_ns
    return Status(stat.S_IFREG | _READABLE, inode, size, changed, changed)


def archived_uuid(url: str) -> str:
    """The UUID, in hex, of the log whose archive is at the URL; "" if no archive is there."""
    try:
        return object_system().folder(url).uuid
    except FileNotFoundError:
        return ""


@cache
def object_system() -> ObjectSystem:
    """The system of all URLs in this process."""
    return ObjectSystem()
