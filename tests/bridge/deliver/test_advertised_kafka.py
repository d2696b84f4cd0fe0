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

from bridge.supervise.status import state_of
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.forwarders import Forward
from tests.bridge.logs import fill
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
    tmp_path: Path, forward: Forward, caplog: pytest.LogCaptureFixture
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
        runs = {}
        for at, delivery in product(ADDRESSES, ("at_least_once", "exactly_once")):
            log = tmp_path / f"{at} {delivery}"
            fill(log, 10)
            runs[at, delivery] = forward(
                log, topic="t", bootstrap_servers=server.bootstrap_of(at), delivery=delivery
            )
        for (at, _), run in runs.items():
            address = advertised[at]
            status = run.until(lambda s, a=address: a in str(s.error))
            assert "advertises this address: see the brokers' advertised" in str(status.error)
            run.until(lambda s: state_of(s) == "connecting")
        quiet = {key: len(run.statuses) for key, run in runs.items()}
        for (at, delivery), run in runs.items():
            run.until(lambda _, r=run, q=quiet[at, delivery]: len(r.statuses) > q + 20)
            later = run.statuses[quiet[at, delivery] :]
            assert {state_of(status) for status in later} == {"connecting"}
            assert all(advertised[at] in str(status.error) for status in later)
        said = [line for line in caplog.messages if "is unavailable" in line]
        assert all(any(address in line for address in advertised.values()) for line in said)
        for run in runs.values():
            run.forwarder.stop()  # all at once; the fixture waits
