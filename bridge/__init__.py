"""The bridge: drains logs to Kafka, in order, through outages, crashes and restarts.

    log ► read ► route ► lanes ► Kafka ► acknowledged ► cursor ► prune

Rooms, in the order of their imports: config, kafka, deliver (one log), supervise (many logs), operate,
buffer (`Buffer`, for programs that send), client, pull, ingest, testing, cli. The guarantees are in
aolog/docs/explanation/guarantees.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.config import client_check as _client_check

if TYPE_CHECKING:
    from bridge.buffer.buffer import Buffer
    from bridge.buffer.file_provider import FileProvider
    from bridge.buffer.provider import Message, NotDelivered, Provider
    from bridge.errors import Rejected
    from bridge.kafka.provider import KafkaProvider
    from bridge.testing.providers import FaultyProvider, MemoryProvider

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
    "FaultyProvider": "testing.providers",
    "FileProvider": "buffer.file_provider",
    "KafkaProvider": "kafka.provider",
    "MemoryProvider": "testing.providers",
    "Message": "buffer.provider",
    "NotDelivered": "buffer.provider",
    "Provider": "buffer.provider",
    "Rejected": "errors",
}


def _check_settings(settings: dict[str, Any]) -> None:
    """Imports Kafka's client only when a configuration is read."""
    from bridge.kafka.settings import check

    check(settings)


_client_check.check = _check_settings


if not TYPE_CHECKING:  # otherwise mypy would accept any name

    def __getattr__(name: str) -> Any:
        """Imports a name when it is used: the command line uses none of them, and Kafka's client takes a
        while to import."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"bridge.{_MODULES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
