"""What tasks of `aolog.spark.verify` find together is what `aolog.verify` finds."""

import json
import random

import pytest

import aolog
import aolog.spark
from aolog.errors import UsageError
from aolog.record import Gap
from aolog.spark.listing import list_logs
from aolog.spark.options import Options
from aolog.spark.planning import partitions, spans
from aolog.spark.verification import check
from tests.aolog.read.test_ranges import damage, make_log
from tests.spark.driving import cut_short


@pytest.mark.parametrize("seed", range(12))
def test_however_logs_are_cut_gaps_and_counts_are_those_of_the_log_s_own_verify(tmp_path, seed):
    rng = random.Random(seed)
    for name in "ab":
        make_log(tmp_path / name, rng, format="aolog" if seed % 4 else "queuefka")
        damage(tmp_path / name, rng)
    options = Options(paths=(str(tmp_path),))
    logs = list_logs(options)
    assert [log.name for log in logs] == ["a", "b"]
    for tasks in (1, 2, 7, 40):
        cut = partitions(spans(options, logs), 1 << 30, tasks)
        rows = [row for pieces in cut for piece in pieces for row in check(piece)]
        for log in logs:
            report = aolog.verify(log.path)
            mine = [row for row in rows if row[0] == log.name]
            gaps = [Gap(*gap) for row in mine if row[5] for gap in json.loads(row[5])]
            assert gaps == report.gaps
            assert log.end == report.end
            assert sum(row[2] for row in mine) == report.records
            assert sum(row[3] for row in mine) == report.frames


def test_a_log_that_was_cut_short_has_the_gap_that_its_own_verify_reports(tmp_path):
    lost = cut_short(tmp_path / "log")
    options = Options(paths=(str(tmp_path),))
    cut = partitions(spans(options, list_logs(options)), 1 << 30)
    rows = [row for pieces in cut for piece in pieces for row in check(piece)]
    assert [Gap(*gap) for row in rows if row[5] for gap in json.loads(row[5])] == [lost]
    assert aolog.verify(tmp_path / "log").gaps == [lost]
    assert sum(row[2] for row in rows) == 10


def test_sizes_that_cannot_be_are_refused_before_anything_is_asked_of_spark(tmp_path):
    for name in ("max_partition_bytes", "min_partitions"):
        with pytest.raises(UsageError, match=f"{name}=0"):
            aolog.spark.verify(object(), tmp_path, **{name: 0})


def test_any_timestamp_has_an_hour_and_a_record_without_one_has_none(tmp_path):
    hour, least, greatest = 3_600_000_000, -(1 << 63), (1 << 63) - 1
    times = [least, least + hour, -1, 0, hour, greatest]
    with aolog.Writer(tmp_path / "log") as log:
        for each in times:
            log.append(b"x", timestamp=each)
    options = Options(paths=(str(tmp_path),))
    (pieces,) = partitions(spans(options, list_logs(options)), 1 << 30)
    found = {row[1]: row[2] for piece in pieces for row in check(piece)}
    second = (least + hour) // hour * hour
    last = greatest // hour * hour
    assert found == {None: 1, second: 1, -hour: 1, 0: 1, hour: 1, last: 1}
