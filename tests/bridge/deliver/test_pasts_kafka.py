"""One log, several pasts, exactly once: the cluster's cursor is outside of the log, so it does not
go back when the log does. Then either all that is new arrives, once, or it is refused in words
and nothing is sent. 12 s."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from aolog import Writer
from aolog.errors import CursorDiverged
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import committed_in
from tests.bridge.forwarders import Forward, Run
from tests.bridge.logs import append, cursor_of, fill
from tests.bridge.pasts import copy_of, numbers, once, put_back_anew, put_back_in_place
from tests.kafka.plugin import TopicFactory

pytestmark = pytest.mark.kafka


@pytest.fixture
def exactly(forward_to: Forward, committed: dict[str, list[int]]) -> Forward:
    """Starts a forwarder in a thread, draining exactly once. The log may have gone back."""

    def start(topic: str, **options: object) -> Run:
        committed.clear()
        return forward_to(topic, delivery="exactly_once", **options)

    return start


def test_a_log_restored_as_other_files_goes_on_above_the_clusters_cursor(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward
) -> None:
    name = topic(2)
    fill(log, 100)
    backup = copy_of(log)
    fill(log, range(100, 200))
    exactly(name).end()
    before = cursor_of(log)
    put_back_anew(log, backup)
    fill(log, range(300, 400))
    status = exactly(name).end()
    assert (status.acknowledged, status.skipped) == (100, 200)
    assert cursor_of(log) > before
    assert numbers(committed_in(kafka, name, 2)) == once(range(200), range(300, 400))


@pytest.mark.parametrize("new", [50, 500], ids=["shorter", "longer"])
def test_a_log_restored_in_place_is_refused_before_a_new_record_is_passed(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward, new: int
) -> None:
    """Nothing in the log shows it; new records lie, or will lie, at addresses before the cursor."""
    name = topic(2)
    fill(log, 100)
    backup = copy_of(log)
    fill(log, range(100, 200))
    exactly(name).end()
    put_back_in_place(log, backup)
    fill(log, range(300, 300 + new))
    with pytest.raises(CursorDiverged, match="the cluster's cursor record does not fit") as caught:
        exactly(name).end()
    assert "restored" in str(caught.value)
    assert "another --cursor starts from the beginning" in str(caught.value)
    assert numbers(committed_in(kafka, name, 2)) == once(range(200))
    exactly(name, cursor="anew").end()  # as the words say: all of it, under another cursor
    found = numbers(committed_in(kafka, name, 2))
    assert found == once(range(200), range(100), range(300, 300 + new))


def test_of_a_log_and_its_copy_one_goes_on_and_the_other_is_refused(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward
) -> None:
    """They share the cluster's cursor: what the one passed, the other has not. Which one goes on depends on
    whether a writer has opened the copy."""
    name = topic(2)
    fill(log, 100)
    exactly(name).end()
    copy = copy_of(log)
    fill(log, range(100, 200))
    exactly(name).end()
    with pytest.raises(CursorDiverged, match="it is a copy"):
        exactly(name, path=copy).end()
    assert numbers(committed_in(kafka, name, 2)) == once(range(200))
    fill(copy, range(300, 400))
    assert exactly(name, path=copy).end().acknowledged == 100
    fill(log, range(400, 500))
    with pytest.raises(CursorDiverged, match="a copy to which a writer has written was delivered"):
        exactly(name).end()
    assert numbers(committed_in(kafka, name, 2)) == once(range(200), range(300, 400))


@pytest.mark.parametrize(
    "first",
    ["writer", pytest.param("bridge", marks=pytest.mark.slow)],
)
def test_after_a_power_cut_the_clusters_cursor_is_ahead_and_new_records_arrive(
    kafka: KafkaServer, topic: TopicFactory, exactly: Forward, first: str
) -> None:
    """first: who comes first after it."""
    name = topic(2)
    # The seed makes the log's UUID, and cursor records outlive a test.
    system = SimulatedSystem(seed=time.time_ns(), piece_bytes=512)
    storage, log = Storage(system), Path("/log")
    writer = Writer(log, storage=storage, sync="never", flush_seconds=None)
    append(writer, range(60))
    writer.sync()
    append(writer, range(60, 120))
    writer.flush()
    run = exactly(name, path=log, storage=storage)
    assert run.end().acknowledged == 120
    survivor = next(system.power_cut(limit=2))
    storage = Storage(survivor.system)
    if first == "bridge":
        status = exactly(name, path=log, storage=storage).end()
        assert (status.acknowledged, status.lag_records) == (0, 0)
    with Writer(log, storage=storage) as writer:
        assert writer.opening is not None
        append(writer, range(200, 260))
    status = exactly(name, path=log, storage=storage).end()
    assert (status.acknowledged, status.lag_records) == (60, 0)
    assert numbers(committed_in(kafka, name, 2)) == once(range(120), range(200, 260))
