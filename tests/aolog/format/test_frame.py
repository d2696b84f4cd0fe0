"""The frame, as bytes: what is written comes back, and nothing else does."""

from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from aolog.format.frame import (
    ALIGNMENT,
    BODY_LEN_MAX,
    FLAG_DURABLE,
    FRAME_HEADER_LEN,
    KIND_MARK,
    KIND_RECORDS,
    KIND_SEAL,
    body_matches,
    decode_header,
    encode_frame,
    intact_frames,
)

U32 = st.integers(0, 2**32 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**40).map(lambda n: n * ALIGNMENT)

bounded = settings(max_examples=200)


def frame(offset: int = 8192, salt: int = 7, body: bytes = b"hello", **fields: int) -> bytes:
    parts, length = encode_frame(offset, salt, [body], **{"count": 1, **fields})
    joined = b"".join(parts)
    assert len(joined) == length
    return joined


def is_intact(buffer: bytes, offset: int, salt: int) -> bool:
    """As a walker finds it: header right, all there, body right."""
    if len(buffer) < FRAME_HEADER_LEN:
        return False
    header = decode_header(buffer, 0, offset, salt)
    if header is None or len(buffer) < header.frame_len:
        return False
    return body_matches(header, buffer[FRAME_HEADER_LEN : header.frame_len])


@bounded
@given(
    parts=st.lists(st.binary(max_size=50), max_size=4),
    offset=OFFSETS,
    salt=U32,
    kind=st.sampled_from([KIND_RECORDS, KIND_MARK, KIND_SEAL]),
    flags=st.sampled_from([0, FLAG_DURABLE]),
    timestamp_us=I64,
    ordinal=U32,
    columns=U32,
    data=st.data(),
)
def test_a_frame_comes_back_as_it_was_written(
    parts, offset, salt, kind, flags, timestamp_us, ordinal, columns, data
):
    body = b"".join(parts)
    count = data.draw(st.integers(0, FRAME_HEADER_LEN + len(body)))
    encoded, length = encode_frame(
        offset,
        salt,
        list(parts),
        kind=kind,
        flags=flags,
        timestamp_us=timestamp_us,
        ordinal=ordinal,
        count=count,
        columns=columns,
    )
    joined = b"".join(encoded)
    header = decode_header(joined, 0, offset, salt)
    assert header is not None
    assert header == (
        kind,
        flags,
        len(body),
        header.body_hash,
        timestamp_us,
        ordinal,
        count,
        columns,
    )
    assert header.durable == bool(flags)
    assert (
        header.frame_len
        == length
        == len(joined)
        == FRAME_HEADER_LEN + -(-len(body) // ALIGNMENT) * ALIGNMENT
    )
    assert length % ALIGNMENT == 0
    assert joined[FRAME_HEADER_LEN:][: len(body)] == body
    assert body_matches(header, joined[FRAME_HEADER_LEN:])


@pytest.mark.parametrize("body", [b"", b"h", b"hello", b"x" * 8, bytes(33)], ids=len)
def test_every_single_flipped_bit_of_a_frame_is_refused(body):
    intact = frame(body=body)
    assert is_intact(intact, 8192, 7)
    for bit in range(8 * len(intact)):
        flipped = bytearray(intact)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not is_intact(bytes(flipped), 8192, 7), f"bit {bit}"


@bounded
@given(offset=OFFSETS, elsewhere=OFFSETS, salt=U32, other=U32)
def test_a_header_at_another_place_or_of_another_slab_is_refused(offset, elsewhere, salt, other):
    intact = frame(offset, salt)
    same_seed = (salt ^ offset // 8) % 2**32 == (other ^ elsewhere // 8) % 2**32
    assert (decode_header(intact, 0, elsewhere, other) is not None) == same_seed
    if other != salt:
        assert decode_header(intact, 0, offset, other) is None


def test_within_32_gib_a_frame_validates_at_its_own_offset_only():
    intact = frame(8192)
    offsets = [8192 ^ 1 << bit for bit in range(3, 35)]
    assert all(decode_header(intact, 0, offset, 7) is None for offset in offsets)
    assert decode_header(intact, 0, 8192 + (1 << 35), 7) is not None  # FORMAT.md, Odds


def resealed(**changes: int) -> bytes:
    """A header with a field that no writer of ours makes, under a right hash."""
    layout = struct.Struct("<HBBIQqIII")
    names = ["magic", "kind", "flags", "body_len", "body_hash", "timestamp_us", "ordinal", "count",
             "columns"]  # fmt: skip  # one thing, one line
    fields = dict(zip(names, layout.unpack(frame()[:36]), strict=True)) | changes
    head = layout.pack(*fields.values())
    return head + struct.pack("<I", xxhash.xxh32_intdigest(head, 7 ^ 8192 // 8)) + frame()[40:]


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": 0xF2A1},
        {"kind": 0},
        {"kind": 4},
        {"flags": 0x02},
        {"flags": 0x18},
        {"kind": 2, "flags": 0x11},
        {"kind": 3, "flags": 0x21},
        {"body_len": BODY_LEN_MAX + 1},
        {"count": 49},
    ],
    ids=str,
)
def test_a_right_hash_over_what_no_writer_makes_is_refused(changes):
    assert decode_header(resealed(**changes), 0, 8192, 7) is None


@bounded
@given(
    bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    kinds=st.lists(st.sampled_from([KIND_RECORDS, KIND_MARK]), min_size=5, max_size=5),
    salt=U32,
    junk=st.binary(max_size=30),
    flip=st.none() | st.tuples(st.integers(0, 300), st.integers(1, 255)),
    most=st.none() | st.integers(1, 6),
)
def test_a_run_of_frames_is_what_one_by_one_finds(bodies, kinds, salt, junk, flip, most):
    chunk_at, contents, begins = 8192, bytearray(16), []  # the run begins inside the chunk
    for body, kind in zip(bodies, kinds, strict=False):
        begins.append(chunk_at + len(contents))
        contents += frame(begins[-1], salt, body, kind=kind)
    contents += junk
    if flip is not None:
        contents[flip[0] % len(contents)] ^= flip[1]
    chunk = bytes(contents)
    expected = []
    for begin in begins:
        if not is_intact(chunk[begin - chunk_at :], begin, salt) or len(expected) == most:
            break
        expected.append(begin)
    found = intact_frames(chunk, memoryview(chunk), chunk_at, chunk_at + 16, salt, most)
    assert [f.offset for f in found] == expected
    for one, body in zip(found, bodies, strict=False):
        header = decode_header(chunk, one.offset - chunk_at, one.offset, salt)
        assert header == one.header
        assert (bytes(one.body), one.end - one.offset) == (body, header.frame_len)


def test_every_single_flipped_bit_of_a_frame_ends_a_run_before_it():
    one = frame(body=b"hello")
    intact = one + frame(8192 + len(one), body=b"next")
    for bit in range(8 * len(one)):
        flipped = bytearray(intact)
        flipped[bit // 8] ^= 1 << bit % 8
        chunk = bytes(flipped)
        assert intact_frames(chunk, memoryview(chunk), 8192, 8192, 7, 9) == [], f"bit {bit}"
