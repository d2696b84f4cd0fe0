"""The golden logs of version 3 are read to what was appended, whatever release of a codec is here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import aolog
from aolog.format.compression import CODECS
from tests.aolog.conftest import WAYS
from tests.golden.format2.make import as_json, from_json

pytest.importorskip(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
    reason="the compression extra is not installed",
)
pytest.importorskip("lz4.block", reason="the compression extra is not installed")

GOLDEN = Path(__file__).parents[2] / "golden" / "compressed"
NAMES = sorted(CODECS)


def records(name: str) -> list[aolog.Record]:
    return [
        from_json(fields) for fields in json.loads((GOLDEN / name / "records.json").read_text())
    ]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_golden_log_is_read_to_what_was_appended(name, way):
    found = way(str(GOLDEN / name / "log"))
    assert list(map(as_json, found.records)) == list(map(as_json, records(name)))
    assert found.gaps == []


@pytest.mark.parametrize("name", NAMES)
def test_verify_is_content(name):
    report = aolog.verify(GOLDEN / name / "log")
    assert report.ok, report
    assert report.records == len(records(name))
    assert report.slabs > 1
