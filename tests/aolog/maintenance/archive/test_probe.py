"""A store that lacks what the archive rests on is found before anything is written."""

from __future__ import annotations

import pytest

from aolog.maintenance.archive.probe import LACKS, Probed, Probing, probe_advance, probe_request
from aolog.storage.objects.requests import Unclear
from aolog.testing.objects import Objects

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
