"""What is shown is what was measured: RESULTS.md, the README's table and plots come from bench/results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import plot, results, table
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


def test_the_plots_that_the_page_shows_are_of_the_axes_that_were_measured():
    shown = re.findall(r"!\[.*?\]\((plots/.*?)\)", PAGE)
    assert shown == [f"plots/{plot.file_name(axis)}" for axis in plot.axes_of(COMMITTED)]
    assert shown
    for name in shown:
        svg = (ROOT / "bench" / name).read_text(encoding="utf-8")
        axis = Path(name).stem.removeprefix("by-")
        for group in COMMITTED["groups"]:
            assert (group["title"] in svg) is (group["axis"] == axis), group["title"]


def test_plots_are_drawn_and_the_same_results_draw_the_same(tmp_path):
    pytest.importorskip("matplotlib")
    by_axis = {group["axis"]: group for group in COMMITTED["groups"] if group["axis"]}
    few = {**COMMITTED, "groups": list(by_axis.values())}  # drawing is slow: a panel each
    drawn = plot.draw(few, str(tmp_path / "one"))
    assert [path.name for path in drawn] == ["by-records.svg", "by-slabs.svg"]
    for path, group in zip(drawn, by_axis.values(), strict=True):
        svg = path.read_text(encoding="utf-8")
        assert group["title"] in svg
        assert all(result["series"] in svg for result in group["results"])
    again = plot.draw(few, str(tmp_path / "two"))
    assert [path.read_bytes() for path in drawn] == [path.read_bytes() for path in again]


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


def test_what_each_round_gave_is_not_published(tmp_path):
    results.publish(str(tmp_path), made(0.0, 1, "append"))
    assert "wall_ns" not in (tmp_path / "append.json").read_text(encoding="utf-8")
    results.save(str(tmp_path / "all.json"), made(0.0, 1, "append"))
    assert "wall_ns" in (tmp_path / "all.json").read_text(encoding="utf-8")


def test_figures_of_unlike_sizes_are_not_published_together(tmp_path):
    results.publish(str(tmp_path), made(0.0, 1, "append"))
    with pytest.raises(ValueError, match="figures of size normal, not small"):
        results.publish(str(tmp_path), made(0.0, 1, "read", size="small"))
    assert [path.name for path in tmp_path.iterdir()] == ["append.json"]


def test_only_what_stands_between_the_markers_is_written(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nbehind\n", encoding="utf-8")
    table.write_readme(str(path), COMMITTED)
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{table.BEGIN}\n")
    assert text.endswith(f"\n{table.END}\nbehind\n")
    assert table.between(text) == table.readme(COMMITTED)


def test_the_command_line_makes_the_document_again_without_measuring(tmp_path):
    path = tmp_path / "all.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--from", "bench/results", "--json", str(path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "measuring" not in done.stderr
    assert json.loads(path.read_text(encoding="utf-8")) == COMMITTED
    assert done.stdout.splitlines()[-1] == results.verdicts(COMMITTED)[-1]


def test_a_file_without_markers_is_left_alone(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("no markers\n", encoding="utf-8")
    with pytest.raises(ValueError, match="figures begin"):
        table.write_readme(str(path), COMMITTED)
    assert path.read_text(encoding="utf-8") == "no markers\n"


def test_what_is_missed_is_said():
    changed = json.loads(json.dumps(COMMITTED))
    for one in changed["targets"]:
        one.update(ratio=9.75, holds=False)
    shown = table.page(changed)
    assert "**9.75, missed**" in shown
    assert "- missed: " in shown  # of growth
    assert results.missed(changed) >= len(changed["targets"]) > 0
