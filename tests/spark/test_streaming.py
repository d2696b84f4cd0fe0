"""A stream, as its data source plans and reads it; queries of Spark are in test_spark.py."""

from __future__ import annotations

import json
import random
import time

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import aolog
from aolog.errors import CursorLocked, UsageError
from aolog.log import log_tree
from aolog.publish.publication import publish
from aolog.spark import listing, watching
from tests.aolog.conftest import in_thread
from tests.publish.job import JOB, task
from tests.spark.driving import source, write, write_damaged
from tests.spark.queries import Query, named
from tests.still import TIMES, hold

pytestmark = pytest.mark.usefixtures("looks_at_once")


def test_what_comes_is_read_once_and_logs_that_come_from_their_beginning(tmp_path):
    first = write(tmp_path / "b")
    query = Query(tmp_path)
    assert query.batch() == named(first, "b")
    assert query.batch() is None
    more, other = write(tmp_path / "b"), write(tmp_path / "a")
    assert query.batch() == named(other, "a") + named(more, "b")
    assert query.batch() is None
    assert list(json.loads(query.offset)) == ["a", "b"]


def test_logs_that_a_publication_brings_beside_a_look_come_all_or_none(tmp_path, monkeypatch):
    """Also below a directory that nobody knew for a root."""
    write(tmp_path / "else", 1)
    slabs = [slab for name in "abc" for slab in task(tmp_path / "root", name, "published")]

    def holds_slabs(path, names, storage, real=log_tree.holds_slabs):
        found = real(path, names, storage)
        if slabs and path.startswith(f"{tmp_path}/root/"):  # one of them is passed, without a slab
            publish(tmp_path / "root", JOB, slabs)
            slabs.clear()
        return found

    query = Query(tmp_path)
    monkeypatch.setattr(log_tree, "holds_slabs", holds_slabs)
    names = [name for _, name in query.batch()]
    assert not slabs
    assert names == ["else", "root/a", "root/b", "root/c"]


def test_marks_and_seals_make_no_batch(tmp_path):
    with aolog.Writer(tmp_path / "log", sync="never") as log:
        log.append(b"one")
        log.flush()
        query = Query(tmp_path / "log")
        assert len(query.batch()) == 1
        before = query.reader.reportLatestOffset()
        log.sync()
    assert query.reader.reportLatestOffset() != before, "the end did move"
    assert query.batch() is None


def test_a_batch_that_is_repeated_is_the_same(tmp_path):
    write(tmp_path / "log", 50)
    query = Query(tmp_path / "log", maxRecordsPerTrigger=20)
    start, rows = query.offset, query.batch()
    write(tmp_path / "log", 50)
    restarted = Query(tmp_path / "log", checkpoint=start)
    assert restarted.between(start, query.offset) == rows


@pytest.mark.parametrize(
    "options",
    [
        {"maxRecordsPerTrigger": 7},
        {"maxOffsetsPerTrigger": 7},
        {"maxBytesPerTrigger": 1000},
        {"maxRecordsPerTrigger": 9, "maxBytesPerTrigger": "1k"},
        {"maxBytesPerTrigger": 1},
    ],
    ids=str,
)
def test_limits_cut_at_records_and_lose_none(tmp_path, options):
    with aolog.Writer(tmp_path / "a", slab_bytes=15_000) as log:
        expected = []
        for size in (1, 30, 1, 11):
            expected += named(log.append_many([bytes(50)] * size).tolist(), "a")
    expected += named(write(tmp_path / "b", 20), "b")
    query = Query(tmp_path, **options)
    sizes = query.all()
    assert sorted(query.rows) == sorted(expected)
    assert min(sizes) >= 1
    if "maxBytesPerTrigger" not in options:
        assert max(sizes) <= 7
        assert len(sizes) <= len(expected) // 7 + 2
    elif options["maxBytesPerTrigger"] == 1:  # a record of each log
        assert sizes == [2] * 20 + [1] * 23
    else:
        assert 4 <= len(sizes) <= 30


def test_shares_of_a_limit_are_by_what_waits(tmp_path):
    write(tmp_path / "a", 100)
    write(tmp_path / "b", 900)
    rows = Query(tmp_path, maxRecordsPerTrigger=100).batch()
    assert [sum(name == each for _, name in rows) for each in "ab"] == [10, 90]


