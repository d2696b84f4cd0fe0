"""Arrow to columns: the body of a frame from a record batch. Its buffers are not copied if possible.

This module imports pyarrow; import it only when it is used.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aolog.errors import RecordRefused
from aolog.format.arrow_schema import HEADER, SCHEMA
from aolog.format.columns import BinaryColumn, Columns, HeaderColumn
from aolog.format.native.inlet import Body
from aolog.format.slab import TOPIC_LEN_MAX
from aolog.write.given_columns import columns_body
from aolog.write.validate import HEADER_BYTES, OFFSET_BYTES, TIMESTAMP_BYTES, check_sizes


def _binary(array: pa.Array) -> BinaryColumn:
    present = None
    if array.null_count:
        there = array.is_valid().to_numpy(zero_copy_only=False)
        present = memoryview(np.packbits(there, bitorder="little").tobytes())
        array = array.fill_null(b"" if pa.types.is_binary(array.type) else "")
    _, offsets, data = array.buffers()
    cuts = memoryview(offsets)[4 * array.offset :][: 4 * len(array) + 4]
    return BinaryColumn(present, cuts, memoryview(b"" if data is None else data))


# Made once: making a type takes as long as looking up a column.
_TAKEN = {
    "value": (pa.binary(), pa.string()),
    "key": (pa.binary(), pa.string()),
    "timestamp": (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    "topic": (pa.string(),),
    "headers": (pa.list_(HEADER),),
}


def _column(given: dict[str, pa.Array], name: str) -> pa.Array | None:
    array, kinds = given.get(name), _TAKEN[name]
    if array is None or array.type == kinds[0]:
        return array
    entry = getattr(array.type, "value_type", None)
    if name == "headers" and isinstance(entry, pa.StructType):
        fields = [field.name for field in entry]  # a cast drops fields, and fills others with nulls
        if sorted(fields) != ["key", "value"]:
            raise RecordRefused(
                f"column 'headers' has structs with the fields {', '.join(fields) or 'none'}",
                hint="name the fields key and value, as Spark's Kafka source does",
            )
    large = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}
    try:
        if array.type in large:
            array = array.cast(large[array.type])
        if array.type not in kinds:
            array = array.cast(kinds[0])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise RecordRefused(
            f"column {name!r} is {array.type}, not {' or '.join(map(str, kinds))}: {error}"
        ) from None
    return array


def from_arrow(batch: pa.RecordBatch, max_record_bytes: int, now_us: int) -> Body:
    """The body for a batch of columns. Raises RecordRefused for a missing or wrong column,
    RecordTooLarge for a record, or all, over the bounds."""
    if not isinstance(batch, pa.RecordBatch):
        raise RecordRefused(f"{type(batch).__name__} is not a pyarrow.RecordBatch")
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    unknown = given.keys() - set(SCHEMA.names)
    if len(given) < batch.num_columns:
        raise RecordRefused("two columns have the same name")
    if "value" not in given or unknown:
        problem = f"unknown column {min(unknown)!r}" if unknown else "no column 'value'"
        raise RecordRefused(problem, hint=f"there are {', '.join(SCHEMA.names)}")
    value = _column(given, "value")
    assert value is not None
    if batch.num_rows == 0:
        return Body(0, 0, [], now_us, now_us)
    columns = Columns(batch.num_rows, values=_binary(value))
    least = greatest = now_us
    stamps = _column(given, "timestamp")
    if stamps is not None and stamps.null_count < len(stamps):
        numbers = stamps.cast(pa.int64()).fill_null(now_us).to_numpy()
        columns = columns._replace(timestamps=memoryview(numbers.tobytes()))
        least, greatest = int(numbers.min()), int(numbers.max())
    key = _column(given, "key")
    if key is not None and key.null_count < len(key):
        columns = columns._replace(keys=_binary(key))
    topic = _column(given, "topic")
    if topic is not None and topic.null_count < len(topic):
        _check_text(topic, "a topic")
        lengths = pa.compute.min_max(pa.compute.binary_length(topic)).as_py()
        if not 0 < lengths["min"] <= lengths["max"] <= TOPIC_LEN_MAX:
            raise RecordRefused(
                f"a topic has {lengths['max'] if lengths['min'] else 0} bytes",
                hint=f"use 1 to {TOPIC_LEN_MAX}, or null for the log's own",
            )
        columns = columns._replace(topics=_binary(topic))
    headers = _column(given, "headers")
    if headers is not None and len(headers.flatten()):
        columns = columns._replace(headers=_headers(headers))
    bits, body = columns_body(columns)
    longest = 0
    if body.length > max_record_bytes:  # otherwise no record is
        longest = _longest(value, key, headers, stamps, topic)
    check_sizes(body.length, longest, max_record_bytes)
    return Body(batch.num_rows, bits, body.parts, greatest, least)


def _longest(
    value: pa.Array,
    key: pa.Array | None,
    headers: pa.Array | None,
    stamps: pa.Array | None,
    topic: pa.Array | None,
) -> int:
    """Bytes of the longest record, as `check_record` counts them."""
    sizes = _lengths(value) + OFFSET_BYTES
    if key is not None:
        sizes += _lengths(key) + OFFSET_BYTES * _present(key)
    if headers is not None:
        entries = headers.flatten()
        pairs = _lengths(entries.field("key")) + _lengths(entries.field("value")) + HEADER_BYTES
        ends = np.cumsum(_list_lengths(headers))
        sizes += np.diff(np.append(0, np.cumsum(pairs))[np.append(0, ends)])
    if stamps is not None:
        sizes += TIMESTAMP_BYTES * _present(stamps)
    if topic is not None:
        sizes += _lengths(topic)
    return int(sizes.max())


def _present(array: pa.Array) -> np.ndarray:
    present: np.ndarray = array.is_valid().to_numpy(zero_copy_only=False)
    return present


def _lengths(array: pa.Array) -> np.ndarray:
    """Bytes of each entry; 0 for null. A copy."""
    lengths: np.ndarray = pa.compute.binary_length(array).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _list_lengths(array: pa.Array) -> np.ndarray:
    lengths: np.ndarray = pa.compute.list_value_length(array).fill_null(0).to_numpy()
    return lengths


def _check_text(array: pa.Array, what: str) -> None:
    """Arrow accepts any bytes as text; every reader would refuse a frame with invalid UTF-8."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise RecordRefused(f"{what} has no UTF-8 form") from None


def _headers(headers: pa.Array) -> HeaderColumn:
    entries = headers.flatten()  # a null list counts as empty
    names, values = entries.field("key"), entries.field("value")
    if entries.null_count or names.null_count:  # the name of a null entry may be ""
        raise RecordRefused("a header has no name")
    _check_text(names, "a header's name")
    offsets = np.zeros(len(headers) + 1, np.uint32)
    np.cumsum(_list_lengths(headers), out=offsets[1:])
    return HeaderColumn(memoryview(offsets.tobytes()), _binary(names), _binary(values))
