"""Format 1: our logs are the Go program's, and the Go program's are ours.

The goldens were made by `tests/golden/queuefka/gotool`, whose README says what that proves.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog.format.slab import HEADER_COPIES, HEADER_LEN
from aolog.queuefka import format1
from aolog.write.recovery_cases import Case
from tests.aolog.conftest import fill, snapshot

GOLDEN = Path(__file__).parents[2] / "golden" / "queuefka"
LOGS: dict[str, Any] = json.loads((GOLDEN / "payloads.json").read_text(encoding="utf-8"))
WHOLE = ["small", "rolled", "exact"]
TORN = LOGS["torn"]
TORN_AT, TORN_END = TORN["torn"]["address"], TORN["end"]


def pairs(records: list[dict[str, Any]]) -> list[tuple[int, bytes]]:
    return [(record["address"], bytes.fromhex(record["hex"])) for record in records]


def read(path: Path | str, start: Any = "earliest", **options: Any) -> list[tuple[int, bytes]]:
    with aolog.Reader(path, start, **options) as reader:
        return [(record.address, record.value) for record in reader]


def write(path: Path | str, payloads: list[bytes], slab_bytes: int) -> list[int]:
    with aolog.Writer(path, format="queuefka", slab_bytes=slab_bytes) as log:
        return [log.append(payload) for payload in payloads]


# --- goldens --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_a_golden_is_read_to_its_records_and_addresses(name):
    with aolog.Reader(GOLDEN / name) as reader:
        records = list(reader)
        assert reader.tell() == LOGS[name]["end"]
        assert reader.gaps == []
    assert [(r.address, r.value) for r in records] == pairs(LOGS[name]["records"])
    assert {(r.timestamp, r.key, r.headers, r.topic) for r in records} == {(None, None, (), None)}


@pytest.mark.parametrize("name", WHOLE)
def test_a_golden_is_written_anew_byte_for_byte(name, tmp_path):
    log = LOGS[name]
    addresses = write(tmp_path / name, [p for _, p in pairs(log["records"])], log["slab_bytes"])
    assert addresses == [address for address, _ in pairs(log["records"])]
    assert snapshot(tmp_path / name) == snapshot(GOLDEN / name)


def test_a_record_that_holds_a_slab_of_format_2_is_a_record(tmp_path):
    """Where the second copy of a header would be."""
    fill(tmp_path / "other", [b"x"])
    header = next((tmp_path / "other").glob("*.slab")).read_bytes()[:HEADER_LEN]
    first = b"first"
    begin = 2 * format1.FRAME_HEADER_LEN + len(first)
    held = bytes(HEADER_COPIES[1] - begin) + header
    fill(tmp_path / "log", (first, held, b"last"), format="queuefka")
    with next((tmp_path / "log").glob("*.slab")).open("rb") as file:
        file.seek(HEADER_COPIES[1])
        assert file.read(HEADER_LEN) == header
    with aolog.Reader(tmp_path / "log") as reader:
        assert [record.value for record in reader] == [first, held, b"last"]
    aolog.Writer(tmp_path / "log", format="queuefka").close()


# --- a torn frame ---------------------------------------------------------------------------


def test_a_torn_frame_is_pending_while_its_slab_is_the_last():
    with aolog.Reader(GOLDEN / "torn") as reader:
        assert [(r.address, r.value) for r in reader] == pairs(TORN["records"])
        assert reader.gaps == []
        assert reader.tell() == TORN_AT
    assert aolog.verify(GOLDEN / "torn").tail_bytes == TORN_END - TORN_AT


@pytest.mark.parametrize("left", range(1, 13))
def test_a_slab_torn_in_its_first_frame_is_emptied_and_used(tmp_path, left):
    payloads = [b"12345"] * 4  # two frames of 13 a slab
    write(tmp_path / "log", payloads, 20)
    names = sorted(snapshot(tmp_path / "log"))
    assert len(names) == 3
    last = tmp_path / "log" / names[-1]
    last.write_bytes(b"".join(format1.encode_record(b"12345"))[:left])
    assert write(tmp_path / "log", [b"on"], 20) == [4 * 13]
    assert [value for _, value in read(tmp_path / "log")] == [*payloads, b"on"]


def test_a_tail_that_is_searched_in_vain_up_to_the_bound_is_not_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("aolog.queuefka.recovery.SEARCH_BYTES_MAX", 100_000)
    path = tmp_path / "log" / ("0" * 20 + ".slab")
    path.parent.mkdir()
    intact = b"".join(format1.encode_record(b"intact"))
    claims = (5000).to_bytes(4, "little") * 4000
    octets = intact + b"\0\0\0\x70" + bytes(4) + claims + intact * 1000
    path.write_bytes(octets)
    with aolog.Writer(tmp_path / "log", format="queuefka") as log:
        assert log.opening.case == Case.QUEUEFKA_BAD.value
    assert path.read_bytes() == octets


def test_a_log_of_one_format_is_not_opened_as_the_other(tmp_path):
    write(tmp_path / "one", [b"x"], 100)
    with pytest.raises(aolog.UsageError, match='format="queuefka"'):
        aolog.Writer(tmp_path / "one")
    aolog.Writer(tmp_path / "two").close()
    with pytest.raises(aolog.UsageError, match='format="aolog"'):
        aolog.Writer(tmp_path / "two", format="queuefka")


# --- the Go tool ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def gotool(tmp_path_factory):
    """Runs gotool with lines on its standard input; its lines, and its exit status."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: the Go side of format 1 is not tried")
    program = tmp_path_factory.mktemp("gotool") / "gotool"
    subprocess.run(["go", "build", "-o", program, "."], cwd=GOLDEN / "gotool", check=True)

    def run(*arguments: object, lines: Sequence[str] = ()) -> tuple[list[str], int]:
        ended = subprocess.run(
            [program, *map(str, arguments)],
            input="".join(line + "\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.stdout.splitlines(), ended.returncode

    return run


PAYLOADS = [b"p%d" % i * (i % 7 + 1) for i in range(60)] + [bytes(range(256)), b"\0\0\0\0"]
HEXES = [payload.hex() for payload in PAYLOADS]


@pytest.mark.parametrize("slab_bytes", [1, 64, 100, 1 << 20])
def test_go_and_python_make_the_same_files_alone_and_by_turns(gotool, tmp_path, slab_bytes):
    gotool("write", tmp_path / "go", slab_bytes, lines=HEXES)
    write(tmp_path / "python", PAYLOADS, slab_bytes)
    for begin in range(0, len(PAYLOADS), 10):
        mine, its = PAYLOADS[begin : begin + 5], HEXES[begin + 5 : begin + 10]
        write(tmp_path / "turns", mine, slab_bytes)
        gotool("write", tmp_path / "turns", slab_bytes, lines=its)
    assert (
        snapshot(tmp_path / "go") == snapshot(tmp_path / "python") == snapshot(tmp_path / "turns")
    )
