"""The claims hold in every world: of the archive's protocol (archive.py), and of the sink, a hold and a compaction
(calls.py, programs.py).

The small scenarios take twenty seconds of processor time; `--long` adds a fault or a crash to each.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")

from tests.explore import archive, calls, programs

LEAST_WORLDS = {
    "one": 2_500, "two": 5_000, "retention": 700, "slow": 900,
    "stream": 2_000, "zombie": 7_000, "jobs": 9_000, "abort": 700, "hold": 20_000, "compaction": 3_500,
    "compaction, archiver": 16_000, "compaction, retention": 25_000, "compactions": 40_000,
    "compaction, sink": 1_400, "compaction, hold": 4_000,
}  # fmt: skip  # a table


def of_all(of_archives, of_programs):
    """The explorations, and the scenarios of each."""
    return [
        pytest.param(explore, scenario, id=scenario.name)
        for explore, found in ((archive.explore, of_archives), (calls.explore, of_programs))
        for scenario in found
    ]


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize(
    ("explore", "scenario"), of_all(archive.SCENARIOS.values(), programs.SCENARIOS.values())
)
def test_the_claims_hold_in_every_world(explore, scenario):
    assert explore(scenario) >= LEAST_WORLDS[scenario.name]


@pytest.mark.slow
@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize(("explore", "scenario"), of_all(archive.LONG, programs.LONG))
@pytest.mark.timeout(3600)
def test_the_claims_hold_in_many_more_worlds(explore, scenario):
    assert explore(scenario) >= 4 * LEAST_WORLDS[scenario.name]
