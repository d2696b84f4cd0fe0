"""What tests of the bridge share: logs, forwarders in a thread or a process, and a consumer that
owes nothing to the bridge's own code."""

from __future__ import annotations

import json
import logging
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from aolog import Record, Retention, Writer
from aolog.errors import StorageFull
from aolog.log.cursor_file import read_position
from aolog.storage.directory import Inside
from aolog.storage.file import File
from aolog.storage.storage import Storage
from bridge.client.buffer import provider
from bridge.deliver.checkpoint_file import CheckpointFile
from bridge.deliver.checkpoints import checkpoints_path
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.status import Status
from bridge.deliver.waits import Waits
from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing import MemoryProvider, embedded_broker  # noqa: F401 -- a fixture
from bridge.testing.apache_kafka import KafkaServer
from tests.aolog.conftest import SOON_S, Call, wait_until
from tests.aolog.conftest import read_all as records_of

TOPIC = "t"
NOWHERE = "127.0.0.1:1"  # no server listens on port 1
PARTITIONS = 4


class Message(NamedTuple):
    """What a consumer got. The stamp is taken apart here by the table in bridge/kafka/stamp.py, not by
    its code."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    uuid: bytes
    epoch: int
    address: int
    timestamp_us: int | None


def message_of(found: Any) -> Message:
    *headers, (name, stamp) = found.headers()
    assert name == "aolog"
    uuid, epoch, address, timestamp_us = struct.unpack("<16sIQq", stamp)
    return Message(
        found.topic(),
        found.partition(),
        found.offset(),
        found.key(),
        found.value(),
        tuple(headers),
        found.timestamp()[1],
        uuid,
        epoch,
        address,
        None if timestamp_us == -(1 << 63) else timestamp_us,
    )


def ends_of(consumer: Consumer, place: TopicPartition, until_s: float) -> tuple[int, int]:
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=SOON_S)
        except KafkaException:  # the partition or the client is new; or fenced for want of time
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)


def consume(
    bootstrap_servers: str, topic: str = TOPIC, partitions: int = PARTITIONS
) -> list[Message]:
    """All that is there, partition by partition, in order of offsets without a hole."""
    found = map(message_of, consume_any(bootstrap_servers, topic, partitions))
    return sorted(found, key=lambda m: (m.partition, m.offset))


def consume_any(
    bootstrap_servers: str, topic: str = TOPIC, partitions: int = PARTITIONS
) -> list[Any]:
    """As the client returns them; those of a partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "test",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        ends = [ends_of(consumer, place, time.monotonic() + SOON_S) for place in places]
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in enumerate(ends)])
        missing = sum(high - low for low, high in ends)
        found: list[Any] = []
        until_s = time.monotonic() + SOON_S
        while missing > 0 and time.monotonic() < until_s:
            for message in consumer.consume(min(missing, 1000), timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message)
                missing -= 1
        assert missing == 0
    finally:
        consumer.close()
    return found


def cursor_of(log: Path, name: str = "bridge") -> int:
    return read_position(str(log), name, Storage()).address


def fill(
    log: Path, numbers: int | range, *, keys: int = 50, size: int = 20, **options: Any
) -> None:
    """Appends records of which each says its number: so many, or these."""
    with Writer(log, **options) as writer:
        given = range(numbers) if isinstance(numbers, int) else numbers
        append(writer, given, keys=keys, size=size)


def bounded(log: Path, **options: Any) -> Writer:
    """A writer that removes what no cursor has read, beyond some thousand small records."""
    return Writer(
        log,
        slab_bytes=32 << 10,
        batch_bytes=2000,
        flush_seconds=0.02,
        retention=Retention(max_bytes=128 << 10, when_full="prune"),
        **options,
    )


def gone(log: Path, appended: int, delivered: int = 0) -> int:
    """Records that are not there any more and were not delivered."""
    return appended - len(records_of(log)) - delivered


def append(writer: Writer, numbers: Iterable[int], *, keys: int = 50, size: int = 20) -> None:
    for number in numbers:
        key = b"k%d" % (number % keys) if keys else None
        writer.append((b"%d " % number).ljust(size, b"."), key=key, timestamp=number * 1_000_777)


