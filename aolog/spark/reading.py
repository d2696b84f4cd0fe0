"""What a task does: it turns ranges of logs into Arrow record batches of one schema, 1 to 4 MiB each.

Frames are collected until they are worth a transfer to the JVM, and converted in one step. Columns
with one value for all records are slices of one array. Nothing handles records one by one.
"""

from __future__ import annotations

import pickle
import signal
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from aolog.errors import GapFound, NotALog, records_lost, warn
from aolog.log.directory import Log
from aolog.read.arrow import to_arrow
from aolog.read.batch import RecordFrame
from aolog.read.ranges import read_range
from aolog.record import Gap, Losses
from aolog.spark.pushdown import Frames, keep_rows
from aolog.spark.skipped import count_gap
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aolog.spark.options import Options
    from aolog.spark.planning import Piece
    from aolog.spark.pushdown import Condition

BATCH_BYTES = 3 << 20  # less costs time at each transfer to the JVM, more costs memory
_BATCH_MAX = 4 << 20  # of a single frame; larger ones are cut
_HELD_BYTES = 16 << 20  # of frames of which little goes into the batch
_WIDTHS = {"partition": 4, "offset": 8, "timestamp": 8, "timestampType": 4}
_OFFSET = 4  # Arrow's, into the bytes of a column
_FROM_LOG = {
    "key": "key", "value": "value", "topic": "topic", "offset": "address",
    "timestamp": "timestamp", "headers": "headers",
}  # fmt: skip  # a table
_NUMBERS = {"partition": 0, "timestampType": 0}


def partition_of(pieces: tuple[Piece, ...]) -> InputPartition:
    """The partition of a task that reads these pieces. It has Spark's own class, so that a worker whose
    Python lacks this package can unpickle it."""
    return InputPartition(pickle.dumps(pieces))


def pieces_in(partition: InputPartition) -> tuple[Piece, ...]:
    """The argument of `partition_of`; empty for the partition that Spark makes if there is none."""
    if partition.value is None:
        return ()
    pieces: tuple[Piece, ...] = pickle.loads(partition.value)  # noqa: S301 -- from our own driver
    return pieces


def read_pieces(
    pieces: Iterable[Piece],
    schema: pa.Schema,
    options: Options,
    conditions: Sequence[Condition] = (),
) -> Iterator[pa.RecordBatch]:
    """Batches of the pieces, in their order; none if there are no records. schema: of the batches;
    Spark accepts no other. conditions: on columns of the schema; rows for which one does not hold are
    left out. Raises GapFound for lost records unless the options allow them, StorageError,
    CodecUnavailable."""
    pieces, storage = tuple(pieces), Storage()
    with _ending_quietly():
        _prefetch(pieces[:1], storage)
        for i, piece in enumerate(pieces):
            _prefetch(pieces[i + 1 : i + 2], storage)  # while this one is read
            for batch in _read_piece(piece, schema, options, conditions):
                kept = keep_rows(batch, conditions)
                if kept.num_rows:
                    yield kept


def _prefetch(pieces: Iterable[Piece], storage: Storage) -> None:
    for piece in pieces:
        if piece.lost is None:
            begin, end, since, until = piece.wanted
            storage.on(piece.path).prefetch(piece.path, max(begin, since), min(end, until))


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """When Spark wants no more rows (`limit`, `take`, `show`) it closes the task's socket. A write then
    ends this process silently, without the traceback of Spark's daemon."""
    if TaskContext.get() is None:
        yield  # not a worker process of Spark
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    except GeneratorExit:  # a write failed: the process ends after it writes its buffer
        raise
    except BaseException:
        signal.signal(signal.SIGPIPE, before)
        raise
    signal.signal(signal.SIGPIPE, before)  # the next task of this process may not be ours


def _read_piece(
    piece: Piece, schema: pa.Schema, options: Options, conditions: Sequence[Condition]
) -> Iterator[pa.RecordBatch]:
    if piece.lost is not None:
        # Which the plan has judged and logged. Another log in the place of one is a loss there.
        if _is_missed(piece.lost) or piece.lost.reason == "foreign":
            count_gap(options.losses, piece, piece.lost)
        else:  # the end of a log that was cut short
            _judge(piece, piece.lost, options)
        yield from _gap_rows(piece, piece.lost, schema)
        return
    log = _planned(piece)
    if log is None:
        wanted = piece.wanted
        begin, end = max(wanted.begin, wanted.since), min(wanted.end, wanted.until)
        gap = Gap(begin, end, "missing", None)
        _judge(piece, gap, options)
        yield from _gap_rows(piece, gap, schema)
        return
    with log:
        yield from _read(piece, log, schema, options, conditions)


def _planned(piece: Piece) -> Log | None:
    """The log of the plan; None if it was deleted since, or another log is in its place."""
    try:
        log = Log(piece.path, Storage())
    except NotALog:
        return None
    try:
        is_there: bool = log.listed(lambda: bool(log.bases) and _is_in(piece, log))
        if is_there:
            return log
    except BaseException:
        log.close()
        raise
    log.close()
    return None


def _is_in(piece: Piece, log: Log) -> bool:
    """Whether the piece is a range of this log, as far as the header of a slab of it shows."""
    header = log.header(max(0, log.index_of(max(piece.wanted.begin, piece.wanted.since))))
    return header is None or piece.uuid in {None, header.topic_uuid.hex()}


