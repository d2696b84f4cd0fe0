"""The window's defaults, held against a simulated fleet of bridges after an outage."""

from __future__ import annotations

from tests.bridge.deliver.at_least_once.fleet import Fleet, simulate


def test_manners_spare_the_cluster_of_a_simulated_fleet():
    """And cost nothing: it recovers as fast. Fixed pauses come all in one step."""
    fleet = Fleet(bridges=500, outage_s=600.0, greetings_per_s=50.0, window=False)
    rude = simulate(fleet._replace(jitter=False))
    polite = simulate(fleet)
    careful = simulate(fleet._replace(window=True))
    assert rude.peak_attempts == fleet.bridges
    assert polite.peak_attempts < fleet.bridges / 8
    assert polite.peak_wait_s > 20
    assert careful.peak_wait_s < 2
    assert careful.recovered_s < 1.3 * polite.recovered_s
    assert simulate(fleet) == polite
