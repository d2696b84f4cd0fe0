"""Topics into a log, on the embedded broker, whose topics have no ids."""

import uuid

from bridge.client.config import load
from bridge.client.files.log_tap import LogTap
from tests.bridge.client.configurations import consumer_config, new_topic
from tests.bridge.client.files.topics_to_logs import named, run, send, values


def test_a_topic_without_an_id_goes_by_its_name(cluster, tmp_path):
    topic, other, log = new_topic(cluster), new_topic(cluster), tmp_path / "log"
    config = consumer_config(cluster, uuid.uuid4().hex, session_timeout_ms=2_000)
    for count in (5, 8):
        send(cluster, topic, named(b"m", count)[-3:] if count == 8 else named(b"m", count))
        tap = LogTap(log, load(config, "consumer"), [topic, other], on_heartbeat=None)
        run(tap, log, count)
        tap.close()
    assert values(log) == named(b"m", 8)


def test_a_position_in_the_log_counts_for_another_group(cluster, tmp_path):
    topic, log = new_topic(cluster), tmp_path / "log"
    send(cluster, topic, named(b"m", 5))
    for _ in range(2):
        config = consumer_config(cluster, uuid.uuid4().hex, session_timeout_ms=2_000)
        tap = LogTap(log, load(config, "consumer"), [topic], on_heartbeat=None)
        run(tap, log, 5)
        tap.close()
    assert values(log) == named(b"m", 5)
