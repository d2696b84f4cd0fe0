"""A job's slabs in an object store appear at one compare-and-swap, once, whatever is lost, killed or late."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import aolog
from aolog.errors import CorruptionError, NewerFormat, StorageFailed, UsageError
from aolog.format.archive import MANIFEST, Manifest, decode_manifest, encode_manifest
from aolog.format.root_manifest import Content, Transaction
from aolog.maintenance.archive import replacing
from aolog.maintenance.archive.archiver import Archiver
from aolog.maintenance.archive.compaction import compact
from aolog.maintenance.archive.restore import restore
from aolog.publish import objects
from aolog.publish.pending import PendingLog
from aolog.storage.objects.requests import Delete, Get, Head, List, Put, Stored, Unclear
from aolog.testing.objects import SimulatedStore
from tests.aolog.maintenance.archive.races import before_the_commit

URL, JOB, OTHER = "s3://bucket/log", "a" * 32, "b" * 32


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(replacing.time, "sleep", lambda _: None)


@pytest.fixture
def store() -> SimulatedStore:
    store = SimulatedStore()
    store.url = URL
    return store


class Tasks:
    """What tasks do, each in a directory of its own."""

    def __init__(self, where: Path, store: SimulatedStore) -> None:
        self.where, self.store, self.count = where, store, 0

    def write(self, *values: bytes, job: str = JOB, lost: int | None = 0) -> list[objects.SentSlab]:
        self.count += 1
        directory = str(self.where / f"task{self.count}")
        with PendingLog(directory, ".", job) as pending:
            if lost != 0:
                pending.append_arrow(pa.record_batch({"value": [b"before"]}))
                pending.add_loss(lost)
            pending.append_arrow(pa.record_batch({"value": list(values)}))
        return objects.send(URL, directory, job, pending.slabs, client=self.store)

    def commit(self, slabs, job: str = JOB, **options) -> objects.Published:
        return objects.commit(URL, job, slabs, client=self.store, **options)

    def restored(self) -> str:
        self.count += 1
        into = self.where / f"restored{self.count}"
        restore(URL, into, client=self.store)
        return str(into)

    def values(self) -> list[bytes]:
        """Of the log, as it is restored: complete and intact."""
        path = self.restored()
        assert aolog.verify(path).ok
        with aolog.Reader(path) as reader:
            found = [record.value for record in reader]
            assert reader.gaps == []
            assert reader.ordinal == len(found)
        return found

    @property
    def pending(self) -> list[str]:
        (answer,) = [self.store.objects.after(List(objects.PENDING))[1]]
        return list(answer.names)

    @property
    def manifest(self) -> Manifest:
        return decode_manifest(self.store.objects.get(MANIFEST).content, URL)


@pytest.fixture
def tasks(tmp_path, store) -> Tasks:
    return Tasks(tmp_path, store)


def transaction(version: int, digest: str = "d", records: int = 1) -> Transaction:
    return Transaction("query/q", version, Content(records, digest, None))


def test_the_slabs_of_a_job_are_a_log_in_their_order(tasks):
    first = tasks.write(b"a", b"b")
    second = tasks.write(b"c")
    assert tasks.store.objects.get(MANIFEST) is None, "nothing is visible before the commit"
    done = tasks.commit([*first, *second])
    assert (done.repeated, done.slabs, done.records) == (False, 2, 3)
    assert tasks.values() == [b"a", b"b", b"c"]
    tasks.commit(tasks.write(b"d"))
    assert tasks.values() == [b"a", b"b", b"c", b"d"]
    bases = [entry.base for entry in tasks.manifest.entries]
    assert bases[0] == 0
    assert bases == sorted(bases)
    assert [entry.ordinal for entry in tasks.manifest.entries] == [0, 2, 3]


def test_losses_become_gaps_with_their_number(tasks):
    tasks.commit(tasks.write(b"after", lost=7))
    with aolog.Reader(tasks.restored()) as reader:
        assert [record.value for record in reader] == [b"before", b"after"]
        (gap,) = reader.gaps
    assert (gap.reason, gap.records_lost) == ("missing", 7)


def test_a_transaction_is_committed_once_and_its_content_is_kept(tasks):
    tasks.commit(tasks.write(b"a"), transaction=transaction(5, "d5"))
    again = tasks.write(b"a")
    done = tasks.commit(again, transaction=transaction(5, "d5"))
    assert (done.repeated, done.last, done.content) == (True, 5, Content(1, "d5", None))
    assert tasks.commit(tasks.write(b"z"), transaction=transaction(4)).repeated
    assert not tasks.commit(tasks.write(b"b"), transaction=transaction(6)).repeated
    assert not tasks.commit([], transaction=transaction(7, records=0)).repeated
    assert tasks.commit([], transaction=transaction(7, records=0)).repeated
    assert tasks.values() == [b"a", b"b"]
    assert len(tasks.pending) == 2, "what was repeated is deleted"


def test_dead_and_speculative_attempts_leave_nothing_visible_and_are_swept(tasks, monkeypatch):
    tasks.write(b"dead")
    tasks.write(b"another job", job=OTHER)
    tasks.commit(tasks.write(b"a"))
    assert tasks.values() == [b"a"]
    assert len(tasks.pending) == 2, "the other job may still run"
    tasks.write(b"zombie")  # after its job's commit
    tasks.commit(tasks.write(b"b", job=OTHER), job=OTHER, leftover_seconds=-1)
    assert tasks.values() == [b"a", b"b"]
    assert len(tasks.pending) == 2


def test_a_sweep_that_fails_is_a_warning_because_all_is_committed(tasks, caplog):
    def fail(request):
        if isinstance(request, List):
            raise StorageFailed("no rights to list")

    slabs = tasks.write(b"a")
    tasks.store.before = fail
    assert tasks.commit(slabs).slabs == 1
    tasks.store.before = lambda _: None
    assert "committed; leftovers stay" in caplog.text
    assert tasks.values() == [b"a"]


def test_two_jobs_at_once_are_both_there(tasks):
    one, other = tasks.write(b"one"), tasks.write(b"other", job=OTHER)
    before_the_commit(tasks.store, partial(tasks.commit, other, job=OTHER))
    tasks.commit(one)
    assert tasks.values() == [b"other", b"one"]


@pytest.mark.parametrize("carried_out", [True, False])
def test_each_request_of_a_commit_may_lose_its_answer(tasks, carried_out):
    tasks.commit(tasks.write(b"0"), transaction=transaction(0))
    for number in range(1, 12):
        slabs = tasks.write(b"%d" % number)
        seen = 0

        def lose(request, number=number):
            nonlocal seen
            seen += 1
            return (carried_out, Unclear("lost")) if seen == number else None

        tasks.store.before = lose
        assert not tasks.commit(slabs, transaction=transaction(number)).repeated
        tasks.store.before = lambda _: None
    assert tasks.values() == [b"%d" % number for number in range(12)]


class Died(Exception):
    """The driver is killed."""


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_driver_may_be_killed_at_each_request_and_the_batch_is_there_once(tasks, carried_out):
    tasks.commit(tasks.write(b"0"), transaction=transaction(0))
    died = []
    for number in range(1, 9):
        seen = []

        def kill(request, number=number, seen=seen):
            seen.append(request)
            if len(seen) < number:
                return
            if carried_out:
                tasks.store.objects, _ = tasks.store.objects.after(request)
            died.append(type(request))
            raise Died

        slabs = tasks.write(b"%d" % number)
        tasks.store.before = kill
        with suppress(Died):
            tasks.commit(slabs, transaction=transaction(number))
        tasks.store.before = lambda _: None
        tasks.commit(tasks.write(b"%d" % number), transaction=transaction(number))
    assert died == [Get, Head, Put, Get, List]
    assert tasks.values() == [b"%d" % number for number in range(9)]


def test_a_commit_that_is_carried_out_after_the_jobs_abort_is_refused(tasks):
    """Otherwise the manifest would refer to objects that the abort deleted."""
    tasks.commit(tasks.write(b"a"))
    late = []

    def hold_back(request):
        if isinstance(request, Put) and request.name == MANIFEST:
            late.append(request)
            raise Died

    slabs = tasks.write(b"b")
    tasks.store.before = hold_back
    with pytest.raises(Died):
        tasks.commit(slabs)
    tasks.store.before = lambda _: None
    assert objects.abort(URL, JOB, slabs, client=tasks.store) == 1
    tasks.store.objects, answer = tasks.store.objects.after(late[0])
    assert not isinstance(answer, Stored)
    assert tasks.values() == [b"a"]
    assert objects.abort(URL, JOB, client=tasks.store) == 0


def test_an_abort_keeps_what_was_committed(tasks):
    slabs = tasks.write(b"a")
    tasks.commit(slabs)
    assert objects.abort(URL, JOB, slabs, client=tasks.store) == 0
    assert tasks.values() == [b"a"]


def test_a_slab_that_is_gone_publishes_nothing(tasks):
    one, other = tasks.write(b"a"), tasks.write(b"b")
    tasks.store.send(Delete(other[0].name))
    with pytest.raises(StorageFailed, match="a slab that a task wrote is gone"):
        tasks.commit([*one, *other])
    assert tasks.store.objects.get(MANIFEST) is None


def test_an_upload_whose_answer_was_lost_is_recognised(tasks):
    lost = []

    def lose(request):
        if isinstance(request, Put) and not lost:
            lost.append(request)
            return True, Unclear("lost")
        return None

    tasks.store.before = lose
    tasks.commit(tasks.write(b"a"))
    assert tasks.values() == [b"a"]


def test_a_log_that_was_compacted_is_the_same_and_its_commits_are_known(tasks):
    """A commit that is repeated after compaction, which deleted its objects, publishes nothing again."""
    first = tasks.write(b"a", b"b")
    tasks.commit(first)
    second = tasks.write(b"c")
    tasks.commit(second, transaction=transaction(1))
    now = {"grace_seconds": -1.0, "client": tasks.store}
    assert compact(URL, **now).packs == 1
    tasks.commit(tasks.write(b"d"))
    assert compact(URL, **now).deleted == 2
    assert len(tasks.pending) == 1
    assert tasks.commit(first).slabs == 1
    assert tasks.commit(second, transaction=transaction(1)).slabs == 1
    assert tasks.commit(tasks.write(b"again"), transaction=transaction(1)).repeated
    assert objects.abort(URL, JOB, first, client=tasks.store) == 0
    assert tasks.values() == [b"a", b"b", b"c", b"d"]


def test_the_archive_of_a_local_log_is_refused(tasks, tmp_path):
    with aolog.Writer(tmp_path / "log") as log:
        log.append(b"x")
    with Archiver(tmp_path / "log", URL, client=tasks.store) as archiver:
        archiver.begin()
        archiver.round()
    with pytest.raises(UsageError, match="the archive of a local log"):
        objects.check_store(URL, client=tasks.store)
    with pytest.raises(UsageError, match="the archive of a local log"):
        tasks.commit(tasks.write(b"a"))


def test_an_older_release_refuses_the_manifest_and_a_wrong_header_is_damage(tasks):
    tasks.commit(tasks.write(b"a"))
    data = tasks.store.objects.get(MANIFEST).content
    assert data.startswith(b'{"aolog_archive": 2,')
    with pytest.raises(NewerFormat):
        decode_manifest(data.replace(b'"aolog_archive": 2', b'"aolog_archive": 4'), URL)
    (entry,) = tasks.manifest.entries
    moved = entry._replace(base=entry.base + 8, end=entry.end + 8)
    with pytest.raises(CorruptionError, match="is another's"):
        decode_manifest(encode_manifest(tasks.manifest._replace(entries=(moved,))), URL)
