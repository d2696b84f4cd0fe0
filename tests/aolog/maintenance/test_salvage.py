"""What is salvaged is what the damaged bytes still say, marked unverified, and never in the log."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest

import aolog
from tests.aolog.commands import well
from tests.aolog.conftest import fill, flip, frames_of, read_all, slab_files, unchanged
from tests.aolog.read import test_gaps

VALUES = [b"value %04d" % i for i in range(40)]


@pytest.fixture
def log(log_path: str) -> str:
    """Four frames of ten records with keys and headers."""
    with aolog.Writer(log_path, topic="t") as writer:
        for i in range(4):
            for value in VALUES[10 * i : 10 * i + 10]:
                writer.append(value, key=b"k" + value, headers=(("h", value), ("n", None)))
            writer.flush()
    return log_path


def salvage(log: str) -> list[dict[str, Any]]:
    """What the command prints as JSON."""
    with unchanged(log):
        lines = [json.loads(line) for line in well("salvage", log, "--json").stdout.splitlines()]
    assert all(line["unverified"] is True for line in lines)
    return lines


def plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def test_each_line_for_people_says_that_it_is_unverified(log_path: str) -> None:
    fill(log_path, [b"first", b"second \x1b[31m", b"third"], batch_bytes=0)
    frame = frames_of(log_path)[1]
    flip(frame.slab, frame.begin + 17)  # of the header: the body is intact
    result = well("salvage", log_path)
    assert result.stdout == f"{frame.begin}\tunverified\theader\tsecond \\x1b[31m\n"
    assert result.stderr == f"{log_path}: 1 record, unverified, found in damaged frames\n"


def test_a_wrong_byte_in_a_value_costs_that_byte(log: str) -> None:
    records = read_all(log)
    frame = frames_of(log)[1]
    flip(frame.slab, frame.end - 12)  # near the end of the last value
    lines = salvage(log)
    assert [line["address"] for line in lines] == [record.address for record in records[10:20]]
    assert {(line["slab"], line["offset"], line["reason"]) for line in lines} == {
        (0, frame.begin, "body")
    }
    for line, record in zip(lines, records[10:20], strict=True):
        assert line["timestamp_us"] == record.timestamp
        assert plain(line["key_base64"]) == record.key
        assert [(n, plain(v)) for n, v in line["headers"]] == list(record.headers)
    wrong = [
        plain(line["value_base64"]) != r.value
        for line, r in zip(lines, records[10:20], strict=True)
    ]
    assert wrong.count(True) == 1


@pytest.mark.parametrize("byte", [0, 2, 3, 16, 20, 24, 36, 39])
def test_a_body_whose_own_hash_is_right_is_read_under_a_wrong_header(log: str, byte: int) -> None:
    """Of the header's fields, those that the body needs are whole."""
    records = read_all(log)
    frame = frames_of(log)[1]
    flip(frame.slab, frame.begin + byte)
    lines = salvage(log)
    if byte == 2:  # the kind: not of records, as far as it says
        assert lines == []
        return
    assert {line["reason"] for line in lines} == {"header"}
    assert [plain(line["value_base64"]) for line in lines] == [r.value for r in records[10:20]]


def test_a_slab_without_any_header_still_holds_its_frames(log: str) -> None:
    (slab,) = slab_files(log)
    values = [record.value for record in read_all(log)]
    test_gaps.both_headers(slab)
    test_gaps.trailer(slab)
    lines = salvage(log)
    assert [plain(line["value_base64"]) for line in lines] == values
    assert {line["reason"] for line in lines} == {"header"}


def test_junk_that_is_full_of_magics_is_searched_in_bounded_time(
    log_path: str,
) -> None:
    """Each of 16,000 places claims a body to the end; a search that hashed them all would hash
    2 GiB."""
    fill(log_path, [b"x"])
    (slab,) = slab_files(log_path)
    with slab.open("ab") as file:
        file.write(b"\xa0\xf2\x01\x00" + (100_000).to_bytes(4, "little") + os.urandom(8))
        file.write((b"\xa0\xf2\x01\x00" + (100_000).to_bytes(4, "little")) * 16_000)
    assert salvage(log_path) == []
