"""The golden logs of version 3 are read to what was appended, whatever release of a codec is here."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import aolog
from aolog.format.compression import CODECS, EXPANSION_MAX
from fuzz.layout import RECORDS, parse_slab
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


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_log_has_what_its_page_says(name):
    """Looked at with the fuzzer's parser, which shares no code with the log's."""
    slabs = [parse_slab(int(p.stem), p.read_bytes()) for p in sorted(GOLDEN.glob(f"{name}/log/*"))]
    frames = [(s, f) for s in slabs for f in s.frames if f.kind == RECORDS]
    assert {slab.data[8] for slab in slabs} == {3}
    flags = [slab.data[frame.begin + 3] >> 4 for slab, frame in frames]
    assert set(flags) == {0, CODECS[name]}
    assert all(frame.end - frame.begin >= frame.records for _, frame in frames)
    lengths = [frame.end - frame.begin for _, frame in frames]
    assert [n for n, (_, f) in zip(lengths, frames, strict=True) if f.records == 200] == [200]
    if name == "zstd":  # lz4 makes no more than 255 of one byte
        assert 40 + (200_000 + 4) // EXPANSION_MAX < lengths[2] < 250


@pytest.mark.parametrize("name", NAMES)
def test_a_writer_continues_with_another_codec(name, tmp_path):
    path = str(tmp_path / "log")
    shutil.copytree(GOLDEN / name / "log", path)
    with aolog.Writer(path, compression=NAMES[NAMES.index(name) - 1]) as writer:
        writer.append_many([b"on " * 100] * 3)
    with aolog.Reader(path) as reader:
        assert list(reader)[: len(records(name))] == records(name)
        assert reader.gaps == []
