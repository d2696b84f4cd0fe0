"""The exploration of the archive's protocol would see its claims broken; and what the protocol refuses."""

from __future__ import annotations

import pytest

from aolog.format.archive import Entry, Manifest, encode_manifest, object_range
from aolog.maintenance.archive import protocol
from aolog.maintenance.archive.protocol import Failed, Job, Reading, advance, begin, request
from aolog.storage.objects.requests import Absent, Found, Get, Tag, Unclear
from tests.explore.archive import GROWING, SCENARIOS, UUID, Broken, explore, slab

# --- the exploration can fail ---------------------------------------------------------------


@pytest.mark.parametrize("lacks", ["create", "replace"])
def test_a_store_that_ignores_a_condition_breaks_a_claim(lacks):
    with pytest.raises(Broken, match=r"kept|cursor"):
        explore(SCENARIOS["two"]._replace(lacks=frozenset({lacks})))


def uploads_without_looking(monkeypatch):
    """An answer that was lost counts as success."""
    honest = protocol.advance

    def advance(state, answer):
        if isinstance(state, protocol.Sending) and isinstance(answer, Unclear):
            return protocol._uploaded(state.looked, Tag("guessed"))
        return honest(state, answer)

    monkeypatch.setattr(protocol, "advance", advance)


def commits_without_reading(monkeypatch):
    """A refused commit counts as ours."""
    honest = protocol.advance

    def advance(state, answer):
        if isinstance(state, protocol.Writing) and not isinstance(answer, protocol.Stored):
            return protocol.Protecting(protocol.View(state.manifest, Tag("guessed")), ())
        return honest(state, answer)

    monkeypatch.setattr(protocol, "advance", advance)


def deletes_what_is_being_uploaded(monkeypatch):
    """Every object without a reference is a leftover."""

    def leftovers(names, manifest):
        used = {entry.object_name for entry in manifest.entries}
        return [name for name in names if object_range(name) and name not in used]

    monkeypatch.setattr(protocol, "_leftovers", leftovers)


def forgets_the_floor(monkeypatch):
    """A slab that retention dropped is archived again by a slow archiver."""
    honest = protocol.missing
    monkeypatch.setattr(
        protocol,
        "missing",
        lambda local, begin, manifest: honest(local, begin, manifest._replace(floor=0)),
    )


@pytest.mark.parametrize(
    ("mutant", "scenario", "claim"),
    [
        (uploads_without_looking, "one", "visible"),
        (commits_without_reading, "one", "cursor"),
        (deletes_what_is_being_uploaded, "two", "visible"),
        (forgets_the_floor, "slow", "again|ends|order|kept"),
    ],
)
def test_a_protocol_with_a_defect_breaks_a_claim(monkeypatch, mutant, scenario, claim):
    mutant(monkeypatch)
    with pytest.raises(Broken, match=claim):
        explore(SCENARIOS[scenario])


# --- what it refuses ------------------------------------------------------------------------


def refusal(manifest: bytes | Manifest, local=GROWING[2]) -> Failed:
    body = manifest if isinstance(manifest, bytes) else encode_manifest(manifest)
    state = begin(Job(UUID, None, local, "w"))
    assert isinstance(state, Reading)
    assert request(state) == Get("archive.json")
    state = advance(state, Found(Tag("t"), len(body), None, None, body))
    assert isinstance(state, Failed), state
    return state


def test_the_archive_of_another_log_is_refused():
    assert refusal(Manifest("aa" * 16)).code == "foreign"


def test_a_finished_slab_with_other_bytes_is_refused():
    other = slab(0)._replace(sha256="b" * 64)
    assert refusal(Manifest(UUID, entries=(other,))).code == "differs"


def test_slabs_that_overlap_are_refused():
    whole = Entry(0, 25, True, "c" * 64)
    assert refusal(Manifest(UUID, entries=(whole,)), local=(slab(1),)).code == "overlaps"


def test_a_copy_of_the_log_that_went_on_elsewhere_is_refused():
    ahead = Manifest(UUID, entries=(slab(0), slab(1)))
    assert refusal(ahead, local=(slab(0), slab(9))).code == "differs"


def test_a_local_log_that_lost_archived_bytes_is_refused():
    longer = slab(1, 9, final=False)
    assert refusal(Manifest(UUID, entries=(slab(0), longer)), local=(slab(1, 8),)).code == "differs"


def test_a_damaged_manifest_and_a_newer_one_are_refused_and_nothing_is_written():
    whole = encode_manifest(Manifest(UUID, entries=(slab(0),)))
    assert refusal(whole.replace(b'"sequence": 0', b'"sequence": 1')).code == "corrupt"
    assert refusal(whole[:-9]).code == "corrupt"
    assert refusal(b'{"aolog_archive": 4, "log": "?"}').code == "newer_format"


def test_an_object_under_a_slabs_name_with_another_content_is_refused():
    state = advance(begin(Job(UUID, None, GROWING[2], "w")), Absent())
    state = advance(state, Found(Tag("t"), 10, "other", "d" * 64))
    assert isinstance(state, Failed)
    assert state.code == "differs"
    assert slab(0).object_name in state.reason


def test_an_archive_that_is_behind_is_no_conflict_and_an_older_archiver_writes_nothing():
    ahead = encode_manifest(Manifest(UUID, entries=tuple(e._replace(etag="t") for e in GROWING[2])))
    state = advance(begin(Job(UUID, None, GROWING[0], "w")), Found(Tag("t"), 9, None, None, ahead))
    assert isinstance(state, protocol.Protecting)
