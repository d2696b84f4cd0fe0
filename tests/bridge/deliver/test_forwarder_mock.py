"""The forwarder against the embedded broker: what arrives, and what happens when something fails.

Forwarders run in a thread where that will do, as a process where signals matter.
"""

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

from aolog import Gap, Reader, Retention, Writer
from aolog.log.retention import prune
from aolog.storage.storage import Storage
from bridge.deliver import log_source as source_module
from bridge.deliver.at_least_once import topics
from bridge.deliver.at_least_once.engine import Engine, Position, State
from bridge.deliver.status import Status
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


def test_timestamps_are_rounded_down_and_the_exact_one_is_in_the_stamp(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    with Writer(log) as writer:
        writer.append(b"", timestamp=1_600_000_000_123_999)
        writer.append(b"", timestamp=-5)
    forward(drain=True).end()
    messages = consume(broker.bootstrap_servers)
    assert [m.timestamp_ms for m in messages] == [1_600_000_000_123, 1]
    assert [m.timestamp_us for m in messages] == [1_600_000_000_123_999, -5]


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


def test_a_record_without_any_topic_stops_it_before_that_record(
    log: Path, forward: Forward, broker: EmbeddedBroker
) -> None:
    with Writer(log) as writer:
        writer.append(b"1", topic=TOPIC)
        nowhere = writer.append(b"2")
    with pytest.raises(Undeliverable, match="no topic") as caught:
        forward(topic=None, drain=True).end()
    assert caught.value.details["address"] == nowhere
    assert cursor_of(log) == nowhere
    assert len(consume(broker.bootstrap_servers)) == 1


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


def test_what_is_appended_meanwhile_arrives_without_a_restart(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    with Writer(log, flush_seconds=0.02, slab_bytes=64 << 10) as writer:
        run = forward()
        for begin in range(0, 3000, 500):
            append(writer, range(begin, begin + 500))
            writer.flush()
            run.until(lambda s, done=begin + 500: s.acknowledged == done)
        status = run.stop()
    assert status.lag_records == 0
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


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


def test_eight_kills_under_way_lose_nothing_and_repeat_nothing(
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


def test_what_arrived_after_the_last_commit_is_not_sent_again(
    broker: EmbeddedBroker, log: Path, run: Callable[..., Process]
) -> None:
    fill(log, 2000)
    process = run("--commit-seconds", "600")
    process.until(lambda s: s["lag_records"] == 0)
    process.kill()
    assert cursor_of(log) <= records_of(log)[0].address
    process = run("--drain")
    assert process.end() == 0
    assert (process.statuses[-1]["skipped"], process.statuses[-1]["acknowledged"]) == (2000, 0)
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_lost_notes_are_made_up_for_by_reading_everything_back(
    broker: EmbeddedBroker, log: Path, forward: Forward, run: Callable[..., Process]
) -> None:
    fill(log, 1500)
    process = run("--commit-seconds", "600")
    process.until(lambda s: s["lag_records"] == 0)
    process.kill()
    (log / "cursors/bridge.lanes").write_bytes(b"garbage")
    assert forward(drain=True).end().skipped == 1500
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_kill_before_anything_was_sent_does_not_count_as_lost_notes(
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


def test_the_notes_say_clean_only_while_nothing_can_be_under_way(
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


def test_an_outage_before_the_start_is_waited_out(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 500)
    broker.set_down()
    run = forward(drain=True)
    status = run.until(lambda s: s.error)
    assert (status.reachable, status.acknowledged, status.lag_records) == (False, 0, 500)
    assert status.state in {"connecting", "backing_off"}
    broker.set_up()
    assert run.end().acknowledged == 500
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_an_outage_in_the_middle_is_waited_out_said_and_repeats_nothing(
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


def test_a_restart_during_an_outage_waits_too_and_says_why_until_it_is_over(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    forward(drain=True).end()
    with Writer(log) as writer:
        append(writer, range(100, 200))
    broker.set_down()
    run = forward()
    status = run.until(lambda s: s.error and s.state == "backing_off", seconds=30)
    assert not status.reachable
    broker.set_up()
    status = run.until(lambda s: s.lag_records == 0, seconds=30)
    run.until(lambda s: s.error is None and s.reachable)
    run.stop()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


# --- stopping -------------------------------------------------------------------------------


def test_sigterm_while_idle_ends_it_at_once(
    log: Path, run: Callable[..., Process], broker: EmbeddedBroker
) -> None:
    fill(log, 100)
    process = run()
    process.until(lambda s: s["lag_records"] == 0 and s["state"] == "live")
    begin_s = time.monotonic()
    assert process.terminate() == 0
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


def test_sigint_is_a_stop_too(log: Path, run: Callable[..., Process]) -> None:
    fill(log, 10)
    process = run()
    process.until(lambda s: s["lag_records"] == 0)
    process.popen.send_signal(2)
    assert process.end(8.0) == 0


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
def test_a_record_that_is_refused_again_is_named_and_stood_before_with_all_before_it_delivered(
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


def test_a_lane_that_stands_goes_on_where_it_is_told_to_try_again(
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


def test_an_error_that_passes_is_ridden_out_by_the_client(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    broker.push_request_errors(PRODUCE, [19, 0, 19, 6, 7, 0, 0, 19, 5])
    status = in_tens(log, forward).end()
    assert status.error is None
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_client_that_calls_vanished_records_delivered_is_found_out(
    broker: EmbeddedBroker, log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock does not judge order, so an error that passes while several requests are in flight
    ends with records called delivered that are not there: offsets tell."""
    broker.set_rtt_ms(3)
    found: list[str] = []
    failed = Engine.failed

    def noted(self: object, reason: str, *, now_s: float) -> object:
        found.append(reason)
        return failed(self, reason, now_s=now_s)  # type: ignore[arg-type]

    monkeypatch.setattr(Engine, "failed", noted)
    for trial in range(12):  # whether several were in flight is chance
        broker.push_request_errors(PRODUCE, [*[0] * (20 + 9 * trial), 19])
        with Writer(log) as writer:
            append(writer, range(trial * 900, trial * 900 + 900), keys=1)
        forward(drain=True, settings={"batch.num.messages": "3", "linger.ms": "0"}).end()
        broker.clear_request_errors(PRODUCE)
        arrived = {m.address for m in consume(broker.bootstrap_servers)}
        assert arrived == {r.address for r in records_of(log)}
        if found:
            break
    assert any("have no offset" in reason for reason in found)


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


def test_no_rights_to_a_topic_stand_its_lanes_and_no_others(
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


def test_a_topic_that_does_not_exist_is_waited_for_and_then_named(
    broker: EmbeddedBroker, log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "TOPIC_WAIT_S", 0.5)
    partitions = Cluster.partitions

    def pretended(self: Cluster, topic: str) -> int:
        return 0 if topic == "nowhere" else partitions(self, topic)

    monkeypatch.setattr(Cluster, "partitions", pretended)
    with Writer(log) as writer:
        append(writer, range(20))
        nowhere = writer.append(b"x", topic="nowhere")
        append(writer, range(20, 40))
    begin_s = time.monotonic()
    with pytest.raises(Undeliverable, match="no topic 'nowhere'") as caught:
        forward(drain=True).end()
    assert time.monotonic() - begin_s > 0.5
    assert caught.value.details["address"] == nowhere
    assert cursor_of(log) == nowhere
    others = [record for record in records_of(log) if record.topic is None]
    assert len(others) == 40
    assert_arrived(others, consume(broker.bootstrap_servers))


def test_a_topic_that_is_created_meanwhile_is_used(
    broker: EmbeddedBroker, log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[int] = []
    partitions = Cluster.partitions
    monkeypatch.setattr(Cluster, "partitions", lambda *a: partitions(*a) if there else 0)
    fill(log, 100)
    run = forward(drain=True)
    time.sleep(0.7)
    assert run.alive
    assert run.status.acknowledged == 0
    there.append(1)
    run.end()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_failure_that_is_told_while_a_topic_is_asked_for_is_no_accident(
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
def test_a_gap_is_passed_counted_and_told_and_a_drain_over_it_has_its_own_exit_status(
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


def test_slabs_that_retention_takes_during_an_outage_are_a_gap_and_no_end(
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


def test_slabs_that_retention_takes_between_two_runs_are_a_gap(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 1000, slab_bytes=32 << 10, batch_bytes=2000)
    forward(drain=True).end()
    with Writer(log, slab_bytes=32 << 10, batch_bytes=2000) as writer:
        append(writer, range(1000, 5000))
    whole = records_of(log)
    for slab in sorted(log.glob("*.slab"))[:-2]:
        slab.unlink()
    status = forward(drain=True).end()
    rest = records_of(log)
    assert status.acknowledged == len(rest)
    assert status.lost_records == len(whole) - 1000 - len(rest)
    arrived = consume(broker.bootstrap_servers)
    assert_arrived(whole, arrived, complete=False)
    assert len(arrived) == 1000 + len(rest)


def test_an_append_only_log_of_another_epoch_is_followed_into_its_next_slab(
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


class RecordingStorage(Storage):
    """Notes the order of what makes cursors durable and what removes slabs."""

    calls: list[tuple[str, str, int]] = []

    def unlink(self, path: str) -> None:
        if path.endswith(".slab"):
            self.calls.append(("unlink", Path(path).name, cursor_of(Path(path).parent)))
        super().unlink(path)


def test_with_prune_only_delivered_slabs_go_and_the_cursor_is_durable_before(
    broker: EmbeddedBroker, log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 9000, slab_bytes=64 << 10, batch_bytes=4000)
    records = records_of(log)
    bases = sorted(int(slab.stem) for slab in log.glob("*.slab"))
    assert len(bases) > 4
    RecordingStorage.calls.clear()
    order: list[tuple[str, int]] = []
    monkeypatch.setattr(source_module, "Storage", RecordingStorage)
    prepare_commit = source_module.prepare_commit

    def watched(reader: Reader, address: int, ordinal: int | None) -> Callable[[], None]:
        commit = prepare_commit(reader, address, ordinal)

        def watched_commit() -> None:
            commit()
            order.append(("commit", address))

        return watched_commit

    def pruning(path: str, storage: Storage, retention: Retention) -> object:
        before = {int(slab.stem) for slab in Path(path).glob("*.slab")}
        pruned = prune(path, storage, retention)
        gone = before - {int(slab.stem) for slab in Path(path).glob("*.slab")}
        order.extend(("prune", base) for base in sorted(gone))
        return pruned

    monkeypatch.setattr(source_module, "prepare_commit", watched)
    monkeypatch.setattr(source_module, "prune", pruning)
    broker.set_rtt_ms(20)
    run = forward(
        drain=True, prune_delivered=True, settings={"batch.num.messages": "50"}, commit_s=0.05
    )
    run.end()
    assert [base for what, base in order if what == "prune"] == bases[:-1]
    committed = -1
    for what, address in order:
        if what == "commit":
            committed = address
        else:
            assert bases[bases.index(address) + 1] <= committed  # all of the slab is behind it
    for _, name, durable in RecordingStorage.calls:
        assert bases[bases.index(int(name.removesuffix(".slab"))) + 1] <= durable
    assert len(RecordingStorage.calls) == len(bases) - 1
    assert len([o for o in order if o[0] == "commit"]) > 3  # it went along
    assert_arrived(records, consume(broker.bootstrap_servers))


def test_with_prune_what_another_cursor_needs_stays(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 4000, slab_bytes=64 << 10)
    slabs = sorted(log.glob("*.slab"))
    with Reader(log, cursor="other") as reader:
        reader.commit()
    forward(drain=True, prune_delivered=True).end()
    assert sorted(log.glob("*.slab")) == slabs


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


def test_every_state_of_the_engine_has_a_name_in_the_status() -> None:
    assert "state" in Status._fields
    assert {state.value for state in State} == {
        "connecting", "sending", "backing_off", "stopping", "stopped",
    }  # fmt: skip


def test_gaps_are_told_as_they_are_met(log: Path, forward: Forward, broker: EmbeddedBroker) -> None:
    fill(log, 10)
    run = forward(drain=True)
    run.end()
    source = run.forwarder._source
    source.losses.met(Gap(0, 8, "corrupt", None))
    source.losses.met(Gap(0, 8, "corrupt", None))
    source.losses.met(Gap(16, 24, "missing", 3))
    assert (source.losses.records, source.losses.gaps, source.losses.unknown) == (3, 2, 1)
