"""pull --units: more workers than partitions, any of which may be killed, and each record once."""

import itertools
import json
import random
import signal
import time
from contextlib import suppress

import pytest

from aolog import Writer
from aolog.errors import NotALog
from bridge.kafka.catalog import Catalog
from bridge.kafka.fetcher import Fetcher
from bridge.operate.unit_events import events_of
from bridge.pull.origin import HEADER_NAME, sources_of
from bridge.pull.units import Unit, Units
from tests.bridge.pull.pulling import (
    SLOWLY,
    Killed,
    delete_before,
    expected,
    origins,
    produce,
    pull,
    pulled,
)

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 1")]

UNIT = 500


def test_workers_that_are_killed_cost_a_unit_each_and_the_archive_has_each_record_once(
    kafka, topic, tmp_path
):
    partitions, count, chance = 2, 20_000, random.Random(28)
    name, root = topic(partitions), tmp_path / "root"
    root.mkdir()
    produce(kafka, name, range(count), partitions)
    logs = [root / each for each in "abc"]
    more = ("--root", str(root), "--units", str(UNIT), "--drain", *SLOWLY)
    workers = [Killed(kafka, log, name, *more) for log in logs]
    waiting = dict(zip(logs, workers, strict=True))
    while waiting:  # none ends before each has records
        for log in list(waiting):
            with suppress(NotALog):
                if origins(log):
                    waiting.pop(log).popen.send_signal(signal.SIGSTOP)
    for worker in workers:
        worker.popen.send_signal(signal.SIGCONT)
    killed = 0
    for worker in itertools.islice(itertools.cycle(workers), 4):
        if worker.popen.poll() is not None:
            continue
        worker.until(lambda status: status["positions"] != {})
        time.sleep(chance.uniform(0, 0.1))
        killed += worker.popen.poll() is None
        worker.kill()
        worker.start()
    for worker in workers:
        assert worker.popen.wait(60) == 0, worker.stderr
    assert killed > 1
    assert origins(*logs) == expected(name, count, partitions)
    assert sum(len(origins(log)) > 0 for log in logs) == 3, "more workers than partitions"
    events = events_of(str(root))
    covered = sorted((e["partition"], e["offset"], e["offset"] + e["length"]) for e in events)
    half = count // partitions
    assert covered == [
        (number, begin, min(begin + UNIT, half))
        for number in range(partitions)
        for begin in range(0, half, UNIT)
    ]
    assert count - killed * UNIT <= sum(e["seen"] for e in events) <= count
    left = list((root / ".pull").glob("*.u*"))
    assert len(left) <= killed, (
        "only a kill between the event and the removal leaves a claim's file"
    )


def test_new_records_become_units_while_a_worker_runs_and_a_plain_pull_is_refused(
    kafka, topic, tmp_path
):
    name, root = topic(), tmp_path / "root"
    log = root / "a"
    root.mkdir()
    produce(kafka, name, range(700))
    worker = Killed(kafka, log, name, "--root", str(root), "--units", str(UNIT))
    worker.until(lambda status: status.get("units") == 2)
    produce(kafka, name, range(700, 1_200))
    worker.until(lambda status: status["pulled"] == 1_200)
    worker.stop()
    assert origins(log) == expected(name, 1_200, 1)
    for each, more in ((log, ()), (root / "b", ("--root", str(root), "--group", name))):
        refused = pull(kafka, each, name, more=more)
        assert refused.exit_code == 2
        assert "filled by units" in refused.stderr
    assert not (root / "b").exists()


@pytest.mark.parametrize("count", [500, 1])
def test_units_that_the_cluster_deleted_are_reported_once_and_fail_stops(
    kafka, topic, tmp_path, monkeypatch, count
):
    """count: what a fetch gives at most; an error of a unit that was left may come in a later one."""
    fetch = Fetcher.fetch
    monkeypatch.setattr(Fetcher, "fetch", lambda self, _, *how: fetch(self, count, *how))
    name, root = topic(), tmp_path / "root"
    logs, more = [root / "a", root / "b"], ("--root", str(root), "--units", str(UNIT), "--json")
    root.mkdir()
    produce(kafka, name, range(700))
    pulled(kafka, logs[0], name, more=more)
    produce(kafka, name, range(700, 2_000))
    delete_before(kafka, name, 0, 1_600)  # the rest of one unit, one unit, a part of one
    for _ in range(2):
        failed = pull(kafka, logs[1], name, more=(*more, "--out-of-range", "fail"))
        assert failed.exit_code == 6, failed.output
        assert "deleted 300 offsets before they were pulled (700 to 999)" in failed.stderr
    lost = []
    for log in (*logs, *logs):
        went_on = pull(kafka, log, name, more=more)
        assert went_on.exit_code == 0
        lost.append(json.loads(went_on.stdout.splitlines()[-1])["lost"])
    assert lost == [900, 0, 0, 0]
    assert [each[2] for each in origins(*logs)] == [*range(700), *range(1_600, 2_000)]


def test_what_a_worker_has_of_a_unit_is_not_lost_and_a_partition_that_none_has_reached_may_be(
    kafka, topic, tmp_path
):
    name, root = topic(2), tmp_path / "root"
    log = root / "a"
    produce(kafka, name, range(2 * UNIT), 2)
    catalog = Catalog(kafka.bootstrap_servers, {})
    sources = sources_of(catalog.cluster_id(), catalog.topics([name]))
    first, source = Units(str(root), str(log), UNIT), sources[name, 0]
    first.see(dict.fromkeys(sources.values(), 0))
    assert first.claim(Unit(source, name, 0, 0, UNIT), 0) is not None
    with Writer(log) as writer:
        for offset in range(300):
            origin = HEADER_NAME, source.prefix + b"%d" % offset
            writer.append(b"value %d" % (2 * offset), topic=name, headers=[origin])
    delete_before(kafka, name, 0, UNIT - 10)
    delete_before(kafka, name, 1, 100)
    second = Killed(kafka, root / "b", name, "--root", str(root), "--units", str(UNIT))
    second.until(lambda status: status["pulled"] == UNIT - 100 and status["state"] == "waiting")
    assert second.status["lost"] == 100
    first.close()
    second.until(lambda status: status["pulled"] == UNIT - 100 + 10)
    assert second.status["lost"] == 100 + UNIT - 10 - 300
    second.stop()
    kept = {(0, offset) for offset in (*range(300), *range(UNIT - 10, UNIT))}
    kept |= {(1, offset) for offset in range(100, UNIT)}
    assert [each[1:3] for each in origins(log, root / "b")] == sorted(kept)
