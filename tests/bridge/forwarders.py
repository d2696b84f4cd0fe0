"""A forwarder in a thread of the test, on the embedded broker or on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aolog.record import Position
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.forwarder_options import ForwarderOptions, Waits
from bridge.deliver.log_source import LogSource
from bridge.deliver.status import Status
from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.brokers import TOPIC
from tests.waiting import SOON_S, Call, statuses_until_end, wait_until

WAITS = Waits(answer_s=1.0, settle_s=0.05)  # of most tests


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


@pytest.fixture
def committed() -> dict[str, list[int]]:
    """The cursor's addresses by log and cursor, as forwarders commit them; to be cleared where it
    is moved by hand."""
    return {}


@pytest.fixture
def forward(
    broker: EmbeddedBroker,
    log: Path,
    committed: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Forward]:
    """Starts a forwarder on the log; whatever becomes of it, each commit is checked: the cursor
    never goes back."""
    runs: list[Run] = []
    committing = LogSource.committing

    def observed(source: LogSource, position: Position) -> Callable[[], None]:
        commit = committing(source, position)

        def commits() -> None:
            commit()
            name = f"{source.reader.path} {source.cursor}"
            committed.setdefault(name, []).append(position.address)

        return commits

    monkeypatch.setattr(LogSource, "committing", observed)

    def start(path: Path = log, **options: Any) -> Run:
        options = {
            "topic": TOPIC,
            "bootstrap_servers": broker.bootstrap_servers,
            "commit_s": 0.05,
            "waits": WAITS,
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


@pytest.fixture
def forward_to(forward: Forward, kafka: KafkaServer) -> Forward:
    """Starts a forwarder in a thread, draining to Apache Kafka."""

    def start(topic: str, **options: object) -> Run:
        options = {"drain": True, "bootstrap_servers": kafka.bootstrap_servers, **options}
        return forward(topic=topic, **options)

    return start
