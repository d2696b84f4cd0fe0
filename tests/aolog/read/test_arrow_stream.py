"""A reader, and a batch, as an Arrow stream. (In polars, pandas and DuckDB: tests of the examples.)"""

from __future__ import annotations

import pytest

import aolog
from tests.aolog.conftest import fill, frames_of, overwrite, read_all

pa = pytest.importorskip("pyarrow")

RECORDS = 20_500


@pytest.fixture
def log(log_path: str) -> str:
    """Several slabs, frames of two kinds, keys in some."""
    with aolog.Writer(log_path, slab_bytes=1 << 20) as writer:
        for i in range(500):
            writer.append(b"%05d" % i, key=b"k%d" % (i % 7), timestamp=i, headers=(("h", b"1"),))
        for begin in range(500, RECORDS, 1000):
            writer.append_many([b"%05d" % i * 20 for i in range(begin, begin + 1000)])
    return log_path


def test_pyarrow_takes_a_reader_and_gets_every_record(log: str) -> None:
    with aolog.Reader(log) as reader:
        table = pa.table(reader)
        assert reader.tell() == reader.end()
    assert table.num_rows == RECORDS
    found = zip(*(table[name].to_pylist() for name in ("address", "key", "value")), strict=True)
    assert list(found) == [(r.address, r.key, r.value) for r in read_all(log)]


def test_a_stream_and_a_later_iteration_have_each_record_once(log: str) -> None:
    with aolog.Reader(log) as reader:
        first = reader.read()
        stream = reader.to_arrow(["value"])
        fill(log, [b"later"])
        assert first is not None
        streamed = [value for batch in stream for value in batch["value"].to_pylist()]
        rest = [record.value for record in reader]
    assert [first.value, *streamed, *rest] == [record.value for record in read_all(log)]


def test_a_stream_ends_however_fast_the_writer_is(log: str) -> None:
    with aolog.Reader(log) as reader, aolog.Writer(log) as writer:
        batches = 0
        for _ in reader.to_arrow(["value"]):
            writer.append_many([bytes(2 << 20)])
            writer.flush()
            batches += 1
    assert batches <= 4


def test_a_gap_in_a_stream_is_reported_or_raised_as_in_an_iteration(log: str) -> None:
    frame = next(f for f in frames_of(log) if f.records == 1000)
    overwrite(frame.slab, frame.begin + 5_000, b"wrong")
    met: list[aolog.Gap] = []
    with aolog.Reader(log, on_gap=met.append) as reader:
        assert pa.table(reader).num_rows == RECORDS - sum(gap.records_lost or 0 for gap in met)
    assert [gap.reason for gap in met] == ["corrupt"]
    with aolog.Reader(log, strict=True) as strict, pytest.raises(aolog.GapFound):
        strict.to_arrow().read_all()
