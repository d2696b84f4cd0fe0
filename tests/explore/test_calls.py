"""The exploration of the sink, a hold and a compaction would see their claims broken."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")

from aolog.format.archive import MANIFEST, decode_manifest, encode_manifest
from aolog.maintenance.archive.replacing import read_manifest
from aolog.publish import objects
from aolog.storage.objects.requests import Delete, Get, List, Put
from aolog.storage.storage import Storage
from tests.explore.archive import Broken
from tests.explore.calls import explore
from tests.explore.programs import ONE, SCENARIOS, URL, stream, uploaded

pytestmark = pytest.mark.usefixtures("no_time_passes")


def with_program(scenario: str, name: str, program):
    """The scenario with another program under this name."""
    found = SCENARIOS[scenario]
    programs = tuple((each, program if each == name else old) for each, old in found.programs)
    return found._replace(programs=programs)


@pytest.mark.parametrize(("lacks", "scenario"), [("replace", "compaction"), ("create", "jobs")])
def test_a_store_that_ignores_a_condition_breaks_a_claim(lacks, scenario):
    with pytest.raises(Broken, match=r"kept|whole|visible|ends"):
        explore(SCENARIOS[scenario]._replace(lacks=frozenset({lacks})))


def test_a_stream_without_a_transaction_has_a_batch_twice():
    def program(client, life):
        sent = uploaded(client, life, "x", ONE)
        objects.commit(URL, ONE, sent, storage=Storage(life), client=client)

    with pytest.raises(Broken, match="whole: two attempts"):
        explore(with_program("stream", "D", program))


def test_an_abort_that_does_not_replace_the_manifest_leaves_a_commit_without_its_slabs():
    def program(client, life):
        if life.number == 1:
            return stream("y", 1, ONE)(client, life)
        used = client.ask(Get(MANIFEST))
        names = client.ask(List(objects.PENDING)).names
        for name in names if not hasattr(used, "body") else ():
            client.ask(Delete(name))
        return None

    with pytest.raises(Broken, match="visible: no object"):
        explore(with_program("abort", "J", program))


def test_a_hold_that_does_not_look_again_is_not_in_force():
    def program(client, life):
        found = client.ask(Get(MANIFEST))
        held = decode_manifest(found.body, URL)._replace(held=True, sequence=2, write="h")
        client.send(Put(MANIFEST, encode_manifest(held), "h", "", found.tag))

    with pytest.raises(Broken, match="held: not in force"):
        explore(with_program("hold", "H", program))


def test_a_compaction_that_deletes_a_dead_runs_object_at_once_breaks_a_late_commit(monkeypatch):
    """It has to replace the manifest first."""
    place = "aolog.maintenance.archive.compaction"
    monkeypatch.setattr(f"{place}.outdate", lambda client, _: read_manifest(client)[0])
    with pytest.raises(Broken, match="visible: no object"):
        explore(SCENARIOS["compaction"])
