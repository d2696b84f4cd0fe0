"""A local log and its archive, loaded together: one table, in batches and streams, without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from aolog.errors import UsageError
from aolog.spark.executor_writer import writer_per_task
from aolog.spark.listing import list_logs
from aolog.spark.options import read_options
from tests.aolog.maintenance.archive.stores import BUCKET, environment, make_bucket, moto
from tests.spark.driving import offsets, table
from tests.spark.queries import Query, named

pytest.importorskip("obstore")

from aolog.maintenance.archive.archiver import Archiver
from aolog.storage.objects import system as object_system
from aolog.storage.objects.client import Client
from aolog.storage.objects.requests import Put

pytestmark = [
    pytest.mark.xdist_group("object stores"),
    pytest.mark.usefixtures("looks_at_once"),
]
_archives = iter(range(1000))


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with moto() as endpoint:
        make_bucket(endpoint)
        yield endpoint


@pytest.fixture
def archives(store, monkeypatch) -> str:
    """The URL of a folder of archives."""
    for name, value in environment(store).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_system, "REFRESH_S", 0.0)
    object_system.object_system.cache_clear()
    return f"s3a://{BUCKET}/{next(_archives)}"


def append(log: Path, count: int) -> list[int]:
    with aolog.Writer(log, slab_bytes=20 << 10, batch_bytes=0) as writer:
        return [writer.append(b"%d" % number + bytes(100)) for number in range(count)]


def ship(log: Path, archives: str) -> None:
    with Archiver(log, f"{archives}/{log.name}") as archiver:
        archiver.begin()
        archiver.round()


def prune(log: Path, count: int) -> None:
    for slab in sorted(log.glob("*.slab"))[:count]:
        slab.unlink()


def test_each_record_is_in_the_table_once_by_its_address(tmp_path, archives):
    root = tmp_path / "root"
    both, gone, here = root / "both", root / "gone", root / "here"
    wanted = {log.name: append(log, 300) for log in (both, gone, here)}
    ship(both, archives)
    ship(gone, archives)
    prune(both, 3)
    shutil.rmtree(gone)
    wanted["both"] += append(both, 10)
    found = table([root, archives], columns="offset,log", minPartitions=5)
    rows = sorted(zip(*found.to_pydict().values(), strict=True), key=lambda row: row[::-1])
    assert rows == [(at, name) for name in ("both", "gone", "here") for at in wanted[name]]
    alone = offsets([both, f"{archives}/both"], minPartitions=3)
    assert sorted(alone) == wanted["both"]


def test_addresses_and_times_of_the_archived_part_are_options(tmp_path, archives):
    log = tmp_path / "log"
    addresses = append(log, 400)
    ship(log, archives)
    prune(log, 3)
    begin = json.dumps({"log": addresses[7]})
    found = offsets([log, archives], startingOffsets=begin, maxRecordsPerPartition=50)
    assert found == addresses[7:]
    with aolog.Reader(log, archive=f"{archives}/log") as reader:
        middle = reader.read().timestamp // 1000
    assert offsets([log, archives], startingTimestamp=middle + 3_600_000) == []


def test_a_stream_goes_on_when_its_log_is_archived_pruned_and_gone(tmp_path, archives):
    root = tmp_path / "root"
    log = root / "log"
    addresses = append(log, 300)
    query = Query(root, maxRecordsPerTrigger=100)
    assert query.batch() == named(addresses[:100], "log")
    ship(log, archives)
    prune(log, 3)
    addresses += append(log, 50)
    query = Query([root, archives], checkpoint=query.offset, maxRecordsPerTrigger=100)
    query.all()
    assert query.rows == named(addresses[100:], "log")
    before = query.offset
    more = append(log, 20)
    ship(log, archives)
    assert query.batch() == named(more, "log")
    shutil.rmtree(log)
    (root / "another").mkdir()
    append(root / "another", 1)
    again = Query([root, archives], checkpoint=before)
    assert named(more, "log") == [row for row in again.batch() if row[1] == "log"]


def test_a_running_stream_reads_on_while_slabs_are_archived_and_pruned(tmp_path, archives):
    log = tmp_path / "log"
    wanted = append(log, 100)
    ship(log, archives)
    query = Query([log, archives], maxRecordsPerTrigger=60)
    for _ in range(3):
        wanted += append(log, 100)
        assert query.batch()
        ship(log, archives)
        prune(log, len(list(log.glob("*.slab"))) - 1)
    query.all()
    assert query.rows == named(wanted, "log")


def test_what_neither_has_is_a_loss(tmp_path, archives):
    log = tmp_path / "log"
    addresses = append(log, 400)
    ship(log, archives)
    addresses += append(log, 400)
    slabs = sorted(log.glob("*.slab"))
    lost = [a for a in addresses if int(slabs[-4].stem) <= a < int(slabs[-1].stem)]
    with Archiver(log, f"{archives}/log"):
        pass
    for slab in slabs[:-1]:
        slab.unlink()
    with pytest.raises(aolog.AologError, match="cannot be read"):
        offsets([log, archives])
    left = offsets([log, archives], failOnDataLoss=False, onCorruption="skip")
    assert not set(left) & set(lost)
    assert left == [a for a in addresses if a in set(left)]


def test_a_copy_is_no_archive_and_refused_beside_its_log(tmp_path, archives):
    log = tmp_path / "log"
    append(log, 100)
    client = Client(f"s3://{archives.removeprefix('s3a://')}/copy")
    for slab in log.glob("*.slab"):
        client.send(Put(slab.name, slab.read_bytes(), "", ""))
    with pytest.raises(UsageError, match="are one log, and every record would come twice"):
        list_logs(read_options({"paths": json.dumps([str(log), archives])}, stream=False))


def test_two_local_copies_beside_an_archive_are_refused(tmp_path, archives):
    log = tmp_path / "root" / "log"
    append(log, 100)
    ship(log, archives)
    for name in "copy", "other":
        shutil.copytree(log, tmp_path / "root" / name)
    shutil.rmtree(log)
    with pytest.raises(UsageError, match="are one log, and every record would come twice"):
        offsets([tmp_path / "root", archives])


def test_two_logs_of_one_name_are_refused(tmp_path, archives):
    log = tmp_path / "root" / "log"
    append(log, 100)
    ship(log, archives)
    shutil.rmtree(log)
    append(log, 100)
    with pytest.raises(UsageError, match="are two logs with the name 'log'"):
        offsets([tmp_path / "root", archives])


def test_a_tasks_log_is_archived_when_its_block_ends_without_an_error(tmp_path, archives):
    root = tmp_path / "logs"
    with writer_per_task(root, prefix="good", archive=archives) as log:
        log.append_many([b"x"] * 10)
    with writer_per_task(root, prefix="empty", archive=archives):
        pass
    with (
        pytest.raises(ZeroDivisionError),
        writer_per_task(root, prefix="bad", archive=archives) as log,
    ):
        log.append(b"y")
        raise ZeroDivisionError
    assert len(offsets([root, archives])) == 11
    shutil.rmtree(root)
    assert len(offsets([archives])) == 10
