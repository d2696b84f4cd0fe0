"""hazdev-broker's JSON: what is taken, what is translated, and what each mistake is called."""

import itertools
import json
import re

import pytest

from aolog.errors import UsageError
from bridge.client.config import load
from bridge.client.errors import (
    BrokenJSON,
    KeyGivenTwice,
    KeyRefused,
    MissingTopic,
    UnknownKey,
    WrongType,
)
from bridge.client.properties import IGNORED, REFUSED, RENAMED
from bridge.errors import WrongConfiguration
from bridge.kafka.client import CLIENT_LOG

SERVERS = "localhost:9092"


def of_producer(**properties):
    return {"Type": "ProducerConfig", "Properties": {"bootstrap.servers": SERVERS, **properties}}


def settings_of(text_or_dict, side="producer"):
    return load(text_or_dict, side).settings


def test_comments_of_both_kinds_are_no_part_of_the_json_and_strings_keep_theirs():
    text = """# a heading
    {   // the type
        "Type": "ProducerConfig",   # a comment with "quotes" and a brace {
        "Properties": {"bootstrap.servers": "localhost:9092", "client.id": "a#b//c"}
    }"""
    assert settings_of(text)["client.id"] == "a#b//c"


@pytest.mark.parametrize(
    "text",
    [
        '{"Type": "ProducerConfig", "Properties": {"bootstrap.servers": "a:1", "client.id": "x,}",},}',
        '{"Type": "ProducerConfig",, "Properties": {"bootstrap.servers": ["a:1",], "client.id": "x,}"} , }',
        '{"Type": "ProducerConfig", "Properties": {"bootstrap.servers": "a:1", "client.id": "x,}",\n#"acks": "1"\n}, // ,\n}',
    ],
)
def test_a_comma_too_many_is_no_mistake(text):
    assert settings_of(text)["client.id"] == "x,}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1,} , 2', "column 11"),
        ('{"a":, "b": 1}', "column 6"),
        ('{"a": 1,\n,"b" 2}', "line 2 column 6"),
    ],
)
def test_another_mistake_beside_commas_is_named_at_its_own_place(text, place):
    with pytest.raises(BrokenJSON, match=place):
        load(text, "producer")


def test_text_a_dictionary_and_a_file_are_the_same(tmp_path):
    config = of_producer(**{"linger.ms": 7})
    file = tmp_path / "producer.config"
    file.write_text(json.dumps(config), encoding="utf-8")
    assert (
        settings_of(config)
        == settings_of(json.dumps(config))
        == settings_of(file)
        == settings_of(str(file))
    )


def test_the_design_documents_example_is_taken_with_a_notice_that_idempotence_is_off():
    text = """{"Type": "KafkaProducerConfig", "Properties": {"bootstrap.servers": "localhost:9092",
        "acks": "all", "retries": 0, "acks": "all", "batch.size": 16384, "linger.ms": 1, "acks": "all"}}"""
    options = load(text, "producer")
    assert options.settings["enable.idempotence"] == "false"
    assert len(options.notices) == 1
    assert "retries turned idempotence off" in options.notices[0]


def test_of_unequal_values_of_a_repeated_key_the_last_counts_and_a_notice_says_so():
    text = '{"Type": "ProducerConfig", "Properties": {"bootstrap.servers": "a:1", "acks": "all", "acks": "1"}}'
    options = load(text, "producer")
    assert options.settings["acks"] == "1"
    assert any("acks is given more than once" in notice for notice in options.notices)


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_both_names_of_a_type_are_taken(side):
    for prefix in ("", "Kafka"):
        kind = f"{prefix}{side.capitalize()}Config"
        properties = {"bootstrap.servers": SERVERS, "group.id": "g"}
        assert load({"Type": kind, "Properties": properties}, side).settings


@pytest.mark.parametrize(
    ("key", "value", "settings"),
    [
        ("max.request.size", "2000000", {"message.max.bytes": "2000000"}),
        ("buffer.memory", "33554432", {"queue.buffering.max.kbytes": "32768"}),
        ("send.buffer.bytes", "1000", {"socket.send.buffer.bytes": "1000"}),
        ("metadata.broker.list", "b:1", {"bootstrap.servers": "b:1"}),
        ("queue.buffering.max.ms", 3, {"linger.ms": "3"}),
        ("request.required.acks", "-1", {"acks": "-1"}),
    ],
)
def test_a_producers_key_of_another_spelling_is_translated(key, value, settings):
    given = {"bootstrap.servers": SERVERS, key: value}
    if key == "metadata.broker.list":
        del given["bootstrap.servers"]
    found = settings_of({"Type": "ProducerConfig", "Properties": given})
    assert settings.items() <= found.items()


