"""Small slabs of an archive are packed: every record stays as it was, whatever is killed, lost or late."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest

import aolog
from aolog.errors import CorruptionError, NewerFormat, StorageFailed, UsageError
from aolog.format import archive as archive_format
from aolog.format.archive import MANIFEST, PACKS, Manifest, decode_manifest, encode_manifest
from aolog.format.packed import CHUNK_BYTES
from aolog.maintenance.archive import compaction, replacing
from aolog.maintenance.archive.archiver import Archived, Archiver, Keep
from aolog.maintenance.archive.compaction import Compacted, compact
from aolog.maintenance.archive.hold import hold
from aolog.maintenance.archive.restore import restore
from aolog.storage.objects.requests import Delete, Get, List, Put, Stored, Unclear
from aolog.testing.objects import Objects, SimulatedStore
from tests.aolog.maintenance.archive.races import before_the_commit

pytest.importorskip("obstore")

from aolog.storage.objects import system as object_system

URL = "s3://bucket/log"
SLAB = 16 << 10
NOW = {"grace_seconds": -1.0, "leftover_seconds": -1.0}  # everything that was replaced is due


class Died(Exception):
    """The process is killed."""


@pytest.fixture
def store(monkeypatch) -> SimulatedStore:
    """Readers of the URL find it, too."""
    store = SimulatedStore()
    store.url = URL
    monkeypatch.setattr(object_system, "Client", lambda _: store)
    monkeypatch.setattr(object_system, "REFRESH_S", 0.0)
    monkeypatch.setattr(replacing.time, "sleep", lambda _: None)
    object_system.object_system.cache_clear()
    return store


def grown(path: object, count: int, **options) -> None:
    with aolog.Writer(str(path), **{"slab_bytes": SLAB, **options}) as log:
        for number in range(count):
            log.append(b"%d " % number + bytes(100), key=b"k%d" % number)
            log.flush()


def archived(path: object, store: SimulatedStore, **options) -> Archived:
    with Archiver(str(path), URL, client=store, **options) as archiver:
        archiver.begin()
        return archiver.round()


def packed(store: SimulatedStore, **options) -> Compacted:
    return compact(URL, **{"object_bytes": 3 * SLAB, "probe": False, "client": store, **options})


def manifest_of(store: SimulatedStore) -> Manifest:
    return decode_manifest(store.objects.get(MANIFEST).content, URL)


def records(path: object) -> list[aolog.Record]:
    object_system.object_system.cache_clear()
    with aolog.Reader(str(path)) as reader:
        got = list(reader)
        assert reader.gaps == []
        assert reader.ordinal == len(got)
    return got


def names(store: SimulatedStore, prefix: str) -> list[str]:
    return [name for name, _ in store.objects.stored if name.startswith(prefix)]


@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_the_same_before_and_after(tmp_path, log_path, store, seed):
    """Its address and its ordinal, too; with slabs of one chunk and of several, whose bytes do not compress."""
    chance = random.Random(seed)
    sizes = [1, 300, 70_000] if seed % 2 else [CHUNK_BYTES // 2, 10]
    options = {"slab_bytes": SLAB if seed % 2 else 3 * CHUNK_BYTES}
    if seed > 1:
        options["compression"] = "zstd"
    with aolog.Writer(log_path, **options) as log:
        for _ in range(150 if seed % 2 else 40):
            log.append(chance.randbytes(chance.randrange(chance.choice(sizes) + 1)))
            log.flush()
    archived(log_path, store)
    wanted, before = records(log_path), manifest_of(store)
    assert records(URL) == wanted
    done = packed(store, object_bytes=40 << 20)
    assert (done.packs, done.objects) == (1, 1)
    assert done.packed == done.slabs == len(before.entries) >= 2
    assert records(URL) == wanted
    with aolog.Reader(URL) as reader:
        for at in sorted(chance.sample(range(len(wanted)), 9)):
            reader.seek(wanted[at].address)
            assert (reader.ordinal, reader.read()) == (at, wanted[at])
            reader.seek(ordinal=at)
            assert reader.read() == wanted[at]
    assert aolog.verify(URL).records == len(wanted)
    packed(store, **NOW)
    assert names(store, "slabs/") == []
    restore(URL, tmp_path / "back", client=store)
    assert records(tmp_path / "back") == wanted
    unpacked = [e._replace(pack="", at=0, chunks=(), etag="") for e in manifest_of(store).entries]
    assert unpacked == [entry._replace(etag="") for entry in before.entries]


def test_small_slabs_share_an_object_and_large_or_unfinished_ones_stay(log_path, store):
    grown(log_path, 500)
    archived(log_path, store)
    slabs = len(manifest_of(store).entries)
    planned = packed(store, dry_run=True)
    assert (planned.packed, planned.packed_bytes, names(store, PACKS)) == (slabs, None, [])
    done = packed(store)
    assert done._replace(dry_run=True, packed_bytes=None) == planned
    assert done.packs == done.objects == len(names(store, PACKS)) > 1
    assert done.packed_bytes < done.slab_bytes
    assert packed(store).packs == 0, "what is packed stays as it is"
    with aolog.Writer(log_path, flush_seconds=None) as log:
        log.append(b"x")
        log.sync()
        log.append(b"y")
        log.flush()
        archived(log_path, store)
        assert packed(store).packs == 0, "the slab that grows"
        log.sync()
    grown(log_path, 500)
    archived(log_path, store)
    assert packed(store, object_bytes=SLAB // 2).packs == 0, "each slab is larger"
    assert packed(store).packs > 0
    assert records(URL) == records(log_path)


def test_an_archiver_and_the_archives_retention_go_on(log_path, store):
    grown(log_path, 500)
    archived(log_path, store)
    packed(store)
    assert archived(log_path, store).uploaded == 0
    assert names(store, "slabs/"), "no archiver deletes what readers may be in"
    grown(log_path, 200)
    assert archived(log_path, store).behind_bytes == 0
    entries = manifest_of(store).entries
    third = entries[1]
    assert entries[0].pack == third.pack
    keep = Keep(max_bytes=sum(entry.stored_bytes for entry in entries[1:]))
    assert archived(log_path, store, keep=keep).begin == third.base
    assert third.pack in names(store, PACKS), "it has other slabs"
    assert archived(log_path, store, keep=Keep(max_bytes=1)).slabs == 1
    assert names(store, PACKS) == []


def test_a_held_archive_is_not_compacted_and_a_hold_in_between_wins(log_path, store):
    grown(log_path, 500)
    archived(log_path, store)
    hold(URL, client=store)
    before = store.objects
    with pytest.raises(UsageError, match="the archive is held"):
        packed(store)
    assert store.objects == before
    hold(URL, held=False, client=store)
    before_the_commit(store, partial(hold, URL, client=store))
    with pytest.raises(UsageError, match="the archive is held"):
        packed(store)
    assert all(not entry.pack for entry in manifest_of(store).entries)


def test_retention_that_is_faster_wins(log_path, store):
    grown(log_path, 500)
    archived(log_path, store)
    before_the_commit(store, partial(archived, log_path, store, keep=Keep(max_bytes=1)))
    with suppress(StorageFailed):  # the next object's slabs are gone
        packed(store)
    assert len(manifest_of(store).entries) == 1
    assert names(store, PACKS) == []


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_kill_at_every_request_loses_nothing_and_the_next_run_goes_on(
    log_path, store, carried_out, late
):
    """late: a PUT is carried out after the kill only, while the next run is at its first request."""
    grown(log_path, 200)
    archived(log_path, store)
    begun, wanted = store.objects, records(log_path)
    packed(store, **NOW)
    packed(store, **NOW)
    whole = [type(request) for request in store.log]
    for number in range(1, len(whole) + 1):
        store.objects, seen = begun, []

        def die(request, number=number, seen=seen):
            seen.append(request)
            if len(seen) == number:
                if carried_out and not late:
                    store.objects, _ = store.objects.after(request)
                raise Died

        store.before = die
        with suppress(Died):
            packed(store, **NOW)
            packed(store, **NOW)
        store.before = lambda _: None
        if late and isinstance(seen[-1], Put):
            store.before = lambda request, put=seen[-1]: land(store, put)
        packed(store)
        store.before = lambda _: None
        packed(store, **NOW)
        assert records(URL) == wanted
        used = {entry.object_name for entry in manifest_of(store).entries}
        assert used == {*names(store, "slabs/"), *names(store, PACKS)}, "nothing is left over"


def land(store: SimulatedStore, put: Put) -> None:
    store.before = lambda _: None
    store.objects, _ = store.objects.after(put)


@pytest.mark.parametrize("carried_out", [False, True])
def test_each_request_may_lose_its_answer(log_path, store, carried_out):
    grown(log_path, 200)
    archived(log_path, store)
    begun, wanted = store.objects, records(log_path)
    store.log.clear()
    packed(store)
    for number in range(1, len(store.log) + 1):
        store.objects, seen = begun, []

        def lose(request, number=number, seen=seen):
            seen.append(request)
            return (carried_out, Unclear("lost")) if len(seen) == number else None

        store.before = lose
        assert packed(store).packs == 2
        store.before = lambda _: None
        assert records(URL) == wanted


def test_a_late_commit_of_a_killed_run_is_refused_once_its_object_may_be_deleted(log_path, store):
    grown(log_path, 100)
    archived(log_path, store)
    late = []

    def hold_back(request):
        if isinstance(request, Put) and request.name == MANIFEST:
            late.append(request)
            raise Died

    store.before = hold_back
    with pytest.raises(Died):
        packed(store)
    store.before = lambda _: None
    assert packed(store, object_bytes=1).deleted == 0, "a killed run's object stays for a week"
    assert packed(store, object_bytes=1, **NOW).deleted == 1
    assert not isinstance(store.send(late[0]), Stored)
    assert records(URL) == records(log_path)


def test_a_reader_in_an_object_that_is_deleted_goes_on_in_the_packed_one(log_path, store):
    grown(log_path, 300)
    archived(log_path, store)
    wanted = records(log_path)
    with aolog.Reader(URL) as reader:
        got = [reader.read() for _ in range(5)]
        packed(store, object_bytes=1 << 20)
        packed(store, **NOW)
        assert names(store, "slabs/") == []
        assert [*got, *reader] == wanted


def test_an_open_of_a_packed_archive_takes_two_requests(log_path, store, monkeypatch):
    monkeypatch.setattr(object_system, "REFRESH_S", 60.0)
    grown(log_path, 300)
    archived(log_path, store)
    wanted = records(log_path)
    packed(store, object_bytes=1 << 20)
    object_system.object_system.cache_clear()
    store.log.clear()
    with aolog.Reader(URL) as reader:
        assert reader.read() == wanted[0]
        assert len(store.log) == 2


def test_a_scan_of_slabs_in_one_object_shares_requests(log_path, store, monkeypatch):
    monkeypatch.setattr(object_system, "REFRESH_S", 60.0)
    grown(log_path, 500)
    slabs = archived(log_path, store).slabs
    wanted = records(log_path)
    store.log.clear()
    assert records(URL) == wanted
    assert len(store.log) > slabs
    packed(store, object_bytes=1 << 20)
    store.log.clear()
    assert records(URL) == wanted
    assert len(store.log) <= 4 < slabs


def test_what_was_replaced_stays_for_a_day(log_path, store, monkeypatch):
    grown(log_path, 300)
    archived(log_path, store)
    before = names(store, "slabs/")
    packed(store, object_bytes=1 << 20)
    assert packed(store).deleted == 0
    real = compaction.clock.now_us
    monkeypatch.setattr(compaction.clock, "now_us", lambda: real() + 86_400_000_001)
    assert packed(store).deleted == len(before)
    assert Delete(before[0]) in store.log
    assert names(store, "slabs/") == []


def with_a_changed_byte(store, name: str, at: int) -> None:
    found = store.objects.get(name)
    content = bytearray(found.content)
    content[at] ^= 0xFF
    others = [each for each in store.objects.stored if each[0] != name]
    changed = name, found._replace(content=bytes(content))
    store.objects = Objects(tuple(sorted([*others, changed])))


def test_an_object_with_other_bytes_is_not_packed(log_path, store):
    grown(log_path, 300)
    archived(log_path, store)
    with_a_changed_byte(store, manifest_of(store).entries[1].object_name, -1)
    before = store.objects
    with pytest.raises(CorruptionError, match="other bytes than were archived"):
        packed(store)
    assert store.objects == before


def test_damage_in_a_packed_object_is_an_error_or_a_gap_and_never_other_records(log_path, store):
    grown(log_path, 100)
    archived(log_path, store)
    packed(store)
    wanted, begun = set(records(log_path)), store.objects
    entry = manifest_of(store).entries[0]
    outcomes = set()
    for at in range(entry.at, entry.at + entry.chunks[0], entry.chunks[0] // 25):
        store.objects = begun
        with_a_changed_byte(store, entry.pack, at)
        object_system.object_system.cache_clear()
        try:
            with aolog.Reader(URL) as reader:
                got = set(reader)
                assert got == wanted or reader.gaps
            assert got <= wanted
            outcomes.add("gap")
        except CorruptionError:  # its chunk cannot be unpacked
            outcomes.add("error")
    assert outcomes == {"gap", "error"}


def test_a_release_that_knows_version_2_refuses_a_packed_archive_by_name(
    log_path, store, monkeypatch
):
    grown(log_path, 300)
    archived(log_path, store)
    packed(store)
    data = store.objects.get(MANIFEST).content
    monkeypatch.setattr(archive_format, "VERSION", 2)
    with pytest.raises(NewerFormat, match="version 3 of an archive's manifest"):
        decode_manifest(data, URL)


@pytest.mark.parametrize("change", [{"chunks": ()}, {"chunks": (0,)}, {"at": -1}, {"pack": ""}])
def test_an_entry_that_no_compaction_writes_is_damage(log_path, store, change):
    grown(log_path, 300)
    archived(log_path, store)
    packed(store)
    manifest = manifest_of(store)
    entry = manifest.entries[0]._replace(**change)
    bad = encode_manifest(manifest._replace(entries=(entry, *manifest.entries[1:])))
    if not entry.pack:
        assert decode_manifest(bad, URL).entries[0].chunks == ()
        return
    with pytest.raises(CorruptionError, match="packed in another way"):
        decode_manifest(bad, URL)


@pytest.mark.parametrize("pack", [MANIFEST, "packs/../archive.json", "packs//x"])
def test_an_entry_in_an_object_that_is_not_the_archives_is_damage(log_path, store, pack):
    grown(log_path, 300)
    archived(log_path, store)
    packed(store)
    manifest = manifest_of(store)
    entry = manifest.entries[0]._replace(pack=pack)
    bad = encode_manifest(manifest._replace(entries=(entry, *manifest.entries[1:])))
    with pytest.raises(CorruptionError, match="has another name"):
        decode_manifest(bad, URL)


def test_what_cannot_be_compacted_is_refused(store):
    with pytest.raises(aolog.NotALog, match="no archive"):
        compact(URL, client=store)
    with pytest.raises(UsageError, match="is not the URL of a store"):
        compact("/var/log", client=store)
    with pytest.raises(UsageError, match="object_bytes"):
        compact(URL, object_bytes=0, client=store)
    assert [type(request) for request in store.log] == [Get]
    assert List not in store.log
