"""One node of Apache Kafka: a Java process on loopback, for tests and for `aolog-bridge cluster`.

`KafkaServer` owns one process (broker and KRaft controller in one), its ports and its data
directory, all for its lifetime: `stop` and `kill` end the process, `start` brings it back on the same
ports with the same data. Only processes started here are signalled, by process id. A process that is
itself killed with SIGKILL leaves its server running.
"""

from __future__ import annotations

import atexit
import base64
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported, not said so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

from bridge.errors import DestinationError
from bridge.testing.apache_kafka.jars import POM, java
from bridge.testing.apache_kafka.jars import jars as jars_of
from bridge.testing.apache_kafka.ports import free_ports

# Ready in 3 to 5 s on two idle cores; the rest is for a busy machine.
START_SECONDS_MAX: Final = 90
# A clean stop takes about 1 s; after this it is no longer a graceful stop.
STOP_SECONDS_MAX: Final = 30
# One look at a starting server: short, so that a dead process is noticed soon.
PROBE_SECONDS: Final = 1.0
# Lines of the server's log that go into an error.
LOG_TAIL_LINES: Final = 30

# Small heap, quick start: the run is a minute, not a month.
_JAVA_OPTIONS: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # which is a file in /tmp
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

_PROPERTIES: Final[Mapping[str, object]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    # One node holds everything there is.
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    # How often it looks for transactions that are open for too long: 10 s by default.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    # Records of a test's log may be years old: retention by time would take their segments, which
    # end sooner than one thinks where a transaction's marker, which is of the present, follows.
    "log.retention.ms": -1,
    # A test's consumer group has all its members at once.
    "group.initial.rebalance.delay.ms": 0,
    # A member of KIP-848's protocol that was killed is missed soon: 45 s by default.
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 1000,
    # As people have it: a topic that anything asks for with creation allowed appears by itself
    # (auto.create.topics.enable, true by default), and with several partitions.
    "num.partitions": 3,
    # 128 MiB by default, half of the heap.
    "log.cleaner.dedupe.buffer.size": 8 << 20,
    # After SIGKILL the node may register again when its old session has run out: 9 s by default.
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 400,
    # No record each 500 ms into an idle cluster's metadata, which took half of its processor time.
    "metadata.max.idle.interval.ms": 0,
}


class KafkaDied(DestinationError):
    """A Kafka of `aolog-bridge cluster` ended by itself, or was not ready in time. The message ends with
    its log."""

    code = "kafka_died"


def cluster_id() -> str:
    """16 random bytes as Kafka writes them. The first is 0: one id in 64 would begin with a dash
    and be taken for an option."""
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).rstrip(b"=").decode()


