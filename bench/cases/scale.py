"""scale: what a record costs in a log of few and of many, and in a log of few and of many slabs.

Each group is a curve: the same work at growing sizes, one contender for each size. A flat curve does not
depend on the size. By records: slabs of 64 MiB. By slabs: 1000 records each, without syncs, which would
hide everything else; such a short slab shows the cost of a slab itself. Opening a log and asking retention
list the directory: that grows with the number of names, and has a row of its own. So have files of the
same sizes, written raw, because the first files of a file system take less time.
"""

from __future__ import annotations

import os
import random
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import aolog
from aolog.log.retention import Known, prune
from aolog.storage.storage import Storage
from bench.cases.opening import Unsynced, listing, open_to_read
from bench.measure import Contender, Group, Promise, Target, Wrong
from bench.payloads import Proof, make_payloads, prove
from bench.peers.aolog_log import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from bench.cases.plan import Plan
    from bench.measure import Work

__all__ = ["AXES", "groups"]

RECORDS, SLABS = "records", "slabs"
AXES = (RECORDS, SLABS)
_VALUE_BYTES = 20
_VALUES = 1000  # appended again and again: 10^8 different ones would not fit into memory
_SLAB_BYTES = 8_200  # so that each frame begins a slab
_OPENINGS, _SEEKS, _ASKED = 10, 200, 10  # a round
_FLAT_MAX = 1.5  # the largest log's cost a record as a multiple of a small one's
_NO_PROMISE = Promise("-", "none")
_CHECKED = Promise("-", "xxh3 a frame")
_NOTHING = prove([])
_BLOCK = bytes(64 << 10)
_RAW = "files, raw"
_NO_LIMIT = aolog.Retention(max_bytes=1 << 60)


@dataclass(frozen=True)
class _Log:
    """A closed log of a size, and how another one like it is made."""

    at: int
    path: str
    records: int
    opened: Callable[[str], aolog.Writer]
    appended: Callable[[aolog.Writer], None]

    def make(self) -> None:
        with self.opened(self.path) as writer:
            self.appended(writer)


def groups(plan: Plan) -> Iterator[Group]:
    values = make_payloads(_VALUES, _VALUE_BYTES)
    for axis, sizes in ((RECORDS, plan.size.scale_records), (SLABS, plan.size.scale_slabs)):
        with plan.fixture() as directory:
            logs = []
            for at in sizes:
                path = str(Path(directory, str(at)))
                log = (_by_records if axis == RECORDS else _by_slabs)(at, path, values)
                log.make()
                logs.append(log)
            for make in (_append, _read, _verify, _open, _seek, _prune):
                yield make(axis, logs, plan.size.scale_rounds)


