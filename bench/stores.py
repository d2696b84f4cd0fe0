"""An object store on loopback, gofakes3, and a relay before it that delays each request.

The relay hands answers on without looking at them (splice), so it takes little of the machine."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.testing.apache_kafka.jars import KafkaUnavailable, jars

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUCKET", "Relay", "environment", "missing", "relayed", "spark_settings"]

BUCKET = "bench"
_PIECE_BYTES = 1 << 20
_START_S = 20.0


_POM = Path(__file__).with_name("hadoop-aws.xml")


def _program() -> str | None:
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return shutil.which("gofakes3", path=places)


def missing() -> str | None:
    """The reason if there is no store."""
    if _program() is None:
        return "gofakes3 is not installed: go install github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0"
    try:
        import obstore  # noqa: F401 -- whether it is installed
    except ImportError:
        return "obstore is not installed"
    try:
        jars(_POM)
    except KafkaUnavailable as error:  # which has the same way of fetching
        return f"hadoop-aws, for Parquet in the store, is not there: {error}"
    return None


class Relay:
    """delay_s: of each request, from now on. answered_bytes: of all answers so far."""

    def __init__(self, to: tuple[str, int]) -> None:
        self.delay_s = 0.0
        self.answered_bytes = 0
        self._lock = threading.Lock()
        self._to = to
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                store = socket.create_connection(self._to)
                for each in client, store:
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for run in self._requests, self._answers:
                    threading.Thread(target=run, args=(client, store), daemon=True).start()

    def _requests(self, client: socket.socket, store: socket.socket) -> None:
        """A request of a reader is one segment: the client sends the next one after the answer."""
        with suppress(OSError):
            while data := client.recv(_PIECE_BYTES):
                time.sleep(self.delay_s)
                store.sendall(data)
        with suppress(OSError):
            store.shutdown(socket.SHUT_WR)

    def _answers(self, client: socket.socket, store: socket.socket) -> None:
        out, into = os.pipe()
        with suppress(OSError):
            while count := os.splice(store.fileno(), into, _PIECE_BYTES):
                with self._lock:
                    self.answered_bytes += count
                while count:
                    count -= os.splice(out, client.fileno(), count)
        for fd in out, into:
            os.close(fd)
        for each in client, store:
            each.close()


@contextmanager
def relayed() -> Iterator[Relay]:
    """A store with an empty bucket, behind a relay."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        at: tuple[str, int] = free.getsockname()
    process = subprocess.Popen(
        [str(_program()), "-backend", "mem", "-host", f"127.0.0.1:{at[1]}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip  # one call
    try:
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            with suppress(OSError):
                connection = http.client.HTTPConnection(*at)
                connection.request("PUT", f"/{BUCKET}")
                connection.getresponse()
                connection.close()
                break
            time.sleep(0.05)
        relay = Relay(at)
        yield relay
        relay.close()
    finally:
        process.kill()
        process.wait()


def environment(relay: Relay) -> dict[str, str]:
    """The variables with which clients find the store."""
    return {
        "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": relay.endpoint,
    }  # fmt: skip  # a table


def spark_settings(relay: Relay) -> dict[str, str]:
    """With which Spark's own readers find the store, as s3a://."""
    given = environment(relay)
    return {
        "spark.jars": ",".join(str(jar) for jar in jars(_POM).glob("*.jar")),
        "spark.hadoop.fs.s3a.endpoint": relay.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "spark.hadoop.fs.s3a.access.key": given["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": given["AWS_SECRET_ACCESS_KEY"],
    }
