"""What a program calls: JSON clients by hazdev-broker's configuration, `buffer/` (`bridge.Buffer`) and
`files/` (file clients).

This room does not know how a log is delivered: files go through a log and the bridge.

Read in this order: errors, properties (the Java client's and kafka-fast's keys), config, connection;
compiled (the half in C), delivery and producer; received, positions, heartbeat and consumer; aio (asyncio);
signing; consume_command; then the two packages. Each name is loaded when it is used: Kafka's client
takes a while to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import loading

if TYPE_CHECKING:
    from bridge.client.aio import AsyncConsumer, AsyncProducer
    from bridge.client.consumer import Consumer
    from bridge.client.delivery import Delivery
    from bridge.client.heartbeat import Heartbeat, Silence
    from bridge.client.producer import Producer
    from bridge.client.received import Received

_MODULES = {
    "AsyncConsumer": "aio",
    "AsyncProducer": "aio",
    "Consumer": "consumer",
    "Delivery": "delivery",
    "Heartbeat": "heartbeat",
    "Producer": "producer",
    "Received": "received",
    "Silence": "heartbeat",
}
__all__ = ["AsyncConsumer", "AsyncProducer", "Consumer", "Delivery", "Heartbeat", "Producer",
           "Received", "Silence"]  # fmt: skip  # a list


if not TYPE_CHECKING:  # otherwise mypy would accept any name
    __getattr__, __dir__ = loading(__name__, _MODULES)
