"""What retention removes before it was delivered is counted, and said, as soon as it is gone: with
the cluster up or down, and once, however often and in whatever part it is met again."""

from __future__ import annotations

import json
import logging
import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog import Gap
from aolog.storage.storage import Storage
from bridge.deliver.known_gaps import KnownGaps, LossFile
from bridge.deliver.losses import LogLosses
from bridge.kafka.client import ANSWER_S
from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing.apache_kafka.server import KafkaServer
from tests.aolog.conftest import commit, flip
from tests.bridge.brokers import NOWHERE, consume
from tests.bridge.forwarders import Forward
from tests.bridge.logs import FullStorage, append, bounded, fill, gone, records_of
from tests.bridge.processes import Start, printed
from tests.kafka.plugin import TopicFactory
from tests.waiting import SOON_S

# "Within seconds of the loss"; a question to a silent cluster may come first.
SECONDS = ANSWER_S + 5.0


# --- each loss once ---------------------------------------------------------------------------


def test_a_loss_counts_once_however_often_and_in_whatever_part_it_is_met() -> None:
    losses = LogLosses()
    assert losses.add(Gap(100, 200, "pruned", 10))
    assert not losses.add(Gap(100, 200, "pruned", 10))
    assert not losses.add(Gap(150, 200, "pruned", 5))
    assert losses.records == 10
    assert losses.add(Gap(300, 310, "corrupt", 2))
    assert losses.add(Gap(100, 250, "pruned", 14))  # more of it was removed meanwhile
    assert (losses.records, losses.gaps) == (16, 2)
    assert losses.add(Gap(50, 400, "pruned", 40))  # from where it has to begin again
    assert (losses.records, losses.gaps) == (40, 1)
    assert losses.add(Gap(400, 500, "pruned", None))
    assert (losses.records, losses.gaps) == (40, 2)
    assert losses.add(Gap(50, 600, "pruned", None))
    assert (losses.records, losses.gaps) == (40, 1)  # a counter never falls
    assert losses.add(Gap(50, 700, "pruned", 70))
    assert (losses.records, losses.gaps) == (70, 1)
    losses.met(Gap(900, 910, "pruned", 0))
    assert losses.gaps == 1


def test_each_record_counts_once_however_the_gaps_overlap() -> None:
    """Addresses are five times the ordinals here."""
    for seed in range(300):
        rng = random.Random(seed)
        losses, lost = LogLosses(), set[int]()
        for _ in range(20):
            first = rng.randrange(100)
            last = first + rng.randrange(1, 30)
            losses.add(Gap(5 * first, 5 * last, "pruned", last - first), first)
            lost.update(range(first, last))
            assert losses.records == len(lost)


def test_a_ledger_counts_each_gap_once_through_restarts_and_rewinds() -> None:
    gaps = [Gap(100 * i, 100 * i + 50, "corrupt", 1) for i in range(2_000)]  # more than are saved
    losses = LogLosses()
    losses.continue_from(KnownGaps())
    for met, gap in enumerate(gaps):
        losses.add(gap, 10 * met)
    for process in (losses, LogLosses()):  # the forwarder's next run, and another process
        process.continue_from(KnownGaps.from_json(losses.ever.to_json()))
        for met, gap in enumerate(gaps):
            process.add(gap, 10 * met)
        assert (process.ever.records, process.ever.gaps) == (2_000, 2_000)
        assert (process.records, process.gaps) == (2_000, 2_000)
    process.add(Gap(1_000_000, 1_000_050, "corrupt", 1))
    assert (process.ever.records, process.ever.gaps) == (2_001, 2_001)


def test_a_log_that_loses_very_many_slabs_is_counted_without_keeping_each() -> None:
    losses = LogLosses()
    for _ in range(2):  # and again, after a rewind
        for i in range(25_000):
            losses.add(Gap(100 * i, 100 * i + 50, "pruned", 2), 10 * i)
        assert (losses.records, losses.gaps) == (50_000, 25_000)
    with pytest.raises(aolog.errors.GapFound, match=r"25000 gaps met .*: 50,000 records lost"):
        losses.check("log")


