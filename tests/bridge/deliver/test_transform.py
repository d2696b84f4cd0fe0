"""A route's transform: filter, redact, enrich, re-key, re-route; and what becomes of an error."""

import pytest

from aolog import Reader, Writer
from bridge.config.load import load_text
from bridge.config.routing import FILTERED, Routing, Rule
from bridge.deliver.transform import Transforms, refusals_of
from bridge.errors import Undeliverable, WrongConfiguration
from tests.bridge.against_kafka import committed_in
from tests.bridge.brokers import consume
from tests.bridge.forwarders import forwarder
from tests.bridge.logs import cursor_of, records_of

HERE = "tests.bridge.deliver.transforms"


@pytest.fixture
def log(tmp_path):
    with Writer(tmp_path / "log", topic="t") as writer:
        for number in range(30):
            writer.append(b"%d" % number, key=b"old", timestamp=1_700_000_000_000_000 + number)
    return tmp_path / "log"


@pytest.fixture
def broker(broker):
    broker.create_topic("elsewhere", 1)
    return broker


def routing(function, **more):
    return Routing(rules=[Rule(transform=f"{HERE}:{function}", **more)])


def forward(log, broker, function, *, poison="stop", routes=None, **more):
    return forwarder(
        log, bootstrap_servers=broker.bootstrap_servers, routing=routes or routing(function, **more),
        drain=True, commit_s=0.1, poison=poison,
    ).run()  # fmt: skip  # one call


def values(broker, topic, partitions=4):
    return [m.value for m in consume(broker.bootstrap_servers, topic, partitions)]


def changed(log, function, **more):
    with Reader(log) as reader:
        routes = routing(function, **more)
        routes.of_log("t")
        return Transforms(routes).batch(reader.read_batch())


def test_records_are_filtered_changed_keyed_anew_and_sent_elsewhere(log, broker):
    status = forward(log, broker, "odd_shouted_elsewhere")
    assert cursor_of(log) == status.position
    assert (status.lag_records, status.acknowledged, status.filtered) == (0, 15, 15)
    found = consume(broker.bootstrap_servers, "t", 4)
    assert {(m.key, len({m.partition})) for m in found} == {(b"new", 1)}
    assert [int(m.value) for m in found] == [n for n in range(30) if n % 2 and n % 3]
    assert [m.headers for m in found[:2]] == [(("n", b"1"),), (("n", b"5"),)]
    assert [int(v) for v in values(broker, "elsewhere", 1)] == [3, 9, 15, 21, 27]


def test_what_arrived_before_a_crash_is_recognised_though_it_was_changed(
    log, broker, bridge, tmp_path
):
    config = tmp_path / "bridge.toml"
    config.write_text(
        f"""logs = ["log"]\ncommit_seconds = 1000.0\nstatus_seconds = 0.05
[clusters.main]\nbootstrap_servers = "{broker.bootstrap_servers}"
[[routes]]\ntransform = "{HERE}:odd_shouted_elsewhere"\n""",
        encoding="utf-8",
    )
    first = bridge("run", "--config", config, "--json")
    first.until(lambda status: status["acknowledged"] == 15)
    first.kill()
    second = bridge("run", "--config", config, "--json", "--drain")
    assert second.end() == 0
    assert second.statuses[-1]["acknowledged"] == 0
    assert second.statuses[-1]["skipped"] == 15
    assert len(values(broker, "t")) + len(values(broker, "elsewhere", 1)) == 15


def test_the_record_on_which_it_fails_stops_its_lane_or_goes_to_the_dead_letters(log, broker):
    with pytest.raises(Undeliverable, match="raised ZeroDivisionError"):
        forward(log, broker, "fails_at_7")
    assert [int(v) for v in values(broker, "t")] == list(range(7))
    status = forward(log, broker, "fails_at_7", poison="dead-letter")
    assert status.dead_lettered == 1
    assert [int(v) for v in values(broker, "t")] == [n for n in range(30) if n != 7]
    (letter,) = records_of(log / "dead-letter")
    assert letter.value == b"7"
    assert dict(letter.headers)["aolog-code"] == b"TRANSFORM_FAILED"


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_exactly_once_transforms_too(log, kafka, topic):
    name = topic()
    routes = Routing(
        rules=[
            Rule(record_topic="elsewhere", topic=name),
            Rule(transform=f"{HERE}:odd_shouted_elsewhere_or_fails", topic=name),
        ]
    )
    status = forwarder(
        log, bootstrap_servers=kafka.bootstrap_servers, routing=routes, drain=True,
        delivery="exactly_once", poison="dead-letter",
    ).run()  # fmt: skip  # one call
    assert (status.dead_lettered, status.filtered, status.lag_records) == (1, 15, 0)
    found = [int(m.value) for m in committed_in(kafka, name)]
    assert found == [n for n in range(30) if n % 2 and n != 7]


