"""Cases of the bridge measure what they say, against the mock and against Apache Kafka. No time is
judged, but that what takes longer is told to take longer. About half a minute, and Kafka's start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aolog import Writer
from bench import table
from bench.bridges import KAFKA, MOCK, Bridge, Destination, new_topic, without_kafka
from bench.cases import backlog, delivery, latency, poison, pull
from bench.cases.plan import Plan
from bench.measure import Wrong, measure
from bench.panel import read_panel
from bench.payloads import make_payloads, prove
from bench.sizes import SIZES
from bridge.kafka.embedded import EmbeddedBroker
from tests.bench.running import CASES_OF_BRIDGE, RUN_S, results_of, run_small

pytestmark = pytest.mark.timeout(RUN_S + 30)

SMALL = SIZES["small"]
RTT_MS = 150


def quiet(_: str) -> None:
    """Shows no progress."""


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


def read(panel):
    readings, skipped = read_panel(panel, rounds=1, progress=quiet)
    assert skipped == []
    return {one.probe.name: one.figures for one in readings}


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


def test_what_has_bounds_is_told_with_them(run):
    stdout, document = run
    found = {
        (panel["case"], name): figure["at_most"]
        for panel in document["panels"]
        for probe in panel["probes"]
        for name, figure in probe["figures"].items()
        if figure["at_most"] is not None
    }
    assert found == {("latency", latency.P99_MS): 50.0, ("backlog", backlog.PEAK_MB): 200.0,
                     ("poison", poison.US_A_RECORD): 50.0}  # fmt: skip  # a table
    assert stdout.count("at most") == len(found)


def test_a_percentile_is_a_value_that_was_measured():
    took_ns = [i * 1_000_000 for i in range(101)]
    assert latency.percentiles(took_ns[::-1]) == {
        latency.P50_MS: 50.0, latency.P90_MS: 90.0, latency.P99_MS: 99.0, "greatest ms": 100.0
    }  # fmt: skip
    assert set(latency.percentiles([7_000_000]).values()) == {7.0}


def test_latency_has_the_round_trip_in_it(broker, mock, plan, tmp_path):
    broker.set_rtt_ms(RTT_MS)
    found = read(latency.panel_of(plan, mock, str(tmp_path)))
    assert set(found) == {"log and bridge", "raw producer"}
    for name, figures in found.items():
        assert RTT_MS <= figures[latency.P50_MS][0] <= figures[latency.P99_MS][0], name


def test_latency_to_one_cluster_after_another_has_logs_of_their_own(mock, plan, tmp_path):
    """A cursor is of the first cluster that it met, and refuses another."""
    with EmbeddedBroker() as other:
        for to in (mock, Destination(KAFKA, other, isolates=False)):
            assert read(latency.panel_of(plan, to, str(tmp_path)))["log and bridge"]


def test_a_bridge_tells_what_is_acknowledged_and_when(mock, tmp_path):
    path = str(tmp_path / "log")
    with Writer(path) as writer:
        addresses = [writer.append(b"value") for _ in range(100)]
        writer.flush()
        with Bridge(path, mock, new_topic(mock.cluster)) as bridge:
            told = bridge.acknowledged(addresses[-1])
            addresses.append(writer.append(b"more"))
            writer.flush()
            told += bridge.acknowledged(addresses[-1])
    assert [one.address for one in told] == sorted({one.address for one in told})
    assert [one.at_ns for one in told] == sorted(one.at_ns for one in told)
    assert told[-1].address > addresses[-1] >= told[-2].address


def test_a_bridge_that_ends_is_no_result_and_its_words_are_told(mock, tmp_path):
    with Bridge(str(tmp_path / "nothing"), mock, "t") as bridge, pytest.raises(Wrong, match="log"):
        bridge.acknowledged(0)


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


def test_the_bound_on_poison_is_20_000_records_a_second_where_there_are_many(mock, plan, tmp_path):
    of_many = poison.panel_of(plan, mock, str(tmp_path / "log"), SIZES["normal"].records)
    assert [probe.at_most for probe in of_many.probes] == [{poison.US_A_RECORD: 1e6 / 20_000}]


def test_kafka_is_left_out_where_it_was_not_asked_for_with_the_reason():
    (one,) = without_kafka(SMALL)
    assert (one.name, one.reason) == (KAFKA, "not at this size")
    assert SIZES["normal"].bridge_kafka


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_every_case_runs_against_kafka_in_both_deliveries(kafka, plan, tmp_path):
    """About 10 s."""
    kafka.restore()
    to = Destination(KAFKA, kafka, isolates=True)
    found = read(latency.panel_of(plan, to, str(tmp_path)))
    assert all(figures[latency.P50_MS][0] > 0 for figures in found.values())

    records = backlog.fill(str(tmp_path / "log"), SMALL.backlog_bytes)
    found = read(backlog.panel_of(plan, to, str(tmp_path / "log"), records))
    assert set(found) == {"at_least_once", "exactly_once"}
    for figures in found.values():
        for name in (backlog.FIRST_MB, backlog.LAST_MB):
            assert 10 < figures[name][0] <= figures[backlog.PEAK_MB][0], name

    records = poison.fill(str(tmp_path / "poison"), SMALL.records)
    found = read(poison.panel_of(plan, to, str(tmp_path / "poison"), records))
    assert set(found) == {"at_least_once", "exactly_once"}
    assert all(figures[poison.RATE][0] > 0 for figures in found.values())

    group = replace(delivery.group_of(plan, to), rounds=None)
    measured = measure(group, rounds=0, directory=str(tmp_path), progress=quiet)
    assert set(delivery.LOGGED.values()) < {one.contender.name for one in measured}
    for one in measured:
        values = make_payloads(one.contender.records, 100)
        assert one.digest == prove(values).digest, one.contender.name

    found = measure(
        pull.group_of(plan, kafka, "bench-pull"), rounds=1, directory=str(tmp_path), progress=quiet
    )
    assert {one.contender.name for one in found} == {pull.POLL, pull.CONSUME, pull.PULL}


def test_the_client_is_measured_beside_a_bare_producer_and_a_transform_beside_none(run):
    _, document = run
    found = {row["name"] for row in results_of(document, "client")}
    assert found == {"bare confluent-kafka", "aolog client, asynchronous", "no transform",
                     "transform of records", "transform of Arrow"}  # fmt: skip
