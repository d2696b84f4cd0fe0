"""What the README shows is what was measured: its table and plots come from the results file."""

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
COMMITTED = results.load(str(ROOT / "bench/results.json"))


def everything_in(found):
    return [*found["groups"], *found["panels"]]


def test_the_figures_of_the_readme_are_those_of_the_results_file():
    assert table.between(README) == table.markdown(COMMITTED), (
        "python -m bench --from bench/results.json --table README.md"
    )


def test_the_results_say_on_what_and_when_they_were_measured():
    assert COMMITTED["size"] != "small"
    shown = table.between(README)
    for machine in [run["machine"] for run in COMMITTED["runs"]]:
        for name in ("cpu", "cores", "system", "file_system", "python", "backend", "load"):
            assert str(machine[name]) in shown, name
        assert machine["date"][:10] in shown
    named = [case for run in COMMITTED["runs"] for case in run["cases"]]
    assert sorted(named) == sorted({one["case"] for one in everything_in(COMMITTED)})
    for group in COMMITTED["groups"]:
        for one in group["results"]:
            assert len(one["wall_ns"]) == group["rounds"], one["name"]


def test_the_plots_that_the_readme_shows_are_of_the_axes_that_were_measured():
    shown = re.findall(r"!\[.*?\]\((bench/plots/.*?)\)", table.between(README))
    assert shown == [f"bench/plots/{plot.file_name(axis)}" for axis in plot.axes_of(COMMITTED)]
    assert shown
    for name in shown:
        svg = (ROOT / name).read_text(encoding="utf-8")
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


def test_saved_results_are_the_same_when_loaded_and_lists_of_figures_are_lines(tmp_path):
    path = tmp_path / "results.json"
    results.save(str(path), COMMITTED)
    assert results.load(str(path)) == COMMITTED
    assert path.read_text(encoding="utf-8").count("\n") < json.dumps(COMMITTED, indent=1).count(
        "\n"
    )


def test_cases_that_are_measured_anew_replace_what_was_and_leave_the_others():
    def made(value, load, *cases):
        return {
            "runs": [{"machine": {**COMMITTED["runs"][0]["machine"], "load": load},
                      "cases": list(cases)}],
            "size": "normal",
            "rounds": value,
            "groups": [{"case": case, "value": value} for case in cases if case != "memory"],
            "panels": [{"case": case, "value": value} for case in cases if case == "memory"],
            "targets": [{"case": case, "value": value} for case in cases],
            "bounds": [],
        }  # fmt: skip  # a table

    before = made(1, 9.0, "append", "read", "memory")
    once = results.merged(before, made(2, 0.25, "append_many", "read"))
    assert [(one["case"], one["value"]) for one in everything_in(once)] == [
        ("append", 1), ("append_many", 2), ("read", 2), ("memory", 1),
    ]  # fmt: skip  # a list
    assert [one["value"] for one in once["targets"]] == [1, 2, 2, 1]
    assert [run["cases"] for run in once["runs"]] == [
        ["append", "memory"],
        ["append_many", "read"],
    ]
    head = table._head(once)
    assert "`append`, `memory`: measured" in head
    assert "Load average at the start: 0.25." in head
    twice = results.merged(once, made(3, 0.5, "append", "memory"))
    assert [run["cases"] for run in twice["runs"]] == [
        ["append_many", "read"],
        ["append", "memory"],
    ]
    with pytest.raises(ValueError, match="not to be compared"):
        results.merged(before, {**before, "size": "small"})


def test_only_what_stands_between_the_markers_is_written(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nbehind\n", encoding="utf-8")
    table.write(str(path), COMMITTED)
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{table.BEGIN}\n")
    assert text.endswith(f"\n{table.END}\nbehind\n")
    assert table.between(text) == table.markdown(COMMITTED)


def test_the_command_line_makes_table_and_results_anew_without_measuring(tmp_path):
    path, again = tmp_path / "README.md", tmp_path / "results.json"
    path.write_text(f"{table.BEGIN}\n{table.END}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--from", "bench/results.json", "--table", str(path),
         "--json", str(again)], cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "measuring" not in done.stderr
    assert table.between(path.read_text(encoding="utf-8")) == table.markdown(COMMITTED)
    assert again.read_bytes() == (ROOT / "bench/results.json").read_bytes()
    assert done.stdout.splitlines()[-1] == results.verdicts(COMMITTED)[-1]


def test_a_file_without_markers_is_left_alone(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("no markers\n", encoding="utf-8")
    with pytest.raises(ValueError, match="figures begin"):
        table.write(str(path), COMMITTED)
    assert path.read_text(encoding="utf-8") == "no markers\n"


def test_what_is_missed_is_said():
    changed = json.loads(json.dumps(COMMITTED))
    for one in changed["targets"]:
        one.update(ratio=9.75, holds=False)
    shown = table.markdown(changed)
    assert "**9.75, missed**" in shown
    assert "- missed: " in shown  # of growth
    assert results.missed(changed) >= len(changed["targets"]) > 0
