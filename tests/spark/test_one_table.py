"""A local log and its archive, loaded together: one table, in batches and streams, without Spark."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from aolog.errors import StorageFailed, UsageError
from aolog.format.slab import ADDRESS_END
from aolog.spark.executor_writer import writer_per_task
from aolog.spark.listing import list_logs
from aolog.spark.options import read_options
from tests.aolog.conftest import SOON_S
from tests.aolog.maintenance.archive.stores import BUCKET, environment, make_bucket, moto
from tests.spark.driving import offsets, table, tasks
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


def test_a_stream_of_an_archive_asks_for_its_manifest_and_for_nothing_above_it(
    tmp_path, archives, monkeypatch
):
    """Others may have what is above it, with rights of their own; and each request costs."""
    log, asked = tmp_path / "log", []
    wanted = append(log, 100)
    ship(log, archives)

    class Recording(Client):
        def ask(self, request):
            asked.append(f"{self.url}/{request.name}")
            return super().ask(request)

        def entries(self, prefix):
            asked.append(f"{self.url}/{prefix}*")
            return super().entries(prefix)

    monkeypatch.setattr(object_system, "Client", Recording)
    url = f"{archives}/log".replace("s3a:", "s3:")
    query = Query(url)
    query.all()
    assert query.rows == named(wanted, "log")
    assert {name for name in asked if not name.startswith(f"{url}/slabs/")} == {
        f"{url}/archive.json"
    }
    assert sum(name.startswith(f"{url}/slabs/") for name in asked) > 0


def test_a_task_asks_for_what_it_reads_first_in_all_its_logs_before_it_reads(
    tmp_path, archives, monkeypatch
):
    """Otherwise each log of a task costs round trips that follow one another."""
    for name in "ab":
        append(tmp_path / name, 300)
        ship(tmp_path / name, archives)
    partitions = tasks(archives, columns="value", minPartitions=1)
    assert len(partitions) == 1
    monkeypatch.setattr(object_system, "REFRESH_S", 60.0)
    object_system.object_system.cache_clear()
    with monkeypatch.context() as patched:
        alone = threading.Barrier(2, timeout=SOON_S)  # two requests at once
        ask = Client.ask

        def wait_for_another(self, request):
            if request.name == "archive.json" and self.url.endswith(("/a", "/b")):
                alone.wait()
            return ask(self, request)

        patched.setattr(Client, "ask", wait_for_another)
        found = tasks(archives, columns="value", minPartitions=1)
    assert sum(batch.num_rows for task in found for batch in task) == 600


def test_a_store_that_is_away_is_waited_for_once(archives, monkeypatch):
    """By the look ahead; a task that asked again would wait as long again."""
    asked = []

    class Away(Client):
        def ask(self, request):
            asked.append(request)
            time.sleep(0.2)
            raise StorageFailed("no clear answer from the store")

    monkeypatch.setattr(object_system, "Client", Away)
    system = object_system.object_system()
    url = f"s3://{BUCKET}/away"
    system.prefetch(url, 0, ADDRESS_END)
    with pytest.raises(StorageFailed):
        system.folder(url)
    assert len(asked) == 1


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


def test_a_task_does_not_begin_with_a_wrong_url_of_an_archive(tmp_path):
    root = tmp_path / "logs"
    for wrong in "/var/archive", "s3://", "s3://bucket/a?b", "file:///var/archive":
        with pytest.raises(UsageError), writer_per_task(root, archive=wrong):
            raise AssertionError("it began")
    assert not root.exists()


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
