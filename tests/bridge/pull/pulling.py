"""For tests of pulls: records in a topic, processes that are killed, and what the logs hold."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from aolog import Reader
from bridge.cli import main
from bridge.pull.origin import origin_of
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.processes import Process


def produce(kafka: KafkaServer, topic: str, numbers: range, partitions: int = 1, **more) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            topic, b"value %d" % number, b"key", number % partitions,
            timestamp=1_700_000_000_000 + number, headers=[("n", b"%d" % number), ("none", None)], **more,
        )  # fmt: skip  # one call
        producer.poll(0)
    assert producer.flush(60) == 0


def delete_before(kafka: KafkaServer, topic: str, partition: int, offset: int) -> None:
    """As retention does."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        assert done.result(30).low_watermark == offset


def origins(*logs: Path) -> list[tuple]:
    """Of all records in these logs: topic, partition, offset, value."""
    found = []
    for log in logs:
        with Reader(log) as reader:
            for record in reader:
                source, offset = origin_of(record.headers)
                found.append((record.topic, source.partition, offset, record.value))
    return sorted(found)


def expected(topic: str, count: int, partitions: int) -> list[tuple]:
    return sorted((topic, n % partitions, n // partitions, b"value %d" % n) for n in range(count))


def pull(kafka: KafkaServer, log: Path, *topics: str, more: tuple[str, ...] = ()) -> Result:
    named = itertools.chain.from_iterable(("--topic", topic) for topic in topics)
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    return CliRunner().invoke(main, ["pull", *named, "--log", str(log), *servers, "--drain", *more])


def pulled(*arguments, **options) -> None:
    result = pull(*arguments, **options)
    assert result.exit_code == 0, (result.output, result.exception)


class Killed(Process):
    """A pull that can be started again after it was killed."""

    def __init__(self, kafka: KafkaServer, log: Path, topic: str, *more: str) -> None:
        self._command = (
            "pull", "--topic", topic, "--log", str(log),
            "--bootstrap-servers", kafka.bootstrap_servers, "--json", *more,
        )  # fmt: skip  # one command
        self._directory = log.parent
        self.start()

    def start(self) -> None:
        super().__init__(self._directory, *self._command)

    @property
    def status(self) -> dict:
        """The last one."""
        return [{"pulled": 0, "state": "", "positions": {}}, *self.statuses][-1]

    def until(self, reached: Callable[[dict], bool], seconds: float = 30) -> None:
        """Waits for a status of which it holds; earlier ones do not count."""
        until_s = time.monotonic() + seconds
        while not reached(self.status):
            assert time.monotonic() < until_s, self.status
            assert self.popen.poll() is None, self.stderr
            time.sleep(0.01)

    def stop(self) -> None:
        self.until(lambda status: status["state"] != "")  # it handles signals from then on
        assert self.terminate(60) == 0, self.stderr


SLOWLY = ("-X", "fetch.message.max.bytes=20000", "-X", "queued.min.messages=200")
