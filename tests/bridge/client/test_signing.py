"""Signatures between a producer or a log's writer and a consumer."""

import base64

import pytest
from confluent_kafka import Producer as Plain

from bridge.client import Consumer, Producer
from bridge.client.errors import SignatureForged, SignatureMissing, WrongType
from tests.bridge.client.configurations import consumer_config, drained, new_topic, producer_config

KEY = f"one hmac-sha256 {base64.b64encode(b'a shared secret of many bytes').decode()}\n"
OTHER = f"one hmac-sha256 {base64.b64encode(b'somebody elses secret here').decode()}\n"


@pytest.fixture
def topic(cluster):
    return new_topic(cluster)


@pytest.fixture
def key_file(tmp_path):
    (tmp_path / "keys").write_text(KEY, encoding="utf-8")
    (tmp_path / "other").write_text(OTHER, encoding="utf-8")
    return tmp_path


def signing(directory, name="keys", **more):
    return {"Signing": {"KeyFile": str(directory / name), **more}}


def sent_by_all(cluster, topic, key_file):
    """A good record, a forged one, one without a signature, and a good one."""
    with Producer(producer_config(cluster, top=signing(key_file))) as producer:
        producer.send(topic, b"good 1", key="k")
        with Producer(producer_config(cluster, top=signing(key_file, "other"))) as forger:
            forger.send(topic, b"forged", key="k")
        plain = Plain({"bootstrap.servers": cluster.bootstrap_servers})
        plain.produce(topic, b"unsigned")
        plain.flush()
        producer.send(topic, b"good 2")


def test_a_forged_and_an_unsigned_record_are_raised_and_never_returned(cluster, topic, key_file):
    sent_by_all(cluster, topic, key_file)
    config = consumer_config(cluster, topic, top=signing(key_file))
    with Consumer(config) as consumer:
        consumer.subscribe(topic)
        assert drained(consumer, 1) == [b"good 1"]
        with pytest.raises(SignatureForged) as forged:
            drained(consumer, 1)
        assert forged.value.details == {"topic": topic, "partition": 0, "offset": 1}
        with pytest.raises(SignatureMissing):
            drained(consumer, 1)
        assert drained(consumer, 1) == [b"good 2"]


def test_they_are_dropped_and_counted_where_that_is_configured(cluster, topic, key_file, caplog):
    sent_by_all(cluster, topic, key_file)
    config = consumer_config(cluster, topic, top=signing(key_file, OnFailure="drop"))
    with Consumer(config) as consumer:
        consumer.subscribe(topic)
        assert drained(consumer, 2) == [b"good 1", b"good 2"]
        assert consumer.status()["dropped"] == 2
    assert caplog.text.count("dropped: ") == 2


@pytest.mark.parametrize("content", [None, "", "one hmac-sha256 x"])
def test_a_wrong_key_file_is_refused_before_anything_connects(cluster, tmp_path, content):
    if content is not None:
        (tmp_path / "keys").write_text(content, encoding="utf-8")
    with pytest.raises(WrongType, match="keys"):
        Producer(producer_config(cluster, top=signing(tmp_path)))
    with pytest.raises(WrongType, match="keys"):
        Consumer(consumer_config(cluster, "g", top=signing(tmp_path)))
