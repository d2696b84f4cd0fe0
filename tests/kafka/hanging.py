"""A transaction that hangs: data of a producer in a partition, without a marker after it.

Kafka 4.3 and 4.4 leave such behind where a node restarts (KAFKA-20734). Here it is made on any version: a
batch of a producer whose last transaction has ended, sent by hand, while the server does not verify
what belongs to a transaction.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import KafkaError

from bridge.testing.apache_kafka.server import KafkaServer

__all__ = ["leave_open", "unverified"]

_HEAD = struct.Struct(">qiibIhiqqqhii")  # of a batch
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_TAKES_S = 20.0
_VERIFY = "transaction.partition.verification.enable"


class _Producer(NamedTuple):
    """Of the last batches in a partition, and its next number there."""

    id: int
    epoch: int
    sequence: int


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _varint(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _last_producer(server: KafkaServer, topic: str, partition: int) -> _Producer:
    found = None
    for path in sorted((server.data / f"{topic}-{partition}").glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + _HEAD.size <= len(data):
            *_, length, _, _, _, attributes, _, _, _, pid, epoch, first, count = _HEAD.unpack_from(
                data, at
            )
            if length <= 0:
                break
            if attributes & _TRANSACTIONAL and not attributes & _CONTROL:
                found = _Producer(pid, epoch, first + count)
            at += 12 + length
    assert found is not None, f"nothing was sent in a transaction to {topic}/{partition}"
    return found


def leave_open(
    server: KafkaServer,
    topic: str,
    partition: int,
    transactional_id: str,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """A record of the producer that wrote last to the partition, in no transaction that its
    coordinator knows of. Within `unverified`."""
    producer = _last_producer(server, topic, partition)
    record = bytes([0]) + _varint(0) + _varint(0) + _sized(key) + _sized(value)
    record += _varint(len(headers))
    record += b"".join(_sized(name.encode()) + _sized(one) for name, one in headers)
    now_ms = time.time_ns() // 1_000_000
    body = struct.pack(
        ">hiqqqhii", _TRANSACTIONAL, 0, now_ms, now_ms, producer.id, producer.epoch,
        producer.sequence, 1,
    ) + _varint(len(record)) + record  # fmt: skip  # a batch of one
    batch = struct.pack(">qiibI", 0, 9 + len(body), -1, 2, _crc32c(body)) + body
    name, owner = topic.encode(), transactional_id.encode()
    request = (
        struct.pack(">hhih", 0, 3, 1, 4) + b"test"  # Produce 3
        + struct.pack(">h", len(owner)) + owner + struct.pack(">hi", -1, 30_000)
        + struct.pack(">ih", 1, len(name)) + name
        + struct.pack(">iii", 1, partition, len(batch)) + batch
    )  # fmt: skip  # as the protocol has it
    until_s = time.monotonic() + _TAKES_S
    while True:
        said = _ask(server, request)
        (error,) = struct.unpack_from(">h", said, 4 + 4 + 2 + len(name) + 4 + 4)
        if error != KafkaError.INVALID_TXN_STATE or time.monotonic() > until_s:
            break
        time.sleep(0.1)  # it verifies still: a setting takes a moment
    assert error == 0, f"refused with Kafka's error {error}"


def _ask(server: KafkaServer, request: bytes) -> bytes:
    host, port = server.bootstrap_servers.split(":")
    to = host, int(port)
    with socket.create_connection(to, 30) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answer.read(4))
        return answer.read(size)


@contextmanager
def unverified(server: KafkaServer) -> Iterator[None]:
    """Meanwhile the server takes records of transactions that it does not know."""
    server.configure("BROKER", "1", _VERIFY, "false")
    try:
        yield
    finally:
        server.configure("BROKER", "1", _VERIFY, None)
