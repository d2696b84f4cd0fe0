"""Damaged and pruned logs: gaps are passed and counted; slabs are deleted once they are delivered.
Against the embedded broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aolog import Retention, Writer
from aolog.log.retention import prune
from aolog.storage.storage import Storage
from bridge.deliver import log_source as source_module
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.brokers import TOPIC, assert_arrived, consume
from tests.bridge.damage import damage
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, cursor_of, fill, records_of
from tests.bridge.processes import Start


@pytest.mark.parametrize("many", [False, True], ids=["log", "root"])
def test_a_gap_is_passed_counted_and_logged_and_a_drain_over_it_has_its_own_exit_status(
    broker: EmbeddedBroker, log: Path, bridge: Start, many: bool
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
        "`aolog-bridge status --log` lists the gaps"
    )
    if many:
        assert f"log was drained: {said}" in process.stderr
    else:
        error = json.loads(process.stderr.splitlines()[-1])["error"]
        assert (error["code"], error["gaps"], error["records_lost"]) == ("gap", 1, lost)
        assert f"gap: {log}: {error['message']}; {error['hint']}" == said
    assert_arrived(rest, consume(broker.bootstrap_servers))
    assert bridge(*arguments).end() == 0  # the cursor has passed it


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
    forward(drain=True, prune=True, settings=settings, commit_s=0.05).end()
    assert [base for deleted in deleted_by_turn for base in deleted] == bases[:-1]
    assert len(deleted_by_turn) > 3  # while it was sending
    assert_arrived(records, consume(broker.bootstrap_servers))


def test_a_cursor_of_somebody_else_that_cannot_be_read_stops_the_pruning_and_not_the_bridge(
    broker: EmbeddedBroker, log: Path, forward: Forward, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 4000, slab_bytes=64 << 10)
    records, slabs = records_of(log), sorted(log.glob("*.slab"))
    (log / "cursors").mkdir()
    (log / "cursors" / "theirs.cursor").touch()
    forward(drain=True, prune=True).end()
    assert_arrived(records, consume(broker.bootstrap_servers))
    assert sorted(log.glob("*.slab")) == slabs
    assert "cursor 'theirs' cannot be read" in caplog.text


# --- what the cursor protects ---------------------------------------------------------------


def test_from_its_start_on_a_bridge_protects_records_after_its_cursor(
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
    run = forward(prune=True)
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
