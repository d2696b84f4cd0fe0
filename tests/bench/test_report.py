"""The tables on the terminal."""

from __future__ import annotations

from bench import report
from bench.measure import Group, Skipped


def test_a_group_of_which_nothing_could_be_measured_says_why():
    why = [Skipped("aolog, to Arrow", "pyarrow is not installed")]
    group = Group("arrow", "two slabs to Arrow by threads", "all of it", 100, [], ("one",), why)
    assert report.table(group, [], 3).splitlines() == [
        "two slabs to Arrow by threads: not measured",
        "    aolog, to Arrow: pyarrow is not installed",
    ]
    assert report.as_json(group, [], 3)["skipped"] == {"aolog, to Arrow": why[0].reason}