def _read(
    piece: Piece,
    log: Log,
    schema: pa.Schema,
    options: Options,
    conditions: Sequence[Condition],
) -> Iterator[pa.RecordBatch]:
    frames: list[RecordFrame] = []
    losses = Losses()
    held = size = 0
    width, bodies = _widths(schema, piece)
    chosen = Frames(conditions, piece.topic)
    for found in read_range(log, piece.wanted, piece.ordinal):
        if not isinstance(found, RecordFrame):
            _judge(piece, found, options)
            losses.add(found)
            if rows := _gap_rows(piece, found, schema):
                if frames:
                    yield from _batches(frames, size, piece, schema)
                    frames, held, size = [], 0, 0
                yield from rows
            continue
        if not chosen.may_hold(found):
            continue
        cost = found.columns.records * width + (found.size if bodies else 0)
        if frames and (size + cost > BATCH_BYTES or held + found.size > _HELD_BYTES):
            yield from _batches(frames, size, piece, schema)
            frames, held, size = [], 0, 0
        frames.append(found)
        held, size = held + found.size, size + cost
    if frames:
        yield from _batches(frames, size, piece, schema)
    if losses.gaps:
        warn("%s: %s", piece.path, losses)


def _widths(schema: pa.Schema, piece: Piece) -> tuple[int, bool]:
    """Bytes of a record in a batch beside its frame's bytes, and whether it has these too."""
    width, bodies = 0, False
    for field in schema:
        if field.name in _WIDTHS:
            width += _WIDTHS[field.name]
        elif field.name in {"log", "topic"}:
            width += _OFFSET + len(piece.name if field.name == "log" else piece.topic or "")
        else:
            width, bodies = width + _OFFSET, True
    return width, bodies


def _judge(piece: Piece, gap: Gap, options: Options) -> None:
    """Raises GapFound, or warns of the gap if the options allow it. A torn end, which was never
    acknowledged, is always allowed."""
    lost = records_lost(gap.records_lost)
    text = f"addresses {gap.begin} to {gap.end} cannot be read ({gap.reason}): {lost}"
    missed = _is_missed(gap)
    if gap.reason != "torn" and (options.fail_on_loss if missed else options.fail_on_corruption):
        hint = "set failOnDataLoss to false" if missed else "set onCorruption to skip"
        raise GapFound(text, hint=f"{hint} to skip them", path=piece.path, gap=gap)
    count_gap(options.losses, piece, gap)
    warn("%s: %s", piece.path, text)


def _is_missed(gap: Gap) -> bool:
    """Whether its records are no damage, but gone: failOnDataLoss is about these."""
    return gap.reason in {"pruned", "missing"}


# --- to Spark's columns ---------------------------------------------------------------------


def _batches(
    frames: list[RecordFrame], size: int, piece: Piece, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The frames as one batch, or as several if a single frame is too large."""
    names = [_FROM_LOG[name] for name in schema.names if name in _FROM_LOG]
    table = to_arrow(frames, names or ["address"])
    last = frames[-1]
    over = last.columns.records - last.index_of(piece.wanted.until)
    count = table.num_rows - over
    rows = max(1, count * BATCH_BYTES // size) if size > _BATCH_MAX else count
    given = dict(zip(table.schema.names, table.columns, strict=True))
    for begin in range(0, count, rows):
        part = min(rows, count - begin)
        columns = [_column(given, field, begin, part, piece) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _gap_rows(piece: Piece, gap: Gap, schema: pa.Schema) -> list[pa.RecordBatch]:
    """A batch of one row, if the schema has a column for it. A torn end was never acknowledged."""
    if "gap" not in schema.names or gap.reason == "torn" or gap.records_lost == 0:
        return []
    lost = {"end": gap.end, "reason": gap.reason, "recordsLost": gap.records_lost}
    row = {"log": piece.name, "offset": gap.begin, "gap": lost, **_NUMBERS}
    columns = [pa.array([row.get(field.name)], field.type) for field in schema]
    return [pa.RecordBatch.from_arrays(columns, schema=schema)]


def _column(
    given: dict[str, pa.Array], field: pa.Field, begin: int, count: int, piece: Piece
) -> pa.Array:
    name = field.name
    if name in _NUMBERS:
        return _constant(_NUMBERS[name], pa.int32(), count)
    if name == "log":
        return _constant(piece.name, pa.string(), count)
    if name == "gap":
        return pa.nulls(count, field.type)
    column = given[_FROM_LOG[name]].slice(begin, count)
    if name == "topic" and piece.topic is not None and column.null_count:
        if column.null_count == count:
            return _constant(piece.topic, pa.string(), count)
        return column.fill_null(piece.topic)
    is_same = column.type.equals(field.type, check_metadata=True)
    return column if is_same else column.cast(field.type)


def _constant(value: int | str, kind: pa.DataType, count: int) -> pa.Array:
    """A slice of a cached array, whose length is a power of two."""
    return _constants(value, kind, 1 << (count - 1).bit_length()).slice(0, count)


@lru_cache(maxsize=16)
def _constants(value: int | str, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)
