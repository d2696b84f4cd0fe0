"""An archive and the log restored from it, against a simulated store: killed, cut off and refused."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

import aolog
from aolog.errors import CorruptionError, StorageFailed, UsageError
from aolog.format.archive import MANIFEST, Manifest, decode_manifest
from aolog.log.retention import Retention, prune
from aolog.maintenance.archive import archiver as archiver_module
from aolog.maintenance.archive.archiver import CURSOR, Archiver, Keep, Stopped
from aolog.maintenance.archive.hold import hold
from aolog.maintenance.archive.restore import restore
from aolog.storage.objects.requests import Delete, Get, Head, Put, Refused, Unclear
from aolog.storage.storage import Storage
from aolog.testing.objects import Objects, SimulatedStore
from tests.aolog.maintenance.archive.races import before_the_commit

URL = "s3://bucket/log"
SLAB = 16 << 10


class Died(Exception):
    """The process is killed."""


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(archiver_module.time, "sleep", lambda _: None)


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore()


def grown(path: object, count: int, **options) -> list[bytes]:
    """Appends to a log, and closes it."""
    values = [b"%d " % number + bytes(100) for number in range(count)]
    with aolog.Writer(str(path), slab_bytes=SLAB, **options) as log:
        for value in values:
            log.append(value)
            log.flush()
    return values


def archived(path: object, store: SimulatedStore, **options) -> archiver_module.Archived:
    with Archiver(str(path), URL, client=store, **options) as archiver:
        archiver.begin()
        return archiver.round()


def manifest_of(store: SimulatedStore) -> Manifest:
    return decode_manifest(store.objects.get(MANIFEST).content, URL)


def records(path: object) -> list[aolog.Record]:
    with aolog.Reader(str(path)) as reader:
        got = list(reader)
        assert reader.gaps == []
    return got


def test_a_log_is_archived_once_and_restored_as_it_was(tmp_path, log_path, store):
    grown(log_path, 500)
    done = archived(log_path, store)
    assert done.behind_bytes == 0
    assert done.slabs == done.uploaded == len(list(Path(log_path).glob("*.slab"))) > 3
    restored = restore(URL, tmp_path / "back", client=store)
    assert restored.slabs == done.slabs
    assert records(tmp_path / "back") == records(log_path)
    assert aolog.verify(str(tmp_path / "back")).ok
    again = archived(log_path, store)
    assert again.uploaded == 0, "what was uploaded is never uploaded again"


def test_a_manifest_tells_ordinals_records_and_times_of_the_seals(log_path, store):
    grown(log_path, 500)
    archived(log_path, store)
    got, at = records(log_path), 0
    for entry in manifest_of(store).entries:
        mine = [r for r in got if entry.base <= r.address < entry.end]
        assert (entry.ordinal, entry.records) == (at, len(mine))
        assert entry.least_us == min(r.timestamp for r in mine)
        assert entry.greatest_us == max(r.timestamp for r in mine)
        at += len(mine)


def test_what_is_durable_of_a_slab_that_grows_is_archived_and_replaced_later(log_path, store):
    with (
        aolog.Writer(log_path, flush_seconds=None) as log,
        Archiver(log_path, URL, client=store) as archiver,
    ):
        archiver.begin()
        log.append(b"a")
        log.flush()
        assert archiver.round().slabs == 0, "it is not durable"
        log.sync()
        log.append(b"b")
        log.flush()
        first = archiver.round()
        (entry,) = manifest_of(store).entries
        assert (first.slabs, entry.final) == (1, False)
        log.sync()
        log.append(b"c")
        log.flush()
        assert archiver.round().end > first.end
        assert store.objects.get(entry.object_name) is None, "the shorter one is deleted"
    final = archived(log_path, store)
    assert final.behind_bytes == 0
    assert [e.final for e in manifest_of(store).entries] == [True]


def test_a_beginning_waits_for_its_age_and_a_full_slab_does_not(log_path, store):
    with (
        aolog.Writer(log_path, slab_bytes=SLAB, flush_seconds=None) as log,
        Archiver(log_path, URL, client=store, ship_seconds=3600) as archiver,
    ):
        archiver.begin()
        log.append(b"x")
        log.sync()
        log.append(b"y")
        log.flush()
        assert archiver.round(now=False).slabs == 0
        log.append(bytes(2 * SLAB))
        log.flush()
        log.append(b"z")
        log.flush()
        done = archiver.round(now=False)
        assert done.slabs >= 1
        assert all(entry.final for entry in manifest_of(store).entries)
        quiet = len(store.log)
        archiver.round(now=False)
        assert len(store.log) == quiet, "a round without news asks for nothing"


def test_retention_waits_for_the_archive(log_path, store):
    grown(log_path, 500)
    with Archiver(log_path, URL, client=store) as archiver:
        archiver.begin()
        prune(log_path, Storage(), Retention(max_slabs=1))
        assert records(log_path)[0].address == 8192
        archiver.round()
    prune(log_path, Storage(), Retention(max_slabs=1))
    assert len(list(Path(log_path).glob("*.slab"))) == 1
    grown(log_path, 300)
    assert archived(log_path, store).behind_bytes == 0


def test_what_another_archive_let_retention_remove_is_a_warning_with_its_count(log_path, caplog):
    """The cursor `archive` is the log's: it knows one archive."""
    one, other = SimulatedStore(), SimulatedStore()
    grown(log_path, 300)
    archived(log_path, one)
    grown(log_path, 500)
    archived(log_path, other)
    prune(log_path, Storage(), Retention(max_slabs=1))
    grown(log_path, 10)
    caplog.clear()
    archived(log_path, one)
    (line,) = [each for each in caplog.messages if "not archived" in each]
    restore(URL, f"{log_path}.back", client=one)
    with aolog.Reader(f"{log_path}.back") as reader:
        list(reader)
        (gap,) = reader.gaps
    assert gap.records_lost > 0
    assert f"{gap.begin} to {gap.end} (pruned): {gap.records_lost} records" in line
    caplog.clear()
    archived(log_path, one)
    assert "not archived" not in caplog.text, "once"


