"""opening: how long until a log is open, against how many slabs it has, and with a long last slab.

A log's directory is listed once, and the names are parsed: only that may grow with the number of slabs; it
has a row of its own. Only the last slab is read, and only if it has no seal, as after a crash: then every
frame of it is hashed once before an append.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import aolog
from aolog.storage.storage import Storage
from bench import limits
from bench.measure import Contender, Group, Promise, Target, Wrong
from bench.payloads import make_payloads, prove
from bench.peers.aolog_log import log_path, slab_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.storage.directory import Directory, Inside
    from aolog.storage.file import File
    from bench.cases.plan import Plan

__all__ = [
    "BATCHES",
    "BATCHES_TARGET",
    "SINGLES",
    "Unsynced",
    "groups",
    "growth_target",
    "listing",
    "open_to_read",
    "row",
]

_OPENINGS = 20  # in a round
_SLAB_BYTES = 8_200  # one record each
_VALUE_BYTES = 100
_BATCH_BYTES = 64 << 10
_NO_PROMISE = Promise("-", "none")
_NOTHING = prove([])

BATCHES = "aolog, batches of 64 KiB"
SINGLES = "aolog, frames of one record"
NEVER = "aolog, batches of 64 KiB, never synced"
VERIFY = "aolog.verify, frames of one record"
_SYNC_BYTES = 64 << 20
READ_SINGLES = f"{limits.READ_AND_HASH}, the same"
BATCHES_TARGET = Target(
    "opening behind batches, as a multiple of reading and hashing",
    BATCHES,
    (limits.READ_AND_HASH,),
    2.0,  # a frame is read whole, so parts of MiB are read twice; and a slab is begun and synced
)


def row(what: str, slabs: int) -> str:
    """The name of a contender."""
    return f"{what}, {slabs:,} slab{'s' * (slabs > 1)}"


def growth_target(what: str, slabs: int) -> Target:
    """Opening so many slabs takes as long as opening one and listing them."""
    return Target(
        f"{what} {slabs:,} slabs, as a multiple of listing them and opening one",
        row(what, slabs),
        (row("listing", slabs), row(what, 1)),
        1.5,
    )


def groups(plan: Plan) -> Iterator[Group]:
    with plan.fixture() as directory:
        yield _by_slabs(plan, directory)
    with plan.fixture() as directory:
        yield _unsealed(plan, directory)


# --- against the number of slabs ----------------------------------------------------------------


class Unsynced(Storage):
    """Makes thousands of slabs quickly: none of them has to survive a crash."""

    def _open(self, path: Inside, flags: int) -> File:
        file = super()._open(path, flags)
        file.datasync = lambda: None  # type: ignore[method-assign]  # of this one file
        return file

    def sync_directory(self, path: str | Directory) -> None:
        """Does nothing."""


def make_log(path: str, slabs: int) -> None:
    with aolog.Writer(
        path, slab_bytes=_SLAB_BYTES, flush_seconds=None, sync="never", storage=Unsynced()
    ) as writer:
        for i in range(slabs):
            writer.append_many([bytes(100), b"%d" % i])


def _by_slabs(plan: Plan, directory: str) -> Group:
    contenders = []
    for slabs in plan.size.slabs:
        path = str(Path(directory, str(slabs)))
        make_log(path, slabs)
        contenders += [
            _opening(
                "listing", slabs, partial(listing, path), "os.listdir, names as sorted addresses"
            ),
            _opening("append", slabs, partial(_open_to_append, path), "Writer, closed again"),
            _opening(
                "read", slabs, partial(open_to_read, path, "earliest"), "Reader, its first record"
            ),
            _opening(
                "read the end",
                slabs,
                partial(open_to_read, path, "latest"),
                'Reader, start="latest"',
            ),
        ]
    most = plan.size.slabs[-1]
    return Group(
        "opening",
        "opening a closed log",
        "from the call until it is closed again",
        0,
        contenders,
        (row("listing", most),),
        targets=tuple(growth_target(what, most) for what in ("append", "read", "read the end")),
        unit="opening",
    )


def listing(path: str) -> int:
    return len(sorted(int(name[:20]) for name in os.listdir(path) if name.endswith(".slab")))


def _open_to_append(path: str) -> int:
    writer = aolog.Writer(path)
    writer.close()
    return writer.end


def open_to_read(path: str, start: str) -> int:
    with aolog.Reader(path, start="earliest" if start == "earliest" else "latest") as reader:
        record = reader.read()
    if (record is None) == (start == "earliest"):
        raise Wrong(f"read {record} at the {start}")
    return reader.tell() + 1


def _opening(what: str, slabs: int, call: Callable[[], int], note: str) -> Contender:
    def work() -> int:
        return sum(call() > 0 for _ in range(_OPENINGS))

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        yield work

    return Contender(row(what, slabs), _NO_PROMISE, _OPENINGS, session, None, _NOTHING,
                     note if slabs == 1 else "")  # fmt: skip  # one thing, two lines


# --- a long last slab without a seal ------------------------------------------------------------


def _unsealed(plan: Plan, directory: str) -> Group:
    size = plan.size.unsealed_bytes
    batches, singles = Path(directory, "batches"), Path(directory, "singles")
    never = Path(directory, "never-synced")
    _make_unsealed(batches, size, batch_bytes=_BATCH_BYTES)
    _make_unsealed(singles, size, batch_bytes=0)
    _make_unsealed(never, size, batch_bytes=_BATCH_BYTES, sync_bytes=None)
    contenders = [
        _read_and_hash(batches, limits.READ_AND_HASH),
        _recovery(BATCHES, batches),
        _read_and_hash(singles, READ_SINGLES),
        _recovery(SINGLES, singles),
        _recovery(NEVER, never, "what no sync covered is written and synced anew"),
        _verification(VERIFY, singles),
    ]
    return Group(
        "opening",
        f"opening behind {size >> 20} MiB without a seal",
        "from the call until it is open, with the next slab begun and durable",
        0,
        contenders,
        (limits.READ_AND_HASH,),
        targets=(BATCHES_TARGET,),
        unit="opening",
    )


def _make_unsealed(
    directory: Path, size: int, *, batch_bytes: int, sync_bytes: int | None = _SYNC_BYTES
) -> None:
    """Makes the slab of a killed writer: one without a seal. sync_bytes: synced each time after that many
    bytes, the last time just before its last batch; None: never."""
    directory.mkdir()
    values = make_payloads(1_000, _VALUE_BYTES)
    with aolog.Writer(
        log_path(str(directory)), slab_bytes=2 * size, batch_bytes=batch_bytes, sync="never",
        flush_seconds=None,
    ) as writer:  # fmt: skip  # one thing, a line or two
        (slab,) = slab_paths(str(directory))
        while slab.stat().st_size < size:
            for value in values:
                writer.append(value)
            writer.flush()
            if sync_bytes is not None and writer.end - writer.durable >= sync_bytes:
                writer.sync()
        if sync_bytes is not None:
            writer.sync()
            writer.append_many(values[:100])
            writer.flush()
        end = writer.end
    os.truncate(slab, end)


def _read_and_hash(directory: Path, name: str) -> Contender:
    read = limits.read_blocks(slab_paths(str(directory)), 1, _NOTHING, hashed=True)
    return Contender(name, read.promise, 1, read.session, None, _NOTHING, read.note)


def _recovery(name: str, directory: Path, note: str = "") -> Contender:
    """Each opening begins a slab, which is removed again."""
    path = log_path(str(directory))
    (slab,) = slab_paths(str(directory))
    end = slab.stat().st_size

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        writers = []

        def work() -> int:
            writers.append(aolog.Writer(path, sync="never"))
            return 1

        yield work
        (writer,) = writers
        if writer.opening.case != "unsealed" or slab.stat().st_size != end:
            raise Wrong(f"{name}: opened as {writer.opening}")
        writer.close()
        for other in slab_paths(str(directory)):
            if other != slab:
                other.unlink()

    return Contender(name, Promise("-", "xxh3 a frame"), 1, session, None, _NOTHING, note)


def _verification(name: str, directory: Path) -> Contender:
    path = log_path(str(directory))

    def work() -> int:
        return int(aolog.verify(path).ok)

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        yield work

    return Contender(name, Promise("-", "xxh3 a frame"), 1, session, None, _NOTHING)