def test_each_warning_has_the_range_and_the_number_of_the_records_since_the_one_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    losses = LogLosses("log", "bridge")
    losses.add(Gap(10, 20, "corrupt", 3), 2)  # not in the range, so not in the number either
    losses.pruned([(Gap(500, 900, "pruned", 80), 100)])
    losses.pruned([(Gap(100, 900, "pruned", 160), 20)])  # within the minute: not logged yet
    losses.pruned([(Gap(900, 950, "pruned", 10), 180)])
    for _ in range(2):
        losses.warn()
    assert [entry.getMessage().split(";")[0] for entry in caplog.records] == [
        "log: retention removed 80 records that cursor 'bridge' had not read, addresses 500 to 900",
        "log: retention removed 90 records that cursor 'bridge' had not read, addresses 100 to 950",
    ]
    assert losses.records == 3 + 80 + 90


def test_losses_after_an_end_without_any_are_logged_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    losses = LogLosses()
    losses.warn()
    losses.pruned([(Gap(500, 900, "pruned", 80), 100), (Gap(900, 950, "pruned", 10), 180)])
    (said,) = (entry.getMessage() for entry in caplog.records)
    assert "90 records" in said


# --- a forwarder ------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_bridge_that_never_reached_its_cluster_counts_pruned_records(
    log: Path, forward: Forward, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    with bounded(log) as writer:
        append(writer, range(100))
        writer.flush()
        run = forward(bootstrap_servers=NOWHERE, delivery=delivery)
        run.until(lambda s: s.lag_records == 100)
        assert run.status.lost_records == 0
        for count in (8_000, 16_000):
            append(writer, range(count - 8_000 + (100 if count == 8_000 else 0), count))
            writer.flush()
            lost, left = gone(log, count), len(records_of(log))
            assert lost > 0
            run.until(lambda s, lost=lost: s.lost_records == lost, SECONDS)
            run.until(lambda s, left=left: s.lag_records == left, SECONDS)
        assert run.status.gaps == 1
        assert writer.pruned_unread["bridge"].records_lost == lost
    assert run.stop().lost_records == lost
    said = [r.getMessage() for r in caplog.records if "retention removed" in r.getMessage()]
    removed = [int(text.split()[3]) for text in said]
    # Of the writer and of the bridge: at once, and what followed within the minute at the end.
    assert (len(removed), sum(removed), min(removed) > 0) == (4, 2 * lost, True)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_is_pending_and_lost_is_reported_before_a_silent_cluster_is_asked(
    log: Path, forward: Forward, delivery: str
) -> None:
    with bounded(log) as writer, socket.create_server(("127.0.0.1", 0)) as silent:
        append(writer, range(100))
        writer.flush()
        commit(log, 0, "bridge")
        append(writer, range(100, 8_000))
        writer.flush()
        lost, left = gone(log, 8_000), len(records_of(log))
        begun_s = time.monotonic()
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        run = forward(bootstrap_servers=servers, delivery=delivery)
        run.until(lambda s: s.lost_records == lost and s.lag_records == left)
        first = run.statuses[0]
        assert (first.lost_records, first.lag_records, first.reachable) == (lost, left, False)
        assert time.monotonic() - begun_s < ANSWER_S
        run.stop()