def test_a_kill_at_every_request_loses_nothing_and_nothing_is_sent_twice(tmp_path, log_path):
    grown(log_path, 300)
    whole = SimulatedStore()
    archived(shutil.copytree(log_path, tmp_path / "whole"), whole)
    for number in range(len(whole.log)):
        for carried_out in False, True:
            store = SimulatedStore()
            path = shutil.copytree(log_path, tmp_path / f"{number}{carried_out}")

            def die(request, store=store, number=number, carried_out=carried_out):
                if len(store.log) == number + 1:
                    if carried_out:
                        store.objects, _ = store.objects.after(request)
                    raise Died

            store.before = die
            with pytest.raises(Died):
                archived(path, store)
            store.before = lambda _: None
            done = archived(path, store)
            assert done.behind_bytes == 0
            assert [e.object_name for e in manifest_of(store).entries] == [
                e.object_name for e in manifest_of(whole).entries
            ]
            sent = [r.name for r in store.log if isinstance(r, Put) and r.name.startswith("slabs/")]
            assert len(sent) - len(set(sent)) <= (0 if carried_out else 1)


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("answer", [Unclear("timeout"), Refused()])
def test_a_lost_answer_and_a_conflict_at_every_put(tmp_path, log_path, carried_out, answer):
    grown(log_path, 200)
    whole = SimulatedStore()
    archived(shutil.copytree(log_path, tmp_path / "whole"), whole)
    puts = [
        i for i, r in enumerate(whole.log) if isinstance(r, Put) and not r.name.startswith("probe/")
    ]
    for number in puts:
        store = SimulatedStore()
        path = shutil.copytree(log_path, tmp_path / str(number))
        store.before = lambda _, store=store, number=number: (
            (carried_out, answer) if len(store.log) == number + 1 else None
        )
        assert archived(path, store).behind_bytes == 0
        assert manifest_of(store).end == manifest_of(whole).end


