"""A batch, as its data source plans and reads it; Spark itself is in test_spark.py."""

import json
import random
import shutil
import signal

import pytest
from pyspark.cloudpickle import dumps

import aolog
import aolog.spark
from aolog.errors import GapFound, UsageError
from aolog.publish.publication import publish
from aolog.spark import listing, planning
from aolog.spark.options import read_options
from aolog.spark.reading import pieces_in
from tests.aolog.conftest import fill, flip
from tests.publish.job import JOB, task
from tests.spark.driving import batch_reader, offsets, run, source, struct, table, tasks, write


def test_a_row_is_what_a_record_is(tmp_path):
    path = tmp_path / "events"
    with aolog.Writer(path, topic="quakes") as log:
        log.append(b"one", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=-1)
        log.append(None, topic="other", timestamp=1_700_000_000_000_001)
        log.append_many([b"x", b""])
    with aolog.Reader(path) as reader:
        records = list(reader)
    rows = table(path, includeHeaders="true").to_pylist()
    assert list(rows[0]) == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
        "log",
    ]  # fmt: skip  # one thing
    assert [row["offset"] for row in rows] == [record.address for record in records]
    assert [row["value"] for row in rows] == [b"one", None, b"x", b""]
    assert [row["key"] for row in rows] == [b"k", None, None, None]
    assert [row["topic"] for row in rows] == ["quakes", "other", "quakes", "quakes"]
    assert [row["timestamp"].timestamp() for row in rows[:2]] == [-1e-6, 1_700_000_000.000001]
    assert rows[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert [row["headers"] for row in rows[1:]] == [[], [], []]
    assert {(row["log"], row["partition"], row["timestampType"]) for row in rows} == {
        ("events", 0, 0)
    }


def test_columns_come_in_the_order_that_is_asked_for(tmp_path):
    addresses = write(tmp_path / "log")
    read = table(tmp_path / "log", columns="log, offset,value")
    assert read.column_names == ["log", "offset", "value"]
    assert read["offset"].to_pylist() == addresses
    read = table(tmp_path / "log", struct("timestampType", "headers", "log"))
    assert read.column_names == ["timestampType", "headers", "log"]
    assert read.num_rows == len(addresses)


def test_a_program_that_reads_by_itself_keeps_its_signals(tmp_path):
    write(tmp_path / "log", 1)
    before = signal.getsignal(signal.SIGPIPE)
    assert tasks(tmp_path / "log")
    assert signal.getsignal(signal.SIGPIPE) is before


# --- tasks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"minPartitions": 7}, {"maxPartitionBytes": "50k"}])
def test_tasks_read_each_record_once_and_in_order(tmp_path, how):
    addresses = write(tmp_path / "log", 300, value=bytes(1000), slab_bytes=100_000)
    found = tasks(tmp_path / "log", columns="offset", **how)
    assert 6 <= len(found) <= 9
    assert [len(batches) > 0 for batches in found] == [True] * len(found)
    assert [o for batches in found for b in batches for o in b["offset"].to_pylist()] == addresses


def test_addresses_without_a_slab_below_a_new_epoch_are_no_tasks(tmp_path):
    write(tmp_path / "log", 300, value=bytes(1000), slab_bytes=100_000)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    write(tmp_path / "copy", 200, value=bytes(1000), slab_bytes=100_000)
    before, behind = (offsets(tmp_path / name) for name in ("log", "copy"))
    assert behind[300] - behind[299] > 1 << 32, "a copy's new epoch begins far above"
    assert behind[:300] == before
    for how in ({"minPartitions": 5}, {"maxPartitionBytes": "100k"}, {}):
        found = tasks(tmp_path / "copy", columns="offset", **how)
        assert [o for batches in found for b in batches for o in b["offset"].to_pylist()] == behind
        rows = [sum(batch.num_rows for batch in batches) for batches in found]
        assert len(rows) in (1, 5, 6)
        assert min(rows) * len(rows) > 250, "even shares"


@pytest.mark.parametrize("how", [{"minPartitions": 10**18}, {"maxPartitionBytes": 1}])
def test_no_option_cuts_a_log_into_tasks_without_end(tmp_path, how, monkeypatch, caplog):
    monkeypatch.setattr(planning, "TASKS_MAX", 20)
    addresses = write(tmp_path / "log", 300, value=bytes(1000))
    found = tasks(tmp_path / "log", columns="offset", **how)
    assert len(found) == 20
    assert [o for batches in found for b in batches for o in b["offset"].to_pylist()] == addresses
    (told,) = {record.getMessage() for record in caplog.records}
    assert told.startswith("options maxPartitionBytes, minPartitions: ")
    assert told.endswith(" bytes a task, not 1")


def test_small_logs_share_a_task(tmp_path):
    for i in range(30):
        write(tmp_path / f"{i:02}", 2)
    assert len(tasks(tmp_path)) == 1
    found = tasks(tmp_path, minPartitions=5)
    assert len(found) == 5
    names = [b["log"][0].as_py() for batches in found for b in batches]
    assert names == [f"{i:02}" for i in range(30)]


def test_what_each_task_is_sent_does_not_grow_with_the_logs(tmp_path):
    def sent():
        loaded = source(tmp_path)
        loaded.schema()
        return len(dumps((loaded.reader(struct("value")), loaded)))

    write(tmp_path / "0", 1)
    of_one = sent()
    for i in range(1, 50):
        write(tmp_path / f"{i}", 1)
    assert sent() == of_one


def test_where_there_are_no_records_there_is_one_task_without_batches(tmp_path):
    aolog.Writer(tmp_path / "log").close()
    assert tasks(tmp_path / "log", struct("value")) == [[]]
    write(tmp_path / "log")
    reader, schema = batch_reader(tmp_path / "log", struct("value"), startingOffsets="latest")
    (partition,) = reader.partitions()
    assert pieces_in(partition) == ()
    assert run(reader, [partition], schema) == [[]]


def test_batches_are_of_one_to_four_mib(tmp_path):
    with aolog.Writer(tmp_path / "log", max_record_bytes=64 << 20) as log:
        for _ in range(100):
            log.append_many([bytes(100)] * 600)
        log.append_many([bytes(1000)] * 20_000)
        for _ in range(100):
            log.append_many([b""] * 6000)
    for columns in ("value", "key,value,offset,timestamp,timestampType,partition,log,topic"):
        (batches,) = tasks(tmp_path / "log", columns=columns, maxPartitionBytes="1g")
        sizes = [batch.nbytes for batch in batches]
        assert sum(batch.num_rows for batch in batches) == 680_000
        small = [size for size in sizes if not 1 << 20 < size < 4 << 20]
        assert len(small) < 3, "where frames of another size begin, and the last"
    (batches,) = tasks(tmp_path / "log", columns="offset", maxPartitionBytes="1g")
    assert max(batch.nbytes for batch in batches) < 4 << 20
    assert len(batches) < 6


@pytest.mark.parametrize(
    "paths", [["root"], ["root/a", "root/b"], ["root/a", "root/b", "else"], [""]]
)
def test_a_publication_beside_the_listing_is_in_all_logs_or_in_none(tmp_path, monkeypatch, paths):
    """By whichever paths the logs are loaded."""
    for name in ("root/a", "root/b", "else"):
        write(tmp_path / name, 1)
    slabs = [slab for name in "ab" for slab in task(tmp_path / "root", name, "published")]

    def look(found, log, real=listing.look):
        if slabs and found.name.endswith("b"):  # the first log was looked at already
            publish(tmp_path / "root", JOB, slabs)
            slabs.clear()
            log.refresh(force=True)
        return real(found, log)

    monkeypatch.setattr(listing, "look", look)
    names = table([tmp_path / path for path in paths], columns="log")["log"].to_pylist()
    assert [sum(name.endswith(end) for name in names) for end in "ab"] == [2, 2]


# --- which logs and which records -----------------------------------------------------------


def test_logs_are_named_by_their_way_below_what_was_loaded(tmp_path):
    for name in ("h1/events", "h1/audit", "h2/events"):
        write(tmp_path / name, 1)

    def names(path, **options):
        return table(path, **options)["log"].to_pylist()

    assert names(tmp_path) == ["h1/audit", "h1/events", "h2/events"]
    assert names(tmp_path / "h1") == ["audit", "events"]
    assert names(tmp_path / "h1" / "events") == ["events"]
    assert names([tmp_path / "h1", tmp_path / "h2/events"]) == [
        "h1/audit",
        "h1/events",
        "h2/events",
    ]
    assert names([tmp_path / "h1/events", tmp_path / "h1/audit"]) == ["audit", "events"]
    assert names([tmp_path, tmp_path / "h1"]) == ["h1/audit", "h1/events", "h2/events"]
    for url in (f"file:{tmp_path}", f"file://{tmp_path}", f"FILE://localhost{tmp_path}"):
        assert names(url, subscribe="h2/events, h1/audit") == ["h1/audit", "h2/events"]
    assert names(tmp_path, subscribePattern=".*/events") == ["h1/events", "h2/events"]


def test_offsets_by_log(tmp_path):
    first, second = write(tmp_path / "a", 5), write(tmp_path / "b", 5)
    begin = json.dumps({"a": first[2], "b": {"0": -2}})
    end = json.dumps({"a": -1, "b": second[1]})
    read = table(tmp_path, startingOffsets=begin, endingOffsets=end, columns="offset,log")
    assert read.to_pylist() == [
        *({"offset": address, "log": "a"} for address in first[2:]),
        {"offset": second[0], "log": "b"},
    ]
    assert offsets(tmp_path, startingOffsets="latest") == []
    assert offsets(tmp_path, endingOffsets="earliest") == []
    assert offsets(tmp_path, startingOffsets='{"a": -1}') == second


def test_any_two_addresses_bound_the_records_between_them(tmp_path):
    rng = random.Random(5)
    with aolog.Writer(tmp_path / "log", slab_bytes=20_000) as log:
        for _ in range(20):
            log.append_many([bytes(rng.randrange(100))] * rng.randrange(1, 100))
    every = offsets(tmp_path / "log")
    for _ in range(20):
        since, until = sorted(rng.sample(every, 2))
        bounds = {
            "startingOffsets": json.dumps({"log": since}),
            "endingOffsets": json.dumps({"log": until}),
            "minPartitions": rng.randrange(1, 5),
        }
        assert offsets(tmp_path / "log", **bounds) == [a for a in every if since <= a < until]


def test_timestamps_in_milliseconds_bound_as_in_kafka(tmp_path):
    addresses = write(tmp_path / "log", 10)
    read = offsets(
        tmp_path / "log", startingTimestamp=1_700_000_000_002, endingTimestamp=1_700_000_000_005
    )
    assert read == addresses[2:5]


def test_logs_of_both_formats_are_read_together_where_only_one_has_timestamps(tmp_path):
    write(tmp_path / "new", 2)
    fill(tmp_path / "old", [b"old"], format="queuefka")
    rows = table(tmp_path).to_pylist()
    assert [(row["log"], row["value"]) for row in rows] == [("new", b"value")] * 2 + [
        ("old", b"old")
    ]
    assert [row["timestamp"] is None for row in rows] == [False, False, True]
    with pytest.raises(UsageError, match="option startingTimestamp: 'old' is of format 1"):
        table(tmp_path, startingTimestamp=0)


# --- losses ---------------------------------------------------------------------------------


def damaged(path):
    """A log with one damaged record, and the addresses of the others."""
    addresses = write(path, 30, value=bytes(100))
    flip(next(path.glob("*.slab")), addresses[10] + 60)
    return addresses[:10] + addresses[11:]


def test_damage_fails_a_load_unless_it_is_to_be_skipped(tmp_path, caplog):
    left = damaged(tmp_path / "log")
    with pytest.raises(GapFound, match="onCorruption") as raised:
        table(tmp_path / "log")
    assert raised.value.details["gap"].records_lost == 1
    assert offsets(tmp_path / "log", onCorruption="skip", minPartitions=4) == left
    assert "1 gap met (1 corrupt): 1 record lost" in caplog.text


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_slab_of_another_log_fails_a_load_unless_corruption_is_skipped(tmp_path, place):
    addresses = write(tmp_path / "log", 40, value=bytes(1000), slab_bytes=15_000)
    write(tmp_path / "other", 40, value=bytes(1000), slab_bytes=15_000)
    slabs = sorted((tmp_path / "log").glob("*.slab"))
    assert len(slabs) > 3
    shutil.copy(tmp_path / "other" / slabs[place].name, slabs[place])
    with pytest.raises(GapFound, match="onCorruption") as raised:
        table(tmp_path / "log")
    assert raised.value.details["gap"].reason == "foreign"
    begin = int(slabs[place].stem)
    end = int(slabs[place + 1].stem) if place >= 0 else 1 << 63
    left = [address for address in addresses if not begin <= address < end]
    assert offsets(tmp_path / "log", onCorruption="skip", minPartitions=4) == left


def test_a_torn_end_that_a_writer_set_aside_fails_nothing(tmp_path):
    addresses = write(tmp_path / "log", 3)
    slab = next((tmp_path / "log").glob("*.slab"))
    data = slab.read_bytes()
    slab.write_bytes(data[: addresses[2] + 10])
    write(tmp_path / "log", 2)
    assert [gap.reason for gap in aolog.verify(tmp_path / "log").gaps] == ["torn"]
    assert len(offsets(tmp_path / "log")) == 4


@pytest.mark.parametrize(("names", "walks"), [("a b c", 1), ("x/a y/b", 2)])
def test_a_load_walks_a_directory_of_logs_once_and_opens_each_log_once(
    tmp_path, monkeypatch, names, walks
):
    """Logs deeper than that take a second walk: a publication may have its manifest beside them."""
    for name in names.split():
        write(tmp_path / name, 1)
    walked, opened = [], []

    def walk(root, storage, real=listing.walk_logs):
        walked.append(root)
        return real(root, storage)

    def look(found, log, real=listing.look):
        opened.append(found.name)
        return real(found, log)

    monkeypatch.setattr(listing, "walk_logs", walk)
    monkeypatch.setattr(listing, "look", look)
    listed = listing.list_logs(read_options({"path": str(tmp_path)}, stream=False))
    assert [log.name for log in listed] == names.split()
    assert len(walked) == walks
    assert sorted(opened) == names.split()


def test_what_is_pruned_or_missing_fails_a_load_unless_losses_are_passed_over(tmp_path, caplog):
    addresses = write(tmp_path / "log", 40, value=bytes(1000), slab_bytes=15_000)
    slabs = sorted((tmp_path / "log").glob("*.slab"))
    slabs[0].unlink()
    first = json.dumps({"log": addresses[0]})
    with pytest.raises(UsageError, match=r"option startingOffsets: 'log': .*before the first slab"):
        table(tmp_path / "log", startingOffsets=first)
    left = [address for address in addresses if address >= int(slabs[1].stem)]
    assert offsets(tmp_path / "log", startingOffsets=first, failOnDataLoss="false") == left
    assert "before the first slab" in caplog.text
    whole = offsets(tmp_path / "log", startingOffsets='{"log": 0}', failOnDataLoss="false")
    assert whole == left
    assert f": {40 - len(left)} records lost" in caplog.text
    slabs[2].unlink()
    with pytest.raises(GapFound, match="failOnDataLoss"):
        table(tmp_path / "log")
    left = [a for a in left if not int(slabs[2].stem) <= a < int(slabs[3].stem)]
    assert offsets(tmp_path / "log", failOnDataLoss="false") == left


@pytest.mark.parametrize("slab_bytes", [None, 15_000])
def test_a_log_that_took_the_place_of_the_planned_one_is_not_read(tmp_path, slab_bytes):
    options = {} if slab_bytes is None else {"slab_bytes": slab_bytes}
    log = tmp_path / "log"
    write(log, 40, value=bytes(1000), **options)
    for fail in ("true", "false"):
        reader, schema = batch_reader(log, failOnDataLoss=fail, minPartitions=3)
        planned = reader.partitions()
        shutil.rmtree(log)
        write(log, 60, value=b"other" * 200, **options)
        if fail == "true":
            with pytest.raises(GapFound, match=r"cannot be read \(missing\)"):
                run(reader, planned, schema)
        else:
            assert not any(run(reader, planned, schema))


def test_slabs_pruned_between_plan_and_task_are_a_loss(tmp_path):
    addresses = write(tmp_path / "log", 40, value=bytes(1000), slab_bytes=15_000)
    for fail in ("true", "false"):
        reader, schema = batch_reader(
            tmp_path / "log", struct("offset"), failOnDataLoss=fail, minPartitions=9
        )
        planned = reader.partitions()
        slabs = sorted((tmp_path / "log").glob("*.slab"))
        slabs[0].unlink()
        left = [address for address in addresses if address >= int(slabs[1].stem)]
        if fail == "true":
            with pytest.raises(GapFound, match="failOnDataLoss"):
                run(reader, planned, schema)
        else:
            found = [b for batches in run(reader, planned, schema) for b in batches]
            assert [o for b in found for o in b["offset"].to_pylist()] == left


def test_records_pruned_between_plan_and_task_are_counted(tmp_path, caplog):
    """From the beginning of the log, and of a log that had been pruned before."""
    write(tmp_path / "log", 90, value=bytes(1000), slab_bytes=15_000)
    for begin in ("earliest", "pruned before"):
        slabs = sorted((tmp_path / "log").glob("*.slab"))
        reader, schema = batch_reader(tmp_path / "log", struct("offset"), failOnDataLoss="false")
        planned = reader.partitions()
        before = aolog.verify(tmp_path / "log").records
        for slab in slabs[:2]:
            slab.unlink()
        lost = before - aolog.verify(tmp_path / "log").records
        assert lost > 0
        run(reader, planned, schema)
        assert f"1 gap met (1 pruned): {lost} records lost" in caplog.text, begin
        caplog.clear()