@pytest.mark.parametrize("limit", [{"maxRecordsPerTrigger": 100}, {"maxBytesPerTrigger": "9k"}])
def test_a_busy_log_starves_no_small_one(tmp_path, limit):
    """The busy one grows as fast as it is read."""
    small = write(tmp_path / "a", 5)
    write(tmp_path / "b", 5000)
    query = Query(tmp_path, **limit)
    for _ in range(5):
        rows = query.batch()
        assert sum(name == "a" for _, name in rows) == 1
        assert 50 < len(rows) <= 150
        write(tmp_path / "b", len(rows))
    assert [row for row in query.rows if row[1] == "a"] == named(small, "a")


def test_a_limit_below_the_number_of_logs_reads_a_record_of_each(tmp_path):
    for name in "abcde":
        write(tmp_path / name, 3)
    query = Query(tmp_path, maxRecordsPerTrigger=2)
    assert query.all() == [5, 5, 5]


def test_a_trigger_that_wants_all_gets_all(tmp_path):
    addresses = write(tmp_path / "log", 50)
    query = Query(tmp_path / "log", maxRecordsPerTrigger=7)
    assert query.limit == ReadMaxRows(7)
    assert query.batch(ReadAllAvailable()) == named(addresses, "log")
    assert Query(tmp_path / "log", maxBytesPerTrigger="2k").limit == ReadMaxBytes(2048)
    assert Query(tmp_path / "log").limit == ReadAllAvailable()
    assert Query(tmp_path / "log").batch(ReadMaxRows(3)) == named(addresses[:3], "log")


def test_a_limit_in_damage_goes_on_behind_it(tmp_path):
    addresses = write_damaged(tmp_path / "log")
    for option in ({"maxRecordsPerTrigger": 3}, {"maxBytesPerTrigger": 300}):
        query = Query(tmp_path / "log", onCorruption="skip", **option)
        query.all()
        assert query.rows == named(addresses[:5] + addresses[15:], "log")


def test_available_now_ends_at_what_was_there(tmp_path):
    addresses = write(tmp_path / "log", 20)
    query = Query(tmp_path, maxRecordsPerTrigger=6)
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.batch()) == 6
    write(tmp_path / "log", 20)
    write(tmp_path / "new", 20)
    query.all()
    assert query.rows == named(addresses, "log")


def test_starting_places_and_timestamps(tmp_path):
    addresses = write(tmp_path / "log", 5)
    assert Query(tmp_path / "log", startingOffsets="latest").batch() is None
    begin = json.dumps({"log": addresses[3]})
    assert Query(tmp_path / "log", startingOffsets=begin).batch() == named(addresses[3:], "log")
    assert Query(tmp_path / "log", startingTimestamp=int(time.time() * 1000) + 9999).batch() is None
    with pytest.raises(UsageError, match="option startingOffsets: no log 'gone'"):
        Query(tmp_path, startingOffsets='{"gone": 1}')
    with pytest.raises(
        UsageError, match=r"option cursor: '\.\./x' is not a valid name for a cursor"
    ):
        Query(tmp_path, cursor="../x")
    with pytest.raises(UsageError, match="option endingOffsets: needs a batch; this is a stream"):
        Query(tmp_path, endingOffsets="latest")


def test_an_append_that_is_on_its_way_is_left_to_the_next_batch(tmp_path):
    addresses = write(tmp_path / "log", 3, value=b"." * 5000, sync="never")
    slab = next((tmp_path / "log").glob("*.slab"))
    data = slab.read_bytes()
    slab.write_bytes(data[: addresses[2] + 2000])
    query = Query(tmp_path / "log")
    assert query.batch() == named(addresses[:2], "log")
    slab.write_bytes(data)
    assert query.batch() == named(addresses[2:], "log")


# --- the cursor -----------------------------------------------------------------------------


def test_a_cursor_stands_where_the_query_is_and_protects_what_it_has_not_read(tmp_path):
    retention = aolog.Retention(max_slabs=1)
    addresses = write(tmp_path / "log", 20, value=bytes(1000), slab_bytes=15_000)
    query = Query(tmp_path, cursor="spark", maxRecordsPerTrigger=10)
    (cursor,) = aolog.cursors(tmp_path / "log")
    assert (cursor.name, cursor.ordinal, cursor.protects) == ("spark", 0, True)
    write(tmp_path / "log", 20, value=bytes(1000), slab_bytes=15_000, retention=retention)
    assert len(list((tmp_path / "log").glob("*.slab"))) > 2, "nothing was pruned"
    query.batch()
    query.reader.commit(json.loads(query.offset))
    (cursor,) = aolog.cursors(tmp_path / "log")
    assert (cursor.address, cursor.ordinal) == (addresses[10], 10)
    query.all()
    query.reader.commit(json.loads(query.offset))
    write(tmp_path / "log", 20, value=bytes(1000), slab_bytes=15_000, retention=retention)
    assert aolog.cursors(tmp_path / "log")[0].lag.records == 20
    write(tmp_path / "new", 3)
    assert len(query.all()) == 3, "and none of it was pruned under the query"
    assert [c.ordinal for c in aolog.cursors(tmp_path / "new")] == [0], "since it was seen"
    query.reader.commit(json.loads(query.offset))
    assert aolog.cursors(tmp_path / "new")[0].lag.records == 0


