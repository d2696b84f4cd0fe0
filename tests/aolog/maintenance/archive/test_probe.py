"""A store that lacks what the archive rests on is found before anything is written."""

from __future__ import annotations

import re
from functools import partial

import pytest

import aolog
from aolog.errors import UsageError
from aolog.maintenance.archive import replacing
from aolog.maintenance.archive.archiver import Archiver
from aolog.maintenance.archive.compaction import compact
from aolog.maintenance.archive.hold import hold
from aolog.maintenance.archive.probe import LACKS, Probed, Probing, probe_advance, probe_request
from aolog.publish.objects import check_store
from aolog.storage.objects.requests import Unclear
from aolog.testing.objects import Objects, SimulatedStore

URL = "s3://bucket/log"

PROVIDERS = {
    "create": "create_again",
    "replace": "replace_other",
    "metadata": "metadata",
    "list": "list",
}


def probed(objects: Objects, lost: int | None = None) -> tuple[Objects, str | None]:
    """lost: the number of the request whose answer is lost."""
    state = Probing("0" * 32)
    for number in range(3 * len(LACKS)):
        objects, answer = objects.after(probe_request(state))
        state = probe_advance(state, Unclear("lost") if number == lost else answer)
        if isinstance(state, Probed):
            return objects, state.lacking
    raise AssertionError("the probe does not end")


def test_a_store_that_keeps_the_rules_passes_and_nothing_is_left():
    assert probed(Objects()) == (Objects(), None)


@pytest.mark.parametrize(("lacks", "step"), PROVIDERS.items())
def test_a_store_that_lacks_one_rule_is_refused_by_its_name_and_nothing_is_left(lacks, step):
    objects, lacking = probed(Objects(lacks=frozenset({lacks})))
    assert lacking == step
    assert objects.stored == ()


@pytest.mark.parametrize("lost", range(len(LACKS)))
def test_a_lost_answer_is_no_verdict(lost):
    objects, lacking = probed(Objects(), lost)
    assert lacking is None
    assert len(objects.stored) <= 1


@pytest.mark.parametrize(("lacks", "step"), PROVIDERS.items())
def test_no_program_changes_an_archive_in_a_store_that_lacks_a_rule(log_path, lacks, step):
    """As after a move of the objects to another provider."""
    with aolog.Writer(log_path) as log:
        log.append(b"x")
    store = SimulatedStore()
    archived(log_path, URL, store)
    store.objects = before = store.objects._replace(lacks=frozenset({lacks}))
    for program in (hold, compact, partial(archived, log_path)):
        with pytest.raises(UsageError, match=re.escape(LACKS[step])):
            program(URL, client=store)
        assert store.objects == before


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("program", [hold, compact, check_store])
def test_no_good_store_is_refused_because_an_answer_was_lost(
    log_path, monkeypatch, program, carried_out
):
    monkeypatch.setattr(replacing.time, "sleep", lambda _: None)
    with aolog.Writer(log_path) as log:
        log.append(b"x")
    begun = SimulatedStore()
    if program is not check_store:  # which refuses the archive of a local log
        archived(log_path, URL, begun)
    for number in range(1, 2 * len(LACKS)):
        store, seen = SimulatedStore(begun.objects), []

        def lose(request, number=number, seen=seen):
            seen.append(request)
            return (carried_out, Unclear("lost")) if len(seen) == number else None

        store.before = lose
        program(f"{URL}/{carried_out}{number}", client=store)


def archived(log: str, url: str, client: SimulatedStore) -> None:
    with Archiver(log, url, client=client) as archiver:
        archiver.begin()
        archiver.round()
