"""Figures that are no times: memory and imports, taken in fresh processes; instructions."""

from __future__ import annotations

import shutil
import sys

import pytest

from bench.cases import instructions, memory
from bench.cases.plan import Plan
from bench.measure import Skipped
from bench.panel import Panel, Probe, Unavailable, bounds_of, read_panel, text
from bench.results import document, missed, verdicts
from bench.sizes import SIZES


def quiet(_: str) -> None:
    """Shows no progress."""


def test_probes_take_turns_and_the_first_turn_does_not_count():
    asked = []

    def probe(name):
        def sample():
            asked.append(name)
            return {"MB": float(len(asked))}

        return Probe(name, sample)

    readings, skipped = read_panel(
        Panel("case", "title", "how", [probe("a"), probe("b")]), rounds=2, progress=quiet
    )
    assert asked == ["a", "b"] * 3
    assert [one.figures for one in readings] == [{"MB": [3.0, 5.0]}, {"MB": [4.0, 6.0]}]
    assert skipped == []


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_an_import_and_a_long_log_hold_is_measured(tmp_path):
    small = SIZES["small"]._replace(imports=1)
    importing, holding = memory.groups(Plan(str(tmp_path), small, (100,)))
    (_, *ours, numpys), skipped = read_panel(importing, rounds=1, progress=quiet)
    assert skipped == []
    assert len(ours) == 2
    for one in ours:
        assert 0 < one.figures[memory.RSS_MB][0] < numpys.figures[memory.RSS_MB][0]
        assert one.figures[memory.CPU_MS][0] > 0
    assert {probe.name for probe in holding.probes} == {"append", "iterate", "read_batch", "verify"}
    assert all(probe.at_most for probe in holding.probes)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instructions_are_those_of_the_records_and_not_of_the_start(tmp_path):
    code = "import sys\nfor _ in range(1000 * int(sys.argv[1])):\n    pass\n"
    counted = instructions.count_instructions(1, str(tmp_path), None, code, "sys")[
        instructions.A_RECORD
    ]
    assert 10 < counted < 5_000  # the start of Python is 30 million, 30,000 a record


def test_without_valgrind_instructions_are_skipped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (one,) = instructions.groups(Plan(str(tmp_path), SIZES["small"], (100,)))
    readings, skipped = read_panel(one, rounds=1, progress=quiet)
    assert readings == []
    assert {each.reason for each in skipped} == {"valgrind is not installed"}
    assert len(skipped) == len(instructions.SUBJECTS)
