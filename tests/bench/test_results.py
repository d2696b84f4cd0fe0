"""What is shown is what was measured: RESULTS.md, the README's table and plots come from bench/results."""

from __future__ import annotations

import json

from bench import results, table
from bench.child import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "bench/results"
PAGE = (ROOT / "bench/RESULTS.md").read_text(encoding="utf-8")
COMMITTED = results.load(str(RESULTS))


def everything_in(found):
    return [*found["groups"], *found["panels"]]


def test_the_figures_of_the_pages_are_those_that_were_published():
    again = "python -m bench --publish --from bench/results"
    assert table.between(README) == table.readme(COMMITTED), again
    assert table.page(COMMITTED) == PAGE, again


def test_the_results_say_on_what_and_when_they_were_measured():
    assert COMMITTED["size"] != "small"
    shown = PAGE
    for machine in [run["machine"] for run in COMMITTED["runs"]]:
        for name in ("cpu", "cores", "system", "file_system", "python", "backend", "load"):
            assert str(machine[name]) in shown, name
        assert machine["date"][:10] in shown
    named = [case for run in COMMITTED["runs"] for case in run["cases"]]
    assert sorted(named) == sorted({one["case"] for one in everything_in(COMMITTED)})


def made(load, value, *cases, size="normal"):
    """A document as a run makes it, with figures of each round."""
    machine = {**COMMITTED["runs"][0]["machine"], "load": load}
    groups = [{"case": case, "value": value, "wall_ns": [1, 2]} for case in cases]
    return {"size": size, "runs": [{"machine": machine, "cases": list(cases)}], "groups": groups,
            "panels": [], "targets": [], "bounds": []}  # fmt: skip  # a table


def test_cases_that_are_measured_again_replace_what_was_and_leave_the_others(tmp_path):
    results.publish(str(tmp_path), made(9.0, 1, "append", "read", "memory"))
    results.publish(str(tmp_path), made(0.25, 2, "append_many", "read"))
    found = results.load(str(tmp_path))
    assert [(one["case"], one["value"]) for one in found["groups"]] == [
        ("append", 1), ("append_many", 2), ("read", 2), ("memory", 1),
    ]  # fmt: skip  # a list
    assert [run["cases"] for run in found["runs"]] == [
        ["append", "memory"],
        ["append_many", "read"],
    ]
    head = table.heading(found)
    assert "`append`, `memory`: measured" in head
    assert "Load average at the start: 0.25." in head


def test_what_is_missed_is_said():
    changed = json.loads(json.dumps(COMMITTED))
    for one in changed["targets"]:
        one.update(ratio=9.75, holds=False)
    shown = table.page(changed)
    assert "**9.75, missed**" in shown
    assert "- missed: " in shown  # of growth
    assert results.missed(changed) >= len(changed["targets"]) > 0
