"""The bridge: drains logs to Kafka, in order, through outages, crashes and restarts.

    log ► read ► route ► lanes ► Kafka ► acknowledged ► cursor ► prune

`engine` decides and is pure; `at_least_once` reads, sends and commits as it says; `kafka` is the
producer. `Buffer` is for programs that send live. See the README for what is guaranteed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.buffer import Buffer
from bridge.errors import NotDelivered
from bridge.provider import (
    FaultyProvider,
    FileProvider,
    MemoryProvider,
    Message,
    Provider,
    Rejected,
)

if TYPE_CHECKING:
    from bridge.kafka_provider import KafkaProvider

__all__ = [
    "Buffer",
    "FaultyProvider",
    "FileProvider",
    "KafkaProvider",
    "MemoryProvider",
    "Message",
    "NotDelivered",
    "Provider",
    "Rejected",
]


def __getattr__(name: str) -> Any:
    """KafkaProvider when it is used: its client takes a while to import."""
    if name == "KafkaProvider":
        from bridge.kafka_provider import KafkaProvider

        return KafkaProvider
    raise AttributeError(name)