@pytest.mark.parametrize(
    ("key", "value", "settings"),
    [
        ("fetch.max.wait.ms", "100", {"fetch.wait.max.ms": "100"}),
        ("enable.auto.commit", "true", {"enable.auto.commit": "true"}),
        ("enable.auto.commit", False, {"enable.auto.commit": "false"}),
        ("auto.offset.reset", "none", {"auto.offset.reset": "error"}),
        ("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
         {"partition.assignment.strategy": "range"}),
        ("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
         {"partition.assignment.strategy": "cooperative-sticky"}),
    ],
)  # fmt: skip  # a table
def test_a_consumers_key_of_another_spelling_is_translated(key, value, settings):
    given = {"bootstrap.servers": SERVERS, "group.id": "g", key: value}
    found = settings_of({"Type": "ConsumerConfig", "Properties": given}, "consumer")
    assert settings.items() <= found.items()


@pytest.mark.parametrize("key", sorted(IGNORED))
def test_a_key_with_nothing_left_to_set_is_ignored_with_a_notice(key):
    options = load(of_producer(**{key: "x"}), "producer")
    assert key not in options.settings
    assert any(notice.startswith(f"{key} is ignored") for notice in options.notices)


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_key_without_a_counterpart_is_refused_by_name_and_never_shows_its_value(key):
    with pytest.raises(KeyRefused, match=key) as caught:
        load(of_producer(**{key: "hush-hush"}), "producer")
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize("alias", sorted(RENAMED))
def test_two_spellings_of_one_setting_are_refused(alias):
    properties = {"bootstrap.servers": SERVERS, alias: "1", RENAMED[alias]: "1"}
    with pytest.raises(KeyGivenTwice):
        load({"Type": "ProducerConfig", "Properties": properties}, "producer")


def test_less_than_all_acks_turns_idempotence_off_unless_it_is_asked_for():
    assert settings_of(of_producer())["enable.idempotence"] == "true"
    assert settings_of(of_producer(acks="1"))["enable.idempotence"] == "false"
    with pytest.raises(WrongType, match="idempotence"):
        load(of_producer(acks="1", **{"enable.idempotence": "true"}), "producer")


@pytest.mark.parametrize(
    ("config", "kind", "says"),
    [
        ('{"Type": "ProducerConfig"', BrokenJSON, "line 1 column"),
        ("// only a comment", BrokenJSON, "JSON"),
        ('{"Type": "ProducerConfig", "Properties": {"linger.ms": NaN}}', BrokenJSON, "NaN"),
        ("no/such/file", WrongConfiguration, "No such file"),
        ('{"a":' * 100_000, BrokenJSON, "nested"),
        (of_producer() | {"Type": "ConsumerConfig"}, WrongType, "Type"),
        (of_producer() | {"Type": "Producer"}, WrongType, "Type"),
        ({"Properties": {}}, WrongConfiguration, "Type: is missing"),
        ({"Type": "ProducerConfig", "Properties": []}, WrongType, "Properties"),
        (of_producer() | {"Propertys": {}}, UnknownKey, "Propertys"),
        (of_producer(**{"lingr.ms": 1}), UnknownKey, "lingr.ms"),
        (of_producer(**{"linger.ms": "soon"}), WrongType, "linger.ms"),
        (of_producer(**{"linger.ms": [1]}), WrongType, "linger.ms"),
        (of_producer(**{"linger.ms\ud800": 1}), WrongType, "no UTF-8 form"),
        (of_producer(**{"client.id": "\ud800"}), WrongType, "no UTF-8 form"),
        (of_producer(**{"producer.type": "later"}), WrongType, "producer.type"),
        (of_producer() | {"HeartbeatInterval": "0"}, WrongType, "HeartbeatInterval"),
        ({"Type": "ProducerConfig", "Properties": {}}, WrongConfiguration, "bootstrap.servers"),
        (of_producer(**{"bootstrap.servers": "no port:x"}), WrongType, "bootstrap.servers"),
        ({"HazdevBrokerConfig": of_producer(), "Topic": ""}, MissingTopic, "Topic"),
        (b"{}", WrongType, "path"),
    ],
    ids=itertools.count(),
)  # fmt: skip  # a table
def test_each_mistake_has_a_class_and_names_the_key(config, kind, says):
    with pytest.raises(kind, match=says) as caught:
        load(config, "producer")
    assert type(caught.value) is kind
    assert isinstance(caught.value, UsageError)


