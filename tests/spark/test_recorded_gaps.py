"""Losses as rows: a read with `includeGaps`, and the copy that the sink makes of it."""

from __future__ import annotations

import json
import os
import shutil

import pytest

import aolog
from aolog.errors import UsageError
from aolog.publish.publication import publish
from aolog.spark.kafka_sink import check_columns
from aolog.spark.options import read_options
from aolog.spark.routing import Router
from aolog.spark.sink_options import SinkOptions
from aolog.spark.transfer import Transfer, checked
from tests.publish.job import JOB
from tests.spark.driving import (
    batch_reader,
    cut_short,
    run,
    struct,
    table,
    tasks,
    write,
    write_damaged,
)
from tests.spark.queries import Query

pytestmark = pytest.mark.usefixtures("looks_at_once")

SKIP = {"onCorruption": "skip", "failOnDataLoss": "false"}
SCHEMA = struct("value", "offset", "log", "gap")


def copied(root, *tasks_of_batches):
    """The sink writes what each task read."""
    for found in tasks_of_batches:
        slabs = []
        for batches in found:
            with Router(SinkOptions(str(root), "default"), JOB) as router:
                for batch in batches:
                    router.write(batch)
                slabs += router.finish()
        publish(root, JOB, slabs)


def gaps(path):
    return [(gap.reason, gap.records_lost) for gap in aolog.verify(path).gaps]


def rows_of(read):
    """The rows of gaps, and the number of the others."""
    rows = read.to_pylist()
    found = [row for row in rows if row["gap"] is not None]
    assert all(row["value"] is None for row in found)
    return [(row["log"], row["offset"], row["gap"]) for row in found], len(rows) - len(found)


def test_a_gap_is_a_row_where_it_is_and_a_copy_has_it(tmp_path):
    addresses = write_damaged(tmp_path / "in" / "log")
    write(tmp_path / "in" / "other", 3)
    read = table(tmp_path / "in", includeGaps="true", includeHeaders="true", **SKIP)
    gap = {"end": addresses[15], "reason": "corrupt", "recordsLost": 10}
    assert rows_of(read) == ([("log", addresses[5], gap)], 23)
    assert read["offset"].to_pylist()[:6] == addresses[:6], "in its place"
    assert "gap" not in table(tmp_path / "in", includeHeaders="true", **SKIP).column_names
    for limit in ({}, {"maxRecordsPerPartition": 4}, {"maxPartitionBytes": 1000}):
        out = tmp_path / f"out{limit}"
        copied(out, tasks(tmp_path / "in", includeGaps="true", **SKIP, **limit))
        assert gaps(out / "log") == [("missing", 10)]
        assert gaps(out / "other") == []
        found = []
        with aolog.Reader(out / "log", on_gap=found.append) as log:
            assert [log.read() is not None and len(found) for _ in range(20)] == [0] * 5 + [1] * 15
            assert log.read() is None


def test_the_end_of_a_log_that_was_cut_short_is_a_gap_also_before_a_writer_opens_it(tmp_path):
    path = tmp_path / "log"
    lost = cut_short(path)
    gap = {"end": lost.end, "reason": "corrupt", "recordsLost": 10}
    for _ in range(2):
        with pytest.raises(aolog.GapFound, match=r"\(corrupt\): 10 records"):
            table(path)
        read = table(path, includeGaps="true", includeHeaders="true", **SKIP)
        assert rows_of(read)[0] == [("log", lost.begin, gap)]
        first = {"endingOffsets": json.dumps({"log": lost.begin})}
        assert table(path, **first).num_rows == 10
        aolog.Writer(path).close()


def test_a_log_that_was_cut_short_before_its_first_record_has_lost_all(tmp_path):
    cut_short(tmp_path)
    (slab,) = tmp_path.glob("*.slab")
    with aolog.Reader(tmp_path) as reader:
        first = reader.read()
    assert first is not None
    os.truncate(slab, first.address + 7)
    with pytest.raises(aolog.GapFound, match=r"\(corrupt\): 20 records"):
        table(tmp_path)


