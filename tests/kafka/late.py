"""A request that arrives late: a proxy before a broker holds it back until long after its sender has
given it up.

So does a network: what was sent on a connection that is gone may still be carried out. A broker
cannot be asked for that, and the mock carries out what it answers late. The proxy can also be a slow link.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

__all__ = ["END_TXN", "INIT_PRODUCER_ID", "LateProxy"]

END_TXN: Final = 26
INIT_PRODUCER_ID: Final = 22
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")  # API key, version, correlation id
_TAKES_S = 20.0


def _message(stream: BinaryIO) -> bytes:
    """A request or an answer, with its length before it. Raises EOFError where it ends before."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return head + body


def _messages(connection: socket.socket) -> Iterator[bytes]:
    with connection.makefile("rb") as stream:
        while True:
            yield _message(stream)


def _end(connection: socket.socket) -> None:
    """Wakes the thread that waits for it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class LateProxy:
    """Listens on loopback at `address` (port 0: any), and hands on what comes to a broker."""

    def __init__(self, address: str, broker: str) -> None:
        self._broker = broker
        self._kind: int | None = None
        self._closes = False
        self._held: bytes | None = None
        self.holds = threading.Event()
        self.seen: Counter[int] = Counter()  # requests by their kind
        self.delay_s: dict[int, float] = {}  # how long requests of a kind are on their way
        self.bytes_per_s = math.inf  # of each connection's requests
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        host, _, port = address.rpartition(":")
        self._listener = socket.create_server((host, int(port)))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._serve(self._accept)

    def turn(self, broker: str) -> None:
        """Connects to another broker from now on. Present connections end."""
        self._broker = broker
        for connection in self._connections:
            _end(connection)

    def hold(self, kind: int, *, closes: bool) -> None:
        """The next request of the kind is held back, and its connection is closed, or stays silent;
        `holds` says that it came."""
        self._kind, self._closes = kind, closes

    def release(self) -> int:
        """Sends what was held to the broker, on a connection of its own; the answer's error code,
        where the answer begins with throttle time and error code."""
        assert self._held is not None
        with self._connected() as connection, connection.makefile("rb") as stream:
            connection.sendall(self._held)
            answer = _message(stream)[_LENGTH.size :]
        (version,) = struct.unpack_from(">h", self._held, _LENGTH.size + 2)
        flexible = version >= 3  # of EndTxn: a tagged field follows the correlation id
        (code,) = struct.unpack_from(">h", answer, 4 + flexible + 4)
        return int(code)

    def _connected(self) -> socket.socket:
        host, _, port = self._broker.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=_TAKES_S)

    def _serve(self, work: Callable[..., None], *arguments: object) -> None:
        def quietly() -> None:
            with contextlib.suppress(OSError, EOFError):
                work(*arguments)

        thread = threading.Thread(target=quietly, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            try:
                broker = self._connected()
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            self._connections += [client, broker]
            self._serve(self._requests, client, broker)
            self._serve(self._answers, client, broker)

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        requests = _messages(client)
        try:
            for request in requests:
                kind, _, _ = _HEAD.unpack_from(request, _LENGTH.size)
                self.seen[kind] += 1
                if kind == self._kind:
                    self._kind, self._held = None, request
                    self.holds.set()
                    while not self._closes:  # what follows here is not carried out either
                        next(requests)
                    return
                time.sleep(self.delay_s.get(kind, 0.0) + len(request) / self.bytes_per_s)
                broker.sendall(request)
        finally:
            _end(broker)
            _end(client)

    def _answers(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            for answer in _messages(broker):
                client.sendall(answer)
        finally:
            _end(client)

    def close(self) -> None:
        for connection in (self._listener, *self._connections):
            _end(connection)
        for thread in self._threads:
            thread.join(_TAKES_S)
            assert not thread.is_alive()
        for connection in (self._listener, *self._connections):
            connection.close()
