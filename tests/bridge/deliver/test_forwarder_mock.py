"""The forwarder against the embedded broker: what arrives, and what happens when something fails.
Forwarders run in a thread, or in a process if signals matter."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aolog import Reader, Retention, Writer
from aolog.log.retention import prune
from aolog.storage.storage import Storage
from bridge.deliver import log_source as source_module
from bridge.deliver.at_least_once.engine import Engine
from bridge.deliver.position import Position
from bridge.errors import Undeliverable
from bridge.kafka.events import Failed
from bridge.kafka.producer import Cluster
from tests.bridge.conftest import (
    PARTITIONS,
    TOPIC,
    Process,
    Run,
    answer_within,
    append,
    assert_arrived,
    consume,
    cursor_of,
    fill,
    notes_of,
    records_of,
    wait_until,
)

if TYPE_CHECKING:
    from bridge.kafka.embedded import EmbeddedBroker
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Callback

PRODUCE, INIT_PRODUCER_ID = 0, 22  # numbers of requests in Kafka's protocol
ONE_AT_A_TIME = {
    "max.in.flight": "1"
}  # the mock does not judge order: see bridge/kafka/embedded.py

Forward = Callable[..., Run]


# --- what arrives ---------------------------------------------------------------------------


def test_key_value_headers_and_timestamp_arrive_as_they_were_appended(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    long = bytes(range(256)) * 1500
    with Writer(log) as writer:
        for value in (None, b"", b"v", b"\0", long):
            for key in (None, b"", b"k", long[:1000]):
                writer.append(value, key=key)
        for headers in (
            [("", b"")],
            [("a", None)],
            [("a", b"1"), ("a", b"2"), ("b", b""), ("a", b"1")],
            [("ключ", b"\xff\0"), ("aolog", b"not a stamp"), ("x" * 500, long[:5000])],
        ):
            writer.append(b"v", key=b"k", headers=headers)
        for timestamp in (
            0, 1, 999, 1000, 1999, 1_600_000_000_123_456, 10**16, -1, -(10**15), 2**62,
        ):  # fmt: skip
            writer.append(b"v", timestamp=timestamp)
    status = forward(drain=True).end()
    records = records_of(log)
    assert len(records) == 34
    messages = consume(broker.bootstrap_servers)
    assert_arrived(records, messages)
    assert (status.acknowledged, status.lag_records, status.state) == (34, 0, "stopped")
    assert cursor_of(log) == status.committed == status.position
    with Reader(log) as reader:
        assert {(m.uuid, m.epoch) for m in messages} == {(reader.topic_uuid, reader.epoch)}


def test_records_with_topics_of_their_own_go_there_and_others_to_the_default(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    broker.create_topic("own", 2)
    with Writer(log, topic="other") as writer:
        for number in range(600):
            topic = (None, "own", TOPIC)[number % 3]
            writer.append(b"%d" % number, key=b"%d" % (number % 7), topic=topic)
    forward(drain=True).end()
    records = records_of(log)
    for topic, partitions in ((TOPIC, PARTITIONS), ("own", 2)):
        wanted = [r for r in records if (r.topic or TOPIC) == topic]
        assert len(wanted) == (400 if topic == TOPIC else 200)
        assert_arrived(wanted, consume(broker.bootstrap_servers, topic, partitions))


def test_without_an_option_the_logs_own_topic_is_the_default(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    broker.create_topic("own", 1)
    fill(log, 10, topic="own")
    forward(topic=None, drain=True).end()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers, "own", 1), topic="own")


def test_a_format_1_log_is_forwarded_and_resumed(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    with Writer(log, format="queuefka") as writer:
        for number in range(700):
            writer.append(b"%d" % number)
    forward(drain=True).end()
    with Writer(log, format="queuefka") as writer:
        for number in range(700, 1000):
            writer.append(b"%d" % number)
    begin_s = time.time()
    status = forward(drain=True).end()
    messages = consume(broker.bootstrap_servers)
    assert_arrived(records_of(log), messages)
    assert [m.value for m in messages] == [b"%d" % number for number in range(1000)]
    assert status.acknowledged == 300
    assert {m.timestamp_us for m in messages} == {None}
    assert all(abs(m.timestamp_ms / 1000 - begin_s) < 600 for m in messages)
    assert len({m.uuid for m in messages}) == 1
    assert status.lag_records is None


def test_an_empty_log_is_drained_at_once_even_without_a_cluster(
    log: Path, forward: Forward, broker: EmbeddedBroker
) -> None:
    broker.set_down()
    Writer(log).close()
    status = forward(drain=True).end(5.0)
    assert (status.state, status.acknowledged, status.lag_records) == ("stopped", 0, 0)


def test_draining_ends_with_what_was_there_at_the_start(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    with Writer(log, flush_seconds=0.01) as writer:
        append(writer, range(1000))
        writer.flush()
        broker.set_rtt_ms(100)
        run = forward(drain=True)
        number = 1000
        while run.alive and number < 50_000:
            append(writer, range(number, number + 20))
            number += 20
            time.sleep(0.005)
        assert run.end().acknowledged >= 1000
    assert_arrived(records_of(log), consume(broker.bootstrap_servers), complete=False)


def test_a_connection_does_not_wait_for_the_client_to_look_for_brokers_again(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """It does so each half second, and finds one the second time, where nobody asks twice."""
    broker.set_rtt_ms(10)
    fill(log, 10)
    took_s = []
    for name in ("a", "b", "c"):
        begin_s = time.monotonic()
        forward(drain=True, cursor=name).end()
        took_s.append(time.monotonic() - begin_s)
    assert min(took_s) < 0.9


# --- resuming -------------------------------------------------------------------------------


def test_a_restart_goes_on_where_it_stopped(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    for round_ in range(3):
        with Writer(log) as writer:
            append(writer, range(round_ * 300, round_ * 300 + 300))
        status = forward(drain=True).end()
        assert (status.acknowledged, status.skipped) == (300, 0)
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_eight_kills_lose_nothing_and_nothing_arrives_twice(
    broker: EmbeddedBroker, log: Path, run: Callable[..., Process]
) -> None:
    broker.set_rtt_ms(12)  # several requests are always under way
    chance = random.Random(5)
    slow = ("-X", "batch.num.messages=30", "-X", "queue.buffering.max.messages=300",
            "--commit-seconds", "0.3")  # fmt: skip
    skipped = 0
    for round_ in range(8):
        with Writer(log) as writer:
            append(writer, range(round_ * 2500, round_ * 2500 + 2500), size=100)
        process = run(*slow)
        process.until(lambda s: s["acknowledged"] >= 1)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        skipped += process.statuses[-1]["skipped"]
    broker.set_rtt_ms(0)
    assert run("--drain").end() == 0
    assert skipped > 0  # some had arrived before a kill, and the cursor had not passed them
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


@pytest.mark.parametrize("lost", [False, True], ids=["checkpoints", "damaged checkpoints"])
def test_records_that_arrived_after_the_last_commit_are_not_sent_again(
    broker: EmbeddedBroker, log: Path, run: Callable[..., Process], forward: Forward, lost: bool
) -> None:
    fill(log, 2000)
    process = run("--commit-seconds", "600")
    process.until(lambda s: s["lag_records"] == 0)
    process.kill()
    assert cursor_of(log) <= records_of(log)[0].address
    if lost:
        (log / "cursors/bridge.lanes").write_bytes(b"garbage")
    status = forward(drain=True).end()
    assert (status.skipped, status.acknowledged) == (2000, 0)
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_after_a_kill_before_anything_was_sent_no_checkpoints_are_missing(
    broker: EmbeddedBroker, log: Path, run: Callable[..., Process]
) -> None:
    fill(log, 10)
    broker.set_down()
    process = run()
    wait_until((log / "cursors/bridge.cursor").exists)
    time.sleep(0.3)
    process.kill()
    broker.set_up()
    process = run("--drain")
    assert process.end() == 0
    assert "missing" not in process.stderr
    assert "read back" not in process.stderr
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_the_checkpoints_are_clean_only_while_nothing_can_be_in_flight(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    forward(drain=True).end()
    assert notes_of(log)["clean"] is True
    with Writer(log) as writer:
        append(writer, range(100, 200))
    run = forward(commit_s=600.0)
    run.until(lambda s: s.acknowledged == 100)
    assert notes_of(log)["clean"] is False  # a kill now would leave it so
    run.stop()
    assert notes_of(log)["clean"] is True


def test_a_stop_with_requests_under_way_is_not_clean_nor_is_one_that_never_looked(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    broker.set_rtt_ms(60_000)
    run = forward(stop_s=0.2)
    time.sleep(0.5)
    broker.set_rtt_ms(0)
    run.until(lambda s: s.acknowledged > 0)
    broker.set_rtt_ms(60_000)
    with Writer(log) as writer:
        append(writer, range(100, 200))
    run.until(lambda s: s.outstanding > 0)
    run.stop()
    assert notes_of(log)["clean"] is False
    broker.set_down()
    broker.set_rtt_ms(0)
    run = forward()
    run.until(lambda s: s.error)
    run.stop()
    assert notes_of(log)["clean"] is False


# --- outages --------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 100])
def test_an_outage_at_the_start_is_waited_out_and_named_until_it_is_over(
    broker: EmbeddedBroker, log: Path, forward: Forward, before: int
) -> None:
    fill(log, before)
    forward(drain=True).end()
    fill(log, 500)
    broker.set_down()
    run = forward()
    status = run.until(lambda s: s.error)
    assert (status.reachable, status.acknowledged, status.lag_records) == (False, 0, 500)
    assert status.state in {"connecting", "backing_off"}
    broker.set_up()
    run.until(lambda s: s.acknowledged == 500 and s.error is None and s.reachable)
    run.stop()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_an_outage_in_the_middle_is_waited_out_and_named_and_nothing_arrives_twice(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    with Writer(log, flush_seconds=0.01) as writer:
        append(writer, range(500))
        writer.flush()
        run = forward()
        run.until(lambda s: s.lag_records == 0 and s.reachable)
        for round_ in (1, 2):
            broker.set_down()
            append(writer, range(round_ * 500, round_ * 500 + 500))
            writer.flush()
            status = run.until(lambda s: not s.reachable and s.lag_records == 500)
            assert status.state != "sending"
            assert status.error
            time.sleep(1.0)
            assert run.alive
            assert run.status.acknowledged == round_ * 500
            broker.set_up()
            status = run.until(
                lambda s, n=round_ * 500 + 500: s.acknowledged == n and s.reachable, seconds=20
            )
            assert (status.state, status.error) == ("sending", None)
        run.stop()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


# --- stopping -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_bridge_at_once(
    log: Path, run: Callable[..., Process], number: int
) -> None:
    fill(log, 100)
    process = run()
    process.until(lambda s: s["lag_records"] == 0 and s["state"] == "live")
    begin_s = time.monotonic()
    process.popen.send_signal(number)
    assert process.end(8.0) == 0
    assert time.monotonic() - begin_s < 10.0
    assert process.statuses[-1]["state"] == "stopped"
    with Reader(log) as reader:
        assert cursor_of(log) == reader.end()


def test_sigterm_under_load_ends_it_in_seconds_with_the_cursor_at_what_was_acknowledged(
    log: Path, run: Callable[..., Process], broker: EmbeddedBroker, forward: Forward
) -> None:
    fill(log, 10_000)
    broker.set_rtt_ms(50)
    process = run(
        "-X", "batch.num.messages=20", "-X", "queue.buffering.max.messages=2000",
        "--stop-seconds", "1.5",
    )  # fmt: skip  # a command line
    process.until(lambda s: s["acknowledged"] > 2000)
    assert process.terminate() == 0
    last = process.statuses[-1]
    assert last["state"] == "stopped"
    assert last["lag_records"] > 0
    assert last["lag_records"] == sum(r.address >= cursor_of(log) for r in records_of(log))
    arrived = {m.address for m in consume(broker.bootstrap_servers)}
    before = [r.address for r in records_of(log) if r.address < cursor_of(log)]
    assert before
    assert len(before) >= last["acknowledged"] - 2000  # lanes may be ahead by what is under way
    assert arrived.issuperset(before)
    broker.set_rtt_ms(0)
    forward(drain=True).end()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def handles_sigterm(pid: int) -> bool:
    """Whether the process has come so far."""
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("when", ["before the first answer", "under way", "after a restart"])
def test_sigterm_during_an_outage_ends_it_in_seconds(
    log: Path, run: Callable[..., Process], broker: EmbeddedBroker, forward: Forward, when: str
) -> None:
    fill(log, 2000)
    if when == "after a restart":
        forward(drain=True).end()
        with Writer(log) as writer:
            append(writer, range(2000, 2100))
    if when != "under way":
        broker.set_down()
    process = run("-X", "batch.num.messages=10")
    if when == "under way":
        broker.set_rtt_ms(20)
        process.until(lambda s: s["acknowledged"] > 20)
        broker.set_down()
        process.until(lambda s: not s["reachable"])
    else:
        wait_until(lambda: handles_sigterm(process.popen.pid))
        time.sleep(1.0)  # it is waiting for its first answer
    assert process.terminate() == 0
    last = process.statuses[-1]
    assert last["lag_records"] == sum(r.address >= cursor_of(log) for r in records_of(log))
    broker.set_rtt_ms(0)
    broker.set_up()
    forward(drain=True).end()
    arrived = {m.address for m in consume(broker.bootstrap_servers)}
    assert arrived == {r.address for r in records_of(log)}


def test_a_stop_while_it_reads_back_ends_it_in_seconds_and_not_as_clean(
    log: Path, broker: EmbeddedBroker, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("wide", 60)
    with Writer(log) as writer:
        append(writer, range(2000), keys=500)
    forward(topic="wide", drain=True).end()
    with Writer(log) as writer:
        append(writer, range(2000, 2100))
    saved = notes_of(log)
    (log / "cursors/bridge.lanes").write_text(json.dumps({**saved, "clean": False}))
    answer_within(monkeypatch, 10.0)
    broker.set_rtt_ms(400)  # 60 lanes would take half a minute and more
    run = forward(topic="wide")
    time.sleep(3.0)
    run.stop()
    assert notes_of(log)["clean"] is False
    assert cursor_of(log) < records_of(log)[-1].address


def test_a_second_bridge_on_the_same_cursor_is_refused_and_harms_nothing(
    log: Path, run: Callable[..., Process], broker: EmbeddedBroker
) -> None:
    fill(log, 100)
    first = run()
    first.until(lambda s: s["lag_records"] == 0)
    second = run()
    assert second.end() == 5
    assert "cursor_locked" in second.stderr
    assert first.terminate() == 0
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


# --- records that are not taken -------------------------------------------------------------


class Refusals:
    """Errors for Produce requests, stage by stage: the next begins when the bridge has noticed.

    Each stage ends with an error twice: like Kafka, and unlike the mock by itself, it also
    refuses the request that follows a refused one if that is on its way already.
    """

    def __init__(self, broker: EmbeddedBroker, patch: pytest.MonkeyPatch, *stages: list[int]):
        self._broker = broker
        self._stages = list(stages)
        self.noticed: list[tuple[str, Position]] = []
        patch.setattr(Engine, "suspect", self._watched(Engine.suspect))
        self._next()

    def _next(self) -> None:
        self._broker.clear_request_errors(PRODUCE)
        if self._stages:
            stage = self._stages.pop(0)
            self._broker.push_request_errors(PRODUCE, [*stage, stage[-1]])

    def _watched(self, original: Callable[..., object]) -> Callable[..., object]:
        def watched(engine: Engine, reason: str, *arguments: object, **more: object) -> object:
            self.noticed.append((reason, engine.position))
            self._next()
            return original(engine, reason, *arguments, **more)

        return watched


@pytest.fixture
def refuse(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Refusals]:
    return lambda *stages: Refusals(broker, monkeypatch, *stages)


def in_tens(log: Path, forward: Forward) -> Run:
    """One lane. Requests: the opener, then ten records each. Those up to the 26th hold no record
    that carries a callback: the marks are the opener and each 256th record behind it."""
    fill(log, 600, keys=1)
    return forward(
        drain=True,
        settings={"batch.num.messages": "10", "linger.ms": "100", **ONE_AT_A_TIME},
    )


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Addresses of records that were sent with a callback."""
    found: list[int] = []
    reporting = Cluster.reporting

    def watched(self: Cluster, lane: LaneKey, address: int) -> Callback:
        found.append(address)
        return reporting(self, lane, address)

    monkeypatch.setattr(Cluster, "reporting", watched)
    return found


