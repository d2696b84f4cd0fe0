"""What is shown is what was measured: RESULTS.md, the README's table and plots come from bench/results."""

import json
import re

import pytest

from bench import results, sentences, table
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


@pytest.mark.parametrize("page", sentences.pages(ROOT), ids=lambda page: page.name)
def test_the_figures_in_sentences_are_those_that_were_published(page):
    text = page.read_text(encoding="utf-8")
    assert sentences.filled(text, COMMITTED) == text, (
        "python -m bench --publish --from bench/results"
    )
    assert not re.search(r"^<!-- figure", text, re.MULTILINE), "Markdown ends the paragraph there"


def test_where_others_are_faster_they_are():
    text = (ROOT / "aolog/docs/explanation/performance.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Where others are faster")
    figures = re.findall(r"<!-- figure: (\w+) .+? -->(.+?)<!-- end -->", section)
    shown = {kind: [] for kind, _ in figures}
    for kind, text in figures:
        shown[kind] += map(float, text.split(" to "))
    assert max(shown["percent"]) < 100
    assert min(shown["ratio"]) > 1
    assert min(shown["longer"]) > 0


def test_a_figure_that_the_results_lack_is_an_error():
    with pytest.raises(ValueError, match="no 'times / read / nobody / aolog'"):
        sentences.filled(
            "so <!-- figure: times / read / nobody / aolog -->1<!-- end -->", COMMITTED
        )


def test_the_results_say_on_what_and_when_they_were_measured():
    assert COMMITTED["size"] != "small"
    shown = PAGE
    for machine in [run["machine"] for run in COMMITTED["runs"]]:
        for name in ("cpu", "cores", "system", "file_system", "python", "backend", "load"):
            assert str(machine[name]) in shown, name
        assert machine["date"][:10] in shown
    named = [case for run in COMMITTED["runs"] for case in run["cases"]]
    assert sorted(named) == sorted({one["case"] for one in everything_in(COMMITTED)})


def test_what_is_missed_is_said():
    changed = json.loads(json.dumps(COMMITTED))
    for one in changed["targets"]:
        one.update(ratio=9.75, holds=False)
    shown = table.page(changed)
    assert "**9.75, missed**" in shown
    assert "- missed: " in shown  # of growth
    assert results.missed(changed) >= len(changed["targets"]) > 0
