"""A cursor belongs to one Kafka cluster: another one is refused before anything is sent."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from aolog import Writer
from aolog.log.retention import Retention, prune
from aolog.storage.storage import Storage
from bridge.cli import main
from bridge.deliver.checkpoints import checkpoints_path
from bridge.deliver.seek import seek
from bridge.errors import OtherCluster
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.identity import Identity
from tests.bridge.brokers import PARTITIONS, TOPIC, assert_arrived, consume
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, cursor_of, fill, notes_of, records_of
from tests.bridge.processes import Process
from tests.kafka.late import LateProxy

AUDIT = "audit"
LANE = {"topic": TOPIC, "partition": 0, "offset": 0, "address": -1}


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def note(log: Path, **changes: object) -> None:
    """Changes the notes on the bridge's cursor; None takes a field out."""
    notes = {
        name: value for name, value in {**notes_of(log), **changes}.items() if value is not None
    }
    Path(checkpoints_path(str(log), "bridge")).write_text(json.dumps(notes))


def test_a_cursor_of_another_cluster_is_refused_and_nothing_changes(
    broker: EmbeddedBroker, other: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    forward(drain=True).end()
    stood, notes = cursor_of(log), Path(checkpoints_path(str(log), "bridge")).read_bytes()
    fill(log, range(100, 150))
    with pytest.raises(OtherCluster, match="is of mockCluster") as refused:
        forward(bootstrap_servers=other.bootstrap_servers, drain=True).end()
    assert refused.value.hint is not None
    assert "--forget-cluster" in refused.value.hint
    assert consume(other.bootstrap_servers) == []
    assert cursor_of(log) == stood
    assert Path(checkpoints_path(str(log), "bridge")).read_bytes() == notes
    assert forward(drain=True).end().acknowledged == 50
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_after_forget_cluster_another_cluster_gets_all_records(
    other: EmbeddedBroker, log: Path, forward: Forward, committed: dict[str, list[int]]
) -> None:
    fill(log, 100)
    forward(drain=True).end()
    committed.clear()
    seek(str(log), 0, cursor="bridge", only_missing=True)  # lanes are ahead of it now
    said = run("seek", log, "--forget-cluster", "--dry-run")
    assert "would belong to the next cluster" in said
    with pytest.raises(OtherCluster):
        forward(bootstrap_servers=other.bootstrap_servers).end()
    assert "belongs to the next cluster that a bridge with it meets" in run(
        "seek", log, "--forget-cluster"
    )
    forward(bootstrap_servers=other.bootstrap_servers, drain=True).end()
    assert_arrived(records_of(log), consume(other.bootstrap_servers))
    with pytest.raises(OtherCluster):
        forward().end()


# --- a configuration -------------------------------------------------------------------------


def test_another_default_cluster_does_not_exchange_cursors(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The default's cursor is "bridge", any other's "bridge.NAME". Two clusters of a configuration
    may be one Kafka, with different rights."""
    broker.create_topic(AUDIT, PARTITIONS)
    servers = broker.bootstrap_servers
    clusters = {name: {"bootstrap_servers": servers} for name in ("main", "archive")}
    routes = [
        {"record_topic": topic, "cluster": name}
        for name, topic in zip(clusters, (TOPIC, AUDIT), strict=True)
    ]
    root, file = tmp_path / "logs", tmp_path / "bridge.json"

    def fill_both(each: int) -> None:
        with Writer(root / "a") as writer:
            for topic in (TOPIC, AUDIT) * each:
                writer.append(b"x", topic=topic)

    def drain(default: str) -> tuple[int, str]:
        config = {"root": str(root), "clusters": clusters, "cluster": default, "routes": routes}
        file.write_text(json.dumps({**config, "log_format": "text"}))
        process = Process(tmp_path, "run", "--drain", "--config", str(file))
        return process.popen.wait(60), process.stderr

    def arrived() -> list[int]:
        return [len(consume(servers, topic)) for topic in (TOPIC, AUDIT)]

    fill_both(50)
    assert drain("main")[0] == 0
    assert arrived() == [50, 50]
    fill_both(1)
    for _ in range(2):  # what is refused changes nothing
        status, said = drain("archive")
        assert (status, said.count("other_cluster")) == (6, 2)
    assert arrived() == [50, 50]
    clusters["main"]["cursor"] = "bridge"  # as the hint says
    clusters["archive"]["cursor"] = "bridge.archive"
    assert drain("archive")[0] == 0
    assert arrived() == [51, 51]


# --- what else there is to it ----------------------------------------------------------------


def test_a_name_that_leads_to_another_cluster_while_the_bridge_runs_loses_nothing(
    broker: EmbeddedBroker, other: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """The other's topic has more records, so that offsets say nothing."""
    with contextlib.closing(LateProxy("127.0.0.1:0", broker.bootstrap_servers)) as switch:
        fill(log, 100)
        running = forward(bootstrap_servers=switch.address)
        running.until(lambda s: s.acknowledged == 100)
        producer = Producer({"bootstrap.servers": other.bootstrap_servers, "log_level": 0})
        for number in range(1_000):
            producer.produce(TOPIC, b"others", partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        broker.set_down()
        switch.turn(other.bootstrap_servers)
        fill(log, range(100, 150))
        with pytest.raises(OtherCluster):
            running.end()
        broker.set_up()
        switch.turn(broker.bootstrap_servers)
        assert forward(bootstrap_servers=switch.address, drain=True).end().acknowledged == 50
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_record_that_one_cluster_refused_can_be_sent_to_another(
    other: EmbeddedBroker, log: Path, forward: Forward, committed: dict[str, list[int]]
) -> None:
    fill(log, 5)
    with Writer(log) as writer:
        append(writer, [5], size=3000)
        append(writer, range(6, 9))
    refusing = {"poison": "dead-letter", "settings": {"message.max.bytes": "2000"}}
    assert forward(drain=True, **refusing).end().dead_lettered == 1
    committed.clear()
    run("seek", log, "--to", "earliest")
    assert forward(drain=True, **refusing).end().dead_lettered == 0  # it is kept already
    committed.clear()
    run("seek", log, "--to", "earliest", "--forget-cluster")
    forward(drain=True, poison="dead-letter", bootstrap_servers=other.bootstrap_servers).end()
    assert_arrived(records_of(log), consume(other.bootstrap_servers))


@pytest.mark.parametrize(
    "noted",
    [{"delivery": "exactly_once"}, {"clean": False}, {"lanes": [LANE]}],
    ids=["transactions", "cut off", "lanes"],
)
def test_a_cursor_at_the_begin_of_which_something_may_have_been_sent_keeps_its_cluster(
    log: Path, forward: Forward, noted: dict[str, object]
) -> None:
    fill(log, 10)
    seek(str(log), 0, cursor="bridge")
    # In good order, so that the way of delivering may change.
    note(log, **{"cluster": "another", "clean": True, **noted})
    with pytest.raises(OtherCluster):
        forward(drain=True).end()


def test_what_retention_has_removed_was_passed(log: Path, forward: Forward) -> None:
    """The cursor is at the first record that is left, and no lane is noted."""
    fill(log, 100)
    forward(drain=True).end()
    fill(log, 10)
    assert prune(str(log), Storage(), Retention(max_slabs=1)).slabs == 1
    assert len(records_of(log)) == 10
    note(log, cluster="another", lanes=[])
    with pytest.raises(OtherCluster):
        forward(drain=True).end()


def test_a_cursor_that_has_passed_nothing_may_meet_any_cluster(log: Path, forward: Forward) -> None:
    """As after wrong servers at the first start, and a topic that is not there."""
    fill(log, 10)
    seek(str(log), 0, cursor="bridge")
    note(log, cluster="wrong", clean=True, lanes=[])
    assert forward(drain=True).end().acknowledged == 10


def test_a_cluster_that_is_renamed_is_the_same_and_one_with_another_id_is_not() -> None:
    identity = Identity("a log/cursors/c.lanes", "one", "main", called="kafka")
    identity.meet("one", "k:9092")
    assert (identity.known, identity.name) == ("one", "kafka")
    with pytest.raises(OtherCluster, match="'c' is of one") as caught:
        identity.meet("two", "k:9092")
    assert "seek 'a log' --cursor c --forget-cluster" in str(caught.value.hint)
    assert (identity.known, identity.name) == ("one", "kafka")
