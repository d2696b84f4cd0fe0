"""Several pulls share an archive. It has each offset once after kills of pulls and of the broker."""

from __future__ import annotations

import random
import threading
import time
from uuid import UUID

import pytest

from bridge.errors import Unanswered
from bridge.kafka.catalog import Catalog
from bridge.kafka.fetcher import Fetcher
from bridge.pull.archive import Archive
from bridge.pull.origin import Source
from bridge.pull.pull_options import PullOptions
from bridge.pull.puller import Puller
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import raw_committed
from tests.bridge.pull.pulling import SLOWLY, Killed, expected, origins, produce
from tests.waiting import SOON_S, in_thread, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 1")]


def read(kafka: KafkaServer, topic: str, partitions: int) -> list[tuple]:
    """The topic, by a client that shares nothing with the bridge."""
    found = [message for n in range(partitions) for message in raw_committed(kafka, topic, n)]
    return sorted((m.topic(), m.partition(), m.offset(), m.value()) for m in found)


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_three_processes_and_a_broker_that_are_killed_leave_each_offset_once(
    kafka, topic, tmp_path, protocol
):
    partitions, count = 6, 24_000
    name, chance = topic(partitions), random.Random(protocol)
    produce(kafka, name, range(count // 2), partitions)
    logs = [tmp_path / each for each in "abc"]
    more = ("--root", str(tmp_path), "--group", name, "-X", f"group.protocol={protocol}", *SLOWLY)
    more += ("-X", "session.timeout.ms=6000") if protocol == "classic" else ()
    processes = [Killed(kafka, log, name, *more) for log in logs]
    processes[0].until(lambda _: all(process.status["positions"] for process in processes), SOON_S)
    for turn in range(3):
        time.sleep(chance.uniform(0.2, 0.8))
        at = count // 2 + turn * count // 6
        produce(kafka, name, range(at, at + count // 6), partitions)
        process = chance.choice(processes)
        if turn == 2:
            for each in processes:  # at its start a pull needs an answer, or it ends
                each.until(lambda status: status["state"] != "")
            kafka.kill()
            kafka.start()
        elif turn == 1:
            process.stop()
            process.start()
        else:
            process.kill()
            process.start()
    chance.choice(processes).kill()  # and it stays away
    wait_until(lambda: len(origins(*(log for log in logs if any(log.glob("*.slab"))))) >= count)
    for process in processes:
        if process.popen.poll() is None:
            process.stop()
    assert origins(*logs) == expected(name, count, partitions) == read(kafka, name, partitions)
    assert sum(len(origins(log)) > 0 for log in logs) > 1, "one process did it all"


def test_partitions_that_are_given_away_while_nothing_answers_are_read_when_they_come_back(
    kafka, topic, tmp_path
):
    """Fetching is paused then. What was held for these partitions is not needed any more."""
    name, silent, paused = topic(), threading.Event(), threading.Event()

    class Mute(Catalog):
        def existing(self, *names):
            if silent.is_set():
                raise Unanswered("no answer")
            return super().existing(*names)

    class Group(Fetcher):
        """The group is this test. As Kafka's, it calls back inside `fetch`."""

        def subscribe(self, _topics, assigned, revoked):
            place = [(name, 0)]
            self.turns = [
                lambda: (assigned(place), silent.set()),
                lambda: (revoked(place), silent.clear()),
                lambda: assigned(place),
            ]

        def pause(self):
            super().pause()
            paused.set()

        def fetch(self, *how):
            if len(self.turns) == 3 or (self.turns and paused.is_set()):
                self.turns.pop(0)()
            return super().fetch(*how)

    produce(kafka, name, range(100))
    options = PullOptions(kafka.bootstrap_servers, (name,), str(tmp_path / "a"), group=name)
    pull = Puller(options, Mute, Group)
    statuses = []
    pulling = in_thread(lambda: pull.run(statuses.append))
    try:
        wait_until(lambda: statuses and statuses[-1].pulled == 100)
    finally:
        pull.stop()
        pulling.result()


def test_a_process_that_gets_no_answer_keeps_no_claim_from_others(kafka, topic, tmp_path):
    """It is in the group, and may lose its partition before it could begin with it."""

    class Mute(Catalog):
        def offsets(self, *_, **__):
            raise Unanswered("no answer")

    name = topic()
    produce(kafka, name, range(100))
    more = ("--root", str(tmp_path), "--group", name)
    options = PullOptions(
        kafka.bootstrap_servers, (name,), str(tmp_path / "a"), root=str(tmp_path), group=name
    )
    mute = Puller(options, Mute)
    statuses = []
    waiting = in_thread(lambda: mute.run(statuses.append))
    wait_until(lambda: statuses and statuses[-1].state == "waiting")
    try:
        [described] = Catalog(kafka.bootstrap_servers, {}).topics([name])
        source = Source(Catalog(kafka.bootstrap_servers, {}).cluster_id(), described.id, 0)
        other = Archive(str(tmp_path), "")
        wait_until(lambda: other.claim(source))
        other.close()
    finally:
        mute.stop()
        waiting.result()
    process = Killed(kafka, tmp_path / "b", name, *more)
    process.until(lambda status: status["pulled"] == 100, SOON_S)
    process.stop()


def test_a_process_waits_for_a_claim_and_then_begins(kafka, topic, tmp_path):
    name = topic()
    produce(kafka, name, range(100))
    cluster = Catalog(kafka.bootstrap_servers, {})
    other = Archive(str(tmp_path), "")
    assert other.claim(Source(cluster.cluster_id(), UUID(str(cluster.topic(name).id)), 0))
    process = Killed(kafka, tmp_path / "a", name, "--root", str(tmp_path), "--group", name)
    process.until(lambda status: status["state"] == "waiting", SOON_S)
    time.sleep(1)  # it would have fetched by now
    other.close()
    process.until(lambda status: status["pulled"] == 100, SOON_S)
    process.stop()
    assert origins(tmp_path / "a") == expected(name, 100, 1)
