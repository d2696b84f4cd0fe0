"""Columns to Arrow: record batches from frames. A frame's columns already have Arrow's layout.

A column of one frame is not copied. Columns of several frames are joined and their offsets shifted
with numpy, a column at a time: far cheaper than record by record. All columns of a batch go to
pyarrow in one call of Arrow's C data interface if the compiled helper is in use; with pyarrow's own
calls each column takes several. This module imports pyarrow; import it only when it is used.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from aolog.errors import UsageError
from aolog.format.arrow_schema import SCHEMA
from aolog.format.columns import BinaryColumn, lone
from aolog.format.native import speed
from aolog.format.slab import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog.format.frame import Buffer
    from aolog.read.batch import RecordFrame
    from aolog.read.view import ReaderView

# An array: the number of entries, its buffers, and its children in the same form.
_Parts: TypeAlias = "tuple[int, tuple[Buffer | np.ndarray | None, ...], tuple[_Parts, ...]]"
# A column of one frame: its entries; None means that all of them are null.
_Piece: TypeAlias = "tuple[int, BinaryColumn | None]"
_ARROW_MAX = (1 << 31) - 1  # bytes of a column with 32-bit offsets
_STREAM_BYTES = 1 << 20  # of a stream's batch: consumers pay a constant for each batch
_ZEROS = bytes(64 << 10)  # shared by all columns of nulls: 8,192 timestamps


def _count(frames: list[RecordFrame]) -> int:
    return sum([frame.columns.records for frame in frames])


def _zeros(size: int) -> Buffer:
    return _ZEROS if size <= len(_ZEROS) else bytes(size)


def _bits(piece: _Piece) -> np.ndarray:
    """A bool for each entry: whether it is present."""
    entries, column = piece
    if column is None:
        return np.zeros(entries, bool)
    if column.validity is None:
        return np.ones(entries, bool)
    packed = np.frombuffer(column.validity, np.uint8)
    return np.unpackbits(packed, count=entries, bitorder="little").astype(bool)


def _one(count: int, column: BinaryColumn | None) -> _Parts:
    """A column of one frame, without a copy."""
    if column is None:
        return count, (_zeros((count + 7) // 8), _zeros(4 * (count + 1)), b""), ()
    if len(column[2]) > _ARROW_MAX:
        raise _too_large(len(column.data))
    return count, column, ()


def _binary(pieces: list[_Piece]) -> _Parts:
    """The pieces as one array of binary or string."""
    if len(pieces) == 1:
        return _one(*pieces[0])
    count = sum(entries for entries, _ in pieces)
    if all(column is None for _, column in pieces):
        return _one(count, None)
    columns = [column or _absent(entries) for entries, column in pieces]
    data = [column.data for column in columns]
    if (total := sum(map(len, data))) > _ARROW_MAX:
        raise _too_large(total)
    offsets = _joined_offsets([column.offsets for column in columns], list(map(len, data)), count)
    validity = None
    if any(column is None or column.validity is not None for _, column in pieces):
        validity = np.packbits(np.concatenate([_bits(p) for p in pieces]), bitorder="little")
    return count, (validity, offsets, b"".join(data)), ()


def _absent(entries: int) -> BinaryColumn:
    return BinaryColumn(None, memoryview(bytes(4 * (entries + 1))), memoryview(b""))


def _joined_offsets(each: list[memoryview], lengths: list[int], count: int) -> np.ndarray:
    """The offsets of the joined columns. Takes a few numpy calls for all columns together. lengths: of
    their data. count: the entries of all columns."""
    counts = np.fromiter(map(len, each), np.int64, len(each)) // 4  # of offsets: n+1 each
    begins = np.zeros(len(each), np.int64)
    np.cumsum(lengths[:-1], out=begins[1:])
    shifted = np.frombuffer(b"".join(each), np.uint32) + np.repeat(begins, counts)
    firsts = np.cumsum(counts) - counts  # the 0 of each column equals the last offset before it
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = np.delete(shifted, firsts)
    return offsets


def _too_large(size: int) -> UsageError:
    return UsageError(
        f"a column of {size} bytes exceeds Arrow's 2 GiB", hint="iterate over the records"
    )


def _repeated(text: str, count: int) -> BinaryColumn:
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(len(data))
    return BinaryColumn(None, memoryview(offsets.tobytes()), memoryview(data * count))


def _address(frames: list[RecordFrame]) -> _Parts:
    pieces = [
        np.arange(f.address, f.address + f.columns.records)
        if f.addresses is None
        else np.frombuffer(f.addresses, np.int64)
        for f in frames
    ]
    numbers = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return len(numbers), (None, numbers), ()


def _timestamp(frames: list[RecordFrame]) -> _Parts:
    count = _count(frames)
    if frames[0].timestamp_us is None:  # a log has one format
        return count, (_zeros((count + 7) // 8), _zeros(8 * count)), ()
    pieces = [
        f.columns.timestamps
        or (f.timestamp_us or 0).to_bytes(8, "little", signed=True) * f.columns.records
        for f in frames
    ]
    joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    present = np.frombuffer(joined, np.int64) != NO_TIMESTAMP
    validity = None if present.all() else np.packbits(present, bitorder="little")
    return count, (validity, joined), ()


def _value(frames: list[RecordFrame]) -> _Parts:
    return _binary([(f.columns.records, f.columns.values or lone(f.columns.value)) for f in frames])


def _topic(frames: list[RecordFrame]) -> _Parts:
    pieces: list[_Piece] = []
    for columns in [frame.columns for frame in frames]:
        same = None if columns.topic is None else _repeated(columns.topic, columns.records)
        pieces.append((columns.records, same or columns.topics))
    return _binary(pieces)


_NO_ENTRIES: _Parts = (0, (None,), ((0, (None, _ZEROS, b""), ()), (0, (None, _ZEROS, b""), ())))


def _headers(frames: list[RecordFrame]) -> _Parts:
    count = _count(frames)
    given = [f.columns.headers for f in frames]
    if not any(given):
        return count, (None, _zeros(4 * (count + 1))), (_NO_ENTRIES,)
    if len(given) == 1 and (headers := given[0]) is not None:  # without a copy
        entries = headers.names.entries
        pairs = _one(entries, headers.names), _one(entries, headers.values)
        return count, (None, headers.offsets), ((entries, (None,), pairs),)
    offsets = np.zeros(count + 1, np.int32)
    names: list[_Piece] = []
    values: list[_Piece] = []
    at, begin = 1, 0
    for frame, headers in zip(frames, given, strict=True):
        n = frame.columns.records
        if headers is None:
            offsets[at : at + n] = begin
        else:
            numbers = np.frombuffer(headers.offsets, np.uint32)
            np.add(numbers[1:], begin, out=offsets[at : at + n], casting="unsafe")
            entries = int(numbers[-1])
            begin += entries
            names.append((entries, headers.names))
            values.append((entries, headers.values))
        at += n
    return count, (None, offsets), ((begin, (None,), (_binary(names), _binary(values))),)


_Maker: TypeAlias = "Callable[[list[RecordFrame]], _Parts]"
_COLUMNS: dict[str, _Maker] = {
    "address": _address,
    "timestamp": _timestamp,
    "key": lambda frames: _binary([(f.columns.records, f.columns.keys) for f in frames]),
    "value": _value,
    "headers": _headers,
    "topic": _topic,
}
_ALL = SCHEMA, list(_COLUMNS.values())


def stream(view: ReaderView, columns: Iterable[str] | None) -> pa.RecordBatchReader:
    """See Reader.to_arrow."""
    names = None if columns is None else tuple(columns)
    schema, _ = _ALL if names is None else _plan(*names)
    take = partial(
        view.take,
        _STREAM_BYTES,
        lambda batch: to_arrow(batch.frames, names),
        end=view.end().address,
    )
    return pa.RecordBatchReader.from_batches(schema, iter(take, None))


def to_arrow(frames: list[RecordFrame], columns: Iterable[str] | None) -> pa.RecordBatch:
    """See Batch.to_arrow."""
    schema, makers = _ALL if columns is None else _plan(*columns)
    made = _record_batch(tuple([make(frames) for make in makers]), schema)
    skip = frames[0].skip
    return made.slice(skip) if skip else made


@lru_cache(maxsize=64)  # making a schema takes as long as a column
def _plan(*names: str) -> tuple[pa.Schema, list[_Maker]]:
    for name in names:
        if name not in _COLUMNS:
            raise UsageError(f"no column {name!r}", hint=f"use {', '.join(_COLUMNS)}")
    return pa.schema([SCHEMA.field(name) for name in names]), [_COLUMNS[n] for n in names]


def _imported(columns: tuple[_Parts, ...], schema: pa.Schema) -> pa.RecordBatch:
    count = columns[0][0] if columns else 0
    return _from_c(_export((count, (None,), columns)), schema)


def _assembled(columns: tuple[_Parts, ...], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_array(kind, column) for kind, column in zip(schema.types, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: pa.DataType, parts: _Parts) -> pa.Array:
    count, buffers, children = parts
    nested = range(kind.num_fields)
    kinds = [kind.value_type if pa.types.is_list(kind) else kind.field(i).type for i in nested]
    return pa.Array.from_buffers(
        kind,
        count,
        [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers],
        children=[_array(k, child) for k, child in zip(kinds, children, strict=True)],
    )


_from_c = pa.RecordBatch._import_from_c  # noqa: SLF001 -- documented by Arrow, for "expert users"
_export: Any = speed.export
_record_batch = _assembled if _export is None else _imported
