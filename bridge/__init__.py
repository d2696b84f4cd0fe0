"""The bridge: drains logs to Kafka, in order, through outages, crashes and restarts.

    log ► read ► route ► lanes ► Kafka ► acknowledged ► cursor ► prune

The forwarder is in six rooms: config, kafka, deliver (one log), supervise (many logs), operate, cli. The
others use it or go beside it, each with its commands: client (JSON clients, files, `Buffer`), pull, ingest,
simulate, testing. The guarantees are in aolog/docs/explanation/guarantees.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import loading

if TYPE_CHECKING:
    from bridge.client.buffer.aio import AsyncBuffer
    from bridge.client.buffer.buffer import Buffer
    from bridge.client.buffer.file_provider import FileProvider
    from bridge.client.buffer.kafka_provider import KafkaProvider
    from bridge.client.buffer.provider import Message, NotDelivered, Provider
    from bridge.errors import Rejected
    from bridge.testing.providers import FaultyProvider, MemoryProvider

__all__ = [
    "AsyncBuffer",
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
    "AsyncBuffer": "client.buffer.aio",
    "Buffer": "client.buffer.buffer",
    "FaultyProvider": "testing.providers",
    "FileProvider": "client.buffer.file_provider",
    "KafkaProvider": "client.buffer.kafka_provider",
    "MemoryProvider": "testing.providers",
    "Message": "client.buffer.provider",
    "NotDelivered": "client.buffer.provider",
    "Provider": "client.buffer.provider",
    "Rejected": "errors",
}


if not TYPE_CHECKING:  # otherwise mypy would accept any name
    # The command line uses none of them, and Kafka's client takes a while to import.
    __getattr__, __dir__ = loading(__name__, _MODULES)
