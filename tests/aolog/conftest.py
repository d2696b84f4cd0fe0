"""What the tests of the log share: logs in all shapes, a storage that is watched, a writer's death.

`import` from here by its full name, `tests.aolog.conftest`.
"""

from __future__ import annotations

import functools
import gc
import linecache
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

import aolog
from aolog.format.frame import Buffer
from aolog.format.slab import DATA_BEGIN, SlabHeader, slab_name
from aolog.log.directory import Log
from aolog.log.walk import Tail
from aolog.maintenance.verify import verify
from aolog.record import Record
from aolog.storage.directory import Directory
from aolog.storage.file import File
from aolog.storage.storage import Storage
from aolog.write.next_slab import begin_slab
from aolog.write.options import WriterOptions
from fuzz import shapes, ways
from tests.waiting import SOON_S, Call, Child, in_thread, wait_until  # noqa: F401 -- others' imports

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(aolog.__file__).parent)
# A writer that flushes only when a test calls `flush` or `sync`.
NEVER: dict[str, Any] = {"flush_seconds": None, "sync": "never"}


@pytest.fixture
def log_path(tmp_path: Path) -> str:
    """Where a log may be: nothing is there yet."""
    return str(tmp_path / "log")


@pytest.fixture(scope="session")
def mount() -> Iterator[Callable[..., Path]]:
    """Mounts a file system, with the arguments of mount(8) before the directory. A skip where that is not
    allowed."""
    mounted: list[Path] = []

    def mount(*how: str) -> Path:
        where = Path(tempfile.mkdtemp(prefix="aolog-disk-"))
        made = subprocess.run(["mount", *how, str(where)], capture_output=True, check=False)
        if made.returncode:
            where.rmdir()
            pytest.skip(f"needs root to mount: {made.stderr.decode().strip()}")
        mounted.append(where)
        return where

    yield mount
    for where in mounted:
        subprocess.run(["umount", "--lazy", str(where)], check=True)
        where.rmdir()


@pytest.fixture(scope="session")
def small_disk(mount: Callable[..., Path]) -> Callable[[int], Path]:
    """Mounts an empty file system of so many bytes."""
    return lambda size: mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")


def refuse_threads(monkeypatch: pytest.MonkeyPatch, named: str = "") -> None:
    """From now on none is to be had whose name begins so."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(named):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def fill(path: str | Path, records: Iterable[bytes | None], **options: object) -> list[int]:
    """A closed log; the records' addresses."""
    with aolog.Writer(path, **options) as log:
        return [log.append(value) for value in records]


def begin_at(path: str, first: int, kind: str = "aolog") -> None:
    """A log whose next slab begins at this address, as after many epochs: an empty slab is before it."""
    Path(path).mkdir()
    if kind == "queuefka":
        Path(path, slab_name(first)).touch()
        return
    header = SlabHeader(
        topic_uuid=os.urandom(16),
        base=first - DATA_BEGIN,
        base_ordinal=0,
        salt=0,
        epoch=1,
        created_us=0,
    )
    storage = Storage()
    with storage.open_directory(path) as directory:
        begin_slab(directory, storage, header, WriterOptions(slab_bytes=1)).file.close()


# --- looking at a log ------------------------------------------------------------------------


def slab_files(path: str) -> list[Path]:
    """The log's slabs in order."""
    return sorted(Path(path).glob("*.slab"))


class FrameAt(NamedTuple):
    """Where a frame of records lies. begin, end: offsets in its slab. records: how many."""

    slab: Path
    base: int
    begin: int
    end: int
    kind: int
    records: int

    @property
    def address(self) -> int:
        return self.base + self.begin


def frames_of(path: str) -> list[FrameAt]:
    """All frames of an intact log, marks and seals too."""
    found = []
    with Log(path, Storage()) as log:
        for i in range(len(log.bases)):
            slab = log.slab(i)
            walker = slab.walker()
            while not isinstance(frame := walker.next(), Tail):
                head = frame.header
                place = (Path(slab.file.path), slab.base, frame.offset, frame.end)
                found.append(FrameAt(*place, head.kind, head.records))
    return found


