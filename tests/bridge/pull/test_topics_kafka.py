"""Which topics a pull takes: patterns, a file that changes, new partitions; and input that it refuses."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewPartitions

from aolog import Writer
from bridge.errors import DestinationError
from bridge.kafka.catalog import Catalog
from bridge.pull.origin import HEADER_NAME, Source
from bridge.pull.pull_options import PullOptions
from bridge.pull.puller import Puller
from tests.bridge.pull.pulling import Killed, expected, origins, produce, pull
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 1")]


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a group"])
def test_topics_come_by_pattern_and_go_by_a_file_while_it_runs(kafka, topic, tmp_path, grouped):
    name, root = topic(), tmp_path / "root"
    root.mkdir()
    log, file = root / "a", tmp_path / "topics"
    other = f"other-{name}"
    kafka.create_topic(other)
    produce(kafka, name, range(10))
    produce(kafka, other, range(10))
    file.write_text(f"# topics\n\n^{name}\n")
    more = ("--root", str(root), "--group", name) if grouped else ()
    process = Killed(kafka, log, f"^{name}", "--topics-file", str(file), *more)
    process.until(lambda status: status["pulled"] == 10)
    file.write_text(f"{other}\n")
    kafka.create_topic(f"{name}-new")
    produce(kafka, f"{name}-new", range(10))
    process.popen.send_signal(signal.SIGHUP)
    process.until(lambda status: status["pulled"] == 30)
    file.write_text("")
    process.until(lambda status: f"{other}/0" not in status["positions"])
    produce(kafka, other, range(10, 20))
    produce(kafka, name, range(10, 20))
    process.until(lambda status: status["pulled"] == 40)
    process.stop()
    assert origins(log) == sorted(
        [*expected(name, 20, 1), *expected(other, 10, 1), *expected(f"{name}-new", 10, 1)]
    )


def grow(kafka, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)

    def grown() -> bool:
        found = admin.list_topics(name, timeout=30).topics[name]
        return len(found.partitions) == partitions

    wait_until(grown)


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a group"])
def test_latest_is_the_end_at_the_first_start_and_what_appears_later_is_pulled_whole(
    kafka, topic, tmp_path, grouped
):
    """Also what arrives while a pull that has received nothing is stopped."""
    name, root = topic(1), tmp_path / "root"
    root.mkdir()
    more = ("--root", str(root), "--group", name) if grouped else ()
    produce(kafka, name, range(10))
    process = Killed(kafka, root / "a", f"^{name}", "--from", "latest", *more)
    process.until(lambda status: status["positions"] == {f"{name}/0": 10})
    process.stop()
    produce(kafka, name, range(10, 20))
    grow(kafka, name, 2)
    produce(kafka, name, range(20, 30), 2)
    process.start()
    process.until(lambda status: status["pulled"] == 20)
    grow(kafka, name, 3)
    produce(kafka, name, range(30, 60), 3)
    process.until(lambda status: status["pulled"] == 50)
    kafka.create_topic(f"{name}-new")
    produce(kafka, f"{name}-new", range(10))
    process.until(lambda status: status["pulled"] == 60)
    process.stop()
    values = [b"value %d" % number for number in range(10, 60)]
    found = origins(root / "a")
    assert sorted(value for each, _, _, value in found if each == name) == sorted(values)
    assert sum(each != name for each, *_ in found) == 10


def committed(kafka, group: str) -> bool:
    """Whether the group has committed an offset."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(30).topic_partitions
    return any(place.offset >= 0 for place in places)


def refused(kafka, log, *topics: str, exit_code: int, more: tuple[str, ...] = ()) -> str:
    result = pull(kafka, log, *topics, more=more)
    assert result.exit_code == exit_code, result.output
    assert not log.exists()
    return result.stderr


def test_wrong_topics_are_refused_before_anything_is_written(kafka, topic, tmp_path):
    name, log, file = topic(), tmp_path / "log", tmp_path / "topics"
    for wrong, said in (("^(", "not a regular expression"), ("a b", "not a valid topic name")):
        assert said in refused(kafka, log, wrong, exit_code=2)
        file.write_text(wrong)
        assert said in refused(kafka, log, more=("--topics-file", str(file)), exit_code=2)
    assert "no topic matches" in refused(kafka, log, f"^{name}-not", exit_code=6)
    assert "there is no topic" in refused(kafka, log, f"{name}-not", exit_code=6)


def test_a_group_of_another_archive_or_another_protocol_is_refused(kafka, topic, tmp_path):
    name, first, second = topic(), tmp_path / "first", tmp_path / "second"
    produce(kafka, name, range(10))
    for each in (first, second):
        each.mkdir()
    grouped = ("--group", name, "--root", str(second))
    process = Killed(kafka, first / "a", name, "--root", str(first), "--group", name)
    process.until(lambda status: status["pulled"] == 10)
    assert pull(kafka, first / "a", name).exit_code == 5, "it fills the log"
    other = (*grouped, "-X", "group.protocol=consumer")
    said = refused(kafka, second / "a", name, more=other, exit_code=6)
    assert "uses Kafka's classic group protocol" in said
    wait_until(lambda: committed(kafka, name))  # it commits each second
    said = refused(kafka, second / "a", name, more=grouped, exit_code=2)
    assert f"group '{name}' fills another archive" in said
    assert not (second / ".pull").exists()
    process.stop()


def test_an_archive_that_is_ahead_of_its_partition_is_refused_and_stays_as_it_is(
    kafka, topic, tmp_path
):
    """The cluster has lost records, and will give their offsets to others."""
    name, log = topic(), tmp_path / "log"
    produce(kafka, name, range(10))
    catalog = Catalog(kafka.bootstrap_servers, {})
    source = Source(catalog.cluster_id(), catalog.topic(name).id, 0)
    with Writer(log) as writer:
        writer.append(b"v", topic=name, headers=[(HEADER_NAME, source.prefix + b"99")])
    pulling = Puller(PullOptions(kafka.bootstrap_servers, (name,), str(log), sure_s=0.5))
    with pytest.raises(
        DestinationError, match=f"{name}/0 ends at 10, and the archive has it up to 100"
    ):
        pulling.run()
    assert origins(log) == [(name, 0, 99, b"v")]
