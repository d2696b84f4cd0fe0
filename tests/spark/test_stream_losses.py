"""A stream whose records are pruned, or lost with the page cache."""

from __future__ import annotations

import json

import pytest

import aolog
from aolog.errors import UsageError
from aolog.spark import batch_limits, stream
from tests.spark.driving import offsets, write
from tests.spark.queries import Query, named

pytestmark = pytest.mark.usefixtures("looks_at_once")


@pytest.mark.parametrize(
    "limit",
    [
        {},
        {"maxRecordsPerTrigger": 7},
        {"maxBytesPerTrigger": "4k"},
        {"maxRecordsPerTrigger": 7, "maxBytesPerTrigger": "4k"},
    ],
    ids=str,
)
def test_records_pruned_under_the_stream_are_a_loss_and_a_limit_starts_at_what_is_left(
    tmp_path, caplog, limit
):
    addresses = write(tmp_path / "log", 200, value=bytes(1000), slab_bytes=15_000)
    other = write(tmp_path / "other", 1)
    query = Query(tmp_path, maxRecordsPerTrigger=3)
    read = query.batch()
    slabs = sorted((tmp_path / "log").glob("*.slab"))
    assert len(slabs) > 10
    for slab in slabs[:-2]:
        slab.unlink()
    with pytest.raises(UsageError, match=r"option failOnDataLoss: .*log.* pruned") as raised:
        Query(tmp_path, checkpoint=query.offset, **limit).batch()
    left = [address for address in addresses if address >= int(slabs[-2].stem)]
    lost = 200 - len(left) - sum(name == "log" for _, name in read)
    assert f"{lost} records lost" in str(raised.value)
    assert "set it to false" in str(raised.value)
    forgiving = Query(tmp_path, checkpoint=query.offset, failOnDataLoss="false", **limit)
    sizes = forgiving.all()
    assert sorted(read + forgiving.rows) == sorted(
        [row for row in read if row[1] == "log"] + named(left, "log") + named(other, "other")
    )
    assert sizes == [len(left)] if not limit else max(sizes) <= 8
    told = [r.getMessage() for r in caplog.records if "pruned" in r.getMessage()]
    assert len(told) == 1
    assert f"{lost} records lost" in told[0]


def test_a_planned_batch_that_is_pruned_is_told_with_the_total(tmp_path):
    addresses = write(tmp_path / "log", 200, value=bytes(1000), slab_bytes=15_000)
    query = Query(tmp_path, maxRecordsPerTrigger=3)
    query.batch()
    begin = query.offset
    query.batch()
    slabs = sorted((tmp_path / "log").glob("*.slab"))
    for slab in slabs[:-2]:
        slab.unlink()
    gone = sum(address < int(slabs[-2].stem) for address in addresses)
    with pytest.raises(UsageError, match=r"option failOnDataLoss") as raised:
        Query(tmp_path, checkpoint=begin).between(begin, query.offset)
    said = f"3 records lost in this batch, and {gone - 3} records with the batches after it"
    assert said in str(raised.value)


@pytest.mark.parametrize("limit", [{"maxRecordsPerTrigger": 30}, {"maxBytesPerTrigger": "30k"}])
@pytest.mark.parametrize("pruned", ["some", "all that the look saw"])
def test_slabs_pruned_between_a_look_and_a_limit_are_left_out(tmp_path, monkeypatch, limit, pruned):
    write(tmp_path / "log", 100, value=bytes(1000), slab_bytes=15_000)
    slabs = sorted((tmp_path / "log").glob("*.slab"))

    def prunes(*given, real=batch_limits.share):
        monkeypatch.setattr(stream, "share", real)
        if pruned != "some":
            write(tmp_path / "log", 20, value=bytes(1000), slab_bytes=15_000)
        for slab in slabs[: 3 if pruned == "some" else None]:
            slab.unlink()
        return real(*given)

    query = Query(tmp_path, failOnDataLoss="false", **limit)
    query.reader.prepareForTriggerAvailableNow()
    monkeypatch.setattr(stream, "share", prunes)
    query.all()
    rest = Query(tmp_path, failOnDataLoss="false", checkpoint=query.offset)
    rest.all()
    assert [address for address, _ in query.rows + rest.rows] == offsets(tmp_path / "log")
    assert bool(query.rows) == (pruned == "some")


@pytest.mark.parametrize("options", [{}, {"maxRecordsPerTrigger": 2}, {"maxBytesPerTrigger": 500}])
@pytest.mark.parametrize("count", [1, 5])  # four were lost
def test_what_was_read_and_then_lost_with_the_page_cache_takes_no_offset_back(
    tmp_path, options, count
):
    with aolog.Writer(tmp_path / "log", batch_bytes=0, sync="never") as log:
        addresses = [log.append(b"." * 200) for _ in range(10)]
        log.flush()
        query = Query(tmp_path / "log", **options)
        query.all()
        slab = next((tmp_path / "log").glob("*.slab"))
        data = slab.read_bytes()
    before = json.loads(query.offset)
    slab.write_bytes(data[: addresses[6]])
    assert query.batch() is None
    assert json.loads(query.offset) == before
    more = write(tmp_path / "log", count, value=b"." * 200)
    assert more[0] > addresses[-1], "a new epoch begins above"
    query.all()
    assert query.rows == named(addresses + more, "log")
