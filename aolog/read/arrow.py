"""Batches to and from Arrow. The columns of a frame are Arrow's own buffers already.

From one frame a column is made without a copy. From several, their bytes are put together and
their offsets shifted, a column at a time, with numpy: far cheaper than record by record. All
columns of a batch enter pyarrow by one call, Arrow's C data interface, where the compiled half is
in use: by pyarrow's own calls, each column costs several. Only this module imports pyarrow, and
only when it is called.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aolog.errors import RecordRefused, RecordTooLarge, UsageError
from aolog.format.columns import (
    HEADER_NULLS,
    HEADERS,
    KEY_NULLS,
    KEYS,
    TIMESTAMPS,
    TOPIC_NULLS,
    TOPICS,
    VALUE_NULLS,
    VALUES,
    BinaryColumn,
    BodyBuilder,
    lone,
)
from aolog.format.native import speed
from aolog.format.slab import TOPIC_LEN_MAX
from aolog.write.validate import RECORD_BYTES_MAX, too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog.format.frame import Buffer
    from aolog.read.batch import RecordFrame

__all__ = ["SCHEMA", "ArrowFrame", "from_arrow", "to_arrow"]

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("address", pa.int64()),  # below 2^63; Spark has no unsigned type
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(_HEADER)),
        pa.field("topic", pa.string()),
    ]
)
# An array: how many entries, its buffers, and its children likewise; its type is the schema's.
_Parts: TypeAlias = "tuple[int, tuple[Buffer | np.ndarray | None, ...], tuple[_Parts, ...]]"
_ARROW_MAX = (1 << 31) - 1  # bytes of a column with 32-bit offsets
_ZEROS = bytes(64 << 10)  # shared by all columns of nulls: 8,192 timestamps


# --- to Arrow -------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A column of one frame; None means that all its entries are null."""

    entries: int
    column: BinaryColumn | None


def _count(frames: list[RecordFrame]) -> int:
    return sum([frame.columns.records for frame in frames])


def _zeros(size: int) -> Buffer:
    return _ZEROS if size <= len(_ZEROS) else bytes(size)


def _bits(piece: _Piece) -> np.ndarray:
    """One bool an entry: whether it is present."""
    if piece.column is None:
        return np.zeros(piece.entries, bool)
    if piece.column.validity is None:
        return np.ones(piece.entries, bool)
    packed = np.frombuffer(piece.column.validity, np.uint8)
    return np.unpackbits(packed, count=piece.entries, bitorder="little").astype(bool)


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
    count = sum(piece.entries for piece in pieces)
    if all(piece.column is None for piece in pieces):
        return _one(count, None)
    columns = [p.column or _absent(p.entries) for p in pieces]
    data = [column.data for column in columns]
    if (total := sum(map(len, data))) > _ARROW_MAX:
        raise _too_large(total)
    offsets = _joined_offsets([column.offsets for column in columns], list(map(len, data)), count)
    validity = None
    if any(p.column is None or p.column.validity is not None for p in pieces):
        validity = np.packbits(np.concatenate([_bits(p) for p in pieces]), bitorder="little")
    return count, (validity, offsets, b"".join(data)), ()


def _absent(entries: int) -> BinaryColumn:
    return BinaryColumn(None, memoryview(bytes(4 * (entries + 1))), memoryview(b""))


def _joined_offsets(each: list[memoryview], lengths: list[int], count: int) -> np.ndarray:
    """The offsets of columns that are put together, all in a few steps: a frame of ten records
    costs no call of numpy's. lengths: of their data. count: entries of all."""
    counts = np.fromiter(map(len, each), np.int64, len(each)) // 4  # of offsets: n+1 each
    begins = np.zeros(len(each), np.int64)
    np.cumsum(lengths[:-1], out=begins[1:])
    shifted = np.frombuffer(b"".join(each), np.uint32) + np.repeat(begins, counts)
    firsts = np.cumsum(counts) - counts  # each column's 0, which is the one before's last
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = np.delete(shifted, firsts)
    return offsets


def _too_large(size: int) -> UsageError:
    return UsageError(
        f"a column of {size} bytes is over Arrow's 2 GiB", hint="iterate over its records"
    )


def _repeated(text: str, count: int) -> BinaryColumn:
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(len(data))
    return BinaryColumn(None, memoryview(offsets.tobytes()), memoryview(data * count))


