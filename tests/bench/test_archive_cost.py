"""The page on archives has the tables that the command makes from a round's requests."""

from __future__ import annotations

from bench import archive_cost
from tests.aolog.conftest import ROOT

PAGE = ROOT / "aolog/docs/reference/archive.md"


def test_the_page_has_the_tables_that_are_made_from_a_rounds_requests():
    counted = archive_cost.round_of_a_beginning()
    page = PAGE.read_text(encoding="utf-8")
    for table in archive_cost.by_interval(counted), archive_cost.by_size():
        assert "\n".join(table) in page, "python -m bench.archive_cost"
    assert f"{archive_cost.usd_of(counted):.7f} USD" in page
    puts, seconds = archive_cost.burst(counted).replace(" PUTs at once, ", " ").split(" ")[:2]
    assert f"{puts} PUTs: {seconds} s" in page