def test_a_new_query_takes_its_cursor_to_where_it_begins(tmp_path):
    write(tmp_path / "log", 20)
    query = Query(tmp_path, cursor="spark")
    query.all()
    query.reader.commit(json.loads(query.offset))
    assert aolog.cursors(tmp_path / "log")[0].ordinal == 20
    again = Query(tmp_path, cursor="spark")  # without the checkpoint
    assert aolog.cursors(tmp_path / "log")[0].ordinal == 0, "retention keeps what it will read"
    assert len(again.batch()) == 20


def test_a_cursor_that_another_reader_holds_is_an_error(tmp_path):
    write(tmp_path / "log")
    with aolog.Reader(tmp_path / "log", cursor="spark") as reader:
        reader.commit()
        with pytest.raises(CursorLocked):
            Query(tmp_path, cursor="spark")


# --- looks ----------------------------------------------------------------------------------


def test_a_query_over_many_logs_opens_each_once_as_long_as_none_changes(tmp_path, monkeypatch):
    """Also logs in directories that no path names, and more of them than stay open."""
    for i in range(100):
        write(tmp_path / f"{i % 10}" / f"{i}", 1)
    time.sleep(0.06)  # after the tick of a clock in which the logs changed
    opened = []

    def look(found, log, real=listing.look):
        opened.append(found.name)
        return real(found, log)

    monkeypatch.setattr(listing, "look", look)
    monkeypatch.setattr(watching, "look", look)
    assert source(tmp_path).schema()
    assert len(opened) == 100
    query = Query(tmp_path)
    assert len(query.batch()) == 100
    assert query.batch() is None
    assert len(opened) == 300, "by each of two schemas, and by the query"


def test_a_look_at_what_did_not_change_opens_nothing(tmp_path, monkeypatch):
    for i in range(20):
        write(tmp_path / f"{i}")
    query = Query(tmp_path)
    query.batch()
    time.sleep(0.06)  # behind the tick of a clock in which the logs changed
    query.batch()
    opened = []
    monkeypatch.setattr(watching, "look", lambda found, log: opened.append(found.name))
    for _ in range(5):
        assert query.batch() is None
    assert opened == []


@pytest.mark.parametrize("changed_ns", TIMES.values(), ids=TIMES)
def test_the_newest_slab_is_read_where_the_time_of_a_directory_stands_still(
    tmp_path, monkeypatch, changed_ns
):
    hold(changed_ns, monkeypatch.setattr)
    first = write(tmp_path / "log")
    query = Query(tmp_path)
    assert query.batch() == named(first, "log")
    time.sleep(0.06)  # after the tick in which the slab changed
    assert query.batch() is None
    for _ in range(2):
        more = write(tmp_path / "log")
        assert query.batch() == named(more, "log")
        assert query.batch() is None


def test_beside_a_writer_each_record_is_read_once(tmp_path):
    """Slabs begin and are sealed, appends are met half way, a log comes late."""
    expected: list[tuple[int, str]] = []

    def append():
        rng = random.Random(3)
        logs = [aolog.Writer(tmp_path / "a", slab_bytes=30_000, sync="never")]
        for i in range(400):
            if i == 200:
                logs.append(aolog.Writer(tmp_path / "b", slab_bytes=1 << 20))
            log = rng.choice(logs)
            name = "a" if log is logs[0] else "b"
            values = [rng.randbytes(rng.randrange(3000))] * rng.randrange(1, 20)
            expected.extend(named(log.append_many(values).tolist(), name))
            if rng.random() < 0.5:
                log.flush()
        for log in logs:
            log.close()

    write(tmp_path / "a", 1)
    (tmp_path / "a").rename(tmp_path / "0")  # a root is never without a log
    query = Query(tmp_path, maxBytesPerTrigger="256k")
    writing = in_thread(append)
    batches = 0
    while writing.waits(0) or query.batch() is not None:
        batches += query.batch() is not None
    query.all()
    assert sorted(row for row in query.rows if row[1] != "0") == sorted(expected)
    assert batches > 0
    assert len(query.rows) == len(expected) + 1