def test_a_transfer_to_logs_asks_for_gaps_unless_a_transform_could_make_records_of_them(tmp_path):
    write(tmp_path / "in", 1)

    def asked(kind="aolog", **more):
        wanted = Transfer(str(tmp_path / "in"), kind, str(tmp_path / "out"), **more)
        options = {**checked(wanted).options, "path": wanted.root}
        return "gap" in read_options(options, stream=False).columns

    assert asked()
    assert asked(options={"columns": "value"})
    assert not asked("parquet")
    assert not asked(transforms=(lambda frame: frame,))
    assert not asked(options={"includegaps": "false"})


def test_gaps_are_rows_only_of_what_a_filter_and_the_options_leave(tmp_path):
    write_damaged(tmp_path / "log")
    with pytest.raises(aolog.GapFound):
        table(tmp_path, includeGaps="true")
    named = table(tmp_path, columns="offset,gap", **SKIP)
    assert named.column_names == ["offset", "gap"]
    assert named.num_rows == 21
    assert table(tmp_path, columns="offset", includeGaps="true", **SKIP).equals(named)
    with pytest.raises(UsageError, match=r"column gap: .*includeGaps"):
        check_columns(SCHEMA)


@pytest.mark.parametrize("copy", ["a batch", "a stream"])
def test_what_a_plan_finds_pruned_is_a_row_too_and_a_gap_in_the_copy(tmp_path, copy):
    addresses = write(tmp_path / "in" / "log", 200, value=bytes(1000), slab_bytes=15_000)
    if copy == "a stream":
        query = Query(tmp_path / "in", schema=SCHEMA, maxRecordsPerTrigger=20, includeGaps="true")
        begin = query.offset
        query.batch()
        first, middle = query.tables(begin, query.offset), query.offset
        copied(tmp_path / "out", [first])
    for slab in sorted((tmp_path / "in" / "log").glob("*.slab"))[:-3]:
        slab.unlink()
    left = sum(a >= int(min((tmp_path / "in" / "log").glob("*.slab")).stem) for a in addresses)
    if copy == "a stream":
        query = Query(tmp_path / "in", middle, SCHEMA, includeGaps="true", failOnDataLoss="false")
        query.batch()
        copied(tmp_path / "out", [query.tables(middle, query.offset)])
        assert gaps(tmp_path / "out" / "log") == [("missing", 180 - left)]
        return
    reader, schema = batch_reader(
        tmp_path / "in", includeGaps="true", failOnDataLoss="false",
        startingOffsets=json.dumps({"log": 0}),
    )  # fmt: skip  # a call
    copied(tmp_path / "out", run(reader, reader.partitions(), schema))
    assert gaps(tmp_path / "out" / "log") == [("missing", 200 - left)]
    assert aolog.verify(tmp_path / "out" / "log").records == left


def test_a_log_that_is_deleted_with_unread_records_is_a_gap_in_the_copy(tmp_path):
    write(tmp_path / "in" / "a", 10)
    write(tmp_path / "in" / "b", 10)
    query = Query(
        tmp_path / "in", schema=SCHEMA, includeGaps="true", failOnDataLoss="false", maxRecordsPerTrigger=8
    )  # fmt: skip  # a call
    before = query.offset
    query.batch()
    copied(tmp_path / "out", [query.tables(before, query.offset)])
    query.reader.latestOffset(json.loads(query.offset), query.limit)  # sees both
    shutil.rmtree(tmp_path / "in" / "b")
    before = query.offset
    query.all()
    copied(tmp_path / "out", [query.tables(before, query.offset)])
    assert gaps(tmp_path / "out" / "a") == []
    assert gaps(tmp_path / "out" / "b") == [("missing", 6)]
