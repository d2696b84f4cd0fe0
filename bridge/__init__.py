"""The bridge: drains logs to Kafka, in order, through outages, crashes and restarts.

    log ► read ► route ► lanes ► Kafka ► acknowledged ► cursor ► prune

The rooms, in that order: config, kafka, deliver (one log), supervise (many), operate, buffer, ingest, cli.
`Buffer` is for programs that send live. See aolog/docs/guarantees.md for what is guaranteed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.buffer.buffer import Buffer
    from bridge.buffer.kafka_provider import KafkaProvider
    from bridge.buffer.provider import (
        FaultyProvider,
        FileProvider,
        MemoryProvider,
        Message,
        Provider,
        Rejected,
    )
    from bridge.errors import NotDelivered

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

_MODULES = {
    "Buffer": "buffer.buffer",
    "KafkaProvider": "buffer.kafka_provider",
    "NotDelivered": "errors",
}


def __getattr__(name: str) -> Any:
    """Each name when it is used: the command line needs none of them, and Kafka's client takes a
    while to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"bridge.{_MODULES.get(name, 'buffer.provider')}"), name)
    globals()[name] = found
    return found
