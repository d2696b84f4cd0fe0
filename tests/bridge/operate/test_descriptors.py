"""What a bridge does when descriptors are short: clients cannot take all of them, and a lack of them
is waited out. 20 s: commands are started, and wait."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bridge.kafka.embedded import EmbeddedBroker
from bridge.operate.log_lines import REPEATS_MAX
from tests.bridge.logs import fill
from tests.bridge.operate.endpoints import is_answered
from tests.bridge.operate.listening import where
from tests.bridge.processes import Process, Start, running
from tests.waiting import wait_until


def limit_descriptors(process: Process, most: int) -> None:
    hard = resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (most, hard))


def descriptors(process: Process) -> int:
    return len(os.listdir(f"/proc/{process.popen.pid}/fd"))


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_idle_connections_leave_descriptors_to_the_log_and_kafka(
    bridge: Start, broker: EmbeddedBroker, log: Path
) -> None:
    fill(log, 10)
    process = running(bridge, log, "t", broker.bootstrap_servers, "--http", ":0")
    process.until(lambda status: status["acknowledged"] == 10)
    limit_descriptors(process, 64)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(where(process))) for _ in range(100)
        ]
        wait_until(lambda: sum(map(is_open, clients)) <= 48)
        wait_until(lambda: descriptors(process) <= 48)  # a file may be open for a moment
        for number in range(5):  # each in a new slab, which is a new file
            fill(log, range(10 + number, 11 + number))
        process.until(lambda status: status["acknowledged"] == 15)
    wait_until(lambda: is_answered(where(process)))
    assert 1 <= process.stderr.count("one was closed at once") <= REPEATS_MAX
    assert process.terminate() == 0


@pytest.mark.parametrize("named_by", ["--log", "--root"])
def test_a_lack_of_descriptors_is_waited_out(
    bridge: Start, broker: EmbeddedBroker, log: Path, named_by: str
) -> None:
    fill(log, 10)
    process = bridge(
        "run", named_by, log if named_by == "--log" else log.parent, "--topic", "t", "--json",
        "--status-seconds", "0.05", "--bootstrap-servers", broker.bootstrap_servers, "--http", ":0",
    )  # fmt: skip  # a command line
    process.until(lambda status: status["acknowledged"] == 10)
    limit_descriptors(process, 4)  # fewer than are open
    fill(log, range(10, 20))
    with socket.create_connection(where(process)):
        wait_until(lambda: "no connection can be accepted: Too many open files" in process.stderr)
    process.until(lambda status: "Too many open files" in (status["error"] or ""))
    assert "is tried again: storage_failed" in process.stderr
    limit_descriptors(process, 256)
    process.until(lambda status: status["acknowledged"] == 20)
    wait_until(lambda: is_answered(where(process)))
    assert process.terminate() == 0


_WITHOUT_DESCRIPTORS = """
import resource, sys
from confluent_kafka import KafkaException
from aolog.errors import StorageFailed
from bridge.kafka.client import admin_client
from bridge.client.buffer.kafka_provider import KafkaProvider

wrong, good = ({"security.protocol": "SSL", "ssl.ca.location": file, "log_level": 0} for file in sys.argv[1:])
provider = KafkaProvider("127.0.0.1:1", good)

def failure(call):
    try:
        call()
    except (KafkaException, StorageFailed) as error:
        print(f"{type(error).__name__}: {error}")

failure(lambda: admin_client({"bootstrap.servers": "127.0.0.1:1", **wrong}))
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 64))  # stdin, stdout and stderr are open
failure(lambda: admin_client({"bootstrap.servers": "127.0.0.1:1", **wrong}))
failure(provider.open)
"""


def test_a_certificate_that_no_descriptor_is_free_for_is_not_called_wrong(tmp_path: Path) -> None:
    """The client's error is that of a bad file in both cases."""
    if (good := ssl.get_default_verify_paths().cafile) is None:
        pytest.skip("this system has no file of certificates")
    (tmp_path / "ca.pem").touch()
    command = [sys.executable, "-c", _WITHOUT_DESCRIPTORS, str(tmp_path / "ca.pem"), good]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    wrong, *lacking = done.stdout.splitlines()
    assert wrong.startswith("KafkaException: ")
    said = "StorageFailed: cannot make a client of Kafka: Too many open files"
    assert [line[: len(said)] for line in lacking] == [said, said]