def test_delivered_and_lost_come_to_all_where_a_writer_is_faster_than_the_bridge(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """Slabs go while they are read, again and again. (One lane: with several the count is a bound.)"""
    with bounded(log) as writer:
        append(writer, range(1), keys=0)
        writer.flush()
        run = forward(bytes_per_second=50_000)
        run.until(lambda s: s.acknowledged == 1)
        written, until_s = 1, time.monotonic() + SOON_S
        while run.statuses[-1].lost_records < 5_000 or run.statuses[-1].gaps < 3:
            assert time.monotonic() < until_s
            append(writer, range(written, written + 500), keys=0)
            written += 500
            time.sleep(0.02)
        writer.flush()
        run.until(lambda s: s.acknowledged + s.lost_records >= written)
        status = run.stop()
    assert status.acknowledged + status.lost_records == written
    assert len(consume(broker.bootstrap_servers)) == status.acknowledged


def on_disk(bridge: Start, log: Path) -> dict[str, Any]:
    (row,) = json.loads(printed(bridge("status", "--log", log, "--json")))["logs"]
    return dict(row)


def test_losses_that_cannot_be_read_or_are_another_log_s_are_not_shown_as_a_log_s_own(
    tmp_path: Path, bridge: Start
) -> None:
    for name in ("linked", "other", "own"):
        fill(tmp_path / name, 10)
        with aolog.Reader(tmp_path / name, cursor="bridge") as reader:
            reader.commit()
            losses = LossFile(reader, "bridge", Storage())
        losses.gaps.add(Gap(100, 200, "corrupt", 5))
        losses.save()
    linked, other, own = (
        tmp_path / name / "cursors/bridge.losses" for name in ("linked", "other", "own")
    )
    other.write_bytes(own.read_bytes())
    linked.unlink()
    linked.symlink_to(own)
    rows = json.loads(printed(bridge("status", "--root", tmp_path, "--json")))["logs"]
    assert [(row["log"], row["lost_records"], row["error"]) for row in rows] == [
        ("linked", None, "storage_failed"),
        ("other", 0, None),
        ("own", 5, None),
    ]


def test_losses_that_a_full_disk_did_not_take_are_saved_once_there_is_room(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 10)
    storage = FullStorage()
    with aolog.Reader(log, cursor="bridge") as reader:
        reader.commit()
        losses = LossFile(reader, "bridge", storage)
        losses.gaps.add(Gap(100, 200, "corrupt", 5))
        for _ in range(3):
            losses.save()
        assert [line[:21] for line in caplog.messages] == ["losses were not saved"]  # then a pause
        storage.is_full = False
        losses.save(at_once=True)
        assert LossFile(reader, "bridge", Storage()).gaps.records == 5


def test_a_restarted_bridge_counts_losses_after_its_cursor_once(
    log: Path, forward: Forward, bridge: Start
) -> None:
    with bounded(log) as writer:
        append(writer, range(300))
        writer.flush()
        run = forward()
        run.until(lambda s: s.acknowledged == 300)
        run.stop()
        append(writer, range(300, 9_000))
        writer.flush()
    lost = gone(log, 9_000, 300)
    assert lost > 0
    assert on_disk(bridge, log)["lost_records"] == lost
    for _ in range(2):
        run = forward(bootstrap_servers=NOWHERE)
        run.until(lambda s: s.lost_records == lost, SECONDS)
        assert run.stop().lost_records == lost
    status = forward(drain=True).end()
    assert (status.lost_records, status.gaps) == (lost, 1)
    assert status.acknowledged == len(records_of(log))
    assert forward(drain=True).end().lost_records == 0
    (cursor,) = aolog.cursors(log)
    assert cursor.pruned is None
    assert on_disk(bridge, log)["lost_records"] == lost  # also after the cursor has passed it


@pytest.mark.kafka
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_a_bridge_lost_is_shown_after_it_ended_and_pruned(
    kafka: KafkaServer, topic: TopicFactory, log: Path, bridge: Start, delivery: str
) -> None:
    fill(log, 9_000, slab_bytes=32 << 10, batch_bytes=2000)
    slabs = sorted(log.glob("*.slab"))[:-1]
    for slab in slabs:
        flip(slab, slab.stat().st_size // 2)
    gaps = aolog.verify(log).gaps
    assert len(gaps) == len(slabs) > 5
    run = (
        "run", "--log", log, "--topic", topic(1), "--delivery", delivery, "--prune",
        "--bootstrap-servers", kafka.bootstrap_servers, "--drain",
    )  # fmt: skip  # a command line
    process = bridge(*run)
    assert process.end() == 3
    assert not any(slab.exists() for slab in slabs)
    assert not aolog.verify(log).gaps
    assert bridge(*run).end() == 0  # it met nothing new
    found = on_disk(bridge, log)
    assert (found["lost_records"], found["gaps"]) == (
        sum(gap.records_lost or 0 for gap in gaps), len(gaps),
    )  # fmt: skip  # two numbers
    assert [(loss["begin"], loss["end"], loss["reason"]) for loss in found["losses"]] == [
        gap[:3] for gap in gaps
    ]
    text = printed(bridge("status", "--log", log))
    assert f"addresses {gaps[-1].begin} to {gaps[-1].end} (corrupt)" in text
    assert f"{len(gaps) - 5} earlier gap" in text


# --- what the bridge prunes itself ------------------------------------------------------------


def test_the_bridge_s_own_pruning_takes_nothing_that_another_cursor_needs(
    log: Path, forward: Forward
) -> None:
    fill(log, 9_000, slab_bytes=32 << 10, batch_bytes=2000)
    commit(log, 10, "slow")
    forward(drain=True, prune=True).end()
    found = {cursor.name: cursor for cursor in aolog.cursors(log)}
    assert found["slow"].pruned is None
    assert found["slow"].lag.records == 9_000 - 10


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
