"""Shared by the cases about the bridge: clusters, and a bridge in a process of its own.

`Bridge` is `python -m bridge run`, instrumented: its engines write each acknowledgement to a pipe, 16
bytes with the time. Nothing else is changed. Times are of the monotonic clock, which Linux shares
between processes.

Clusters are librdkafka's mock, in this process, and Apache Kafka as the tests run it, if Java and the
jars are available. The mock keeps 5 MiB per partition and does not isolate transactions.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from bench.child import ROOT
from bench.measure import Group, Skipped, Wrong
from bench.panel import Panel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from bench.sizes import Size

__all__ = ["KAFKA", "LITTLE_IS_KEPT", "MOCK", "SOON_S", "Acknowledged", "Bridge", "Cluster", "Destination",
           "destinations", "environment", "new_topic", "on_each_cluster", "run_bridge", "without_kafka"]  # fmt: skip

Measurable = TypeVar("Measurable", Group, Panel)

MOCK, KAFKA = "librdkafka's mock", "Apache Kafka"
SOON_S = 120.0  # bound for every wait; far above what is usual
# Cases drain the same log again and again, so Kafka may delete early.
LITTLE_IS_KEPT = {
    "log.retention.bytes": 1 << 30,
    "log.segment.bytes": 128 << 20,
    "log.retention.check.interval.ms": 5_000,
}
_RECORD = struct.Struct("<qq")
_READ_BYTES = 64 << 10
_PIPE_BYTES = 1 << 20  # 65,536 acknowledgements, so that the bridge never waits for the reader

_TOLD = """
import os, runpy, struct, sys, time
from bridge.deliver.at_least_once.engine import Engine
from bridge.deliver.exactly_once.engine import Transactions

pipe, pack = int(sys.argv.pop(1)), struct.Struct("<qq").pack

def told(method):
    last = -1
    def through(self, *args, **named):
        nonlocal last
        commands = method(self, *args, **named)
        address = self.position.address
        if address > last:
            last = address
            os.write(pipe, pack(address, time.monotonic_ns()))
        return commands
    return through

Engine.delivered = told(Engine.delivered)
Transactions.committed = told(Transactions.committed)
runpy.run_module("bridge", run_name="__main__", alter_sys=True)
"""


class Cluster(Protocol):
    """The interface that the mock and Kafka share."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, name: str, partitions: int = 1) -> None: ...


class Destination(NamedTuple):
    """A running cluster. isolates: whether it supports exactly_once."""

    name: str
    cluster: Cluster
    isolates: bool


class Acknowledged(NamedTuple):
    """Every record before the address is acknowledged. at_ns: when the bridge learnt it."""

    address: int
    at_ns: int


def without_kafka(size: Size) -> list[Skipped]:
    """The reason if Apache Kafka is left out."""
    if not size.bridge_kafka:
        return [Skipped(KAFKA, "not at this size")]
    from bridge.testing.apache_kafka.jars import KafkaUnavailable, jars, java

    try:
        java()
        jars()
    except KafkaUnavailable as error:
        return [Skipped(KAFKA, str(error))]
    return []


def destinations(size: Size, directory: str) -> Iterator[Destination]:
    """The mock, then Kafka if available; each runs until the next one is requested."""
    from bridge.kafka.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield Destination(MOCK, broker, isolates=False)
    if without_kafka(size):
        return
    from bridge.testing.apache_kafka.server import KafkaServer

    with KafkaServer(Path(directory, "kafka"), LITTLE_IS_KEPT) as server:
        yield Destination(KAFKA, server, isolates=True)


def on_each_cluster(
    size: Size, directory: str, make: Callable[[Destination], Measurable]
) -> Iterator[Measurable]:
    """The measurement of `make` on each cluster, with the reason if one is left out."""
    missing = without_kafka(size)
    for to in destinations(size, directory):
        one = make(to)
        one.skipped.extend(missing)
        yield one


def new_topic(cluster: Cluster, partitions: int = 1) -> str:
    """Creates a new topic. Returns its name."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(name, partitions)
    return name


def environment() -> dict[str, str]:
    """For a process that imports the project."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Bridge:
    """A bridge from a log to a topic. A context manager, which stops it. Raises Wrong if it ends, or
    reports nothing for SOON_S."""

    def __init__(self, log: str, to: Destination, topic: str, *options: str) -> None:
        self._pipe, theirs = os.pipe()
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _TOLD, str(theirs), "run", "--log", log, "--topic", topic),
                *("--bootstrap-servers", to.cluster.bootstrap_servers, *options),
            ],
            cwd=ROOT, env=environment(), pass_fds=[theirs], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip  # one thing, a line or two
        os.close(theirs)

    def acknowledged(self, address: int) -> list[Acknowledged]:
        """Waits until the record at the address is acknowledged. Returns all reports since the last call."""
        told: list[Acknowledged] = []
        until_s = time.monotonic() + SOON_S
        while not told or told[-1].address <= address:
            if not self._selector.select(until_s - time.monotonic()):
                raise Wrong(f"the bridge acknowledges nothing for {SOON_S:g} s")
            data = os.read(self._pipe, _READ_BYTES)
            if not data:
                said = self._process.communicate()[1]
                raise Wrong(f"the bridge ended with status {self._process.wait()}:\n{said}")
            data = self._rest + data
            whole = len(data) - len(data) % _RECORD.size
            self._rest = data[whole:]
            told += map(Acknowledged._make, _RECORD.iter_unpack(data[:whole]))
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=SOON_S)
        finally:
            self._process.kill()
            self._selector.close()
            os.close(self._pipe)


@contextmanager
def run_bridge(
    path: str, to: Destination, topic: str, *options: str, source: str = "--log"
) -> Iterator[subprocess.Popen[str]]:
    """`python -m bridge run`, unchanged, with its status as JSON lines on standard output. source: what the path
    is of."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "bridge", "run", source, path, "--topic", topic, "--json"),
            *("--bootstrap-servers", to.cluster.bootstrap_servers, *options),
        ],
        cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip  # one thing, a line or two
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