@pytest.mark.parametrize("function", ["doubles", "mistypes"])
def test_what_is_no_transform_refuses_every_record_and_sends_none(log, function):
    batch = changed(log, function)
    assert len(refusals_of(batch)) == 30
    assert [r.value for r in batch] == [b"%d" % n for n in range(30)]


@pytest.mark.parametrize(
    "function",
    [
        "half_a_character_at_7", "text_in_header_at_7", "text_at_7", "tuples_at_7", "none_at_7",
        "topic_with_space_at_7", "reserved_topic_at_7", "half_a_topic_at_7", "mark_of_filtered_at_7",
        "far_future_at_7", "exits_at_7", "closes_at_7",
    ],
)  # fmt: skip  # a table
def test_what_is_no_record_refuses_that_record_alone(log, function):
    batch = changed(log, function)
    records = list(batch)
    (refusal,) = refusals_of(batch).values()
    assert (refusal.code, list(refusals_of(batch))) == ("TRANSFORM_FAILED", [records[7].address])
    assert [(r.value, r.key) for r in records] == [
        (b"%d" % n, b"old" if n == 7 else b"new") for n in range(30)
    ]


def test_a_header_may_be_any_pair_as_where_a_record_is_appended(log):
    batch = changed(log, "pair_as_list_at_7")
    assert refusals_of(batch) == {}
    assert list(batch)[7].headers == (("a", b"x"),)


def test_what_kafkas_client_cannot_take_from_a_transform_goes_to_the_dead_letters(log, broker):
    status = forward(log, broker, "half_a_character_at_7", poison="dead-letter")
    assert (status.dead_lettered, status.acknowledged) == (1, 29)
    assert sorted(int(v) for v in values(broker, "t")) == [n for n in range(30) if n != 7]


def test_an_operators_interrupt_within_a_transform_ends_the_run(log):
    with pytest.raises(KeyboardInterrupt):
        changed(log, "interrupted")


def test_a_topic_that_a_route_maps_need_not_be_valid_in_kafka(log):
    rules = [Rule(record_topic="to a route", topic="elsewhere"),
             Rule(transform=f"{HERE}:renamed_to_what_a_route_maps")]  # fmt: skip  # a table
    with Reader(log) as reader:
        batch = Transforms(Routing(rules=rules)).batch(reader.read_batch())
    assert refusals_of(batch) == {}
    assert {r.topic for r in batch} == {"to a route"}


def test_what_a_transform_returns_is_converted_as_append_converts_it(log):
    batch = changed(log, "with_what_becomes_bytes")
    assert refusals_of(batch) == {}
    assert {(type(r.value), r.headers) for r in batch} == {(bytes, (("a", b"x"),))}


def test_a_transform_may_empty_the_list_that_it_gets(log):
    batch = changed(log, "empties_its_list")
    assert refusals_of(batch) == {}
    assert [int(r.value) for r in batch] == list(range(30))


def test_another_order_refuses_nothing_that_can_be_told_apart(log):
    assert refusals_of(changed(log, "reverses")) == {}, "halved down to single records"


def test_arrow_in_and_arrow_out(log):
    batch = changed(log, "arrow_long_values_only", takes_arrow=True)
    records = list(batch)
    assert [r.topic == FILTERED for r in records] == [n < 10 for n in range(30)]
    with Reader(log) as reader:
        assert records[10:] == list(reader)[10:]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no", "should match"), (f"{HERE}:nothing", "AttributeError"), ("no.such.module:f", "ModuleNotFoundError"),
        (f"{HERE}:not_a_function", "not a function"),
    ],
)  # fmt: skip  # a table
def test_a_function_that_cannot_be_loaded_is_refused_with_the_configuration(name, says):
    text = f"""root = "x"\n[clusters.c]\nbootstrap_servers = "h:1"\n[[routes]]\ntransform = "{name}"\n"""
    with pytest.raises(WrongConfiguration, match=says) as caught:
        load_text(text)
    assert caught.value.problems[0].startswith("routes[0].transform")
