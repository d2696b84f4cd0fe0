"""Slab headers whose hash is right and whose fields no writer wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from aolog import Reader, Writer
from aolog.errors import UsageError
from aolog.format.slab import HEADER_COPIES
from aolog.log.directory import Log
from aolog.storage.storage import Storage


def rewrite(slab: Path, base: int, **fields: int) -> None:
    """Both copies in front say so."""
    log = Log(str(slab.parent), Storage())
    header = log.slab(log.bases.index(base)).header
    log.close()
    assert header is not None
    octets = bytearray(slab.read_bytes())
    copy = header._replace(**fields).encode()
    for at in HEADER_COPIES:
        octets[at : at + len(copy)] = copy
    slab.write_bytes(octets)


def last_slab(path: Path) -> tuple[Path, int]:
    slab = max(path.glob("*.slab"))
    return slab, int(slab.stem)


@pytest.mark.parametrize("fields", [{"base_ordinal": 2**63 - 1}, {"epoch": 2**32 - 1}])
def test_a_writer_reports_that_no_header_can_follow(tmp_path: Path, fields: dict[str, int]) -> None:
    """Not a slab that no reader believes, with what was synced in it."""
    with Writer(tmp_path) as writer:
        writer.append(b"old")
    slab, base = last_slab(tmp_path)
    slab.write_bytes(slab.read_bytes()[:-8])  # not closed: another epoch
    rewrite(slab, base, **fields)
    with pytest.raises(UsageError, match="no slab can follow"), Writer(tmp_path) as writer:
        writer.append(b"new")
    assert list(tmp_path.glob("*.slab")) == [slab]
    with Reader(tmp_path) as reader:
        assert [record.value for record in reader] == [b"old"]