def _address(frames: list[RecordFrame]) -> _Parts:
    pieces = [np.arange(f.address, f.address + f.columns.records) for f in frames]
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
    return count, (None, pieces[0] if len(pieces) == 1 else b"".join(pieces)), ()


def _value(frames: list[RecordFrame]) -> _Parts:
    if len(frames) == 1:
        columns = frames[0].columns
        return _one(columns.records, columns.values or lone(columns.value))
    return _binary(
        [_Piece(f.columns.records, f.columns.values or lone(f.columns.value)) for f in frames]
    )


def _key(frames: list[RecordFrame]) -> _Parts:
    if len(frames) == 1:
        return _one(frames[0].columns.records, frames[0].columns.keys)
    return _binary([_Piece(f.columns.records, f.columns.keys) for f in frames])


def _topic(frames: list[RecordFrame]) -> _Parts:
    if len(frames) == 1 and frames[0].columns.topic is None:
        return _one(frames[0].columns.records, frames[0].columns.topics)
    pieces = []
    for columns in [frame.columns for frame in frames]:
        column = columns.topics
        if columns.topic is not None:
            column = _repeated(columns.topic, columns.records)
        pieces.append(_Piece(columns.records, column))
    return _binary(pieces)


_NO_ENTRIES: _Parts = (0, (None,), ((0, (None, _ZEROS, b""), ()), (0, (None, _ZEROS, b""), ())))


def _headers(frames: list[RecordFrame]) -> _Parts:
    count = _count(frames)
    given = [f.columns.headers for f in frames]
    if not any(given):
        return count, (None, _zeros(4 * (count + 1))), (_NO_ENTRIES,)
    if len(given) == 1 and (headers := given[0]) is not None:  # without a copy, as it stands
        entries = headers.names.entries
        pairs = _one(entries, headers.names), _one(entries, headers.values)
        return count, (None, headers.offsets), ((entries, (None,), pairs),)
    offsets = np.zeros(count + 1, np.int32)
    names, values = [], []
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
            names.append(_Piece(entries, headers.names))
            values.append(_Piece(entries, headers.values))
        at += n
    return count, (None, offsets), ((begin, (None,), (_binary(names), _binary(values))),)


_Maker: TypeAlias = "Callable[[list[RecordFrame]], _Parts]"
_COLUMNS: dict[str, _Maker] = {
    "address": _address,
    "timestamp": _timestamp,
    "key": _key,
    "value": _value,
    "headers": _headers,
    "topic": _topic,
}
_ALL = SCHEMA, list(_COLUMNS.values())
_NAMES = _COLUMNS.keys()


def to_arrow(frames: list[RecordFrame], columns: Iterable[str] | None) -> pa.RecordBatch:
    """See Batch.to_arrow."""
    schema, makers = _ALL if columns is None else _plan(*columns)
    made = _record_batch(tuple([make(frames) for make in makers]), schema)
    skip = frames[0].skip
    return made.slice(skip) if skip else made


@lru_cache(maxsize=64)  # a schema costs as much to make as a column
def _plan(*names: str) -> tuple[pa.Schema, list[_Maker]]:
    for name in names:
        if name not in _COLUMNS:
            raise UsageError(f"no column {name!r}", hint=f"there are {', '.join(_COLUMNS)}")
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


# --- from Arrow -----------------------------------------------------------------------------


class ArrowFrame(NamedTuple):
    """A frame's body made of Arrow's buffers."""

    records: int
    columns: int
    parts: list[Buffer]
    greatest_us: int
    least_us: int


class _Body(BodyBuilder):
    """A body whose columns come from Arrow's arrays."""

    def column(self, array: pa.Array) -> bool:
        """Puts a column; whether it has nulls."""
        nulls = bool(array.null_count)
        if nulls:
            present = array.is_valid().to_numpy(zero_copy_only=False)
            self.put(np.packbits(present, bitorder="little").tobytes())
            array = array.fill_null(b"" if pa.types.is_binary(array.type) else "")
        _, offsets_buffer, data = array.buffers()
        offsets = memoryview(offsets_buffer)[4 * array.offset :][: 4 * len(array) + 4]
        numbers = offsets.cast("i")
        begin, end = numbers[0], numbers[-1]
        if begin:
            offsets = memoryview((np.frombuffer(offsets, np.int32) - begin).tobytes())
        self.put(offsets)
        self.put(memoryview(data)[begin:end] if data is not None else b"")
        return nulls