@pytest.fixture
def ten(log_path: str) -> list[int]:
    """A log of ten records of a frame each, v0 to v9."""
    return fill(log_path, (b"v%d" % i for i in range(10)), batch_bytes=0)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int, length: int = 1) -> None:
    """Each bit of so many bytes."""
    old = path.read_bytes()[offset : offset + length]
    overwrite(path, offset, bytes(byte ^ 0xFF for byte in old))


def damage(path: str, value: bytes) -> None:
    """Alters the record that holds these bytes."""
    for slab in slab_files(path):
        if (at := slab.read_bytes().find(value)) >= 0:
            flip(slab, at)
            return
    raise AssertionError(value)


def snapshot(path: str | Path) -> dict[str, bytes | None]:
    """Every name under a path, with what is in it."""
    return {
        str(at.relative_to(path)): at.read_bytes() if at.is_file() else None
        for at in sorted(Path(path).rglob("*"))
    }


@contextmanager
def unchanged(path: str | Path) -> Iterator[None]:
    """Asserts that the block changes nothing below the path."""
    before = snapshot(path)
    yield
    assert snapshot(path) == before


def open_below(path: str) -> list[str]:
    """The files at a path or below it that this process has open; a removed one ends in
    "(deleted)". Other tests' files do not count: their readers may be collected at any time."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            found.append(str(link.readlink()))
    return sorted(
        name for name in found if f"{name.removesuffix(' (deleted)')}/".startswith(f"{path}/")
    )


def read_all(path: str | Path, **options: object) -> list[Record]:
    """Every record, one by one."""
    with aolog.Reader(path, **options) as reader:
        return list(reader)


def values(path: str, **options: object) -> list[bytes | None]:
    """Every record's value."""
    return [record.value for record in read_all(path, **options)]


def commit(path: str | Path, records: int = 1, cursor: str = "c", **options: object) -> int:
    """A cursor passes so many records; its address then."""
    with aolog.Reader(path, cursor=cursor, **options) as reader:
        for _ in range(records):
            assert reader.read() is not None
        reader.commit()
        return reader.tell()


Way = ways.Seen
from_arrow_rows = ways.from_arrow
kill = shapes.abandon  # a writer, as SIGKILL does


def _way(read: Callable[[aolog.Reader], list[Record]]) -> Callable[..., Way]:
    """A way of the fuzzer's, from the path on; options are the reader's."""

    @functools.wraps(read)
    def by(path: str, **options: object) -> Way:
        with aolog.Reader(path, **options) as reader:
            return Way(read(reader), reader.gaps)

    return by


WAYS = [_way(read) for read in ways.WAYS.values()]
one_by_one, by_iteration, by_batch = map(_way, (ways.one_by_one, ways.by_iteration, ways.by_batch))


def assert_clean(path: str) -> None:
    """Nothing is lost, damaged or left over."""
    report = verify(path)
    assert report.ok, report
    assert report.tail_bytes == 0


# --- what interrupts a call ----------------------------------------------------------------------


class Interrupted(BaseException):
    """In place of KeyboardInterrupt."""


# What a signal handler may raise in the middle of a call.
FROM_A_HANDLER: dict[str, Callable[[], BaseException]] = {
    "interrupt": Interrupted,
    "full": lambda: aolog.StorageFull("of another log"),
    "sync failed": lambda: aolog.SyncFailed("of another log"),
    "usage": lambda: aolog.UsageError("of another log"),
}


