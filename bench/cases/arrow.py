"""arrow: a log's batches to Arrow, beside reading its bytes and hashing them once.

Targets are for the value column and for all six columns, at the default batch size and at four times that;
the log has only values. A log that uses all columns has no target.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aolog
from aolog.format.framing import CHUNK_BYTES
from bench import limits
from bench.measure import Contender, Group, Promise, Skipped, Target
from bench.payloads import Proof, prove
from bench.peers.aolog_log import BATCH_BYTES, log_path, slab_paths, write_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cases.plan import Plan, Values
    from bench.peers.peer import Peer

__all__ = ["ALL_COLUMNS", "VALUE_COLUMN", "groups"]

VALUE_COLUMN = "aolog, value column"
ALL_COLUMNS = "aolog, all six columns"
_MERGED = "aolog, value column, 1 MiB"
_MERGED_BYTES = 1 << 20
_SMALL: dict[str, dict[str, Any]] = {
    "frames of 10 records": {"flush_records": 10},
    "format 1": {"format": "queuefka"},
}
_TOGETHER = "aolog, put together"
_ALONE = "aolog, each frame alone"
_ONE_THREAD = "aolog, one thread"
_TWO_THREADS = "aolog, two threads"
_PROMISE = Promise("-", "xxh3 a batch")
# Batches are near the limit by design: a frame's columns are Arrow's own buffers, so what is left
# is one hash and a handful of calls a read. By the length of a batch: (value column, all six).
_RATIOS_MAX = {BATCH_BYTES: (1.8, 4.5), 4 * BATCH_BYTES: (1.3, 2.1)}
_THREADS_RATIO_MAX = 1 / 1.7


def groups(plan: Plan) -> Iterator[Group]:
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes)
        for batch_bytes in (BATCH_BYTES, 4 * BATCH_BYTES):
            for full in (False, True):
                with plan.fixture() as directory:
                    yield _group(plan, values, record_bytes, batch_bytes, directory, full=full)
        for frames, options in _SMALL.items():
            with plan.fixture() as directory:
                yield _small_frames(values, record_bytes, directory, frames, options)
        with plan.fixture() as directory:
            yield _threads(values, record_bytes, directory)


def _small_frames(
    values: Values, record_bytes: int, directory: str, frames: str, options: dict[str, Any]
) -> Group:
    """Small frames, which become Arrow together, or each alone."""
    with aolog.Writer(log_path(directory), sync="never", **options) as writer:
        for value in values.all:
            writer.append(value)
    return Group(
        "arrow",
        f"to Arrow, {frames}, {record_bytes}-byte values",
        "from opening to the last record batch; each batch is dropped",
        record_bytes,
        [
            limits.read_blocks(slab_paths(directory), len(values.all), values.proof, hashed=True),
            _log_contender(_TOGETHER, ["value"], values, directory),
            _log_contender(_ALONE, ["value"], values, directory, max_bytes=1),
        ]
        if find_spec("pyarrow")
        else [],
        (_ALONE,),
        _missing(),
    )


def _threads(values: Values, record_bytes: int, directory: str) -> Group:
    """Two logs by one thread and by two: what a second thread gains."""
    parts, half = [], len(values.all) // 2
    for i, given in enumerate((values.all[:half], values.all[half:])):
        parts.append(str(Path(directory, str(i))))
        Path(parts[i]).mkdir()
        write_log(parts[i], given, batch_bytes=BATCH_BYTES)

    def decode(part: str) -> int:
        records = 0
        with aolog.Reader(log_path(part), strict=True) as reader:
            while (batch := reader.read_batch()) is not None:
                records += batch.to_arrow(["value"]).num_rows
        return records

    def proof(_: str) -> Proof:
        with aolog.Reader(log_path(parts[0])) as first, aolog.Reader(log_path(parts[1])) as second:
            return prove(record.value or b"" for record in chain(first, second))

    def contender(name: str, threads: int) -> Contender:
        def work() -> int:
            with ThreadPoolExecutor(threads) as pool:
                return sum(pool.map(decode, parts))

        return Contender(
            name, _PROMISE, len(values.all), lambda _: nullcontext(work), proof, values.proof
        )

    return Group(
        "arrow",
        f"two slabs to Arrow by threads, {record_bytes}-byte values",
        "from opening to the last record batch of both, starting threads too",
        record_bytes,
        [contender(_ONE_THREAD, 1), contender(_TWO_THREADS, 2)] if find_spec("pyarrow") else [],
        (_ONE_THREAD,),
        _missing(),
        targets=(
            Target(
                "two threads, as a part of one", _TWO_THREADS, (_ONE_THREAD,), _THREADS_RATIO_MAX
            ),
        ),
    )


def _missing() -> list[Skipped]:
    if find_spec("pyarrow") is not None:
        return []
    return [Skipped("aolog, to Arrow", "pyarrow is not installed")]


def _group(
    plan: Plan, values: Values, record_bytes: int, batch_bytes: int, directory: str, *, full: bool
) -> Group:
    write_log(directory, values.all, batch_bytes=batch_bytes, full=full)
    paths, records = slab_paths(directory), len(values.all)
    contenders = [
        limits.read_blocks(paths, records, values.proof, hashed=False),
        limits.read_blocks(paths, records, values.proof, hashed=True),
        limits.read_blocks(paths, records, values.proof, hashed=True, read_bytes=CHUNK_BYTES),
    ]
    missing = _missing()
    if not missing:
        contenders += [
            _log_contender(VALUE_COLUMN, ["value"], values, directory),
            _log_contender(ALL_COLUMNS, None, values, directory),
        ]
        if not full and batch_bytes == BATCH_BYTES:
            contenders.append(
                _log_contender(_MERGED, ["value"], values, directory, max_bytes=_MERGED_BYTES)
            )
            contenders += _peer_contenders(plan, values, directory)
    used = "all columns used" if full else "values only"
    return Group(
        "arrow",
        f"to Arrow, batches of {batch_bytes >> 10} KiB, {used}, {record_bytes}-byte values",
        "from opening to the last record batch; each batch is dropped",
        record_bytes,
        contenders,
        (limits.READ_AND_HASH,),
        [*plan.skipped, *missing],
        batch_bytes=batch_bytes,
        targets=() if full else _targets(batch_bytes),
    )


def _targets(batch_bytes: int) -> tuple[Target, ...]:
    value_max, all_max = _RATIOS_MAX[batch_bytes]
    of = "as a multiple of reading and hashing the bytes"
    return (
        Target(f"the value column, {of}", VALUE_COLUMN, (limits.READ_AND_HASH,), value_max),
        Target(f"all six columns, {of}", ALL_COLUMNS, (limits.READ_AND_HASH,), all_max),
    )


def _log_contender(
    name: str,
    columns: list[str] | None,
    values: Values,
    directory: str,
    *,
    max_bytes: int | None = None,
) -> Contender:
    def batches() -> Iterator[Any]:
        with aolog.Reader(log_path(directory), strict=True) as reader:
            while (batch := reader.read_batch(max_bytes)) is not None:
                yield batch.to_arrow(columns)

    def arrays() -> Iterator[Any]:
        for batch in batches():
            batch.validate(full=True)
            yield batch.column("value")

    note = "read_batch()" if max_bytes is None else f"read_batch({max_bytes})"
    return _contender(name, _PROMISE, values, batches, arrays, note)


def _contender(
    name: str,
    promise: Promise,
    values: Values,
    pieces: Callable[[], Iterator[Any]],
    arrays: Callable[[], Iterator[Any]],
    note: str,
) -> Contender:
    """pieces: of any kind with a length, timed. arrays: the values, for the proof."""

    def work() -> int:
        records = 0
        for piece in pieces():
            records += len(piece)
        return records

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        yield work

    def proof(_: str) -> Proof:
        return prove(value for array in arrays() for value in array.to_pylist())

    return Contender(name, promise, len(values.all), session, proof, values.proof, note)


def _peer_contenders(plan: Plan, values: Values, parent: str) -> Iterator[Contender]:
    """The others' values as arrays, as their users would make them."""
    for i, peer in enumerate(plan.peers):
        if "arrow" not in peer.runs or peer.name == "aolog":
            continue
        directory = Path(parent, str(i))
        directory.mkdir()
        yield _peer_contender(peer, values, str(directory))


def _peer_contender(peer: Peer, values: Values, directory: str) -> Contender:
    sink = peer.sink(directory)
    try:
        sink.append_each(values.all)
    finally:
        sink.close()

    def arrays() -> Iterator[Any]:
        return peer.arrays(directory)

    promise = Promise("-", peer.promise.checksum)
    return _contender(peer.name, promise, values, arrays, arrays, peer.note)
