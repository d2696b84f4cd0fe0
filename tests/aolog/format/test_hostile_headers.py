"""Slab headers whose hash is right and whose fields no writer wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from aolog import Reader, Writer
from aolog.errors import UsageError
from aolog.format.slab import HEADER_COPIES, HEADER_LEN, SlabHeader, decode_slab_header
from tests.aolog.conftest import fill


@pytest.mark.parametrize("fields", [{"base_ordinal": 2**63 - 1}, {"epoch": 2**32 - 1}])
def test_a_writer_reports_that_no_header_can_follow(tmp_path: Path, fields: dict[str, int]) -> None:
    """Not a slab that no reader believes, with what was synced in it."""
    fill(tmp_path, [b"old"])
    (slab,) = tmp_path.glob("*.slab")
    octets = bytearray(slab.read_bytes()[:-8])  # not closed: another epoch
    header = decode_slab_header(bytes(octets[:HEADER_LEN]))
    assert isinstance(header, SlabHeader)
    for at in HEADER_COPIES:
        octets[at : at + HEADER_LEN] = header._replace(**fields).encode()
    slab.write_bytes(octets)
    with pytest.raises(UsageError, match="no slab can follow"), Writer(tmp_path) as writer:
        writer.append(b"new")
    assert list(tmp_path.glob("*.slab")) == [slab]
    with Reader(tmp_path) as reader:
        assert [record.value for record in reader] == [b"old"]
