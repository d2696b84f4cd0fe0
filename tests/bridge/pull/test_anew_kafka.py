"""A topic that is deleted, or made anew, while it is pulled: the pull goes on, and loses nothing of the new one."""

from __future__ import annotations

import pytest

from tests.bridge.pull.pulling import Killed, expected, origins, produce
from tests.kafka.servers import delete_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 2")]

WAYS = {
    "alone": ("a", ()),
    "in a group": ("ab", ("--root", "ROOT", "--group", "NAME")),
    "in a group of the new protocol": (
        "ab", ("--root", "ROOT", "--group", "NAME", "-X", "group.protocol=consumer")
    ),
    "in units": ("ab", ("--root", "ROOT", "--units", "8")),
}  # fmt: skip  # a table


@pytest.fixture
def start(kafka, tmp_path):
    """Starts the processes of a pull."""
    root, processes = tmp_path / "root", []
    root.mkdir()

    def start(way: str, name: str, *topics: str) -> list[Killed]:
        logs, given = WAYS[way]
        more = [{"ROOT": str(root), "NAME": name}.get(each, each) for each in given]
        for topic in topics:
            more += ["--topic", topic]
        processes.extend(Killed(kafka, root / log, name, *more) for log in logs)
        return processes

    yield start
    for process in processes:
        process.kill()


def pulled(processes: list[Killed]) -> int:
    for process in processes:
        assert process.popen.poll() is None, process.stderr
    return sum(process.status["pulled"] for process in processes)


@pytest.mark.parametrize(
    ("way", "partitions", "count"),
    [
        ("alone", 1, 6),
        pytest.param("alone", 3, 60, marks=pytest.mark.slow),
        ("in a group", 1, 6),
        pytest.param("in a group of the new protocol", 1, 6, marks=pytest.mark.slow),
        ("in units", 3, 60),
    ],
)
def test_a_topic_that_is_made_anew_is_pulled_from_its_beginning_and_a_deleted_one_is_no_error(
    kafka, topic, tmp_path, start, way, partitions, count
):
    """The new one has fewer records than were pulled, or more; and another number of partitions."""
    name, gone, root = topic(2), topic(), tmp_path / "root"
    produce(kafka, name, range(20), 2)
    produce(kafka, gone, range(10))
    processes = start(way, name, gone)
    wait_until(lambda: pulled(processes) == 30 and all(p.status["state"] for p in processes))
    for each in (gone, name):
        delete_topic(kafka, each)
    kafka.create_topic(name, partitions)
    produce(kafka, name, range(count), partitions)
    wait_until(lambda: pulled(processes) == 30 + count)
    wait_until(lambda: all(f"there is no topic '{gone}'" in p.stderr for p in processes))
    produce(kafka, name, range(count, count + 6), partitions)
    wait_until(lambda: pulled(processes) == 36 + count)
    for process in processes:
        process.stop()
    logs = [root / log for log in WAYS[way][0] if any((root / log).glob("*.slab"))]
    both = [*expected(name, 20, 2), *expected(name, count + 6, partitions)]
    assert origins(*logs) == sorted([*expected(gone, 10, 1), *both])
