"""pull --units: more workers than partitions, any of which may be killed, and each record once."""

import itertools
import random
import signal
import time
from contextlib import suppress

import pytest

from aolog.errors import NotALog
from bridge.operate.unit_events import events_of
from tests.bridge.pull.pulling import SLOWLY, Killed, expected, origins, produce, pull

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