def _by_records(at: int, path: str, values: list[bytes]) -> _Log:
    def appended(writer: aolog.Writer) -> None:
        append = writer.append
        for _ in range(at // _VALUES):
            for value in values:
                append(value)
        writer.flush()

    return _Log(at, path, at // _VALUES * _VALUES, partial(aolog.Writer, sync="never"), appended)


def _by_slabs(at: int, path: str, values: list[bytes]) -> _Log:
    def opened(path: str) -> aolog.Writer:
        return aolog.Writer(
            path, slab_bytes=_SLAB_BYTES, sync="never", flush_seconds=None, storage=Unsynced()
        )

    def appended(writer: aolog.Writer) -> None:
        for _ in range(at):
            writer.append_many(values)
        writer.flush()

    return _Log(at, path, at * _VALUES, opened, appended)


def _group(
    axis: str,
    what: str,
    timed: str,
    contenders: list[Contender],
    rounds: int,
    *,
    targets: tuple[Target, ...] | None = None,
    unit: str = "record",
) -> Group:
    if targets is None:
        targets = tuple(
            _flat(axis, contenders, series)
            for series in dict.fromkeys(one.series for one in contenders)
        )
    return Group(
        "scale", f"{what}, by {axis}", timed, _VALUE_BYTES if unit == "record" else 0, contenders,
        (contenders[0].name,), targets=targets, unit=unit, axis=axis, rounds=rounds,
    )  # fmt: skip  # one thing, a line or two


def _named(series: str, axis: str, at: int) -> str:
    return f"{series}, {at:,} {axis.removesuffix('s') if at == 1 else axis}"


def _flat(axis: str, contenders: list[Contender], series: str) -> Target:
    """The largest size as a multiple of the smallest. Not of one slab, which never rolls."""
    sizes = sorted(one.at for one in contenders if one.series == series and one.at > 1)
    most, least = _named(series, axis, sizes[-1]), _named(series, axis, sizes[0])
    return Target(f"{most}, as a multiple of {sizes[0]:,}", most, (least,), _FLAT_MAX)


def _above_listing(axis: str, contenders: list[Contender], *series: str) -> tuple[Target, ...]:
    sizes = [one.at for one in contenders]
    most, least = max(sizes), min(sizes)
    return tuple(
        Target(
            f"{_named(one, axis, most)}, as a multiple of {least:,} and listing the directory",
            _named(one, axis, most),
            (_named(one, axis, least), _named("listing", axis, most)),
            2.5,  # more than os.listdir is done: names are checked and held, sizes added up
        )
        for one in series
    )


def _point(
    series: str,
    axis: str,
    log: _Log,
    records: int,
    session: Callable[[str], AbstractContextManager[Work]] | Callable[[], int],
    *,
    promise: Promise = _NO_PROMISE,
    proof: Callable[[str], Proof] | None = None,
    expected: Proof = _NOTHING,
    is_work: bool = True,
) -> Contender:
    """A contender of a curve. session: the work itself if is_work, otherwise as in Contender."""
    entered = (lambda _: nullcontext(session)) if is_work else session
    return Contender(
        _named(series, axis, log.at), promise, records, entered,  # type: ignore[arg-type]  # is_work decides
        proof, expected, series=series, at=log.at,
    )  # fmt: skip  # one thing, a line or two


# --- a cost a record ----------------------------------------------------------------------------


def _append(axis: str, logs: list[_Log], rounds: int) -> Group:
    def session_of(log: _Log) -> Callable[[str], AbstractContextManager[Work]]:
        @contextmanager
        def session(directory: str) -> Iterator[Work]:
            with log.opened(log_path(directory)) as writer:

                def work() -> int:
                    log.appended(writer)
                    return log.records

                yield work

        return session

    def proof(directory: str) -> Proof:
        report = aolog.verify(log_path(directory))
        return Proof(report.records, "intact" if report.ok else "damaged")

    series = "append" if axis == RECORDS else "append_many of 1000, a slab each"
    points = [
        _point(series, axis, log, log.records, session_of(log), proof=proof, is_work=False,
               promise=Promise("OS", "xxh3 a frame"), expected=Proof(log.records, "intact"))
        for log in logs
    ]  # fmt: skip  # one thing, a line or two
    points += [
        _point(_RAW, axis, log, log.records, partial(_raw, log), is_work=False) for log in logs
    ]  # fmt: skip  # one thing, a line or two
    flat = _flat(axis, points, series)
    raw = _named(_RAW, axis, max(log.at for log in logs))
    targets = (replace(flat, what=f"{flat.what} and of raw files", others=(*flat.others, raw)),)
    timed = "from the first append until all are in the operating system; files as large, raw"
    return _group(axis, "append", timed, points, rounds, targets=targets)


@contextmanager
def _raw(log: _Log, directory: str) -> Iterator[Work]:
    """As many files of the same sizes, made as a slab is: under another name first."""
    names = [name for name in os.listdir(log.path) if name.endswith(".slab")]
    sizes = [Path(log.path, name).stat().st_size for name in names]

    def work() -> int:
        for name, size in zip(names, sizes, strict=True):
            fd = os.open(Path(directory, "new"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            for at in range(0, size, len(_BLOCK)):
                os.write(fd, _BLOCK[: size - at])
            os.close(fd)
            Path(directory, "new").rename(Path(directory, name))
        return log.records

    yield work


def _read(axis: str, logs: list[_Log], rounds: int) -> Group:
    def iterate(log: _Log) -> int:
        size = 0
        with aolog.Reader(log.path, strict=True) as reader:
            for record in reader:
                size += len(record.value or b"")
        if size != log.records * _VALUE_BYTES:
            raise Wrong(f"read {size} bytes of {log.records * _VALUE_BYTES}")
        return log.records

    def batches(log: _Log) -> int:
        records = 0
        with aolog.Reader(log.path, strict=True) as reader:
            while (batch := reader.read_batch()) is not None:
                records += len(batch)
        return records

    points = [
        _point(series, axis, log, log.records, partial(work, log), promise=_CHECKED)
        for series, work in (("iterate", iterate), ("read_batch", batches))
        for log in logs
    ]
    return _group(axis, "read", "from opening to the last record", points, rounds)


def _verify(axis: str, logs: list[_Log], rounds: int) -> Group:
    def verify(log: _Log) -> int:
        report = aolog.verify(log.path)
        return report.records if report.ok else -1

    points = [
        _point("verify", axis, log, log.records, partial(verify, log), promise=_CHECKED)
        for log in logs
    ]
    return _group(axis, "verify", "aolog.verify", points, rounds)


# --- a cost a call ------------------------------------------------------------------------------


def _repeat(call: Callable[[], int], times: int) -> int:
    return sum(call() >= 0 for _ in range(times))


def _listings(axis: str, logs: list[_Log]) -> list[Contender]:
    return [
        _point("listing", axis, log, _OPENINGS, partial(_repeat, partial(listing, log.path), _OPENINGS))
        for log in logs
    ]  # fmt: skip  # one thing, a line or two


def _open(axis: str, logs: list[_Log], rounds: int) -> Group:
    calls: dict[str, Callable[[str], int]] = {
        "to append": _open_to_append,
        "to read": partial(open_to_read, start="earliest"),
    }
    points = [
        _point(
            series, axis, log, _OPENINGS, partial(_repeat, partial(call, log.path), _OPENINGS)
        )
        for series, call in calls.items()
        for log in logs
    ]  # fmt: skip  # one thing, a line or two
    points += _listings(axis, logs)
    targets = _above_listing(axis, points, *calls)
    timed = "a Writer, syncs left out; a Reader with its first record; os.listdir, sorted"
    return _group(axis, "open", timed, points, rounds, targets=targets, unit="opening")


def _open_to_append(path: str) -> int:
    writer = aolog.Writer(path, storage=Unsynced())
    writer.close()
    return writer.end


def _seek(axis: str, logs: list[_Log], rounds: int) -> Group:
    def session_of(log: _Log) -> Callable[[str], AbstractContextManager[Work]]:
        @contextmanager
        def session(_: str) -> Iterator[Work]:
            with aolog.Reader(log.path, start="latest") as reader:
                source = random.Random(log.at)
                addresses: list[int] = []
                for ordinal in source.choices(range(log.records), k=_SEEKS):
                    reader.seek(ordinal=ordinal)
                    addresses.append(reader.tell())

                def work() -> int:
                    found = 0
                    for address in addresses:
                        reader.seek(address)
                        batch = reader.read_batch(1)
                        found += int(batch is not None and reader.tell() > address)
                    return found

                yield work

        return session

    points = [
        _point("seek", axis, log, _SEEKS, session_of(log), is_work=False, promise=_CHECKED)
        for log in logs
    ]
    timed = "Reader.seek to a random address, and the frame that is there"
    return _group(axis, "seek", timed, points, rounds, unit="seek", targets=())


def _prune(axis: str, logs: list[_Log], rounds: int) -> Group:
    def session_of(log: _Log) -> Callable[[str], AbstractContextManager[Work]]:
        @contextmanager
        def session(_: str) -> Iterator[Work]:
            known: Known = {}
            call = partial(_asked, log.path, known)
            call()
            yield partial(_repeat, call, _ASKED)

        return session

    asked = "asked, nothing goes"
    points = [
        _point(asked, axis, log, _ASKED, session_of(log), is_work=False) for log in logs
    ]  # fmt: skip  # one thing, a line or two
    points += _listings(axis, logs)
    targets = _above_listing(axis, points, asked)
    if axis == SLABS:
        going = [
            _point("a slab that goes", axis, log, log.at - 1, partial(_going, log), is_work=False)
            for log in logs
            if log.at > 1
        ]
        points += going
        targets += (_flat(axis, going, "a slab that goes"),)
    timed = "as a bounded log asks at each roll; a slab that goes, syncs left out"
    return _group(axis, "prune", timed, points, rounds, targets=targets, unit="call")


def _asked(path: str, known: Known) -> int:
    return -1 if prune(path, Storage(), _NO_LIMIT, known=known).slabs else 0


@contextmanager
def _going(log: _Log, directory: str) -> Iterator[Work]:
    """All slabs but the last, of a copy by links."""
    for name in os.listdir(log.path):
        if name.endswith(".slab"):
            os.link(Path(log.path, name), Path(directory, name))
    yield lambda: prune(directory, Unsynced(), aolog.Retention(max_slabs=1)).slabs
