"""durability: each record on the device before it counts, beside raw fdatasync of the same bytes.

One group syncs each record alone; in the other, threads append and sync side by side. The raw rows
write the same bytes as the log, one frame in each call, and sync as often: into a file that grows, whose
length is synced too, and into an existing one, as the log does once it fills its slab with zeros ahead.
The column fdatasyncs has their number for each record.
"""

from __future__ import annotations

import os
import threading
from contextlib import closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import aolog
from aolog.storage.storage import Storage
from bench.measure import Contender, Group, Promise, Skipped, Target, Wrong
from bench.payloads import Proof, prove
from bench.peers.aolog_log import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aolog.storage.directory import Inside
    from aolog.storage.file import File
    from bench.cases.plan import Plan

__all__ = [
    "ALONE_TARGETS",
    "RAW_GROWING",
    "RAW_WRITTEN",
    "SYNC",
    "SYNC_BY_POLICY",
    "THREADS",
    "THREADS_TARGETS",
    "groups",
    "threads_name",
]

RAW_GROWING = "raw fdatasync"
RAW_WRITTEN = "raw fdatasync, file written before"
SYNC = "aolog, append + sync"
SYNC_BY_POLICY = 'aolog, sync="flush"'
THREADS = (1, 2, 4, 8, 16)
_FRAME_HEADER_BYTES = 40
_RECORDS_MAX = 2_000  # a contender's in each round: a device's sync may take ten milliseconds
_DURABLE = "device"


def threads_name(threads: int) -> str:
    """The name of the contender with that many threads."""
    return f"aolog, {threads} thread{'s' * (threads > 1)}"


ALONE_TARGETS = (
    # Zeros ahead of the frames spare the device the new length, which takes a third of its time.
    Target("a sync, as a multiple of raw fdatasync", SYNC, (RAW_GROWING,), 1),
    Target("a sync, as a multiple of raw, file written before", SYNC, (RAW_WRITTEN,), 1.3),
)
THREADS_TARGETS = (
    Target("16 threads, as a part of one", threads_name(16), (threads_name(1),), 0.25),
)


def groups(plan: Plan) -> Iterator[Group]:
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes).few[:_RECORDS_MAX]
        expected = prove(values)
        make = partial(_log_contender, values=values, expected=expected)
        raw = [_raw(values, expected, written=False), _raw(values, expected, written=True)]
        yield Group(
            "durability",
            f"one by one, each on the device, {record_bytes}-byte records",
            "from the first append until all are on the device; opening and closing not",
            record_bytes,
            [
                *raw,
                make(SYNC),
                make(SYNC_BY_POLICY, sync="flush"),
                _sqlite(values, expected),
                *_lmdb(values, expected),
                *_rocksdb(values, expected),
            ],
            (RAW_GROWING, RAW_WRITTEN),
            _skipped(),
            targets=ALONE_TARGETS,
        )
        yield Group(
            "durability",
            f"threads that each append and sync, {record_bytes}-byte records",
            "from the first append until all are on the device; starting threads too",
            record_bytes,
            [
                *raw[:1],
                *[make(threads_name(n), threads=n) for n in THREADS],
                make(f"{threads_name(16)}, by policy", threads=16, sync="flush"),
            ],
            (threads_name(1),),
            targets=THREADS_TARGETS,
        )


def _skipped() -> list[Skipped]:
    return [
        Skipped(name, "not installed") for name in ("lmdb", "rocksdict") if find_spec(name) is None
    ]


# --- the log ----------------------------------------------------------------------------------


class _Counting(Storage):
    """Counts the fdatasyncs of all its files."""

    def __init__(self) -> None:
        self.syncs = 0

    def _open(self, path: Inside, flags: int) -> File:
        file = super()._open(path, flags)
        datasync = file.datasync

        def counting() -> None:
            # No two at once: a slab is synced by one leader, a header by its creator.
            self.syncs += 1
            datasync()

        file.datasync = counting  # type: ignore[method-assign]  # of this one file
        return file


def _log_contender(
    name: str,
    *,
    values: Sequence[bytes],
    expected: Proof,
    threads: int = 1,
    sync: Literal["never", "flush"] = "never",
) -> Contender:
    """Threads share the records in turn. The scheduler decides their order, so the proof sorts them by
    their addresses."""
    addresses: dict[int, int] = {}
    counted = [0]

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        storage = _Counting()
        with aolog.Writer(
            log_path(directory),
            flush_seconds=None,
            flush_records=1 if sync == "flush" else None,
            sync=sync,
            slab_bytes=_slab_bytes(values),
            storage=storage,
        ) as writer:
            addresses.clear()

            def append(first: int) -> None:
                for i in range(first, len(values), threads):
                    address = writer.append(values[i])
                    durable = writer.sync() if sync == "never" else writer.durable
                    addresses[address] = i
                    if durable <= address:
                        raise Wrong(f"{name}: record {i} is not durable")

            def work() -> int:
                before = storage.syncs
                if threads == 1:
                    append(0)
                else:
                    _in_threads(append, threads)
                counted[0] = storage.syncs - before
                return len(addresses)

            yield work

    def proof(directory: str) -> Proof:
        found = [b""] * len(values)
        with aolog.Reader(log_path(directory), strict=True) as reader:
            for record in reader:
                found[addresses[record.address]] = record.value or b""
        return prove(found)

    promise = Promise(_DURABLE, "xxh3 a frame")
    return Contender(
        name, promise, len(values), session, proof, expected, fdatasyncs=lambda: counted[0]
    )