class Tracer:
    """Raises at the n-th line of these parts of the library that runs after `begin`, in any thread that
    began meanwhile. A line that runs again does not count, nor does `try:`, where no handler can run. Never in a finalizer."""

    def __init__(self) -> None:
        self.left = 0
        self.ran: set[tuple[CodeType, int]] = set()
        self.rooms: tuple[str, ...] = ()
        self.make: Callable[[], BaseException] = Interrupted

    def begin(self, nth: int, rooms: Iterable[str], make: Callable[[], BaseException]) -> None:
        self.left, self.make = nth, make
        self.rooms = tuple(os.path.normpath(f"{PACKAGE}/{room}") for room in rooms)
        self.ran.clear()
        gc.disable()  # what an earlier test left would be finalized here, and swallow the error
        sys.settrace(self)

    def end(self) -> bool:
        """Whether it raised."""
        sys.settrace(None)
        gc.enable()
        left, self.left = self.left, 0
        return left == 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Tracer | None:
        code = frame.f_code
        is_within = code.co_filename.startswith(self.rooms) and code.co_name != "__del__"
        if self.left <= 0 or not is_within:
            return None
        line = frame.f_code, frame.f_lineno
        if event == "line" and line not in self.ran:
            self.ran.add(line)
            self.left -= (
                linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() != "try:"
            )
            if self.left == 0:
                raise self.make()
        return self


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    threading.settrace(tracer)
    yield tracer
    threading.settrace(None)  # type: ignore[arg-type]  # as its documentation has it
    tracer.end()


# --- storage that is watched -----------------------------------------------------------------


class Operation(NamedTuple):
    """What was asked of the storage: write, truncate, datasync, sync (a directory's), rename,
    unlink, create, mkdir. name: of the file, as it is below the log's directory."""

    what: str
    name: str


class WatchedFile(File):
    """A file whose changes are told to its storage first."""

    def __init__(self, storage: WatchedStorage, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self.storage = storage

    def pwrite_all(self, parts: Sequence[Buffer], offset: int) -> None:
        self.storage.meet(
            "write", self.path, lambda: super(WatchedFile, self).pwrite_all(parts, offset)
        )

    def datasync(self) -> None:
        self.storage.meet("datasync", self.path, super().datasync)

    def truncate(self, size: int) -> None:
        self.storage.meet("truncate", self.path, lambda: super(WatchedFile, self).truncate(size))


class WatchedDirectory(Directory):
    """The same for a directory."""

    def __init__(self, storage: WatchedStorage, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self.storage = storage

    def sync(self) -> None:
        self.storage.meet("sync", self.path, super().sync)


class WatchedStorage(Storage):
    """The real file system, with a list of what was changed and a say in it.

    operations: what was done, in order. before: called with each Operation before it is done; may
    raise in its place. opened: files, in order. lists: how often a directory was listed.
    """

    def __init__(self, before: Callable[[Operation], None] | None = None) -> None:
        self.operations: list[Operation] = []
        self.before = before
        self.opened: list[str] = []
        self.lists = 0

    def meet(self, what: str, path: str, call: Callable[[], object]) -> None:
        operation = Operation(what, Path(path).name)
        if self.before is not None:
            self.before(operation)
        call()
        self.operations.append(operation)

    def count(self, what: str) -> int:
        return sum(operation.what == what for operation in self.operations)

    def list_names(self, path: str) -> list[str]:
        self.lists += 1
        return super().list_names(path)

    def _directory(self, path: str, fd: int, system: object) -> Directory:
        return WatchedDirectory(self, path, fd)

    def _open(self, path: str, flags: int) -> File:
        self.opened.append(path)
        made: list[File] = []

        def call() -> None:
            plain = super(WatchedStorage, self)._open(path, flags)
            fd, plain.fd = plain.fd, -1
            made.append(WatchedFile(self, path, fd))

        if flags & os.O_TRUNC:
            self.meet("create", path, call)
        else:
            call()
        return made[0]

    def rename(self, old: str, new: str) -> None:
        self.meet("rename", new, lambda: super(WatchedStorage, self).rename(old, new))

    def unlink(self, path: str) -> None:
        self.meet("unlink", path, lambda: super(WatchedStorage, self).unlink(path))


def raising_at(n: int, error: Callable[[], BaseException]) -> Callable[[Operation], None]:
    """Lets n operations through and raises at every one behind them."""
    left = n

    def before(_: Operation) -> None:
        nonlocal left
        if left == 0:
            raise error()
        left -= 1

    return before
