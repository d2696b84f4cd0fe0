"""Cases of the bridge measure what they say, against the mock. No time is judged by itself: a contender
that takes longer must get the greater figure. About half a minute."""

from __future__ import annotations

import pytest

from bench import table
from bench.bridges import KAFKA, MOCK, Destination
from bench.cases import backlog, delivery, poison
from bench.cases.plan import Plan
from bench.measure import Wrong
from bench.panel import read_panel
from bench.payloads import make_payloads, prove
from bench.sizes import SIZES
from bridge.kafka.embedded import EmbeddedBroker
from tests.bench.running import CASES_OF_BRIDGE, quiet, results_of, run_small

SMALL = SIZES["small"]


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def mock(broker):
    return Destination(MOCK, broker, isolates=False)


@pytest.fixture
def plan(tmp_path):
    return Plan(str(tmp_path), SMALL, (100,))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Every case of the bridge, through the command line: what it printed, and its JSON."""
    return run_small(CASES_OF_BRIDGE, tmp_path_factory.mktemp("bench"))


def test_every_way_of_delivering_gives_back_the_records_that_it_was_given(run):
    stdout, document = run
    results = {result["name"]: result for result in results_of(document, "delivery")}
    assert set(results) == {
        delivery.SYNCHRONOUS, delivery.BATCHES, delivery.ASYNCHRONOUS,
        delivery.LOGGED["at_least_once"], *delivery.BUFFERED.values(),
    }  # fmt: skip
    for result in results.values():
        values = make_payloads(result["records"], 100)
        assert result["digest"] == result["expected_digest"] == prove(values).digest
    assert f"    {KAFKA}: not at this size" in stdout
    (group,) = [one for one in document["groups"] if one["case"] == "delivery"]
    shown = table.page({**document, "groups": [group], "panels": []})
    for result in results.values():
        assert f"| {result['name']} | {1e9 / result['median_ns']:,.0f} (" in shown


def test_a_backlog_that_is_not_drained_is_no_result(mock, plan, tmp_path):
    records = backlog.fill(str(tmp_path / "log"), 20_000)
    assert records == 20
    one = backlog.panel_of(plan, mock, str(tmp_path / "log"), records + 1)
    with pytest.raises(Wrong, match="20 records of 21"):
        read_panel(one, rounds=1, progress=quiet)


def test_poison_that_is_not_set_aside_is_no_result(mock, plan, tmp_path):
    records = poison.fill(str(tmp_path / "log"), 600)
    one = poison.panel_of(plan, mock, str(tmp_path / "log"), records + poison.EVERY)
    with pytest.raises(Wrong, match="3 of 4 set aside"):
        read_panel(one, rounds=1, progress=quiet)


def test_the_client_is_measured_beside_a_bare_producer_and_a_transform_beside_none(run):
    _, document = run
    found = {row["name"] for row in results_of(document, "client")}
    assert found == {"bare confluent-kafka", "aolog client, asynchronous", "no transform",
                     "transform of records", "transform of Arrow"}  # fmt: skip
