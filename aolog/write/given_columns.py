"""Columns that are as frames have them, checked and as the body of a frame. Pure."""

from __future__ import annotations

import struct

from aolog.format.columns import (
    HEADER_NULLS,
    HEADERS,
    KEY_NULLS,
    KEYS,
    TIMESTAMPS,
    TOPIC,
    TOPIC_NULLS,
    TOPICS,
    VALUE_NULLS,
    VALUES,
    BodyBuilder,
    Columns,
    check_text,
    lone,
    rebased,
)
from aolog.format.compression import Malformed
from aolog.format.native import speed


def check_columns(columns: Columns) -> None:
    """Raises Malformed unless they are as frames have them. Copies nothing."""
    records, value, values, timestamps, keys, _, topics, headers = columns
    of_records = [one for one in (values or lone(value), keys, topics) if one is not None]
    if any(column.entries != records for column in of_records):
        raise Malformed("a column of another number of records")
    checked, offsets = [(column, records) for column in of_records], []
    if headers is not None:
        numbers = headers.offsets.cast("I")
        if len(numbers) != records + 1 or headers.names.validity is not None:
            raise Malformed("headers of another number of records, or without a name")
        checked += [(headers.names, numbers[records]), (headers.values, numbers[records])]
        offsets.append(numbers)
    for column, entries in checked:
        numbers = column.offsets.cast("I")
        bits = (entries + 7) // 8 if column.validity is None else len(column.validity)
        if len(numbers) <= entries or numbers[-1] > len(column.data) or bits < (entries + 7) // 8:
            raise Malformed("a column has fewer entries, or bytes, than it should")
        offsets.append(numbers)
    if timestamps is not None and len(timestamps) != 8 * records:
        raise Malformed("timestamps of another number of records")
    if not speed.rise(offsets):
        raise Malformed("offsets fall")
    for text in (topics, headers and headers.names):
        if text is not None:
            check_text(text)


def columns_body(columns: Columns) -> tuple[int, BodyBuilder]:
    """The bits of well-formed columns, and the body that has them."""
    _, value, values, timestamps, keys, topic, topics, headers = columns
    bits, body = VALUES, BodyBuilder()
    if timestamps is not None:
        bits |= TIMESTAMPS
        body.put(timestamps)
    if keys is not None:
        bits |= KEYS | (KEY_NULLS if body.column(keys) else 0)
    if topic is not None:
        name = topic.encode()
        bits |= TOPIC
        body.put(struct.pack("<I", len(name)) + name)
    if topics is not None:
        bits |= TOPICS | (TOPIC_NULLS if body.column(topics) else 0)
    if headers is not None:
        offsets, begin, end = rebased(headers.offsets)
        bits |= HEADERS
        body.put(offsets)
        body.column(headers.names.part(begin, end))
        bits |= HEADER_NULLS if body.column(headers.values.part(begin, end)) else 0
    bits |= VALUE_NULLS if body.column(values or lone(value)) else 0
    return bits, body