@pytest.mark.parametrize("error", [10, 87], ids=["MSG_SIZE_TOO_LARGE", "INVALID_RECORD"])
def test_failed_records_without_a_callback_are_not_passed_and_arrive_in_the_end(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    refuse: Callable[..., Refusals],
    marked: list[int],
    error: int,
) -> None:
    refusals = refuse([0, 0, 0, error])
    callbacks: list[int] = []
    original = refusals._next
    refusals._next = lambda: (callbacks.extend(marked), original())  # type: ignore[assignment]
    status = in_tens(log, forward).end()
    records = records_of(log)
    (reason, position), = refusals.noticed  # it happened once  # fmt: skip
    assert "_GAPLESS_GUARANTEE" in reason
    assert position.address == records[1].address  # only the opener was acknowledged
    failed = {r.address for r in records[21:31]}
    assert callbacks
    assert not failed & set(callbacks)
    assert status.state == "stopped"
    assert_arrived(records, consume(broker.bootstrap_servers))


@pytest.mark.parametrize("error", [10, 87], ids=["MSG_SIZE_TOO_LARGE", "INVALID_RECORD"])
def test_a_record_that_is_refused_alone_is_named_and_all_before_it_is_delivered(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    refuse: Callable[..., Refusals],
    error: int,
) -> None:
    # Opener, 1 to 10, 11 to 20, then 21 to 30 refused; again 21 as the opener, then refused
    # until one record alone is.
    refuse([0, 0, 0, error], [0, error], [0, error], [0, error])
    run = in_tens(log, forward)
    with pytest.raises(Undeliverable) as caught:
        run.end()
    records = records_of(log)
    stood = cursor_of(log)
    assert caught.value.details["address"] == stood
    assert caught.value.exit_status == 6
    before = [r for r in records if r.address < stood]
    assert 21 <= len(before) <= 31
    assert_arrived(before, consume(broker.bootstrap_servers))
    forward(drain=True).end()  # and later it is taken
    assert_arrived(records, consume(broker.bootstrap_servers))


