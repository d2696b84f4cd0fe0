"""A cursor belongs to one Kafka cluster: another one behind it is refused before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from aolog import Writer
from bridge.cli import main
from bridge.embedded import EmbeddedBroker
from bridge.errors import OtherCluster
from bridge.identity import Identity
from bridge.lanes import notes_path
from bridge.replaying import replay_range
from bridge.seeking import seek
from tests.bridge.conftest import (
    PARTITIONS,
    TOPIC,
    Process,
    Run,
    append,
    assert_arrived,
    consume,
    cursor_of,
    fill,
    records_of,
)

Forward = Callable[..., Run]
AUDIT = "audit"


@pytest.fixture
def other() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        yield broker


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_what_a_cursor_has_passed_is_not_taken_for_another_cluster_s(
    broker: EmbeddedBroker, other: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    forward(drain=True).end()
    stood, notes = cursor_of(log), Path(notes_path(str(log), "bridge")).read_bytes()
    with Writer(log) as writer:
        append(writer, range(100, 150))
    with pytest.raises(OtherCluster, match="is of mockCluster") as refused:
        forward(bootstrap_servers=other.bootstrap_servers, drain=True).end()
    assert refused.value.hint is not None
    assert "--forget-cluster" in refused.value.hint
    assert consume(other.bootstrap_servers) == []
    assert cursor_of(log) == stood
    assert Path(notes_path(str(log), "bridge")).read_bytes() == notes
    assert forward(drain=True).end().acknowledged == 50
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_one_that_was_noted_by_an_older_release_takes_the_cluster_that_it_meets(
    broker: EmbeddedBroker, other: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    forward(drain=True).end()
    path = Path(notes_path(str(log), "bridge"))
    notes = json.loads(path.read_text())
    assert notes.pop("cluster").startswith("mockCluster")
    path.write_text(json.dumps({**notes, "clean": False}))
    running = forward()
    running.until(lambda s: s.state == "sending")
    assert "cluster" in json.loads(path.read_text())  # at once: it may be killed
    running.stop()
    with pytest.raises(OtherCluster):
        forward(bootstrap_servers=other.bootstrap_servers).end()


def test_a_cursor_that_may_go_to_another_cluster_takes_what_lanes_held_along(
    broker: EmbeddedBroker, other: EmbeddedBroker, log: Path, forward: Forward, committed: dict[str, list[int]]
) -> None:  # fmt: skip  # one line
    fill(log, 100)
    forward(drain=True).end()
    committed.clear()
    seek(str(log), 0, cursor="bridge", only_missing=True)  # lanes are ahead of it now
    said = run("seek", log, "--forget-cluster", "--dry-run")
    assert "would go on in whichever cluster" in said
    with pytest.raises(OtherCluster):
        forward(bootstrap_servers=other.bootstrap_servers).end()
    assert "goes on in whichever cluster it meets next" in run("seek", log, "--forget-cluster")
    forward(bootstrap_servers=other.bootstrap_servers, drain=True).end()
    assert_arrived(records_of(log), consume(other.bootstrap_servers))
    with pytest.raises(OtherCluster):
        forward().end()


def test_a_seek_back_alone_keeps_the_cluster(
    broker: EmbeddedBroker, other: EmbeddedBroker, log: Path, forward: Forward, committed: dict[str, list[int]]
) -> None:  # fmt: skip  # one line
    fill(log, 100)
    forward(drain=True).end()
    committed.clear()
    seek(str(log), 0, cursor="bridge")
    with pytest.raises(OtherCluster):
        forward(bootstrap_servers=other.bootstrap_servers).end()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [((), "--to PLACE"), (("--to", "0", "--only-missing", "--forget-cluster"), "not known")],
)
def test_a_seek_that_says_too_little_or_too_much_is_refused(
    log: Path, arguments: tuple[str, ...], why: str
) -> None:
    result = CliRunner().invoke(main, ["seek", str(log), *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_cursors_say_of_which_cluster_they_are(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 10)
    run("seek", log, "--to", "earliest")
    assert json.loads(run("cursors", log, "--json"))["cluster"] is None
    assert "of Kafka cluster" not in run("cursors", log)
    forward(drain=True).end()
    cluster = json.loads(run("cursors", log, "--json"))["cluster"]
    assert cluster.startswith("mockCluster")
    assert f"of Kafka cluster {cluster}" in run("cursors", log)


def test_a_range_is_replayed_to_any_cluster(
    broker: EmbeddedBroker, other: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    forward(drain=True).end()
    end = cursor_of(log)
    for to in (broker, other):
        servers = to.bootstrap_servers
        replay_range(str(log), 0, end, topic=TOPIC, bootstrap_servers=servers).run()
    assert_arrived(records_of(log), consume(other.bootstrap_servers))


def test_another_default_cluster_does_not_exchange_cursors(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path
) -> None:
    """The default's cursor is "bridge", any other's "bridge.NAME"."""
    for each in (broker, other):
        each.create_topic(AUDIT, PARTITIONS)
    with Writer(tmp_path / "logs" / "a") as writer:
        for number in range(100):
            writer.append(b"%d" % number, topic=AUDIT if number % 2 else TOPIC)
    clusters = {
        "main": {"bootstrap_servers": broker.bootstrap_servers},
        "archive": {"bootstrap_servers": other.bootstrap_servers},
    }

    def drain(default: str) -> tuple[int, str]:
        config = {
            "root": str(tmp_path / "logs"),
            "clusters": clusters,
            "cluster": default,
            "routes": [
                {"record_topic": AUDIT, "cluster": "archive"},
                {"record_topic": TOPIC, "cluster": "main"},
            ],
        }
        (tmp_path / "bridge.json").write_text(json.dumps(config))
        process = Process(tmp_path, "run", "--drain", "--config", str(tmp_path / "bridge.json"))
        return process.popen.wait(60), process.stderr

    def arrived() -> list[int]:
        return [
            len(consume(each.bootstrap_servers, topic))
            for each in (broker, other)
            for topic in (TOPIC, AUDIT)
        ]

    assert drain("main")[0] == 0
    assert arrived() == [50, 0, 0, 50]
    with Writer(tmp_path / "logs" / "a") as writer:
        writer.append(b"more", topic=AUDIT)
        writer.append(b"more", topic=TOPIC)
    status, said = drain("archive")
    assert status == 6
    assert "other_cluster" in said
    assert arrived() == [50, 0, 0, 50]
    clusters["main"]["cursor"], clusters["archive"]["cursor"] = "bridge", "bridge.archive"
    assert drain("archive")[0] == 0
    assert arrived() == [51, 0, 0, 51]


def test_a_cluster_without_a_name_is_any() -> None:
    identity = Identity("cursors/c.lanes", "one", "main", called="kafka")
    identity.meet(None, "k:9092")
    identity.meet("", "k:9092")
    identity.meet("one", "k:9092")
    assert (identity.known, identity.name) == ("one", "kafka")
    identity.called = "other"
    with pytest.raises(OtherCluster, match="'c' is of one"):
        identity.meet("two", "k:9092")
    assert (identity.known, identity.name) == ("one", "kafka")
