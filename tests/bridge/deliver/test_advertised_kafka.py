"""A cluster that advertises an address where no broker answers, as one does behind a network address translation
or in a container: the reason names that address, whatever happens there."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from bridge.testing.apache_kafka import KafkaServer
from tests.bridge.against_kafka import EXACTLY
from tests.bridge.conftest import Start, fill, running
from tests.kafka.plugin import started

pytestmark = pytest.mark.kafka


ADDRESSES = ("REFUSES", "NAMELESS", "STRANGE", "SILENT")


def _listening(answer: bytes, stack: ExitStack) -> str:
    """The address of a server that answers so to each connection."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    stack.callback(listener.shutdown, socket.SHUT_RDWR)

    def serve() -> None:
        with ExitStack() as connections, contextlib.suppress(OSError):
            while True:
                connection = connections.enter_context(listener.accept()[0])
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_reason_names_an_advertised_address_where_no_broker_answers(
    tmp_path: Path, bridge: Start
) -> None:
    with ExitStack() as stack:
        advertised = dict(zip(ADDRESSES, (
            "127.0.0.1:1", "broker-7.invalid:9092",
            _listening(b"HTTP/1.1 400 Bad Request\r\n\r\n", stack), _listening(b"", stack),
        ), strict=True))  # fmt: skip  # one call
        listeners = dict.fromkeys(ADDRESSES, "PLAINTEXT")
        server = stack.enter_context(
            started(
                lambda: KafkaServer(tmp_path / "kafka", listeners=listeners, advertised=advertised)
            )
        )
        server.create_topic("t", 2)
        bridges = {}
        ways = [*product(ADDRESSES, [()]), *product(ADDRESSES[2:], [EXACTLY])]
        for at, delivery in ways:
            log = tmp_path / f"{at}{len(delivery)}"
            fill(log, 10)
            bridges[log] = running(bridge, log, "t", server.bootstrap_of(at), *delivery)
        for log, process in bridges.items():
            address = advertised[log.name[:-1]]
            status = process.until(lambda s, a=address: a in str(s["error"]))
            assert (
                "advertises this address: see the brokers' advertised.listeners" in status["error"]
            )
            process.until(lambda s: s["state"] == "connecting")
            quiet = len(process.statuses)
            process.until(lambda _, p=process, q=quiet: len(p.statuses) > q + 10)
            later = process.statuses[quiet:]
            assert {(s["state"], s["reachable"]) for s in later} == {("connecting", False)}
            assert all(address in str(s["error"]) for s in later)
            said = process.stderr.splitlines()
            assert all(address in line for line in said if "unavailable" in line)
