"""Which log a stream goes on in, when logs come and go, and when their names change."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import aolog
from aolog.errors import UsageError
from tests.spark.driving import offsets, write
from tests.spark.queries import Query, named

pytestmark = pytest.mark.usefixtures("looks_at_once")

ANOTHER = r"option failOnDataLoss: .*log is another log than the one that was read up to address"


@pytest.mark.parametrize("count", [5, 10, 30])
def test_another_log_in_the_place_of_one_is_told_behind_a_restart(tmp_path, count):
    """Its first records were once taken for read, without a word."""
    write(tmp_path / "log", 10)
    query = Query(tmp_path)
    query.batch()
    shutil.rmtree(tmp_path / "log")
    addresses = write(tmp_path / "log", count)
    with pytest.raises(UsageError, match=ANOTHER):
        Query(tmp_path, checkpoint=query.offset).batch()
    forgiving = Query(tmp_path, checkpoint=query.offset, failOnDataLoss="false")
    assert forgiving.batch() == named(addresses, "log")
    assert forgiving.batch() is None


def test_a_log_that_went_between_two_runs_is_told(tmp_path, caplog):
    write(tmp_path / "a")
    addresses = write(tmp_path / "b")
    query = Query(tmp_path, maxRecordsPerTrigger=12)
    query.batch()
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(
        UsageError,
        match=r"failOnDataLoss: log 'a' is not below .*: deleted, moved, or of another path",
    ):
        Query(tmp_path, checkpoint=query.offset).batch()
    forgiving = Query(tmp_path, checkpoint=query.offset, failOnDataLoss="false")
    forgiving.all()
    assert query.rows[-1][1] == "b"
    assert [row for row in query.rows + forgiving.rows if row[1] == "b"] == named(addresses, "b")
    assert caplog.text.count("log 'a' is not below") == 1
    assert Query(tmp_path, checkpoint=forgiving.offset).batch() is None, "it was told once"


def test_a_log_that_went_when_all_of_it_was_read_is_no_loss_and_another_begins_anew(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    query = Query(tmp_path)
    query.all()
    shutil.rmtree(tmp_path / "a")
    assert query.batch() == []
    assert list(json.loads(query.offset)) == ["b"], "it left the offset"
    assert query.batch() is None
    restarted = Query(tmp_path, checkpoint=query.offset)
    assert restarted.batch() is None
    addresses = write(tmp_path / "a", 4)
    assert restarted.batch() == named(addresses, "a")


@pytest.mark.parametrize("last", ["read", "unread", "reopened", "open"])
def test_a_finished_log_that_was_read_and_went_between_two_runs_is_no_loss(tmp_path, last, caplog):
    """Nothing was lost if its writer had closed it, and all of it was read."""
    write(tmp_path / "a")
    write(tmp_path / "b")
    query = Query(tmp_path, maxRecordsPerTrigger=15 if last == "unread" else 50)
    with aolog.Writer(tmp_path / "b") as writer:
        if last == "open":
            writer.append(b"more")
            writer.flush()
            query.batch()
    query.batch()
    if last == "reopened":
        write(tmp_path / "b", 2)
        query.batch(ReadMaxRows(1))
    shutil.rmtree(tmp_path / "b")
    restarted = Query(tmp_path, checkpoint=query.offset)
    if last != "read":
        with pytest.raises(UsageError, match="log 'b' is not below"):
            restarted.batch()
        return
    more = write(tmp_path / "a", 3)
    assert restarted.batch()[-3:] == named(more, "a")
    assert list(json.loads(restarted.offset)) == ["a"]
    assert "'b'; all their records were read" in caplog.text
    assert Query(tmp_path, checkpoint=restarted.offset).batch() is None


def test_a_batch_that_is_repeated_is_not_read_from_another_log(tmp_path):
    write(tmp_path / "log")
    query = Query(tmp_path)
    begin = query.offset
    query.batch()
    shutil.rmtree(tmp_path / "log")
    write(tmp_path / "log", 20)
    again = Query(tmp_path, checkpoint=begin)
    with pytest.raises(UsageError, match="another log than the batch's"):
        again.between(begin, query.offset)


def test_a_log_that_is_put_back_from_a_copy_is_read_on(tmp_path):
    write(tmp_path / "root" / "log", 10)
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    query = Query(tmp_path / "root")
    query.batch()
    shutil.rmtree(tmp_path / "root" / "log")
    shutil.copytree(tmp_path / "copy" / "log", tmp_path / "root" / "log")
    more = write(tmp_path / "root" / "log", 5)
    assert query.batch() == named(more, "log")


def test_a_root_that_is_away_for_a_moment_loses_no_positions(tmp_path):
    """A mount, for example. What was read is not read again."""
    write(tmp_path / "root" / "a")
    write(tmp_path / "root" / "b")
    query = Query(tmp_path / "root")
    query.all()
    (tmp_path / "root").rename(tmp_path / "away")
    query.all()
    (tmp_path / "away").rename(tmp_path / "root")
    more = write(tmp_path / "root" / "a", 3)
    query.all()
    assert query.rows[20:] == named(more, "a")


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{}, {"maxRecordsPerTrigger": 4}], ids=str)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("t/root/h1", ["t/root"]),
        ("t", ["t/root"]),
        ("t/root/h1", ["t/root/h1", "t/root/h2"]),
        ("t/root/h1", ["t/root/h1", "else"]),
        ("t/root/h1", ["moved/h1", "else"]),
        ("t/root", ["moved"]),
        ("t/root/h1", ["t/root/h1/b", "t/root/h1/a"]),
    ],
    ids=str,
)
def test_a_log_whose_name_changes_with_what_is_loaded_is_read_on(tmp_path, before, after, limit):
    """Names begin below what is loaded; a log is recognised by its UUID."""
    for name in ("t/root/h1/a", "t/root/h1/b", "t/root/h2/c", "else/d"):
        write(tmp_path / name)
    query = Query(tmp_path / before, maxRecordsPerTrigger=15, cursor="spark")
    first = query.offset
    query.batch()
    if "moved" in after[0]:
        (tmp_path / "t/root").rename(tmp_path / "moved")
    restarted = Query(
        [tmp_path / path for path in after], checkpoint=query.offset, cursor="spark", **limit
    )
    repeated = restarted.between(first, query.offset)
    assert sorted(last_parts(repeated)) == sorted(last_parts(query.rows)), "also a repeated batch"
    restarted.all()
    restarted.reader.commit(json.loads(restarted.offset))
    read = last_parts(query.rows + restarted.rows)
    names = {name for _, name in read}
    assert {"a", "b"} <= names
    for path in tmp_path.glob("**/[abcd]"):
        if path.name in names:
            assert sorted(row for row in read if row[1] == path.name) == named(
                offsets(path), path.name
            )
            (cursor,) = aolog.cursors(path)
            assert cursor.lag.records == 0
    assert Query(tmp_path / "else", checkpoint=None).batch(), "the others are as they were"


def last_parts(rows):
    return [(address, name.rsplit("/", 1)[-1]) for address, name in rows]


def test_copies_of_a_log_keep_their_positions_when_their_names_change(tmp_path):
    """They have one UUID; the longest common end of the names decides."""
    write(tmp_path / "r" / "h1" / "log")
    query = Query(tmp_path / "r")
    query.all()
    shutil.copytree(tmp_path / "r" / "h1", tmp_path / "r" / "h2")
    write(tmp_path / "r" / "h1" / "log", 3)
    query.all()
    assert len(query.rows) == 23
    more = write(tmp_path / "r" / "h2" / "log", 5)
    restarted = Query(tmp_path, checkpoint=query.offset)
    assert restarted.batch() == named(more, "r/h2/log")


@pytest.mark.parametrize("narrower", [{"subscribe": "a"}, {"subscribePattern": "a.*"}], ids=str)
def test_a_log_that_is_no_longer_selected_is_named_as_that_and_keeps_its_position(
    tmp_path, narrower, caplog
):
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    query = Query(tmp_path, maxRecordsPerTrigger=10)
    read = query.batch()
    narrowed = Query(tmp_path, checkpoint=query.offset, **narrower)
    narrowed.all()
    narrowed.all()
    (option,) = narrower
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 1
    assert told[0].startswith(f"log 'b' is no longer selected by {option}")
    assert "deleted" not in told[0]
    widened = Query(tmp_path, checkpoint=narrowed.offset)
    widened.all()
    assert sorted(read + narrowed.rows + widened.rows) == sorted(
        named(first, "a") + named(second, "b")
    )
    shutil.rmtree(tmp_path / "b")
    narrowed = Query(tmp_path, checkpoint=query.offset, **narrower)
    narrowed.all()
    assert list(json.loads(narrowed.offset)) == ["a"], "deleted, and nobody reads it"


def test_a_batch_with_records_of_a_log_that_is_no_longer_selected_is_not_repeated_without_them(
    tmp_path,
):
    write(tmp_path / "a")
    write(tmp_path / "b")
    query = Query(tmp_path)
    begin = query.offset
    query.batch()
    narrowed = Query(tmp_path, checkpoint=begin, subscribe="a")
    with pytest.raises(UsageError, match=r"log 'b', which is no longer selected by subscribe"):
        narrowed.between(begin, query.offset)


def test_another_root_is_not_taken_for_deleted_logs(tmp_path):
    for name in ("one/a", "one/b", "two/a", "two/c"):
        write(tmp_path / name)
    query = Query(tmp_path / "one", maxRecordsPerTrigger=5)
    query.batch()
    with pytest.raises(UsageError) as raised:
        Query(tmp_path / "two", checkpoint=query.offset).batch()
    says = str(raised.value)
    assert "no log of the checkpoint ('a', 'b') is below" in says
    assert str(tmp_path / "two") in says
    assert "deleted" not in says
    assert "load the paths of before" in says
    query.all()
    with pytest.raises(UsageError, match="no log of the checkpoint"):  # though all was read
        Query(tmp_path / "two", checkpoint=query.offset).batch()


def test_many_logs_that_are_gone_are_one_line(tmp_path, caplog):
    for i in range(20):
        write(tmp_path / f"{i:02}", 2)
    query = Query(tmp_path, maxRecordsPerTrigger=20)
    query.batch()
    for i in range(1, 20):
        shutil.rmtree(tmp_path / f"{i:02}")
    restarted = Query(tmp_path, checkpoint=query.offset, failOnDataLoss="false")
    restarted.all()
    (told,) = [r.getMessage() for r in caplog.records]
    assert "logs '01', '02', '03', '04', '05' and 14 more are not below" in told
    assert len(restarted.offset) < 100


@pytest.mark.parametrize("fields", ["an address", "uuid", "uuid and ended"])
def test_checkpoints_of_before_are_read_on(tmp_path, fields):
    write(tmp_path / "a")
    query = Query(tmp_path, maxRecordsPerTrigger=5)
    rows = query.batch()
    old = {}
    for name, (address, uuid, *_) in json.loads(query.offset).items():
        old[name] = {
            "an address": address,
            "uuid": [address, uuid],
            "uuid and ended": [address, uuid, False],
        }[fields]
    if fields == "uuid and ended":
        old["gone"] = [8192, "00" * 16, True]
    restarted = Query(tmp_path, checkpoint=json.dumps(old))
    restarted.all()
    assert rows + restarted.rows == named(offsets(tmp_path / "a"), "a")
    assert list(json.loads(restarted.offset)) == ["a"]
