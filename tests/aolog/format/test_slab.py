"""The slab's header, names, index and seal, as bytes."""

from __future__ import annotations

import random
import struct

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from aolog.format import slab
from aolog.format.frame import (
    FLAG_DURABLE,
    FRAME_HEADER_LEN,
    KIND_SEAL,
    body_matches,
    decode_header,
)
from aolog.format.slab import (
    ADDRESS_END,
    DATA_BEGIN,
    HEADER_LEN,
    NO_TIMESTAMP,
    TOPIC_LEN_MAX,
    TRAILER_LEN,
    Index,
    NewerVersion,
    Seal,
    SlabHeader,
    decode_seal_body,
    decode_slab_header,
    decode_trailer,
    encode_seal,
)
from tests.texts import UNICODE

bounded = settings(max_examples=200)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
ADDRESS = st.integers(0, ADDRESS_END - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
UUID = st.binary(min_size=16, max_size=16)
TOPIC = st.text(UNICODE, min_size=1).filter(
    lambda text: "\0" not in text and len(text.encode()) <= TOPIC_LEN_MAX
)
HEADERS = st.builds(
    SlabHeader,
    topic_uuid=UUID,
    base=ADDRESS,
    base_ordinal=ADDRESS,
    salt=U32,
    epoch=U32,
    created_us=I64,
    slab_bytes=ADDRESS,
    reach=ADDRESS,
    predecessor_base=U64,
    predecessor_end=ADDRESS,
    predecessor_cut=U64,
    greatest_before_us=I64,
    boot_id=UUID,
    inode=U64,
    synced=st.booleans(),
    ordinal_unsure=st.booleans(),
    topic=st.none() | TOPIC,
)
HEADER = SlabHeader(
    topic_uuid=bytes(range(16)),
    base=8,
    base_ordinal=0,
    salt=7,
    epoch=1,
    created_us=0,
    slab_bytes=1 << 20,
    reach=1 << 33,
    topic="orders",
)

EMPTY = Seal(HEADER, 0, 0, NO_TIMESTAMP, NO_TIMESTAMP, 0, Index([], [], []))


# --- header ---------------------------------------------------------------------------------


@bounded
@given(HEADERS)
def test_a_header_comes_back_as_it_was_written(header):
    copy = header.encode()
    assert len(copy) == HEADER_LEN
    assert decode_slab_header(copy) == header


def test_no_single_flipped_bit_of_a_copy_gives_a_header():
    copy = HEADER.encode()
    version_bits = range(8 * 8, 8 * 10)
    for bit in range(8 * len(copy)):
        flipped = bytearray(copy)
        flipped[bit // 8] ^= 1 << bit % 8
        found = decode_slab_header(bytes(flipped))
        assert found is None or (bit in version_bits and isinstance(found, NewerVersion))


def rehashed(copy: bytes) -> bytes:
    return copy[:-4] + struct.pack("<I", xxhash.xxh32_intdigest(copy[:-4]))


@pytest.mark.parametrize("version", [4, 5, 65535])
@pytest.mark.parametrize("finish", [rehashed, bytes], ids=["hash where ours is", "hash elsewhere"])
def test_a_newer_version_is_recognised_as_one(version, finish):
    copy = bytearray(HEADER.encode())
    struct.pack_into("<H", copy, 8, version)
    assert decode_slab_header(finish(bytes(copy))) == NewerVersion(version)


@pytest.mark.parametrize(
    "field", ["base", "base_ordinal", "predecessor_end", "slab_bytes", "reach"]
)
def test_a_place_that_no_writer_comes_to_is_no_header(field):
    """Under a right hash: what follows from it would not fit a frame's or a successor's fields."""
    for place in (ADDRESS_END, 2**64 - 2):
        assert decode_slab_header(HEADER._replace(**{field: place}).encode()) is None


# --- index ----------------------------------------------------------------------------------


def made(seed: int) -> tuple[Index, list[tuple[int, int, int]]]:
    """An index, and the frames that it was told of: (offset, ordinal, greatest before)."""
    rng = random.Random(seed)
    index, frames = Index([], [], []), []
    offset, ordinal, greatest = DATA_BEGIN, 0, NO_TIMESTAMP
    for _ in range(rng.choice([0, 1, 5, 200])):
        frames.append((offset, ordinal, greatest))
        index.note(offset, ordinal, greatest)
        offset += 8 * rng.choice([5, 6, 100, 1000, 5000])
        ordinal += rng.choice([0, 1, 1, 50])
        greatest = max(greatest, rng.randrange(1000))
    return index, frames


@pytest.mark.parametrize("seed", range(20))
def test_lookups_are_what_brute_force_finds(seed):
    index, frames = made(seed)
    marks = [slab.Point(*frame) for frame in frames if frame[0] in index.offsets]

    def last(marks):
        return marks[-1] if marks else None

    offsets = {0, DATA_BEGIN - 1, 10**9, *(f[0] + d for f in frames for d in (-1, 0, 1))}
    for offset in offsets:
        assert index.at_offset(offset) == last([m for m in marks if m.offset <= offset])
    for ordinal in {0, 10**9, *(f[1] + d for f in frames for d in (0, 1))}:
        assert index.at_ordinal(ordinal) == last([m for m in marks if m.ordinal <= ordinal])
    for moment in {-1, *range(0, 1001, 7), *(f[2] + 1 for f in frames)}:
        earlier = [m for m in marks if m.greatest_before_us < moment]
        assert index.at_time(moment) == last(earlier)


def test_an_index_that_does_not_fit_its_body_is_none():
    encoded = memoryview(b"".join(Index([8192], [0], [0]).encode()))
    assert Index.decode(encoded, 0, 1) is not None
    assert Index.decode(encoded, 0, 2) is None
    assert Index.decode(encoded, 16, 1) is None
    assert Index.decode(encoded, 0, 2**32 - 1) is None


# --- seal -----------------------------------------------------------------------------------


def seal_frame(seal: Seal, offset: int) -> bytes:
    return b"".join(encode_seal(seal, offset, flags=FLAG_DURABLE, timestamp_us=3))


def body_of(frame: bytes, offset: int, salt: int) -> memoryview:
    header = decode_header(frame, 0, offset, salt)
    assert header is not None
    assert header.kind == KIND_SEAL
    assert header.durable
    assert body_matches(header, frame[FRAME_HEADER_LEN:])
    return memoryview(frame)[FRAME_HEADER_LEN:][: header.body_len]


@bounded
@given(HEADERS, st.integers(0, 2**32 - 1), I64, I64, U64, st.integers(0, 19))
def test_a_seal_comes_back_as_it_was_written(header, records, least, greatest, hashed, seed):
    index, frames = made(seed)
    seal = Seal(header, records, len(frames), least, greatest, hashed, index)
    offset = 8 * (10**6 + seed)
    frame = seal_frame(seal, offset)
    assert decode_seal_body(body_of(frame, offset, header.salt)) == seal
    assert decode_trailer(frame[-TRAILER_LEN:]) == (offset, header.salt)
