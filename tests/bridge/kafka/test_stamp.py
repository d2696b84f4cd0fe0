"""The stamp names a record for ever, and foreign headers are not taken for one."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aolog.format.origin import HEADER_NAME
from bridge.kafka.stamp import Stamp, decode_stamp, encode_stamp

UUID = bytes(range(16))
OURS = (HEADER_NAME, encode_stamp(UUID, 3, 77, 1_600_000_000_123_456))
STAMP = Stamp(UUID, 3, 77, 1_600_000_000_123_456)


@given(
    uuid=st.binary(min_size=16, max_size=16),
    epoch=st.integers(0, 2**32 - 1),
    address=st.integers(0, 2**63 - 1),
    timestamp_us=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
)
def test_a_stamp_decodes_to_what_was_encoded(
    uuid: bytes, epoch: int, address: int, timestamp_us: int | None
) -> None:
    value = encode_stamp(uuid, epoch, address, timestamp_us)
    assert decode_stamp([(HEADER_NAME, value)]) == Stamp(uuid, epoch, address, timestamp_us)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        {},
        [("other", OURS[1])],
        [(HEADER_NAME, None)],
        [(HEADER_NAME, b"")],
        [(HEADER_NAME, OURS[1][:-1])],
        [(HEADER_NAME, OURS[1] + b"x")],
        [("AOLOG", OURS[1])],
    ],
)
def test_foreign_headers_are_no_stamp(headers: object) -> None:
    assert decode_stamp(headers) is None


def test_the_stamp_is_found_among_other_headers_and_the_last_one_counts() -> None:
    forged = (HEADER_NAME, encode_stamp(bytes(16), 9, 9, 9))
    assert decode_stamp([("a", b"1"), OURS, ("b", None)]) == STAMP
    assert decode_stamp([forged, OURS]) == STAMP
    assert decode_stamp([OURS, (HEADER_NAME, b"short")]) == STAMP
