"""Figures that are no times: memory and imports, taken in fresh processes; instructions."""

from __future__ import annotations

import pytest

from bench.measure import Skipped
from bench.panel import Panel, Probe, Unavailable, bounds_of, read_panel, text
from bench.results import document, missed, verdicts
from tests.bench.running import quiet


def test_a_probe_that_cannot_run_is_named_with_its_reason_and_the_others_go_on():
    def absent():
        raise Unavailable("no such tool")

    one = Panel("case", "title", "how", [Probe("a", absent), Probe("b", lambda: {"MB": 1.0})])
    readings, skipped = read_panel(one, rounds=2, progress=quiet)
    assert [reading.probe.name for reading in readings] == ["b"]
    assert skipped == [Skipped("a", "no such tool")]
    assert "    a: no such tool" in text(one, readings, skipped)


@pytest.mark.parametrize(("held", "fails"), [(7.9, 0), (8.0, 0), (8.1, 1)])
def test_a_bound_is_on_the_median(held, fails):
    values = iter([100.0, held, 1.0, 99.0])
    one = Panel("case", "title", "how", [Probe("a", lambda: {"MB": next(values)}, {"MB": 8.0})])
    readings, _ = read_panel(one, rounds=3, progress=quiet)
    assert bounds_of(readings) == [("a", "MB", held, 8.0)]
    found = document({}, "normal", 3, [], [(one, readings, [])])
    assert missed(found) == fails
    assert ("MISSED" in verdicts(found)[0]) is bool(fails)