def assert_arrived(
    records: list[Record], messages: list[Message], *, topic: str = TOPIC, complete: bool = True
) -> None:
    """Each record once, whole, in the order of the log within its partition."""
    by_address: dict[int, Message] = {}
    last: dict[int, int] = {}
    arrived: dict[int, list[tuple[int, int]]] = {}
    for message in messages:
        arrived.setdefault(message.address, []).append((message.partition, message.offset))
    twice = {address: places for address, places in arrived.items() if len(places) > 1}
    assert not twice, f"{len(twice)} arrived twice, by address at (partition, offset): {twice}"
    for message in messages:
        assert message.address > last.get(message.partition, -1), "out of order"
        by_address[message.address] = message
        last[message.partition] = message.address
    lost = [r.address for r in records if r.address not in by_address]
    if complete:
        assert lost == []
    assert by_address.keys() <= {r.address for r in records}
    where: dict[bytes | None, int] = {}
    for record in records:
        message = by_address.get(record.address)
        if message is None:
            continue
        assert message[3:6] == (record.key, record.value, record.headers)
        assert message.timestamp_us == record.timestamp
        assert message.topic == (record.topic or topic)
        if record.timestamp is not None:
            assert message.timestamp_ms == max(1, record.timestamp // 1000)
        assert where.setdefault(record.key, message.partition) == message.partition


class Limited(MemoryProvider):
    """Takes no more than so many in all."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def send(self, message: provider.Message) -> None:
        if len(self.messages) >= self.most:
            raise ConnectionError("no more for now")
        super().send(message)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The client's own words on each refused connection would fill pages."""
    logger = logging.getLogger("bridge.librdkafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@pytest.fixture
def broker(embedded_broker: EmbeddedBroker) -> EmbeddedBroker:  # noqa: F811 -- the same
    embedded_broker.create_topic(TOPIC, PARTITIONS)
    return embedded_broker


class FullStorage(Storage):
    """No room for another byte of a new file, as long as it is full."""

    is_full = True

    def create(self, path: Inside) -> File:
        if self.is_full:
            raise StorageFull("no room", path=path)
        return super().create(path)


def notes_of(log: Path, cursor: str = "bridge") -> dict[str, Any]:
    """What the bridge noted beside its cursor."""
    path = checkpoints_path(str(log), cursor)
    found: dict[str, Any] | None = CheckpointFile(path, Storage()).load(dict, "the test fails")
    assert found is not None
    return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


# --- in a thread -----------------------------------------------------------------------------


def forwarder(path: Path, **options: Any) -> Forwarder:
    """Of a log; options: of ForwarderOptions and of Forwarder."""
    run = {key: options.pop(key) for key in ("storage", "losses", "drain_to") if key in options}
    return Forwarder(path, ForwarderOptions(**options), **run)


class Run(Call):
    """A forwarder in a thread of its own."""

    def __init__(self, forwarder: Forwarder) -> None:
        self.forwarder = forwarder
        self.statuses: list[Status] = []
        super().__init__(lambda: forwarder.run(self.statuses.append, every_s=0.02))

    @property
    def alive(self) -> bool:
        return self.waits(0)

    @property
    def status(self) -> Status:
        wait_until(lambda: self.statuses or not self.alive)
        return self.statuses[-1]

    def until(self, reached: Callable[[Status], object], seconds: float = SOON_S) -> Status:
        """The first status from now on of which it holds."""
        for status in statuses_until_end(lambda: self.statuses, lambda: self.alive, seconds):
            if reached(status):
                return status
        last = self.statuses[-1] if self.statuses else None
        raise AssertionError(f"it did not come to that: {last}, {self.error!r}")

    def end(self, seconds: float = SOON_S) -> Status:
        """The last status, once it has ended by itself. Raises what it raised."""
        assert not self.waits(seconds), f"it goes on: {self.statuses[-1:]}"
        self.result()
        return self.statuses[-1]

    def stop(self) -> Status:
        self.forwarder.stop()
        return self.end(8.0)


Forward = Callable[..., Run]  # the fixture `forward`
WAITS = Waits(answer_s=1.0, settle_s=0.05)  # of most tests


def statuses_until_end(
    statuses: Callable[[], list[Any]], alive: Callable[[], bool], seconds: float
) -> Iterator[Any]:
    """The statuses as they come, until it has ended or so many seconds are over."""
    seen = 0
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        was_alive = alive()
        for status in statuses()[seen:]:
            seen += 1
            yield status
        if not was_alive:
            return
        time.sleep(0.01)


@pytest.fixture
def other() -> Iterator[EmbeddedBroker]:
    """Another cluster than `broker`."""
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        yield broker


@pytest.fixture
def committed() -> dict[str, list[int]]:
    """The cursor's addresses by log and cursor, as forwarders commit them; to be cleared where it
    is moved by hand."""
    return {}


@pytest.fixture
def forward(
    broker: EmbeddedBroker, log: Path, committed: dict[str, list[int]]
) -> Iterator[Forward]:
    """Starts a forwarder on the log; whatever becomes of it, each commit is checked: nothing
    before the cursor is missing from the broker."""
    runs: list[Run] = []

    def start(path: Path = log, **options: Any) -> Run:
        name = f"{path} {options.get('cursor', 'bridge')}"
        options = {
            "topic": TOPIC,
            "bootstrap_servers": broker.bootstrap_servers,
            "commit_s": 0.05,
            "waits": WAITS,
            "observe": lambda position: committed.setdefault(name, []).append(position.address),
            **options,
        }
        run = Run(forwarder(path, **options))
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.forwarder.stop()
    for run in runs:
        assert not run.waits(10)
    assert all(each == sorted(each) for each in committed.values())


# --- in a process ----------------------------------------------------------------------------


class Process:
    """`python -m bridge` with what it says."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._stderr = directory / f"stderr-{time.monotonic_ns()}"
        with self._stderr.open("wb") as stderr:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "bridge", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.lines: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line)
        self.popen.stdout.close()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    @property
    def statuses(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line.endswith("\n")]

    def until(self, reached: Callable[[dict[str, Any]], object], seconds: float = SOON_S) -> Any:
        for status in statuses_until_end(
            lambda: self.statuses, lambda: self.popen.poll() is None, seconds
        ):
            if reached(status):
                return status
        raise AssertionError(f"it did not come to that: {self.lines[-1:]}, {self.stderr[-2000:]}")

    def end(self, seconds: float = SOON_S) -> int:
        """Its exit status; there is never a traceback."""
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on: {self.lines[-1:]}, {self.stderr}") from None
        self._listener.join(SOON_S)
        assert "Traceback" not in self.stderr
        return code

    def terminate(self, seconds: float = 8.0) -> int:
        """Its exit status after SIGTERM."""
        self.popen.send_signal(signal.SIGTERM)
        return self.end(seconds)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._listener.join(SOON_S)


def printed(process: Process) -> str:
    """All that a command prints that ends well."""
    assert process.end(30) == 0, process.stderr
    return "".join(process.lines)


Start = Callable[..., Process]  # the fixtures `bridge`, `run` and `start`


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Start]:
    """Starts `python -m bridge ARGUMENTS`."""
    started: list[Process] = []

    def start(*arguments: str | os.PathLike[str]) -> Process:
        process = Process(tmp_path, *map(os.fspath, arguments))
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def running(bridge: Start, log: Path, topic: str, servers: str, *arguments: str) -> Process:
    """`python -m bridge run`, which tells its status all the time."""
    return bridge(
        "run", "--log", log, "--topic", topic, "--json", "--status-seconds", "0.05",
        "--bootstrap-servers", servers, *arguments,
    )  # fmt: skip  # a command line


@pytest.fixture
def run(bridge: Start, broker: EmbeddedBroker, log: Path) -> Start:
    """Starts `python -m bridge run` on the log and the embedded broker."""

    def start(*arguments: str, path: Path = log, servers: str | None = None) -> Process:
        return running(bridge, path, TOPIC, servers or broker.bootstrap_servers, *arguments)

    return start


# --- against Apache Kafka --------------------------------------------------------------------


@pytest.fixture
def start(bridge: Start, kafka: KafkaServer, log: Path) -> Start:
    """Starts `python -m bridge run` on the log and Apache Kafka."""

    def start(topic: str, *arguments: str, path: Path = log) -> Process:
        return running(bridge, path, topic, kafka.bootstrap_servers, *arguments)

    return start


@pytest.fixture
def forward_to(forward: Forward, kafka: KafkaServer) -> Forward:
    """Starts a forwarder in a thread, draining to Apache Kafka."""

    def start(topic: str, **options: object) -> Run:
        options = {"drain": True, "bootstrap_servers": kafka.bootstrap_servers, **options}
        return forward(topic=topic, **options)

    return start
