"""`python -m bridge` as a process, which a test may kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.brokers import TOPIC
from tests.waiting import SOON_S, statuses_until_end


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


@pytest.fixture
def start(bridge: Start, kafka: KafkaServer, log: Path) -> Start:
    """Starts `python -m bridge run` on the log and Apache Kafka."""

    def start(topic: str, *arguments: str, path: Path = log) -> Process:
        return running(bridge, path, topic, kafka.bootstrap_servers, *arguments)

    return start
