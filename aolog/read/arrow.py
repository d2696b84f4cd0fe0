"""Columns to Arrow: record batches from frames. A frame's columns already have Arrow's layout.

A frame becomes a batch without a copy. Several are joined: here, if all their columns are bytes without
nulls, otherwise by Arrow. All columns of a batch go to pyarrow in one call of Arrow's C data interface if
the compiled helper is in use; with pyarrow's own calls each column takes several. This module imports
pyarrow; import it only when it is used.
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
_ARROW_MAX = (1 << 31) - 1  # bytes of a column with 32-bit offsets
_STREAM_BYTES = 1 << 20  # of a stream's batch: consumers pay a constant for each batch
_BINARY_BUFFERS = 3  # validity, offsets, data
_ZEROS = bytes(64 << 10)  # shared by all columns of nulls: 8,192 timestamps


def _zeros(size: int) -> Buffer:
    return _ZEROS if size <= len(_ZEROS) else bytes(size)


def _binary(count: int, column: BinaryColumn | None) -> _Parts:
    """A column of binary or string; None: all entries are null."""
    if column is None:
        return count, (_zeros((count + 7) // 8), _zeros(4 * (count + 1)), b""), ()
    if len(column.data) > _ARROW_MAX:
        raise _too_large()
    return count, column, ()


def _too_large() -> UsageError:
    return UsageError("a column exceeds Arrow's 2 GiB", hint="iterate over the records")


def _address(frame: RecordFrame) -> _Parts:
    count, numbers = frame.columns.records, frame.addresses
    rising = np.arange(frame.address, frame.address + count) if numbers is None else numbers
    return count, (None, rising), ()


def _timestamp(frame: RecordFrame) -> _Parts:
    count, same, stamps = frame.columns.records, frame.timestamp_us, frame.columns.timestamps
    if stamps is None and same in {None, NO_TIMESTAMP}:
        return count, (_zeros((count + 7) // 8), _zeros(8 * count)), ()
    if stamps is None:
        return count, (None, np.full(count, same)), ()
    present = np.frombuffer(stamps, np.int64) != NO_TIMESTAMP
    validity = None if present.all() else np.packbits(present, bitorder="little")
    return count, (validity, stamps), ()


def _topic(frame: RecordFrame) -> _Parts:
    count, topic, topics = frame.columns.records, frame.columns.topic, frame.columns.topics
    if topic is None:
        return _binary(count, topics)
    data = topic.encode()
    offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(len(data))
    return count, (None, offsets, data * count), ()


_NO_ENTRIES: _Parts = (0, (None,), ((0, (None, _ZEROS, b""), ()), (0, (None, _ZEROS, b""), ())))


def _headers(frame: RecordFrame) -> _Parts:
    count, headers = frame.columns.records, frame.columns.headers
    if headers is None:
        return count, (None, _zeros(4 * (count + 1))), (_NO_ENTRIES,)
    entries = headers.names.entries
    pairs = _binary(entries, headers.names), _binary(entries, headers.values)
    return count, (None, headers.offsets), ((entries, (None,), pairs),)


_Maker: TypeAlias = "Callable[[RecordFrame], _Parts]"
_COLUMNS: dict[str, _Maker] = {
    "address": _address,
    "timestamp": _timestamp,
    "key": lambda frame: _binary(frame.columns.records, frame.columns.keys),
    "value": lambda frame: _binary(
        frame.columns.records, frame.columns.values or lone(frame.columns.value)
    ),
    "headers": _headers,
    "topic": _topic,
}


def stream(view: ReaderView, columns: Iterable[str] | None) -> pa.RecordBatchReader:
    """See Reader.to_arrow."""
    names = tuple(_COLUMNS if columns is None else columns)
    schema, _ = _plan(*names)
    take = partial(
        view.take,
        _STREAM_BYTES,
        lambda batch: to_arrow(batch.frames, names),
        end=view.end().address,
    )
    return pa.RecordBatchReader.from_batches(schema, iter(take, None))


def to_arrow(frames: list[RecordFrame], columns: Iterable[str] | None) -> pa.RecordBatch:
    """See Batch.to_arrow."""
    schema, makers = _plan(*(_COLUMNS if columns is None else columns))
    each = [tuple([make(frame) for make in makers]) for frame in frames]
    joined = each[0] if len(each) == 1 else _joined(each)
    batches = [_record_batch(parts, schema) for parts in (each if joined is None else [joined])]
    try:
        made = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    except pa.ArrowInvalid:
        raise _too_large() from None
    skip = frames[0].skip
    return made.slice(skip) if skip else made


def _joined(each: list[tuple[_Parts, ...]]) -> tuple[_Parts, ...] | None:
    """The columns of several frames as those of one; None unless they are bytes without nulls."""
    joined: list[_Parts] = []
    for parts in zip(*each, strict=True):
        columns: Any = tuple([buffers for _, buffers, _ in parts])
        if any(len(buffers) < _BINARY_BUFFERS or buffers[0] is not None for buffers in columns):
            return None
        columns = tuple([(None, offsets, _between(offsets, data)) for _, offsets, data in columns])
        count, size = sum([part[0] for part in parts]), sum([len(data) for _, _, data in columns])
        if size > _ARROW_MAX:
            raise _too_large()
        # Arrow's pool keeps its memory; pages that are taken anew cost more than the copy.
        offsets, data = pa.allocate_buffer(4 * (count + 1)), pa.allocate_buffer(size)
        speed.join(columns, offsets, data)
        joined.append((count, (None, offsets, data), ()))
    return tuple(joined)


def _between(offsets: Buffer, data: Buffer) -> memoryview:
    """The data from the first offset to the last one."""
    cuts = memoryview(offsets).cast("B").cast("I")
    return memoryview(data)[cuts[0] : cuts[-1]]


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
