"""The window's defaults, held against a simulated fleet of bridges after an outage."""

from tests.bridge.deliver.at_least_once.fleet import Fleet, simulate


def test_a_window_spares_the_cluster_of_a_simulated_fleet_and_costs_no_time():
    fleet = Fleet(bridges=500, outage_s=600.0)
    careful, careless = simulate(fleet), simulate(fleet._replace(window=False))
    assert careless.peak_wait_s > 20
    assert careful.peak_wait_s < 2
    assert careful.recovered_s < 1.3 * careless.recovered_s