def test_an_outage_ends_a_round_at_the_deadline_and_the_next_one_goes_on(log_path, store):
    grown(log_path, 200)
    with Archiver(log_path, URL, client=store, deadline_s=0.0) as archiver:
        archiver.begin()
        store.before = lambda r: (False, Unclear("503")) if isinstance(r, Head | Put) else None
        with pytest.raises(StorageFailed, match="no clear answer"):
            archiver.round()
        store.before = lambda _: None
        assert archiver.round().behind_bytes == 0


def test_a_store_that_cannot_do_it_is_refused_before_anything_is_written(log_path):
    grown(log_path, 50)
    store = SimulatedStore(Objects(lacks=frozenset({"create"})))
    with pytest.raises(UsageError, match="overwrites an object although"):
        archived(log_path, store)
    assert store.objects.stored == ()
    assert aolog.cursors(log_path) == []


def test_the_archive_of_another_log_is_refused_before_anything_is_written(
    tmp_path, log_path, store
):
    grown(log_path, 50)
    archived(log_path, store)
    before = store.objects
    grown(tmp_path / "other", 50)
    with pytest.raises(CorruptionError, match="archive of the log"):
        archived(tmp_path / "other", store)
    assert store.objects == before
    assert aolog.cursors(str(tmp_path / "other")) == []


def test_two_copies_that_were_both_written_are_told_and_nothing_is_overwritten(
    tmp_path, log_path, store
):
    grown(log_path, 100)
    copy = shutil.copytree(log_path, tmp_path / "copy")
    grown(log_path, 100)
    archived(log_path, store)
    before = store.objects
    with aolog.Writer(copy, slab_bytes=SLAB) as log:
        log.append_many([b"other" * 20] * 200)
    with pytest.raises(CorruptionError, match="which the log lacks"):
        archived(copy, store)
    grown(copy, 1)
    with pytest.raises(CorruptionError, match="which the log lacks"):
        archived(copy, store)
    kept = {name: found for name, found in store.objects.stored if not name.startswith("probe/")}
    assert kept == dict(before.stored)


def test_a_log_of_format_1_and_a_second_archiver_are_refused(tmp_path, log_path, store):
    with aolog.Writer(tmp_path / "old", format="queuefka") as log:
        log.append(b"x")
    with pytest.raises(UsageError, match="format 1"):
        Archiver(tmp_path / "old", URL, client=store)
    grown(log_path, 10)
    with Archiver(log_path, URL, client=store) as first:
        first.begin()
        with pytest.raises(aolog.CursorLocked):
            Archiver(log_path, URL, client=store)
    assert [cursor.name for cursor in aolog.cursors(log_path)] == [CURSOR]


def test_a_restored_log_goes_on_into_the_same_archive(tmp_path, log_path, store):
    grown(log_path, 200)
    archived(log_path, store)
    restore(URL, tmp_path / "back", client=store)
    grown(tmp_path / "back", 200)
    assert archived(tmp_path / "back", store).behind_bytes == 0
    restore(URL, tmp_path / "again", client=store)
    assert records(tmp_path / "again") == records(tmp_path / "back")


def test_a_killed_restore_leaves_no_log_and_the_next_one_uses_what_it_fetched(
    tmp_path, log_path, store
):
    grown(log_path, 500)
    archived(log_path, store)

    def die(request):
        if (
            isinstance(request, Get)
            and request.span
            and len(list(tmp_path.rglob("back*/*.slab"))) == 2
        ):
            raise Died

    store.before = die
    with pytest.raises(Died):
        restore(URL, tmp_path / "back", client=store)
    assert not (tmp_path / "back").exists()
    store.before = lambda _: None
    assert restore(URL, tmp_path / "back", client=store).kept == 2
    assert records(tmp_path / "back") == records(log_path)
    with pytest.raises(UsageError, match="exists already"):
        restore(URL, tmp_path / "back", client=store)


