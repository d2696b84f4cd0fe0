"""Columns: records to bytes and back, and hostile bytes to a plain refusal."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aolog.format import columns
from aolog.format.columns import (
    HEADERS,
    KEYS,
    KNOWN,
    TIMESTAMPS,
    TOPIC,
    TOPICS,
    VALUE_NULLS,
    VALUES,
    BodyTooLarge,
    Columns,
    decode_columns,
    encode_columns,
)
from aolog.format.compression import Malformed
from aolog.format.frame import BODY_LEN_MAX, KIND_RECORDS, KIND_SEAL, Frame, FrameHeader
from aolog.format.slab import NO_TIMESTAMP
from aolog.read.batch import RecordFrame
from aolog.record import Record
from tests.texts import UNICODE

bounded = settings(max_examples=150)

BYTES = st.none() | st.binary(max_size=20)
PLAIN_TEXT = st.text(UNICODE, max_size=10)
HEADER_PAIRS = st.lists(st.tuples(PLAIN_TEXT, BYTES), max_size=3).map(tuple)
COUNTS = st.integers(1, 40)
TIMESTAMP = st.integers(NO_TIMESTAMP, 2**63 - 1)


@st.composite
def batches(draw, count=COUNTS):
    n = draw(count)

    def column(entry, *, optional=True):
        listed = st.lists(entry, min_size=n, max_size=n)
        return draw(st.none() | listed if optional else listed)

    return {
        "values": column(BYTES, optional=False),
        "timestamps": column(TIMESTAMP),
        "keys": column(BYTES),
        "topics": draw(
            st.none()
            | st.lists(st.none() | PLAIN_TEXT, min_size=n, max_size=n)
            | PLAIN_TEXT.map(lambda name: [name] * n)
        ),
        "headers": column(HEADER_PAIRS),
    }


def join(parts) -> memoryview:
    return memoryview(b"".join(parts))


def records_of(decoded: Columns, *, skip: int = 0) -> list[Record]:
    return list(RecordFrame(1000, 1008, 8, skip, -1, 0, decoded).records())


def expected_records(batch) -> list[Record]:
    n = len(batch["values"])
    nothing = [None] * n
    times = [None if us == NO_TIMESTAMP else us for us in batch["timestamps"] or [-1] * n]
    rows = zip(
        times,
        batch["keys"] or nothing,
        batch["values"],
        batch["headers"] or [()] * n,
        batch["topics"] or nothing,
        strict=True,
    )
    return [Record(1000 + i, *row) for i, row in enumerate(rows)]


@bounded
@given(batches())
def test_all_columns_come_back_as_they_were_given(batch):
    bits, parts = encode_columns(**batch)
    decoded = decode_columns(join(parts), len(batch["values"]), bits)
    assert records_of(decoded) == expected_records(batch)


def test_more_entries_than_pay_for_numpy_come_back():
    n = 1_000  # from 256 on, numpy looks
    batch = {
        "values": [b"v%d" % i if i % 7 else None for i in range(n)],
        "timestamps": list(range(n)),
        "keys": [b"" if i % 3 else None for i in range(n)],
        "topics": ["tøpic" if i % 2 else None for i in range(n)],
        "headers": [(("h", None), ("ü", b"")) if i % 5 else () for i in range(n)],
    }
    bits, parts = encode_columns(**batch)
    assert bits == KNOWN & ~TOPIC
    assert records_of(decode_columns(join(parts), n, bits)) == expected_records(batch)


# --- which columns a batch has --------------------------------------------------------------


def test_a_column_over_a_frames_bound_is_refused_before_it_is_copied():
    class Huge(bytes):
        def __len__(self) -> int:
            return BODY_LEN_MAX + 1

    with pytest.raises(BodyTooLarge):
        encode_columns([Huge()])


def test_offsets_over_32_bits_are_refused():
    with pytest.raises(BodyTooLarge):
        columns.offsets_of([2**31, 2**31])


# --- hostile bodies -------------------------------------------------------------------------


def decoded_or_malformed(body: bytes, count: int, bits: int) -> list[Record] | None:
    try:
        decoded = decode_columns(memoryview(body), count, bits)
    except Malformed:
        return None
    return records_of(decoded)


def frame_of(body: bytes, count: int, bits: int, kind: int = KIND_RECORDS) -> Frame:
    header = FrameHeader(kind, 0, len(body), 0, 0, 0, count, bits)
    return Frame(8192, 8192 + header.frame_len, header, memoryview(body))


@bounded
@given(
    st.lists(
        st.tuples(
            st.lists(st.binary(max_size=3), max_size=300),
            st.none() | st.tuples(st.integers(0, 10_000), st.integers(1, 255)),
            st.sampled_from([KIND_RECORDS, KIND_RECORDS, KIND_SEAL]),
        ),
        max_size=4,
    )
)
@example([([b"a"] * 200, None, KIND_RECORDS), ([b"b"] * 200, (4, 255), KIND_RECORDS)])
@example([([b""] * 300, None, KIND_RECORDS), ([b"b"] * 300, None, KIND_RECORDS)])
@example([([b"b"] * 300, None, KIND_RECORDS), ([b""] * 300, (8, 1), KIND_RECORDS)])
def test_a_run_decodes_as_its_frames_do_one_by_one(entries):
    frames = []
    for values, flip, kind in entries:
        bits, parts = encode_columns(values or [b""])
        body = bytearray(b"".join(parts))
        if flip is not None and body:
            body[flip[0] % len(body)] ^= flip[1]
        frames.append(frame_of(bytes(body), len(values) or 1, bits, kind))
    found = columns.decode_run(frames)
    for one, decoded in zip(frames, found, strict=True):
        head = one.header
        expected = None
        if head.kind == KIND_RECORDS:
            expected = decoded_or_malformed(bytes(one.body), head.records, head.columns)
        assert (None if decoded is None else records_of(decoded)) == expected


@bounded
@given(batches(st.integers(1, 4)), st.integers(1, 30))
def test_a_body_that_is_too_short_or_too_long_is_malformed(batch, by):
    bits, parts = encode_columns(**batch)
    body = bytes(join(parts))
    n = len(batch["values"])
    if bits:
        assert decoded_or_malformed(body + bytes(by), n, bits) is None
        assert decoded_or_malformed(body[:-by], n, bits) is None


def u32s(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


PAD4 = bytes(4)

MALFORMED = {
    "a plain body of two": (b"hello", 2, 0),
    "a plain body of none": (b"", 0, 0),
    "a batch of none": (u32s(0), 0, VALUES),
    "no values": (u32s(0, 1) + b"k", 1, KEYS),
    "an unknown column": (u32s(0, 1) + b"v", 1, VALUES | 0x400),
    "offsets that do not begin at 0": (u32s(1, 2) + b"vv", 1, VALUES),
    "offsets that fall": (u32s(0, 2, 1) + PAD4 + b"v", 2, VALUES),
    "an offset behind the body": (u32s(0, 9) + b"v", 1, VALUES),
    "the largest offset": (u32s(0, 2**32 - 1) + b"v", 1, VALUES),
    "a byte behind the values": (u32s(0, 1) + b"v" + b"x", 1, VALUES),
    "7 bytes behind the values": (u32s(0, 1) + b"v" + bytes(7), 1, VALUES),
    "no room for offsets": (u32s(0), 1, VALUES),
    "no room for the validity": (b"", 1, VALUES | VALUE_NULLS),
    "no room for timestamps": (bytes(7), 1, VALUES | TIMESTAMPS),
    "no room for a topic's length": (b"\1\0", 1, VALUES | TOPIC),
    "a topic longer than the body": (u32s(99) + PAD4 + u32s(0, 0), 1, VALUES | TOPIC),
    "a topic that is not UTF-8": (u32s(1) + b"\xff" + bytes(3) + u32s(0, 0), 1, VALUES | TOPIC),
    "topics that are not UTF-8": (
        u32s(0, 1) + b"\xff" + bytes(7) + u32s(0, 0),
        1,
        VALUES | TOPICS,
    ),
    "topics cut inside a character": (
        u32s(0, 1, 2) + PAD4 + "ü".encode() + bytes(6) + u32s(0, 0, 0) + PAD4,
        2,
        VALUES | TOPICS,
    ),
    "a header's name that is not UTF-8": (
        u32s(0, 1) + u32s(0, 1) + b"\xff" + bytes(7) + u32s(0, 0) + u32s(0, 0),
        1,
        VALUES | HEADERS,
    ),
    "header offsets that fall": (
        u32s(0, 1, 0) + PAD4 + u32s(0) + PAD4 + u32s(0) + PAD4 + u32s(0, 0, 0) + PAD4,
        2,
        VALUES | HEADERS,
    ),
    "more headers than there is room for": (u32s(0, 2**31) + u32s(0, 0), 1, VALUES | HEADERS),
}


@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED)
def test_nonsense_under_a_right_hash_is_malformed(case):
    body, count, bits = case
    with pytest.raises(Malformed):
        decode_columns(memoryview(body), count, bits)


def test_a_count_of_four_billion_allocates_nothing():
    with pytest.raises(Malformed):
        decode_columns(memoryview(bytes(64)), 2**32 - 1, KNOWN)


def test_a_null_entry_is_null_whatever_its_bytes():
    body = b"\0" + bytes(7) + u32s(0, 2) + b"xx"
    decoded = decode_columns(memoryview(body), 1, VALUES | VALUE_NULLS)
    assert [record.value for record in records_of(decoded)] == [None]
