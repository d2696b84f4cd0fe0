"""The providers that are supplied pass the public contract. 10 s."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge import FaultyProvider, FileProvider, KafkaProvider, MemoryProvider, Message
from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing import ProviderTests
from tests.bridge.brokers import PARTITIONS, consume_any


class TestFaultyProvider(ProviderTests):
    @pytest.fixture
    def provider(self) -> FaultyProvider:
        return FaultyProvider(MemoryProvider(), reject=lambda message: message == self.rejected())

    def arrived(self, provider: Any) -> list[Message]:
        return list(provider.inner.messages)

    @contextmanager
    def outage(self, provider: Any) -> Iterator[None]:
        provider.down = True
        yield
        provider.down = False

    def rejected(self) -> Message:
        return self.message(4_711)


class TestFileProvider(ProviderTests):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> FileProvider:
        self.path = tmp_path / "there" / "out.jsonl"
        self.path.parent.mkdir()
        return FileProvider(self.path)

    def arrived(self, provider: Any) -> list[Message]:
        def data(value: Any) -> bytes | None:
            if isinstance(value, dict):
                return base64.b64decode(value["base64"])
            return None if value is None else str(value).encode()

        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [
            Message(
                found["topic"],
                data(found["value"]),
                data(found["key"]),
                tuple((name, data(value)) for name, value in found["headers"]),
                found["timestamp_us"],
            )
            for found in map(json.loads, lines)
        ]

    @contextmanager
    def outage(self, provider: Any) -> Iterator[None]:
        """The file's directory is away; it comes back in one step."""
        provider.close()
        there = self.path.parent
        away = there.rename(there.with_name("away"))
        yield
        away.rename(there)


class TestKafkaProvider(ProviderTests):
    @pytest.fixture
    def provider(self, embedded_broker: EmbeddedBroker) -> KafkaProvider:
        self.broker = embedded_broker
        embedded_broker.create_topic(self.topic, PARTITIONS)
        settings = {"reconnect.backoff.max.ms": "100"}
        return KafkaProvider(embedded_broker.bootstrap_servers, settings, delivery_s=2.0)

    def arrived(self, provider: Any) -> list[Message]:
        found = consume_any(self.broker.bootstrap_servers, self.topic)
        return [
            Message(
                m.topic() or "",
                m.value(),
                m.key(),
                tuple(m.headers() or ()),  # type: ignore[arg-type]  # a list of pairs
                m.timestamp()[1] * 1_000,
            )
            for m in found
        ]

    @contextmanager
    def outage(self, provider: Any) -> Iterator[None]:
        self.broker.set_down()
        yield
        self.broker.set_up()

    def rejected(self) -> Message:
        return Message(self.topic, bytes(3_000_000))