# Made once: even of a column that is not there, its type costs as much as asking for it.
_TAKEN = {
    "value": (pa.binary(), pa.string()),
    "key": (pa.binary(), pa.string()),
    "timestamp": (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    "topic": (pa.string(),),
    "headers": (pa.list_(_HEADER),),
}


def _column(given: dict[str, pa.Array], name: str) -> pa.Array | None:
    array, kinds = given.get(name), _TAKEN[name]
    if array is None or array.type == kinds[0]:
        return array
    large = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}
    try:
        if array.type in large:
            array = array.cast(large[array.type])
        if array.type not in kinds:
            array = array.cast(kinds[0])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordRefused(
            f"column {name!r} is {array.type}, not {' or '.join(map(str, kinds))}: {error}"
        ) from None
    return array


def from_arrow(batch: pa.RecordBatch, max_record_bytes: int, now_us: int) -> ArrowFrame:
    """The body for a batch of columns. Raises RecordRefused for a missing or wrong column,
    RecordTooLarge for a value, or all, over the bounds."""
    if not isinstance(batch, pa.RecordBatch):
        raise RecordRefused(f"{type(batch).__name__} is no pyarrow.RecordBatch")
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    unknown = given.keys() - _NAMES
    if len(given) < batch.num_columns:
        raise RecordRefused("two columns have the same name")
    if "value" not in given or unknown:
        problem = f"unknown column {min(unknown)!r}" if unknown else "no column 'value'"
        raise RecordRefused(problem, hint=f"there are {', '.join(SCHEMA.names)}")
    value = _column(given, "value")
    assert value is not None
    if batch.num_rows == 0:
        return ArrowFrame(0, 0, [], now_us, now_us)
    data = value.buffers()[2]  # not `nbytes`, which costs as much as all other checks
    if data is not None and data.size > max_record_bytes:  # else none of them is
        longest = int(pa.compute.max(pa.compute.binary_length(value)).as_py() or 0)
        if longest > max_record_bytes:
            raise too_large(longest, max_record_bytes)
    body, bits = _Body(), VALUES
    least = greatest = now_us
    stamps = _column(given, "timestamp")
    if stamps is not None and stamps.null_count < len(stamps):
        numbers = stamps.cast(pa.int64()).fill_null(now_us).to_numpy()
        bits |= TIMESTAMPS
        body.put(numbers.tobytes())
        least, greatest = int(numbers.min()), int(numbers.max())
    key = _column(given, "key")
    if key is not None and key.null_count < len(key):
        bits |= KEYS | (KEY_NULLS if body.column(key) else 0)
    topic = _column(given, "topic")
    if topic is not None and topic.null_count < len(topic):
        _check_text(topic, "a topic")
        lengths = pa.compute.min_max(pa.compute.binary_length(topic)).as_py()
        if not 0 < lengths["min"] <= lengths["max"] <= TOPIC_LEN_MAX:
            raise RecordRefused(
                f"a topic has {lengths['max'] if lengths['min'] else 0} bytes",
                hint=f"use 1 to {TOPIC_LEN_MAX}, or null for the log's own",
            )
        bits |= TOPICS | (TOPIC_NULLS if body.column(topic) else 0)
    headers = _column(given, "headers")
    if headers is not None and len(headers.flatten()):
        bits |= HEADERS | (HEADER_NULLS if _put_headers(body, headers) else 0)
    bits |= VALUE_NULLS if body.column(value) else 0
    if body.length > RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"a batch of {body.length} bytes is over a frame's bound of {RECORD_BYTES_MAX}",
            hint="slice it; each append_arrow is one frame",
        )
    return ArrowFrame(batch.num_rows, bits, body.parts, greatest, least)


def _check_text(array: pa.Array, what: str) -> None:
    """Arrow takes any bytes for text; a frame with such would be refused by every reader."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise RecordRefused(f"{what} has no UTF-8 form") from None


def _put_headers(body: _Body, headers: pa.Array) -> bool:
    entries = headers.flatten()  # of the records that are there: a null list counts as empty
    names, values = entries.field("key"), entries.field("value")
    if entries.null_count or names.null_count:  # of one that is null, the name may be ""
        raise RecordRefused("a header has no name")
    _check_text(names, "a header's name")
    lengths = pa.compute.list_value_length(headers).fill_null(0).to_numpy()
    offsets = np.zeros(len(headers) + 1, np.uint32)
    np.cumsum(lengths, out=offsets[1:])
    body.put(offsets.tobytes())
    body.column(names)
    return body.column(values)
