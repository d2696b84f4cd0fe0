"""The three file clients as processes that are killed, on a real Apache Kafka, by hazdev-broker's files."""

import itertools
import json
import time
import uuid

import pytest

from bridge.client import Producer
from bridge.client.config import parse
from tests.bridge.brokers import consume
from tests.bridge.client.configurations import producer_config
from tests.bridge.client.files.file_configurations import ARCHIVE, CONSUMER, PRODUCER, visible
from tests.bridge.foreign import Foreign, produce_foreign
from tests.waiting import SOON_S, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


def config(tmp_path, text, kafka, **changed):
    table = {**parse(text)[0], **changed}
    properties = table["HazdevBrokerConfig"]["Properties"]
    properties["bootstrap.servers"] = kafka.bootstrap_servers
    if "Producer" not in table["Type"]:
        properties |= {
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
        }  # a member that was killed is missed so soon
    path = tmp_path / f"{table['Type']}.config"
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


def test_each_line_arrives_once_though_the_client_is_killed(tmp_path, bridge, kafka, topic):
    inbox, archive = tmp_path / "in", tmp_path / "arch"
    inbox.mkdir()
    archive.mkdir()
    name = topic()
    file = config(tmp_path, PRODUCER, kafka, Topic=name, TimePerFile=0, HeartbeatInterval=None)
    for i in range(8):
        (inbox / f"{i}.default").write_text("".join(f"{i}-{j}\n" for j in range(100)))
    for wait_s in (1.5, 2.0):
        running = bridge("files", file)
        time.sleep(wait_s)
        running.kill()
    running = bridge("files", file)
    wait_until(lambda: len(visible(archive)) == 8)
    assert running.terminate(SOON_S) == 0
    values = [m.value for m in consume(kafka.bootstrap_servers, name, 1)]
    assert sorted(values) == sorted(b"%d-%d" % (i, j) for i in range(8) for j in range(100))
    assert visible(inbox) == []


@pytest.mark.parametrize("text", [CONSUMER, ARCHIVE], ids=["counted", "daily"])
def test_a_message_with_any_time_is_in_a_file(tmp_path, bridge, kafka, topic, text):
    name, out = topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)}), tmp_path / "out"
    out.mkdir()
    changed = {"TimePerFile": 1} if text == CONSUMER else {}
    file = config(tmp_path, text, kafka, TopicList=[name], OutputDirectory="out", **changed)
    times_ms = [1_700_000_000_000, -1, -9 * 10**18, 17 * 10**17, 17 * 10**14, 1_700_000_000_000]
    records = [Foreign(b"%d" % i, [(b"\xff", b"")], at) for i, at in enumerate(times_ms)]
    produce_foreign(kafka.bootstrap_servers, name, records)
    running = bridge("files", file)

    def found():
        return {n: (out / n).read_bytes().split() for n in visible(out)}

    wait_until(lambda: sum(map(len, found().values())) == len(records) or running.popen.poll())
    assert running.terminate(SOON_S) == 0, running.stderr
    assert sorted(itertools.chain(*found().values())) == [record.value for record in records]
    if text == ARCHIVE:
        assert found()["2023-11-14_default.default"] == [b"0", b"5"]
    assert f"{name}/0@2: left out: a timestamp that cannot be kept, -9000000000" in running.stderr
    assert f"{name}/0@0: left out: 1 header" in running.stderr


@pytest.mark.parametrize("text", [CONSUMER, ARCHIVE], ids=["counted", "daily"])
def test_each_message_is_in_one_file_though_the_client_is_killed(
    tmp_path, bridge, kafka, topic, text
):
    name, out = topic(2), tmp_path / "out"
    out.mkdir()
    changed = {"TimePerFile": 1} if text == CONSUMER else {}
    file = config(tmp_path, text, kafka, TopicList=[name], OutputDirectory="out", **changed)
    sent = 0
    with Producer(producer_config(kafka, producer_type="async")) as producer:
        for last in (False, False, True):
            running = bridge("files", file)
            for _ in range(205):
                producer.send(name, b"m%d" % sent)
                sent += 1
            producer.send_heartbeat(name)
            producer.flush()
            if not last:
                time.sleep(2.5)
                running.kill()
    wanted = sorted(b"m%d" % i for i in range(sent))

    def found():
        names = [n for n in visible(out) if n.endswith("default.default")]
        return sorted(b"".join((out / n).read_bytes() for n in names).split())

    wait_until(lambda: len(found()) >= len(wanted))
    assert running.terminate(SOON_S) == 0
    assert found() == wanted
    if text == CONSUMER:
        counts = [
            len((out / n).read_bytes().split()) for n in visible(out) if n.endswith(".default")
        ]
        assert max(counts) == 10
        assert (out / f"{name}_aolog-client.heartbeat").exists()