def _slab_bytes(values: Sequence[bytes]) -> int:
    """Room for all records: syncs are compared, not rolls."""
    return 1 << 20 if sum(map(len, values)) < (1 << 19) else 64 << 20


def _in_threads(append: Callable[[int], None], threads: int) -> None:
    started = [threading.Thread(target=append, args=(i,)) for i in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


# --- raw ----------------------------------------------------------------------------------------


def _raw(values: Sequence[bytes], expected: Proof, *, written: bool) -> Contender:
    """As many bytes as a frame of one record has, at the same offsets, in one write and one
    fdatasync."""
    frames = [_frame(value) for value in values]
    length = len(values[0])

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        fd = os.open(Path(directory, "raw"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if written:
                os.write(fd, bytes(sum(map(len, frames))))
            os.fsync(fd)

            def work() -> int:
                at = 0
                for frame in frames:
                    at += os.pwrite(fd, frame, at)
                    os.fdatasync(fd)
                return len(frames)

            yield work
        finally:
            os.close(fd)

    def proof(directory: str) -> Proof:
        stored = Path(directory, "raw").read_bytes()
        return prove(
            stored[at + _FRAME_HEADER_BYTES :][:length]
            for at in range(0, len(stored), len(frames[0]))
        )

    name = RAW_WRITTEN if written else RAW_GROWING
    note = "a write of a frame's bytes and an fdatasync a record"
    promise = Promise(_DURABLE, "none")
    return Contender(
        name, promise, len(frames), session, proof, expected, note, lambda: len(frames)
    )


def _frame(value: bytes) -> bytes:
    return bytes(_FRAME_HEADER_BYTES) + value + bytes(-len(value) % 8)


# --- others -------------------------------------------------------------------------------------


def _sqlite(values: Sequence[bytes], expected: Proof) -> Contender:
    import sqlite3

    def connect(directory: str) -> sqlite3.Connection:
        return sqlite3.connect(Path(directory, "log.db"), isolation_level=None)

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        with closing(connect(directory)) as connection:
            execute = connection.execute
            execute("PRAGMA journal_mode=WAL")
            execute("PRAGMA synchronous=FULL")
            execute("CREATE TABLE log (address INTEGER PRIMARY KEY, value BLOB NOT NULL)")

            def work() -> int:
                for value in values:
                    execute("INSERT INTO log (value) VALUES (?)", (value,))
                return len(values)

            yield work

    def proof(directory: str) -> Proof:
        with closing(connect(directory)) as connection:
            rows = connection.execute("SELECT value FROM log ORDER BY address")
            return prove(row[0] for row in rows)

    return Contender(
        "sqlite WAL, FULL", Promise(_DURABLE, "sum a WAL page"), len(values), session, proof,
        expected, "a transaction a record",
    )  # fmt: skip  # one thing, a line or two


def _lmdb(values: Sequence[bytes], expected: Proof) -> Iterator[Contender]:
    if find_spec("lmdb") is None:
        return
    import lmdb

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        with closing(lmdb.open(directory, map_size=1 << 32)) as env:

            def work() -> int:
                for i, value in enumerate(values):
                    with env.begin(write=True) as transaction:
                        transaction.put(i.to_bytes(8, "big"), value, append=True)
                return len(values)

            yield work

    def proof(directory: str) -> Proof:
        with (
            closing(lmdb.open(directory, map_size=1 << 32, readonly=True)) as env,
            env.begin() as transaction,
        ):
            return prove(value for _, value in transaction.cursor())

    yield Contender(
        "lmdb, sync", Promise(_DURABLE, "none"), len(values), session, proof, expected,
        "a transaction a record",
    )  # fmt: skip  # one thing, a line or two


def _rocksdb(values: Sequence[bytes], expected: Proof) -> Iterator[Contender]:
    if find_spec("rocksdict") is None:
        return
    import rocksdict

    def connect(directory: str) -> rocksdict.Rdict:
        return rocksdict.Rdict(directory, rocksdict.Options(raw_mode=True))

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        synced = rocksdict.WriteOptions()
        synced.sync = True
        with closing(connect(directory)) as db:
            db.set_write_options(synced)

            def work() -> int:
                for i, value in enumerate(values):
                    db[i.to_bytes(8, "big")] = value
                return len(values)

            yield work

    def proof(directory: str) -> Proof:
        with closing(connect(directory)) as db:
            return prove(db.values())

    yield Contender(
        "rocksdict, sync", Promise(_DURABLE, "crc32c a record"), len(values), session, proof,
        expected, "a put a record",
    )  # fmt: skip  # one thing, a line or two