def test_a_first_request_that_is_refused_lets_no_other_of_its_lane_through(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """Kafka, and the mock, take a second request of a producer whose first they refused."""
    fill(log, 300, keys=1)
    broker.push_request_errors(PRODUCE, [10])  # no other request of the lane may follow
    with pytest.raises(Undeliverable):
        forward(drain=True, settings={"batch.num.messages": "1"}).end()
    assert consume(broker.bootstrap_servers) == []
    forward(drain=True, settings={"batch.num.messages": "1"}).end()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_stopped_lane_goes_on_after_a_reload(
    broker: EmbeddedBroker, log: Path, forward: Forward, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 300, keys=1)
    broker.push_request_errors(PRODUCE, [10])
    with caplog.at_level("INFO", "bridge"):
        run = forward(settings={"batch.num.messages": "1"})
        status = run.until(lambda s: s.standing == 1)
        assert "MSG_SIZE_TOO_LARGE" in (status.error or "")
        assert "a reload (SIGHUP) or a restart tries again" in (status.error or "")
        run.forwarder.reopen()
        status = run.until(lambda s: s.acknowledged == 300)
    told = [record for record in caplog.records if hasattr(record, "event")]
    assert [(t.event, getattr(t, "code", None)) for t in told] == [
        ("lane_stands", "MSG_SIZE_TOO_LARGE"),
        ("lane_reopened", None),
    ]
    assert f"before address {records_of(log)[0].address}" in told[0].message
    run.until(lambda s: s.standing == 0 and s.error is None)
    run.stop()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_the_client_retries_after_a_passing_error(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    broker.push_request_errors(PRODUCE, [19, 0, 19, 6, 7, 0, 0, 19, 5])
    status = in_tens(log, forward).end()
    assert status.error is None
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_wrong_credentials_are_an_outage_with_a_reason(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """31: CLUSTER_AUTHORIZATION_FAILED, here to the request for a producer's number."""
    broker.push_request_errors(INIT_PRODUCER_ID, [31] * 500)
    fill(log, 100)
    run = forward(drain=True)
    status = run.until(lambda s: s.error and "AUTHORIZATION" in s.error)
    assert "grant Write on a topic, or IdempotentWrite on the cluster" in (status.error or "")
    assert status.state in {"connecting", "backing_off", "sending"}
    assert run.alive
    broker.clear_request_errors(INIT_PRODUCER_ID)
    run.end()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_forbidden_topic_stops_its_lanes_and_no_others(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    broker.create_topic("own", 1)
    fill(log, 100, keys=1)
    run = forward(topic=TOPIC)
    run.until(lambda s: s.acknowledged == 100)
    broker.push_request_errors(PRODUCE, [29] * 100)  # the first may name no lane
    with Writer(log) as writer:
        for number in range(100):
            writer.append(b"%d" % number, topic="own")
    run.until(lambda s: s.standing == 1)
    broker.clear_request_errors(PRODUCE)
    with Writer(log) as writer:
        append(writer, range(100, 200), keys=1)
    status = run.until(lambda s: s.acknowledged == 200 and s.state == "blocked")
    assert status.standing == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in (status.error or "")
    run.stop()
    forward(drain=True).end()
    assert len(consume(broker.bootstrap_servers, "own", 1)) == 100
    rest = [record for record in records_of(log) if record.topic is None]
    assert_arrived(rest, consume(broker.bootstrap_servers))


def test_a_record_too_large_for_the_client_is_named_and_everything_before_it_is_delivered(
    broker: EmbeddedBroker, log: Path, run: Callable[..., Process]
) -> None:
    with Writer(log) as writer:
        append(writer, range(300))
        large = writer.append(b"x" * 3_000_000, key=b"k")
        append(writer, range(300, 400))
    process = run("--drain")
    assert process.end() == 6
    told = json.loads(process.stderr.splitlines()[-1])["error"]
    assert (told["code"], told["address"], told["path"]) == ("undeliverable", large, str(log))
    assert str(large) in told["message"]
    assert process.statuses[-1]["standing_lanes"] == 1
    assert cursor_of(log) == large
    arrived = {m.address for m in consume(broker.bootstrap_servers)}
    assert arrived.issuperset(r.address for r in records_of(log)[:300])
    assert large < max(arrived)  # other partitions go on
    assert run("-X", "message.max.bytes=4000000", "--drain").end() == 0
    arrived = consume(broker.bootstrap_servers)
    assert {m.address for m in arrived} == {r.address for r in records_of(log)}


def test_a_failure_that_is_reported_during_a_question_for_a_topic_does_no_harm(
    broker: EmbeddedBroker, log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    partitions = Cluster.partitions

    def telling(self: Cluster, topic: str) -> int:
        if not told:
            told.append(topic)
            self._events.append(Failed("an error from elsewhere", suspect=False))
        return partitions(self, topic)

    monkeypatch.setattr(Cluster, "partitions", telling)
    fill(log, 100)
    forward(drain=True).end()
    assert told == [TOPIC]
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


# --- a log that is not whole ----------------------------------------------------------------


def damage(log: Path, *, at: float = 0.5, length: int = 64) -> None:
    """Bytes in the middle of the first slab are not what was written."""
    slab = min(log.glob("*.slab"))
    data = bytearray(slab.read_bytes())
    begin = int(len(data) * at)
    data[begin : begin + length] = bytes(255 - b for b in data[begin : begin + length])
    slab.write_bytes(data)


@pytest.mark.parametrize("many", [False, True], ids=["log", "root"])
def test_a_gap_is_passed_counted_and_logged_and_a_drain_over_it_has_its_own_exit_status(
    broker: EmbeddedBroker, log: Path, bridge: Callable[..., Process], many: bool
) -> None:
    fill(log, 3000, batch_bytes=1000)
    whole = records_of(log)
    damage(log)
    arguments = (
        "run", *(("--root", log.parent) if many else ("--log", log)), "--topic", TOPIC, "--json",
        "--drain", "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip  # a command line
    process = bridge(*arguments)
    assert process.end() == 3
    rest = records_of(log)
    lost = len(whole) - len(rest)
    assert 0 < lost < 100
    assert process.statuses[-1]["lost_records"] == lost
    assert process.statuses[-1]["gaps"] == 1
    said = (
        f"gap: {log}: 1 gap met (1 corrupt): {lost} records lost; intact records were delivered; "
        "`aolog verify` lists all gaps"
    )
    if many:
        assert f"log was drained: {said}" in process.stderr
    else:
        error = json.loads(process.stderr.splitlines()[-1])["error"]
        assert (error["code"], error["gaps"], error["records_lost"]) == ("gap", 1, lost)
        assert f"gap: {log}: {error['message']}; {error['hint']}" == said
    assert_arrived(rest, consume(broker.bootstrap_servers))
    assert bridge(*arguments).end() == 0  # the cursor is behind it


def test_a_gap_is_counted_once_however_often_it_is_read_again(
    broker: EmbeddedBroker, log: Path, forward: Forward, refuse: Callable[..., Refusals]
) -> None:
    fill(log, 3000, batch_bytes=1000, keys=1)
    whole = len(records_of(log))
    damage(log, at=0.1)
    refuse([0, 10])
    status = forward(drain=True, settings=ONE_AT_A_TIME).end()
    assert (status.gaps, status.lost_records) == (1, whole - len(records_of(log)))
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_damaged_end_does_not_keep_a_drain_from_ending(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 1000, batch_bytes=1000)
    slab = max(log.glob("*.slab"))
    data = slab.read_bytes()
    slab.write_bytes(data[:-5000] + b"\xaa" * 2000)
    forward(drain=True).end(20)
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_slabs_that_retention_removes_during_an_outage_are_a_gap(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 4000, slab_bytes=32 << 10, batch_bytes=2000)
    whole = records_of(log)
    broker.set_down()
    run = forward(drain=True)
    run.until(lambda s: s.error)
    for slab in sorted(log.glob("*.slab"))[:-2]:
        slab.unlink()  # as a writer does whose retention says when_full="prune"
    rest = records_of(log)
    assert 0 < len(rest) < len(whole)
    attempts = run.forwarder._delivery._engine.backoff.attempts
    wait_until(lambda: run.forwarder._delivery._engine.backoff.attempts > attempts + 1)
    broker.set_up()
    status = run.end()
    assert status.lost_records == len(whole) - len(rest)
    assert status.gaps == 1
    assert_arrived(rest, consume(broker.bootstrap_servers))


def test_a_log_is_followed_into_the_next_slab_and_epoch(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    run = None
    for round_ in range(4):  # each opening begins a slab
        with Writer(log) as writer:
            append(writer, range(round_ * 100, round_ * 100 + 100))
            writer.flush()
            run = run or forward()
            run.until(lambda s, n=round_ * 100 + 100: s.acknowledged == n)
    assert run is not None
    run.stop()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


# --- pruning --------------------------------------------------------------------------------


def test_with_prune_slabs_are_deleted_once_the_durable_cursor_has_passed_them(
    broker: EmbeddedBroker, log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 9000, slab_bytes=64 << 10, batch_bytes=4000)
    records = records_of(log)
    bases = sorted(int(slab.stem) for slab in log.glob("*.slab"))
    assert len(bases) > 4
    deleted_by_turn: list[list[int]] = []

    def watched(path: str, storage: Storage, retention: Retention) -> object:
        durable = cursor_of(log)
        before = {int(slab.stem) for slab in log.glob("*.slab")}
        pruned = prune(path, storage, retention)
        deleted = sorted(before - {int(slab.stem) for slab in log.glob("*.slab")})
        assert all(bases[bases.index(base) + 1] <= durable for base in deleted)
        deleted_by_turn.append(deleted)
        return pruned

    monkeypatch.setattr(source_module, "prune", watched)
    broker.set_rtt_ms(20)
    settings = {"batch.num.messages": "50"}
    forward(drain=True, prune_delivered=True, settings=settings, commit_s=0.05).end()
    assert [base for deleted in deleted_by_turn for base in deleted] == bases[:-1]
    assert len(deleted_by_turn) > 3  # while it was sending
    assert_arrived(records, consume(broker.bootstrap_servers))


def test_without_prune_every_slab_stays(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 4000, slab_bytes=64 << 10)
    slabs = sorted(log.glob("*.slab"))
    forward(drain=True).end()
    assert sorted(log.glob("*.slab")) == slabs


# --- what the cursor protects ---------------------------------------------------------------


def test_from_its_start_on_it_protects_what_it_has_not_passed(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 4000, slab_bytes=64 << 10)
    broker.set_down()
    run = forward()
    run.until(lambda s: s.error)
    assert prune(str(log), Storage(), Retention(max_slabs=1)).slabs == 0
    broker.set_up()
    run.until(lambda s: s.lag_records == 0)
    run.stop()
    assert prune(str(log), Storage(), Retention(max_slabs=1)).slabs > 0


def test_a_writer_that_blocks_for_the_bridge_goes_on_when_it_has_delivered(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    Writer(log, slab_bytes=32 << 10).close()
    run = forward(prune_delivered=True)
    retention = Retention(max_bytes=128 << 10, when_full="block")
    with Writer(
        log, slab_bytes=32 << 10, batch_bytes=2000, flush_seconds=0.02, retention=retention
    ) as writer:
        append(writer, range(12_000), size=60)
        writer.flush()
        run.until(lambda s: s.acknowledged == 12_000)
        end = writer.end
    assert run.stop().position >= end
    values = sorted(int((m.value or b"").split()[0]) for m in consume(broker.bootstrap_servers))
    assert values == list(range(12_000))


# --- statuses -------------------------------------------------------------------------------


def test_the_status_counts_what_is_pending_and_what_is_under_way(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 1000, keys=1)
    broker.set_rtt_ms(100)
    run = forward(settings={"batch.num.messages": "100"})
    status = run.until(lambda s: 0 < s.acknowledged < 1000)
    assert status.lag_records is not None
    assert status.lag_records >= 1000 - status.acknowledged
    assert 0 < status.outstanding <= 1000
    assert status.lag_bytes > 0
    assert status.lag_seconds is not None
    assert status.lag_seconds > 0
    assert status.position >= status.committed
    broker.set_rtt_ms(0)
    status = run.until(lambda s: s.lag_records == 0)
    assert (status.lag_bytes, status.lag_seconds, status.outstanding) == (0, 0.0, 0)
    assert run.stop().committed == status.position
