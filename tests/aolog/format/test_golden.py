"""The golden log of format 2: made anew byte for byte, and read to what was appended.

A golden never changes within a version of the format: it stands for logs that are on disks.
Whoever changes the format leaves it as it is, and adds another beside it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import aolog
from aolog.record import Gap
from aolog.write import recovery_cases
from tests.aolog.conftest import overwrite, snapshot
from tests.golden.format2 import make

GOLDEN = Path(__file__).parents[2] / "golden" / "format2"
RECORDS = [make.from_json(fields) for fields in json.loads((GOLDEN / "records.json").read_text())]
SLABS = sorted(path.name for path in GOLDEN.glob("log/*.slab"))
END = RECORDS[-1].address - RECORDS[-1].address % 8 + 128  # of the last frame, two records
LAST_BASE = int(Path(SLABS[-1]).stem)


@pytest.fixture
def copy(tmp_path) -> str:
    """A log that may be changed. Its inodes and its boot are not those of its headers."""
    shutil.copytree(GOLDEN / "log", tmp_path / "copy")
    return str(tmp_path / "copy")


# --- made -----------------------------------------------------------------------------------


def test_the_writer_still_makes_the_golden_log_byte_for_byte(tmp_path):
    make.make(tmp_path)
    made, golden = snapshot(tmp_path), snapshot(GOLDEN)
    assert sorted(made) == sorted(name for name in golden if name.startswith(("log", "records")))
    for name, octets in made.items():
        assert octets == golden[name], f"{name} is made differently"


# --- read -----------------------------------------------------------------------------------


def test_a_reader_returns_what_was_appended():
    with aolog.Reader(GOLDEN / "log") as reader:
        assert list(reader) == RECORDS
        assert reader.gaps == []
        assert reader.tell() == END


def test_verify_finds_the_torn_tail_and_nothing_else():
    report = aolog.verify(GOLDEN / "log")
    assert report.ok
    assert (report.records, report.slabs, report.gaps) == (len(RECORDS), 3, [])
    assert (report.end, report.tail_bytes) == (END, make.TORN_BYTES)
    assert report.problems == []


def test_the_cursor_continues_after_its_last_commit(copy):
    with aolog.Reader(copy, cursor="reader") as reader:
        assert list(reader) == RECORDS[10:]
    (listed,) = aolog.cursors(copy)
    assert (listed.name, listed.ordinal, listed.address) == ("reader", 10, RECORDS[10].address)
    assert listed.lag.records == len(RECORDS) - 10


# --- written on -----------------------------------------------------------------------------


def test_a_writer_mends_a_copy_and_continues_above_its_reach(copy):
    before = snapshot(copy)
    with aolog.Writer(copy) as log:
        assert log.opening.case == recovery_cases.Case.UNSEALED_TORN.value
        assert log.opening.epoch == 2
        assert log.topic == "orders"
        address = log.append(b"on")
    reach = (28 << 10) + (28 << 7) + 2**32 + 2**24
    assert address >= LAST_BASE + reach
    with aolog.Reader(copy) as reader:
        records = list(reader)
        gaps = reader.gaps
    assert records[:-1] == RECORDS
    assert records[-1][:1] + records[-1][3:4] == (address, b"on")
    assert gaps == [Gap(END, END + make.TORN_BYTES, "torn", None)]
    aside = Path(copy) / "aside" / f"{END:020d}.torn"
    last = before[SLABS[-1]]
    assert aside.read_bytes() == last[END - LAST_BASE :]
    assert (Path(copy) / SLABS[-1]).read_bytes() == last[: END - LAST_BASE]
    after = snapshot(copy)
    assert all(after[name] == before[name] for name in [*SLABS[:2], "cursors/reader.cursor"])


def test_every_slab_without_its_two_header_copies_is_read_by_its_seal(copy):
    for name in SLABS[:2]:
        overwrite(Path(copy) / name, 0, bytes(8192))
    with aolog.Reader(copy) as reader:
        assert list(reader) == RECORDS
        assert reader.gaps == []