def test_an_object_with_other_bytes_is_not_restored(tmp_path, log_path, store):
    grown(log_path, 50)
    archived(log_path, store)
    (entry,) = manifest_of(store).entries
    found = store.objects.get(entry.object_name)
    bad = found._replace(content=found.content[:-1] + b"!")
    others = [each for each in store.objects.stored if each[0] != entry.object_name]
    store.objects = Objects(tuple(sorted([*others, (entry.object_name, bad)])))
    with pytest.raises(CorruptionError, match="other bytes"):
        restore(URL, tmp_path / "back", client=store)
    assert not (tmp_path / "back").exists()


def test_the_archives_retention_removes_the_oldest_slabs_by_size_and_by_age(
    log_path, store, caplog
):
    grown(log_path, 500)
    whole = archived(log_path, store)
    entries = manifest_of(store).entries
    keep = Keep(max_bytes=sum(entry.size for entry in entries[2:]))
    done = archived(log_path, store, keep=keep)
    assert done.begin == entries[2].base
    assert "retention removed" in caplog.text
    assert [e.object_name for e in entries if store.objects.get(e.object_name)] == [
        e.object_name for e in entries[2:]
    ]
    assert archived(log_path, store, keep=keep).uploaded == 0, "what was dropped does not return"
    done = archived(log_path, store, keep=Keep(max_age_s=0.0))
    assert (done.slabs, done.end) == (1, whole.end)


def test_a_reader_of_an_archive_is_told_what_its_retention_removed(tmp_path, log_path, store):
    grown(log_path, 500)
    archived(log_path, store, keep=Keep())
    archived(log_path, store, keep=Keep(max_age_s=0.0))
    restore(URL, tmp_path / "back", client=store)
    assert manifest_of(store).entries[0].ordinal > 0
    with pytest.raises(aolog.AddressPruned):
        aolog.Reader(tmp_path / "back", 8192)
    got = [record.value for record in aolog.Reader(tmp_path / "back")]
    assert got == [r.value for r in records(log_path)][-len(got) :]


def test_a_wait_that_is_ended_ends_the_round_and_the_next_one_goes_on(log_path, store):
    grown(log_path, 50)
    with Archiver(log_path, URL, client=store, wait=lambda _: True) as archiver:
        archiver.begin()
        store.before = lambda r: (False, Unclear("503")) if isinstance(r, Put) else None
        with pytest.raises(Stopped):
            archiver.round()
        store.before = lambda _: None
        told = []
        archiver.follow(told.append)
    assert [done.behind_bytes for done in told] == [0]


def test_leftovers_are_swept_when_an_archiver_starts(log_path, store):
    grown(log_path, 100)
    archived(log_path, store)
    name = f"slabs/{0:020d}-{9000:020d}-{'0' * 16}.slab"
    store.objects, _ = store.objects.after(Put(name, b"late", "w", "s"))
    archived(log_path, store)
    assert store.objects.get(name) is None
    assert Delete(name) in store.log


# --- legal hold -------------------------------------------------------------------------------


def test_a_held_archive_keeps_what_its_retention_would_remove_until_it_is_released(log_path, store):
    grown(log_path, 500)
    before = archived(log_path, store)
    held = hold(URL, client=store)
    assert (held.held, held.changed, held.slabs) == (True, True, before.slabs)
    assert not hold(URL, client=store).changed
    tight = {"keep": Keep(max_bytes=1)}
    assert archived(log_path, store, **tight).slabs == before.slabs
    assert hold(URL, held=False, client=store).changed
    assert archived(log_path, store, **tight).slabs == 1


def test_a_hold_stops_a_retention_that_has_begun(log_path, store):
    """The hold comes between the archiver's look and its commit."""
    grown(log_path, 500)
    before = archived(log_path, store)
    with Archiver(log_path, URL, client=store, keep=Keep(max_bytes=1)) as archiver:
        archiver.begin()
        before_the_commit(store, partial(hold, URL, client=store))
        assert archiver.round().slabs == before.slabs
    assert manifest_of(store).held


def test_a_hold_needs_an_archive(store):
    with pytest.raises(aolog.NotALog, match="no archive"):
        hold(URL, client=store)
    with pytest.raises(UsageError, match="is not the URL of a store"):
        hold("/var/log", client=store)
