"""seek, replay and cursors: what they move, what is sent then, and what they refuse first."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aolog import Reader, Writer
from aolog.cli import main as aolog_main
from aolog.errors import AddressBeyondEnd, CursorLocked, UsageError
from aolog.format.slab import NO_TIMESTAMP
from bridge.cli import main
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.replay import replay_range
from bridge.deliver.seek import seek
from bridge.kafka.embedded import EmbeddedBroker
from tests.aolog.conftest import commit, overwrite
from tests.bridge.brokers import NOWHERE, PARTITIONS, TOPIC, assert_arrived, consume
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, cursor_of, fill, records_of
from tests.bridge.processes import Start
from tests.waiting import wait_until


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def told(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output + str(result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def refused(*arguments: object, status: int = 2) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    return result.stderr


@pytest.fixture
def delivered(log: Path, forward: Forward) -> list[int]:
    """Addresses of 1,000 records that were delivered."""
    fill(log, 1000)
    forward(drain=True).end()
    return [record.address for record in records_of(log)]


# --- seek -----------------------------------------------------------------------------------


def test_a_seek_back_sends_what_lies_between_once_more(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    delivered: list[int],
    committed: dict[str, list[int]],
) -> None:
    moved = told("seek", log, "--to", delivered[600])
    committed.clear()
    assert moved == {
        "cursor": "bridge",
        "before": cursor_before(log),
        "address": delivered[600],
        "forgot": True,
        "forgot_cluster": False,
        "done": True,
        "records": 400,
    }
    assert cursor_of(log) == delivered[600]
    assert forward(drain=True).end().acknowledged == 400
    arrived = [m.address for m in consume(broker.bootstrap_servers)]
    assert sorted(arrived) == sorted(delivered + delivered[600:])


def cursor_before(log: Path) -> int:
    with Reader(log) as reader:
        return reader.end()


def test_a_seek_back_for_what_is_missing_sends_only_that(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    delivered: list[int],
    committed: dict[str, list[int]],
) -> None:
    back = ("seek", log, "--to", delivered[600], "--only-missing")
    assert "400 records between: sent if Kafka lacks them" in run(*back, "--dry-run").stdout
    assert told(*back)["forgot"] is False
    committed.clear()
    fill(log, range(1000, 1100))
    status = forward(drain=True).end()
    assert (status.acknowledged, status.skipped) == (100, 400)
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_seek_forward_leaves_out_what_lies_between(
    broker: EmbeddedBroker, log: Path, forward: Forward, delivered: list[int]
) -> None:
    fill(log, range(1000, 1100))
    records = records_of(log)
    run("seek", log, "--to", records[1050].address)
    assert forward(drain=True).end().acknowledged == 50
    assert_arrived(records[:1000] + records[1050:], consume(broker.bootstrap_servers))


def test_places_are_addresses_times_ordinals_cursors_and_offsets_in_kafka(
    broker: EmbeddedBroker, log: Path, delivered: list[int]
) -> None:
    def place(text: object) -> int:
        moved = told(
            "seek", log, "--to", text, "--dry-run", "--bootstrap-servers", broker.bootstrap_servers
        )
        assert moved["done"] is False
        return int(moved["address"])

    with Reader(log, delivered[70], cursor="other") as reader:
        reader.commit()
    before = cursor_of(log)
    assert place("earliest") <= delivered[0]
    assert place("latest") == before
    assert place("ordinal:10") == delivered[10]
    assert place("cursor:other") == delivered[70]
    assert place("1970-01-01T00:05:00.2331Z") == delivered[300]
    message = consume(broker.bootstrap_servers)[500]
    where = f"kafka:{message.topic}/{message.partition}@{message.offset}"
    assert place(where) == message.address
    assert cursor_of(log) == before


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nonsense", "not a valid position"),
        ("kafka:t/0@5", "needs --bootstrap-servers"),
        ("cursor:none", "no cursor"),
        ("99999999999", "end"),
    ],
)
def test_an_invalid_position_is_refused_before_anything_moves(
    log: Path, delivered: list[int], place: str, words: str
) -> None:
    before = cursor_of(log)
    assert words in refused("seek", log, "--to", place)
    assert cursor_of(log) == before


def test_an_offset_at_which_no_record_of_the_log_lies_is_refused(
    broker: EmbeddedBroker, log: Path, tmp_path: Path, delivered: list[int]
) -> None:
    broker.create_topic("empty", 1)
    fill(tmp_path / "other", 10)
    (message, *_) = consume(broker.bootstrap_servers)
    where = f"kafka:{TOPIC}/{message.partition}@{message.offset}"
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    assert "of this log" in refused("seek", tmp_path / "other", "--to", where, *servers)
    for wrong in (f"{TOPIC}/0@99999", "empty/0@0"):
        refused("seek", log, "--to", f"kafka:{wrong}", *servers)


def test_a_seek_while_a_bridge_runs_is_refused(log: Path, forward: Forward) -> None:
    fill(log, 10)
    running = forward()
    running.until(lambda s: s.acknowledged == 10)
    with pytest.raises(CursorLocked):
        seek(str(log), 0, cursor="bridge")
    assert refused("seek", log, "--to", "earliest", status=5)


@pytest.mark.parametrize("only_missing", [False, True])
def test_a_seek_is_from_where_the_bridge_left_the_cursor(
    log: Path, delivered: list[int], monkeypatch: pytest.MonkeyPatch, *, only_missing: bool
) -> None:
    """A bridge that was running still, and ends just before the seek opens the cursor."""
    seek(str(log), delivered[100], cursor="bridge")
    forgotten: list[bool] = []

    def opened(path: str, *start: Any, cursor: str | None = None) -> Reader:
        if cursor is not None:
            with Reader(path, cursor=cursor) as bridge:
                bridge.seek(delivered[900])
                bridge.commit()
        return Reader(path, *start, cursor=cursor)

    monkeypatch.setattr("bridge.deliver.seek.Reader", opened)
    monkeypatch.setattr("bridge.deliver.seek.forget", lambda *_, **__: forgotten.append(True))
    moved = seek(str(log), delivered[500], cursor="bridge", only_missing=only_missing)
    assert (moved.before, moved.records) == (delivered[900], 400)
    assert moved.forgot is bool(forgotten) is not only_missing


def test_a_seek_that_is_refused_forgets_nothing(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    delivered: list[int],
    committed: dict[str, list[int]],
) -> None:
    with pytest.raises(AddressBeyondEnd):
        seek(str(log), delivered[-1] + (1 << 40), cursor="bridge", forget_cluster=True)
    with Reader(log, delivered[500], cursor="bridge") as reader:  # as `seek --only-missing`
        reader.seek(delivered[500])
        reader.commit()
    committed.clear()
    assert forward(drain=True).end().skipped == 500
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_seek_before_the_first_run_is_where_it_begins(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    records = records_of(log)
    assert "between" not in run("seek", log, "--to", "earliest").stdout
    assert "no cluster known yet" in run("cursors", log).stdout
    seek(str(log), records[40].address, cursor="bridge")
    assert forward(drain=True).end().acknowledged == 60
    assert_arrived(records[40:], consume(broker.bootstrap_servers))


# --- replay ---------------------------------------------------------------------------------


def test_a_range_is_sent_again_and_the_bridge_does_not_notice(
    broker: EmbeddedBroker, log: Path, forward: Forward, delivered: list[int]
) -> None:
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    before = cursor_of(log)
    arguments = ("replay", log, "--from", delivered[100], "--to", delivered[301], *servers)
    assert told(*arguments, "--dry-run")["records"] == 201
    assert len(consume(broker.bootstrap_servers)) == 1000
    status = told(*arguments, "--topic", TOPIC)
    assert (status["acknowledged"], status["state"]) == (201, "stopped")
    assert (status["begin"], status["end"]) == (delivered[100], delivered[301])
    assert (status["lag_records"], status["lag_bytes"]) == (0, 0)
    arrived = sorted(m.address for m in consume(broker.bootstrap_servers))
    assert arrived == sorted(delivered + delivered[100:301])
    assert cursor_of(log) == before
    assert sorted(p.name for p in (log / "cursors").iterdir()) == ["bridge.cursor", "bridge.lanes"]
    fill(log, range(1000, 1010))
    status = forward(drain=True).end()
    assert (status.acknowledged, status.skipped) == (10, 0)


def test_a_replay_to_a_topic_sends_records_there_that_name_another_and_lists_topics_with_counts(
    broker: EmbeddedBroker, log: Path, forward: Forward, committed: dict[str, list[int]]
) -> None:
    """A replay to a scratch topic must not publish to production."""
    for topic in ("production", "scratch"):
        broker.create_topic(topic, 1)
    with Writer(log) as writer:
        for n in range(30):
            writer.append(b"%d" % n, topic="production" if n % 3 == 0 else None)
    forward(drain=True).end()
    committed.clear()
    before = len(consume(broker.bootstrap_servers, "production", 1))
    arguments = ("replay", log, "--from", "earliest", "--to", "latest",
                 "--bootstrap-servers", broker.bootstrap_servers)  # fmt: skip  # a command line
    assert told(*arguments, "--topic", "scratch", "--dry-run")["topics"] == {"scratch": 30}
    said = run(*arguments, "--topic", "scratch")
    assert said.stdout.endswith(": 30 to scratch\n")
    assert len(consume(broker.bootstrap_servers, "scratch", 1)) == 30
    assert len(consume(broker.bootstrap_servers, "production", 1)) == before
    dry = told(*arguments, "--dry-run")
    assert (dry["records"], dry["topics"]) == (30, {"": 20, "production": 10})
    committed.clear()
    end = next(r.address for r in records_of(log) if r.topic is None)
    named = ("replay", log, "--from", "earliest", "--to", end, *arguments[-2:])
    assert told(*named)["topics"] == {"production": 1}


def test_a_replay_over_a_gap_says_so_with_its_own_status_and_is_over_all_the_same(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    committed: dict[str, list[int]],
    bridge: Start,
) -> None:
    fill(log, 300, batch_bytes=1000)
    forward(drain=True).end()
    whole = len(records_of(log))
    (slab,) = log.glob("*.slab")
    overwrite(slab, slab.stat().st_size // 2, bytes(50))
    rest = len(records_of(log))
    assert 0 < rest < whole
    committed.clear()
    arguments = (
        "replay", log, "--from", "earliest", "--to", "latest", "--topic", TOPIC,
        "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip  # a command line
    result = run(*arguments)
    assert result.exit_code == 3
    assert result.stdout.startswith(f"{rest} records were sent again, ")
    assert f"1 gap met (1 corrupt): {whole - rest} records lost" in result.stderr.splitlines()[-1]
    assert not (log / "cursors/replay.cursor").exists()
    machine = bridge(*arguments, "--json")
    assert machine.end(30) == 3
    warned, ended = map(json.loads, machine.stderr.splitlines())
    assert "gap in the log" in warned["message"]
    assert ended["error"]["records_lost"] == whole - rest


def test_a_replay_that_cannot_send_says_why_and_how_far_it_came_when_it_is_stopped(
    bridge: Start, log: Path, delivered: list[int]
) -> None:
    process = bridge(
        "replay", log, "--from", "earliest", "--to", "latest", "--topic", TOPIC,
        "--bootstrap-servers", NOWHERE,
    )  # fmt: skip  # a command line
    wait_until(lambda: f"{NOWHERE}: " in process.stderr)
    assert process.terminate() == 143
    assert process.stderr.splitlines()[-1] == "stopped: 0 records sent again, not all"


def test_what_the_bridge_has_not_passed_is_not_replayed(log: Path, delivered: list[int]) -> None:
    """Its stamps would make a restart take what lies before them for delivered."""
    fill(log, range(1000, 1010))
    with pytest.raises(UsageError, match=r"not yet .*; give --to cursor:bridge"):
        options = ForwarderOptions(bootstrap_servers=NOWHERE)
        replay_range(str(log), 0, cursor_before(log), options, topic=TOPIC)
    assert not (log / "cursors/replay.cursor").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--from", "earliest"),
        ("--to", "latest"),
        ("--dead-letter", "--from", "earliest", "--to", "latest"),
        ("--dead-letter", "--topic", "t"),
        ("--dead-letter", "--dry-run"),
        ("--from", "latest", "--to", "earliest"),
        ("--from", "earliest", "--to", "latest", "-X", "acks=0"),
        ("--dead-letter",),
    ],
)
def test_a_replay_that_says_nothing_clear_is_refused(log: Path, arguments: tuple[str, ...]) -> None:
    fill(log, 10)
    refused("replay", log, "--bootstrap-servers", NOWHERE, *arguments)
    assert not (log / "cursors").exists()


def test_dead_letters_go_where_they_were_meant_to_and_only_once(
    broker: EmbeddedBroker, log: Path, forward: Forward, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("own", 2)
    large = []
    with Writer(log) as writer:
        append(writer, range(100))
        for number, topic in enumerate([None, "own", None]):
            key = None if number == 2 else b"k%d" % number
            value, us = b"%d" % number * 2_000_000, (77, 88, NO_TIMESTAMP)[number]
            headers = [("h", b"1")]
            large.append(writer.append(value, key=key, headers=headers, timestamp=us, topic=topic))
    forward(drain=True, poison="dead-letter").end()
    assert told("status", "--log", log)["logs"][0]["dead_lettered"] == 3
    arguments = (
        "replay", log, "--dead-letter", "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip  # a command line
    says = refused(*arguments, status=6)  # they are too large as before
    assert "or pass it with --poison drop" in says
    assert "another replay tries again" in caplog.text
    assert "SIGHUP" not in caplog.text
    assert "--poison dead-letter" not in says
    larger = (*arguments, "-X", "message.max.bytes=4000000")
    assert told(*larger)["acknowledged"] == 3
    assert run(*larger).stdout == "0 dead letters were sent again\n"
    assert told("status", "--log", log)["logs"][0]["dead_lettered"] == 0
    own = consume(broker.bootstrap_servers, "own", 2)
    here = [m for m in consume(broker.bootstrap_servers) if len(m.value or b"") > 1000]
    assert [m.value for m in own] == [b"1" * 2_000_000]
    assert {m.value: m.timestamp_us for m in here} == {b"0" * 2_000_000: 77, b"2" * 2_000_000: None}
    for message in (*own, *here):
        assert message.headers[0] == ("h", b"1")
        assert [name for name, _ in message.headers] == ["h", "aolog-origin"]
    fill(log, range(100, 120))
    status = forward(drain=True, poison="dead-letter").end()
    assert (status.acknowledged, status.skipped, status.dead_lettered) == (20, 0, 0)


# --- with a configuration -------------------------------------------------------------------


def test_a_configuration_says_which_cluster_cursor_and_topic_are_meant(
    broker: EmbeddedBroker, log: Path, delivered: list[int], tmp_path: Path
) -> None:
    broker.create_topic("routed", 1)
    config = tmp_path / "bridge.toml"
    config.write_text(
        f"""
        root = "."
        cluster = "main"
        [clusters.main]
        bootstrap_servers = "{broker.bootstrap_servers}"
        [clusters.other]
        bootstrap_servers = "{NOWHERE}"
        settings."message.max.bytes" = 2000
        [[routes]]
        log = "{log.name}"
        topic = "routed"
        """
    )
    use = ("--config", config)
    message = consume(broker.bootstrap_servers)[500]
    where = f"kafka:{message.topic}/{message.partition}@{message.offset}"
    moved = told("seek", log, "--to", where, "--dry-run", *use)
    assert (moved["cursor"], moved["address"]) == ("bridge", message.address)
    moved = told("seek", log, "--to", "earliest", "--dry-run", *use, "--cluster", "other")
    assert (moved["cursor"], moved["before"]) == ("bridge.other", None)
    again = ("--from", "ordinal:5", "--to", "ordinal:9")
    assert told("replay", log, *again, *use)["acknowledged"] == 4
    assert [m.address for m in consume(broker.bootstrap_servers, "routed", 1)] == delivered[5:9]
    assert len(consume(broker.bootstrap_servers)) == 1000


def test_a_configuration_that_is_wrong_or_has_no_such_cluster_is_refused_before_anything_moves(
    log: Path, delivered: list[int], tmp_path: Path
) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text(f'[clusters.main]\nbootstrap_servers = "{NOWHERE}"\n')
    before = cursor_of(log)
    back = ("seek", log, "--to", "earliest")
    assert "no cluster 'x'; known are main" in refused(*back, "--config", config, "--cluster", "x")
    assert "name it with --config" in refused(*back, "--cluster", "main")
    assert "acks" in refused(*back, "--config", config, "-X", "acks=0")
    everything = ("replay", log, "--from", "earliest", "--to", "latest")
    assert "or --config" in refused(*everything)
    config.write_text(f'[clusters.main]\nbootstrap_server = "{NOWHERE}"\n')
    for command in (back, everything):
        assert "did you mean 'bootstrap_servers'" in refused(*command, "--config", config)
    assert cursor_of(log) == before


# --- cursors --------------------------------------------------------------------------------


def test_cursors_says_where_bridges_stand_and_what_their_lanes_hold(
    log: Path, delivered: list[int]
) -> None:
    commit(log, 0, "no-bridge")
    (line,) = run("cursors", log, "--json").stdout.splitlines()
    found = json.loads(line)
    assert (found["name"], found["address"]) == ("bridge", cursor_of(log))
    assert found["cluster"].startswith("mockCluster")
    assert found["lag"]["records"] == 0
    assert [lane["partition"] for lane in found["lanes"]] == list(range(PARTITIONS))
    assert max(lane["address"] for lane in found["lanes"]) == delivered[-1]
    words = run("cursors", log).stdout
    in_list = CliRunner().invoke(aolog_main, ["cursor", "show", str(log), "bridge"]).stdout
    assert "pending:" in in_list
    values = [line.partition(":")[2].strip() for line in in_list.splitlines()]
    assert words.splitlines()[1].split() == " ".join(values).split()  # the same words in both
    assert f"{TOPIC}/3  up to address" in words
    assert f"bridge: Kafka cluster {found['cluster']}" in words
    assert "no-bridge" not in words


# --- what no option takes -------------------------------------------------------------------


@pytest.mark.parametrize("lane", ["t", "t/0@x", "t/2147483648@1", "t/0@9223372036854775808"])
def test_a_place_that_kafka_cannot_have_is_refused(log: Path, lane: str) -> None:
    fill(log, 1)
    said = refused("seek", log, "--to", f"kafka:{lane}", "--bootstrap-servers", NOWHERE)
    assert "is not TOPIC/PARTITION@OFFSET" in said


@pytest.mark.parametrize("question", ["offsets --topic t", "consume t", "topics --create new"])
def test_a_question_that_the_embedded_broker_cannot_answer_says_so_at_once(
    broker: EmbeddedBroker, question: str
) -> None:
    begun_s = time.monotonic()
    said = refused(*question.split(), "--bootstrap-servers", broker.bootstrap_servers, status=6)
    assert "is the embedded broker, which cannot answer this; use a Kafka: `aolog-bridge" in said
    assert time.monotonic() - begun_s < 4.0
