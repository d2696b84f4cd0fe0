"""Object stores on loopback, and a proxy before one that loses, cuts and refuses what passes."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import urlsplit

import pytest

_SOON_S = 60.0
BUCKET = "bucket"
SECRET = "hidden0123456789"


def make_bucket(endpoint: str, name: str = BUCKET) -> None:
    at = urlsplit(endpoint)
    _ask(at.hostname, at.port, "PUT", f"/{name}")


def _ask(host: str | None, port: int | None, method: str, path: str) -> None:
    assert host is not None
    connection = http.client.HTTPConnection(host, port, timeout=_SOON_S)
    with contextlib.closing(connection):
        connection.request(method, path)
        assert connection.getresponse().status == 200


def environment(endpoint: str) -> dict[str, str]:
    """The variables with which clients find a store."""
    return {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint,
    }  # fmt: skip  # a table


@contextlib.contextmanager
def moto(port: int = 0) -> Iterator[str]:
    server = pytest.importorskip("moto.server")
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        _ask(
            host, port, "POST", "/moto-api/reset"
        )  # its stores are the process's, not the server's
        running.stop()


INSTALL = "go install github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0"


def program() -> str | None:
    """gofakes3, which `.ci/run` installs; None without."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return shutil.which("gofakes3", path=places)


class Killable:
    """gofakes3 in a process. file: what it keeps over a kill; None: nothing."""

    def __init__(self, file: Path | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._at = free.getsockname()
        keeps = ["-backend", "mem"] if file is None else ["-backend", "bolt", "-bolt.db", str(file)]
        self._command = [str(program()), *keeps, "-host", f"127.0.0.1:{self._at[1]}"]
        self.endpoint = f"http://127.0.0.1:{self._at[1]}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + _SOON_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(self._at):
                return
            assert self._process.poll() is None, "it ended"
            assert time.monotonic() < end, "it does not start"
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def gofakes3() -> Iterator[str]:
    store = Killable()
    try:
        yield store.endpoint
    finally:
        store.kill()


STORES = {"moto": moto, "gofakes3": gofakes3}


class Proxy:
    """Hands requests on to a store. rule: called with (number, method, path) of each; what it returns happens:

    None        the request is handed on
    "drop"      it is not, and the connection is closed
    "lose"      it is, and the connection is closed without an answer
    "cut"       it is, and half of the answer's body comes
    a float     it is, after so many seconds
    an int      it is not, and this is the status of the answer
    (n, text)   the same, with this body
    """

    def __init__(self, endpoint: str) -> None:
        self._to = urlsplit(endpoint)
        self.rule: Callable[[int, str, str], object] = lambda *_: None
        self.seen: list[tuple[str, str]] = []
        self._lock = Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                proxy.handle(self)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_one  # noqa: N815 -- http.server's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._lock:
            self.seen.append((request.command, request.path))
            happens = self.rule(len(self.seen), request.command, request.path)
        if happens == "drop":
            request.close_connection = True
            return
        if isinstance(happens, int | tuple):
            status, text = happens if isinstance(happens, tuple) else (happens, "")
            self._answer(request, status, [], text.encode())
            return
        if isinstance(happens, float):
            time.sleep(happens)
        connection = http.client.HTTPConnection(self._to.hostname, self._to.port, timeout=_SOON_S)
        with contextlib.closing(connection):
            connection.request(request.command, request.path, body, dict(request.headers))
            answer = connection.getresponse()
            data = answer.read()
        if happens == "lose":
            request.close_connection = True
            return
        self._answer(request, answer.status, answer.getheaders(), data, cut=happens == "cut")

    @staticmethod
    def _answer(request, status, headers, data, *, cut: bool = False) -> None:
        request.send_response_only(status)
        for name, value in headers:
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                request.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length")
        size = length if request.command == "HEAD" and length else str(len(data))
        request.send_header("Content-Length", size)
        request.end_headers()
        request.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            request.close_connection = True
