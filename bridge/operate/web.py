"""The endpoint: /metrics for Prometheus, /healthz, /readyz, and /status as JSON.

    /healthz   200 while every thread makes progress, else 503 with the logs whose thread hangs
    /readyz    200 while the root and the logs exist, every log that runs is connected and no error
               stopped one, else 503
    /status    {"overview": ..., "logs": [...]}: see supervise/status.py; `aolog-bridge status`
               shows it

Answers use the last status of each forwarder; no request reaches a cluster or a log. There is no
authentication, and answers contain names of logs and clusters: without a HOST it listens on
loopback.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from aolog.errors import UsageError, to_json
from bridge.config.names import address_of
from bridge.operate.metrics import exposition
from bridge.supervise.status import overview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.supervise.status import LogStatus

__all__ = ["serving"]

_log = logging.getLogger("bridge.web")
_JSON = "application/json"
_POLL_S = 0.2  # at the end, the process waits up to this long for the server
_REQUEST_S = 10.0  # a client that sends nothing for this long is disconnected


@contextmanager
def serving(
    where: str,
    statuses: Callable[[], list[LogStatus]],
    waiting_for: Callable[[], str | None] = lambda: None,
) -> Iterator[tuple[str, int]]:
    """Serves in its own threads; yields the address that it listens on. statuses, waiting_for: see
    Supervisor. Raises UsageError if it cannot listen."""
    host, port = address_of(where)
    try:
        server = _Server((host, port), statuses, waiting_for)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {where}: {error.strerror}", hint="choose another HOST:PORT"
        ) from None
    found = server.server_address
    at = (str(found[0]), int(found[1]))
    thread = threading.Thread(
        target=server.serve_forever, args=(_POLL_S,), name="http", daemon=True
    )
    thread.start()
    _log.info("listening on http://%s:%d", *at, extra={"event": "listening"})
    try:
        yield at
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that lingers does not hold up a stop

    def __init__(
        self,
        at: tuple[str, int],
        statuses: Callable[[], list[LogStatus]],
        waiting_for: Callable[[], str | None],
    ) -> None:
        import socket

        self.statuses = statuses
        self.waiting_for = waiting_for
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        super().__init__(at, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 -- the library's signature
        """A client that disconnected is worth a debug line only."""
        _log.debug("request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_S
    server_version = "aolog-bridge"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        logs = self.server.statuses()
        if path == "/metrics":
            body, kind = exposition(logs)
            self._answer(200, body, kind)
        elif path == "/healthz":
            self._judge("stuck", [log for log in logs if log.stuck], None)
        elif path == "/readyz":
            self._judge("not_ready", [x for x in logs if not x.ready], self.server.waiting_for())
        elif path == "/status":
            whole = overview(logs, waiting_for=self.server.waiting_for())
            found = {"overview": whole._asdict(), "logs": [x.as_json() for x in logs]}
            self._answer(200, to_json(found).encode(), _JSON)
        else:
            self._answer(404, b'{"error": "not found"}', _JSON)

    def _judge(self, name: str, found: list[LogStatus], waiting_for: str | None) -> None:
        answer: dict[str, Any] = {
            "ok": not found and waiting_for is None,
            name: [
                {"log": x.log, "cluster": x.cluster, "state": x.state, "error": x.error}
                for x in found
            ],
        }
        if waiting_for is not None:
            answer["error"] = waiting_for
        self._answer(200 if answer["ok"] else 503, to_json(answer).encode(), _JSON)

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the library's name
        _log.debug(format, *args)