def _joined(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{at}" for name, at in addresses.items())


class Node(NamedTuple):
    """A node of a cluster. voters: the address of each node's controller, by id."""

    id: int
    cluster_id: str
    voters: Mapping[int, str]


class KafkaServer:
    """A Kafka node on loopback. Formats `directory`, which stays, and starts the server; ready on return. A
    context manager that stops the server. Not thread-safe, except `kill`, `pause` and `resume`, which a test
    may call from a timer. Raises KafkaUnavailable, KafkaDied."""

    def __init__(
        self,
        directory: Path,  # empty or missing
        config: Mapping[str, object]
        | None = None,  # adds to the properties above, or replaces some
        listeners: Mapping[str, str] | None = None,  # further ones, such as {"TLS": "SSL"}
        node: Node | None = None,  # start all nodes at once: one is ready when the cluster is
        advertised: Mapping[str, str] | None = None,  # by listener: another address for clients
        pom: Path = POM,  # of the version
        jars: Path | None = None,  # their directory; None: fetched
    ) -> None:
        self._java = java()
        folder = jars_of(pom) if jars is None else jars
        self._classpath = str(folder / "*")
        self._classes = folder.with_name(f"{folder.name}.jsa")
        found = self._classes.exists()
        self._sharing = [f"-XX:SharedArchiveFile={self._classes}"] if found else []
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "server.log"
        self._properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None  # while it is up
        protocols = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        own, *ports = free_ports(1 + len(protocols))
        self._node = node or Node(1, cluster_id(), {1: f"127.0.0.1:{own}"})
        voters = self._node.voters
        self._addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(protocols, ports, strict=True)
        }
        told = self._addresses | dict(advertised or {})
        mapped = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
        properties = {
            **_PROPERTIES,
            "listeners": f"{_joined(self._addresses)},CONTROLLER://{voters[self._node.id]}",
            "advertised.listeners": _joined(told),
            "listener.security.protocol.map": f"{mapped},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.data,
            "node.id": self._node.id,
            "controller.quorum.voters": ",".join(f"{number}@{at}" for number, at in voters.items()),
            **(config or {}),
        }
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self._format()
        self.start()

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`, the same over every restart."""
        return self._addresses["PLAINTEXT"]

    def bootstrap_of(self, listener: str) -> str:
        """Where a further listener is."""
        return self._addresses[listener]

    @property
    def data(self) -> Path:
        """Where its logs are."""
        return self._properties.parent / "data"

    @property
    def pid(self) -> int | None:
        """Process id of the server, None while it is down."""
        return None if self._process is None else self._process.pid

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; on return every partition's leader answers.

        config: the topic's own settings, such as `max.message.bytes`. Raises KafkaException,
        also where the topic exists.
        """
        topic = NewTopic(name, num_partitions=partitions, config=dict(config or {}))
        admin = self._admin()
        until_s = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                admin.create_topics([topic], operation_timeout=30)[name].result(timeout=30)
                break
            except KafkaException as error:
                fenced = error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
                if not fenced or time.monotonic() > until_s:
                    raise
                time.sleep(0.2)  # it got no processor for seconds, and counts as gone
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has none
        asked = {TopicPartition(name, number): latest for number in range(partitions)}

        def leads() -> bool:
            answers = admin.list_offsets(asked, request_timeout=PROBE_SECONDS).values()
            return all(each.exception() is None for each in answers)

        self._until(leads, f"no leader of topic {name!r} answers")

    def configure(self, kind: str, name: str, setting: str, value: str | None) -> None:
        """Change one setting while it runs, of a "TOPIC" or a "BROKER"; None: as it was. On return this
        node describes a value that was set; it holds a moment later. Raises KafkaException."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(setting, value or "", incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type[kind], name, incremental_configs=[entry])
        # Kept until the answer: a client that is collected drops its questions.
        admin = self._admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

        def described() -> bool:
            (found,) = admin.describe_configs([resource]).values()
            return bool(found.result(30)[setting].value == value)

        if value is not None:
            self._until(described, f"{setting} is not {value}")

    def start(self) -> None:
        """Start the server on its ports and data; ready on return. Raises KafkaDied."""
        assert self._process is None, "the server is running"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command(), "kafka.Kafka", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                start_new_session=True,  # a terminal's interrupt is for this process, which stops it
            )
        atexit.register(self.kill)
        admin = self._admin()

        def ready() -> bool:
            """This node is in the cluster's metadata, and all partitions have leaders."""
            try:
                metadata = admin.list_topics(timeout=PROBE_SECONDS)
            except KafkaException:
                return False
            parts = [part for each in metadata.topics.values() for part in each.partitions.values()]
            return bool(metadata.brokers) and all(part.leader >= 0 for part in parts)

        self._until(ready, "not ready")

    def stop(self) -> None:
        """End the server in good order (SIGTERM) and wait for it. No effect if it is down.

        Everything acknowledged is in its files. Raises KafkaDied if it does not end in time;
        it is killed then.
        """
        self.resume()
        self._end(signal.SIGTERM, STOP_SECONDS_MAX)

    def kill(self) -> None:
        """End the server as a crash does (SIGKILL) and wait for it. No effect if it is down.

        What it had acknowledged is in the page cache, so the next `start` finds it.
        """
        self._end(signal.SIGKILL, STOP_SECONDS_MAX)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, and from the return of this call
        on nothing answers."""
        assert self._process is not None, "the server is down"
        self._process.send_signal(signal.SIGSTOP)
        # The signal is only on its way: wait until the kernel reports every thread as stopped.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT). It may answer what was sent meanwhile. No effect on any
        other."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def archive_classes(self) -> None:
        """Keep the classes that a server loads, beside its jars: later starts take half of the processor
        time. Restarts the server for that, and stops it. Raises KafkaDied."""
        self.stop()
        part = self._classes.with_suffix(f".{os.getpid()}")
        self._sharing = [f"-XX:ArchiveClassesAtExit={part}"]
        self.start()
        self.stop()
        part.rename(self._classes)

    def log_tail(self) -> str:
        """The last lines that the server wrote."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self) -> list[str]:
        return [
            self._java, *_JAVA_OPTIONS, *self._sharing,
            f"-Djava.io.tmpdir={self._properties.parent}",  # a library of LZ4, which a kill leaves
            "-cp", self._classpath,
        ]  # fmt: skip  # a command line

    def _admin(self) -> AdminClient:
        # log_level 0: that a server which is not up refuses connections is no news.
        return AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": 0,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 250,
            }
        )

    def _format(self) -> None:
        arguments = ["format", "-t", self._node.cluster_id, "-c", str(self._properties)]
        with self._log.open("ab") as log:
            status = subprocess.run(
                [*self._command(), "kafka.tools.StorageTool", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=START_SECONDS_MAX,
                check=False,
            ).returncode
        if status:
            raise KafkaDied(f"formatting the storage failed ({status}):\n{self.log_tail()}")

    def _until(self, reached: Callable[[], bool], otherwise: str) -> None:
        """Waits for this node: Kafka answers a change when its controller knows of it, and a node on a
        busy machine learns of it later. Raises KafkaDied; the server has ended then."""
        until_s = time.monotonic() + START_SECONDS_MAX
        while not reached():
            assert self._process is not None
            status = self._process.poll()
            if status is not None:
                self._process = None
                raise KafkaDied(f"Kafka ended with status {status}:\n{self.log_tail()}")
            if time.monotonic() > until_s:
                self.kill()
                raise KafkaDied(f"{otherwise} in {START_SECONDS_MAX} s:\n{self.log_tail()}")
            time.sleep(0.05)  # a refused connection answers at once; do not spin on it

    def _end(self, number: signal.Signals, seconds_max: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)  # does nothing for a process already waited for
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise KafkaDied(f"did not end in {seconds_max} s:\n{self.log_tail()}") from None
        finally:
            atexit.unregister(self.kill)
