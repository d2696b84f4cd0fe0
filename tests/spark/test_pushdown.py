"""Filters that choose what is read: the rows are those that Spark would keep, and the rest is not read."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.functions import col

import aolog
import aolog.spark
from aolog.log import slab_file
from aolog.spark.datasource import AologDataSource, PushingReader, arrow_schema
from aolog.spark.schema import DEFAULT_COLUMNS
from tests.aolog.conftest import flip, slab_files
from tests.spark.driving import Pushed, pushing, run, struct, write

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SPARED = {"onCorruption": "skip", "failOnDataLoss": "false"}
NAMES = ("a", "b/a", "old", "z")
TOPICS = (None, "quakes", "quake", "ü", "")


def rows(reader: PushingReader, filters=(), columns=DEFAULT_COLUMNS) -> tuple[list[dict], list]:
    """(the rows that the source returns, the filters that it leaves to Spark)."""
    left = list(reader.pushFilters(list(filters)))
    schema = struct(*columns)
    found = [b for task in run(reader, loads(dumps(reader.partitions())), schema) for b in task]
    return pa.Table.from_batches(found, arrow_schema(schema)).to_pylist(), left


def is_true(given, row: dict) -> bool | None:
    """A filter as SQL has it: None is null."""
    if isinstance(given, Not):
        found = is_true(given.child, row)
        return None if found is None else not found
    has = row[given.attribute[0]]
    if isinstance(given, IsNull | IsNotNull):
        return (has is None) == isinstance(given, IsNull)
    if isinstance(given, EqualNullSafe):
        return has == given.value
    if has is None:
        return None
    if isinstance(given, In):
        return has in given.value
    want = given.value
    return {
        EqualTo: lambda: has == want, LessThan: lambda: has < want, GreaterThan: lambda: has > want,
        LessThanOrEqual: lambda: has <= want, GreaterThanOrEqual: lambda: has >= want,
        StringStartsWith: lambda: has.startswith(want), StringEndsWith: lambda: has.endswith(want),
        StringContains: lambda: want in has,
    }[type(given)]()  # fmt: skip  # a table


# --- any logs, any filters -------------------------------------------------------------------


def make_logs(root, chance: random.Random) -> None:
    """Several slabs and topics, times out of order, and what may happen to a log."""
    for name in NAMES[: chance.randint(2, 4)]:
        of_1 = name == "old"
        kind = {"format": "queuefka"} if of_1 else {"topic": chance.choice(["quakes", None])}
        bytes_ = chance.choice([0, 2000])
        with aolog.Writer(root / name, slab_bytes=16_384, batch_bytes=bytes_, **kind) as log:
            for i in range(chance.randint(1, 150)):
                value = bytes(chance.randint(1, 900))
                if of_1:
                    log.append(value)
                    continue
                if chance.random() < 0.1:  # frames without a column of timestamps
                    log.append_many([value] * chance.randint(1, 3))
                    continue
                stamp = (1000 * i + chance.choice([0, 0, 0, chance.randint(-40_000, 9_000)])) * 1000
                log.append(value, key=chance.choice([b"k", None]), timestamp=stamp,
                           topic=chance.choice(TOPICS) or None)  # fmt: skip  # one call
        files = [file for file in slab_files(root / name) if file.stat().st_size > 4]
        for _ in range(chance.choice([0, 0, 1, 3])):
            file = chance.choice(files)
            flip(file, chance.randrange(max(1, file.stat().st_size - 4)), 4)
        if len(files) > 2 and chance.random() < 0.4:
            chance.choice(files[:-1]).unlink()  # the first: pruned; another: a gap


def make_filter(chance: random.Random, offsets: list[int], times: list[datetime]):
    column = chance.choice(["log", "topic", "offset", "offset", "timestamp", "timestamp", "key"])
    texts = [*NAMES, *(topic for topic in TOPICS if topic is not None), "", "nowhere"]

    def value():
        if column in {"log", "topic"}:
            return chance.choice(texts)
        if column == "offset":
            return chance.choice([*offsets, 0, -5, 1 << 62]) + chance.choice([0, 0, 1, -1])
        if column == "timestamp":
            by_chance = EPOCH + timedelta(milliseconds=chance.randint(-50_000, 160_000))
            return chance.choice([by_chance, *times[::5], min(times), max(times)])
        return b"k"

    of_order = [LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
    of_text = [StringStartsWith, StringEndsWith, StringContains]
    more = of_text if column in {"log", "topic"} else [] if column == "key" else of_order * 2
    kind = chance.choice([EqualTo, EqualNullSafe, In, IsNull, IsNotNull, *more])
    at = (column,)
    if kind in {IsNull, IsNotNull}:
        made = kind(at)
    elif kind is In:
        made = In(at, tuple(value() for _ in range(chance.randint(1, 4))))
    else:
        made = kind(at, value())
    return Not(made) if chance.random() < 0.2 else made


@pytest.mark.parametrize("seed", range(25))
def test_the_rows_are_those_of_a_read_without_push_down(tmp_path, seed):
    """Also over damage, holes, pruning and logs of format 1, and however the logs are cut."""
    chance = random.Random(seed)
    make_logs(tmp_path, chance)
    cut = {"maxPartitionBytes": chance.choice(["8k", "1m"])}
    whole, _ = rows(pushing(tmp_path, **SPARED))
    offsets = [row["offset"] for row in whole] or [0]
    times = [row["timestamp"] for row in whole if row["timestamp"] is not None] or [EPOCH]
    for _ in range(20):
        filters = [make_filter(chance, offsets, times) for _ in range(chance.choice([1, 1, 2, 3]))]
        got, left = rows(pushing(tmp_path, **SPARED, **cut), filters)
        assert all(each.attribute == ("key",) for each in left if not isinstance(each, Not))
        kept = [row for row in got if all(is_true(each, row) for each in left)]
        expected = [row for row in whole if all(is_true(each, row) for each in filters)]
        assert kept == expected, (filters, left)


def test_a_filter_that_a_log_cannot_look_up_is_left_to_spark(tmp_path):
    write(tmp_path / "log")
    kept = [
        EqualTo(("key",), b"k"),
        EqualTo(("headers", "key"), "h"),
        GreaterThan(("topic",), "a"),
        EqualTo(("offset",), 1.5),
        EqualTo(("timestamp",), datetime(2020, 1, 1)),  # noqa: DTZ001 -- what Spark may pass
        In(("log",), ("a", None)),
        EqualTo(("partition",), 0),
    ]
    _, left = rows(pushing(tmp_path / "log"), kept)
    assert left == kept
    taken = EqualTo(("log",), "log")
    assert rows(pushing(tmp_path / "log", ("offset",)), [taken], ("offset",))[1] == [taken]


# --- slabs and logs that a filter excludes ---------------------------------------------------


@pytest.fixture
def spoilt(tmp_path):
    """A log whose slabs are all damaged but one, and the values and times of that one."""
    path = tmp_path / "root" / "log"
    write(path, 60, value=bytes(900), slab_bytes=16_384)
    write(tmp_path / "root" / "other", 5)
    with aolog.Reader(path) as reader:
        records = list(reader)
    files = slab_files(path)
    for file in [*files[:1], *files[2:]]:
        flip(file, 8192 + 300, 4)
    flip(slab_files(tmp_path / "root" / "other")[0], 8192 + 60, 4)
    begin, end = (int(file.stem) for file in files[1:3])
    return path.parent, [r for r in records if begin <= r.address < end]


def moment(record) -> datetime:
    return EPOCH + timedelta(microseconds=record.timestamp)


def test_slabs_logs_and_addresses_that_a_filter_excludes_are_not_read(spoilt):
    """Damage fails a load: of these no excluded record was read."""
    root, records = spoilt
    with pytest.raises(aolog.AologError, match="cannot be read"):
        rows(pushing(root))
    first, last = records[0], records[-1]
    by_time = [GreaterThanOrEqual(("timestamp",), moment(first)),
               LessThanOrEqual(("timestamp",), moment(last))]  # fmt: skip  # a pair
    by_place = [GreaterThanOrEqual(("offset",), first.address), LessThan(("offset",), last.address)]
    log = EqualTo(("log",), "log")
    offsets = [record.address for record in records]
    assert [row["offset"] for row in rows(pushing(root), [log, *by_time])[0]] == offsets
    assert [row["offset"] for row in rows(pushing(root), [log, *by_place])[0]] == offsets[:-1]


def test_a_late_begin_opens_few_slabs(tmp_path, monkeypatch):
    addresses = write(tmp_path / "log", 300, value=bytes(900), slab_bytes=16_384)
    reader = pushing(tmp_path / "log")
    opened = []
    real = slab_file.Slab.__init__
    monkeypatch.setattr(
        slab_file.Slab, "__init__", lambda *a, **k: (opened.append(1), real(*a, **k))[1]
    )
    at = EPOCH + timedelta(microseconds=1_700_000_000_000_000 + 299 * 1000)
    found, _ = rows(reader, [GreaterThanOrEqual(("timestamp",), at)])
    assert [row["offset"] for row in found] == addresses[-1:]
    assert len(opened) < len(slab_files(tmp_path / "log")) / 2


# --- in Spark --------------------------------------------------------------------------------


@pytest.fixture
def pushes(spark):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def shown(frame) -> str:
    return frame._jdf.queryExecution().explainString(
        frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    )


def test_spark_shows_the_filters_that_it_pushed(tmp_path, pushes):
    write(tmp_path / "a")
    write(tmp_path / "b")
    pushes.dataSource.register(Pushed)
    frame = pushes.read.format("pushed").load(str(tmp_path))
    kept = frame.where("log = 'a' AND timestamp >= '2023-11-14T22:13:20.003Z' AND value > ''")
    plan = shown(kept)
    assert "EqualTo(log,a)" in plan.split("PushedFilters")[1]
    assert "GreaterThanOrEqual(timestamp,2023-11-14 22:13:20.003" in plan
    assert "value" not in plan.split("PushedFilters")[1].split("\n")[0]
    assert kept.count() == 7


def test_queries_that_share_a_load_do_not_share_their_filters(tmp_path, pushes, load):
    """Spark 4.1 to 4.3 gives all queries of a load the plan of the last filter that was pushed."""
    write(tmp_path / "log")
    frame = load(tmp_path)
    assert AologDataSource({"path": str(tmp_path)}).reader(frame.schema).partitions()
    (least,) = frame.selectExpr("min(offset)").first()
    low, high = frame.where(col("offset") == least), frame.where(col("offset") > least)
    assert low.union(high).count() == 10
    assert (low.count(), high.count(), frame.count()) == (1, 9, 10)
    if hasattr(datasource.DataSourceReader, "pushLimit"):
        assert "PushedFilters: [IsNotNull(offset)" in shown(low)


@pytest.mark.parametrize(
    ("where", "pushed"),
    [
        ("log = 'a'", "EqualTo(log,a)"),
        ("log <> 'a' AND value IS NOT NULL", "Not(EqualTo(log,a))"),
        ("offset BETWEEN 8200 AND 8400", "GreaterThanOrEqual(offset,8200)"),
        ("timestamp >= TIMESTAMP '2023-11-14 22:13:20.004'", "(timestamp,1700000000004000)"),
        ("topic IN ('t', 'u', 'v') AND log LIKE 'a%'", "In(topic,('t', 'u', 'v'))"),
        ("log = 'a' OR offset < 8300", "PushedFilters: []"),
        ("octet_length(value) > 3 AND offset > 8200 AND log IS NOT NULL", "(offset,8200)"),
        ("1 = 1", "PushedFilters: []"),
        ("log IS NULL OR 1 = 0", "PushedFilters: [IsNull(log)]"),
    ],
)
def test_a_scan_s_filter_is_spark_s_and_chooses_what_is_read(tmp_path, spark, load, where, pushed):
    write(tmp_path / "a", topic="t")
    write(tmp_path / "b")
    scanned = aolog.spark.scan(spark, tmp_path, where=where, columns="value,offset")
    assert scanned.columns == ["value", "offset"]
    assert scanned.orderBy("offset").collect() == (
        load(tmp_path).where(where).select("value", "offset").orderBy("offset").collect()
    )
    assert pushed in shown(scanned)


def test_a_scan_s_filter_reads_no_excluded_slab(spark, spoilt):
    root, records = spoilt
    first, last = moment(records[0]), moment(records[-1])
    within = (col("log") == "log") & col("timestamp").between(first, last)
    scanned = aolog.spark.scan(spark, root, where=within, columns="offset")
    assert sorted(row.offset for row in scanned.collect()) == [r.address for r in records]