def test_a_consumer_without_a_group_is_refused():
    with pytest.raises(WrongConfiguration, match=r"group\.id: is missing"):
        load({"Type": "ConsumerConfig", "Properties": {"bootstrap.servers": SERVERS}}, "consumer")


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(WrongConfiguration) as caught:
        load(of_producer(**{"sasl.jaas.config": "x", "producer.type": "y"}), "producer")
    assert len(caught.value.problems) == 2


def test_a_secret_may_be_in_a_file_or_the_environment_and_is_never_shown(tmp_path, monkeypatch):
    (tmp_path / "password").write_text("s3cret\n", encoding="utf-8")
    config = of_producer(**{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": {"env": "USER_OF_KAFKA"}, "sasl.password": {"file": "password"}})  # fmt: skip
    file = tmp_path / "producer.config"
    file.write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setenv("USER_OF_KAFKA", "alice")
    found = settings_of(file)
    assert (found["sasl.username"], found["sasl.password"]) == ("alice", "s3cret")
    monkeypatch.delenv("USER_OF_KAFKA")
    with pytest.raises(WrongType, match="USER_OF_KAFKA"):
        load(file, "producer")


@pytest.mark.parametrize(("written", "seconds"), [(30, 30), (0.5, 0.5), (0, 1), (-1, None)])
def test_a_heartbeat_interval_is_taken_as_hazdev_brokers_comments_recommend(written, seconds):
    config = of_producer() | {"HeartbeatInterval": written}
    assert load(config, "producer").heartbeat_s == seconds


HAZDEV_CONSUMER = """{
    "HazdevBrokerConfig": {
        "Type":"ConsumerConfig",
        "Properties":{ "client.id":"consumer.example", "group.id":"default.consumer",
            "metadata.broker.list":"localhost:9092", "enable.auto.commit":"false" }
    },
    "HazdevBrokerTopicConfig": {
        "Type":"TopicConfig",
        "Properties": { "auto.commit.enable":"false", "auto.offset.reset":"latest" }
    },
    "TopicList":["test"]
}"""


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_a_certificate_is_beside_the_file_that_names_it_or_is_named_with_the_reason(tmp_path, side):
    config = of_producer(**{"ssl.ca.location": "ca.pem", "group.id": "g"})
    config["Type"] = f"{side.title()}Config"
    (tmp_path / "client.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "ca.pem").touch()
    found = load(tmp_path / "client.json", side).settings["ssl.ca.location"]
    assert found == str(tmp_path / "ca.pem")
    (tmp_path / "ca.pem").unlink()
    problem = f"names {found}, which cannot be read: No such file or directory"
    with pytest.raises(WrongType, match=re.escape(problem)):
        load(tmp_path / "client.json", side)


def test_the_consumer_of_hazdev_brokers_examples_is_taken_unchanged():
    consumer = load(HAZDEV_CONSUMER, "consumer")
    assert consumer.settings["auto.offset.reset"] == "latest"
    assert consumer.topics == ["test"]


def test_settings_of_single_topics_lie_over_the_others_and_only_a_producer_has_them():
    config = of_producer(**{"linger.ms": 3}) | {"Topics": {"bulk": {"compression.type": "zstd"}}}
    options = load(config, "producer")
    assert "compression.type" not in options.settings
    assert options.topic_settings["bulk"]["compression.type"] == "zstd"
    assert options.topic_settings["bulk"]["linger.ms"] == "3"
    with pytest.raises(UnknownKey, match="lingr"):
        load(of_producer() | {"Topics": {"bulk": {"lingr.ms": 1}}}, "producer")
    consumer = {"Type": "ConsumerConfig", "Topics": {"t": {}},
                "Properties": {"bootstrap.servers": SERVERS, "group.id": "g"}}  # fmt: skip
    with pytest.raises(UnknownKey, match="Topics"):
        load(consumer, "consumer")


def test_checking_a_configuration_connects_to_nothing(caplog):
    with caplog.at_level("DEBUG", CLIENT_LOG.name):
        load(of_producer(**{"bootstrap.servers": "127.0.0.1:1"}), "producer")
    assert "127.0.0.1:1" not in caplog.text
