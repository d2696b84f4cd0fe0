"""The HTTP endpoint: the page, its stream of events, metrics, health, status, and actions.

    GET  /          the page
    GET  /events    server-sent events: `status` each second, `points` of the last hour
    GET  /metrics   for Prometheus
    GET  /healthz   200 while every thread makes progress, else 503 with the logs whose thread hangs
    GET  /readyz    200 while the root and the logs exist, each log that runs is connected, and no
                    error stopped one; else 503
    GET  /status    {"overview": ..., "logs": [...]}: see supervise/status.py
    GET  /log       one log in detail: its slabs and disk (?log=NAME&cluster=NAME)
    POST /action    {"action": "pause" | "resume" | "retry", "log": NAME, "cluster": NAME}; with the token

Answers are made of the last statuses: no request reads a log or asks a cluster. access.py decides
what is answered. A connection without a request under way is closed in time, and there is
a bound on connections: a slow or silent client holds nothing up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

import aolog
from aolog.errors import AologError, UsageError, to_json
from bridge.operate.metrics import exposition
from bridge.operate.page import CONTENT_SECURITY_POLICY
from bridge.operate.problems import Problems
from bridge.supervise.status import overview

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

    from bridge.operate.access import Access
    from bridge.operate.monitor import Monitor
    from bridge.supervise.status import LogStatus

__all__ = ["Controls", "Limits", "serving"]

_log = logging.getLogger("bridge.http")

SAMPLE_S = 1.0
BODY_MAX = 4_096
LOGS_SHOWN = 200  # of a process with thousands, the page shows the worst ones
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Limits(NamedTuple):
    """What clients may take. connection_s: how long a connection may be without a request under way.
    request_s: how long an answer may take, the client included. connections: at once; more get 503.
    streams: of /events, at once."""

    connection_s: float = 10.0  # a scrape takes milliseconds
    request_s: float = 10.0
    connections: int = 64  # a Prometheus, some probes, a dozen open pages
    streams: int = 16


LIMITS = Limits()


class Controls(Protocol):
    """What the page may do with a token. Each raises UsageError for a log that does not exist."""

    def pause(self, log: str, cluster: str) -> None:
        """Ends forwarding of a log until `resume`."""

    def resume(self, log: str, cluster: str) -> None:
        """Forwards it again."""

    def retry(self, log: str, cluster: str) -> None:
        """Tries its blocked lanes again."""


class _Connection(H11Protocol):
    """uvicorn's connection, closed where the client does not send a whole request in time."""

    wait_s = LIMITS.connection_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.wait_s, self._end_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _end_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self._deadline = self.loop.call_later(self.wait_s, self._end_if_idle)


@contextmanager
def serving(
    access: Access,
    monitor: Monitor,
    *,
    waits: Callable[[], str | None] = lambda: None,
    controls: Controls | None = None,
    limits: Limits = LIMITS,
) -> Iterator[tuple[str, int]]:
    """Serves in a thread of its own; yields the address that it listens on. The thread samples the
    monitor, too. waits: see Supervisor.waits. Raises UsageError where it cannot listen."""
    host, port = access.address()
    listener = _listen(access.where, host, port)
    problems = Problems()
    logging.getLogger().addHandler(problems)
    app = _App(access, monitor, waits, controls, problems, limits)
    connection = type("_Connection", (_Connection,), {"wait_s": limits.connection_s})
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            interface="asgi3",
            http=connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",  # what goes wrong in an answer is logged below
            limit_concurrency=limits.connections,
            timeout_keep_alive=60,  # a connection is closed before
            timeout_graceful_shutdown=0,
            server_header=False,
        )
    )
    app.ending = lambda: server.should_exit
    monitor.sample()
    thread = threading.Thread(
        target=_serve, args=(server, listener, monitor), name="http", daemon=True
    )
    thread.start()
    at = listener.getsockname()[:2]
    _log.info("listening on http://%s:%d", *at, extra={"event": "listening"})
    try:
        yield str(at[0]), int(at[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        logging.getLogger().removeHandler(problems)


def _listen(where: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {where}: {error.strerror}", hint="choose another HOST:PORT"
        ) from None
    return listener


def _serve(server: uvicorn.Server, listener: socket.socket, monitor: Monitor) -> None:
    async def sampling() -> None:
        while not server.should_exit:
            await asyncio.sleep(SAMPLE_S)
            monitor.sample()

    async def both() -> None:
        samples = asyncio.create_task(sampling())
        try:
            await server.serve(sockets=[listener])
        finally:
            samples.cancel()

    asyncio.run(both())


class _App:
    """The routes."""

    def __init__(
        self,
        access: Access,
        monitor: Monitor,
        waits: Callable[[], str | None],
        controls: Controls | None,
        problems: Problems,
        limits: Limits,
    ) -> None:
        self._access, self._monitor, self._waits = access, monitor, waits
        self._controls, self._problems, self._limits = controls, problems, limits
        self._page = files("bridge.operate").joinpath("page.html").read_text(encoding="utf-8")
        self._streams = 0
        self.ending: Callable[[], bool] = lambda: False
        self._routes = Starlette(
            routes=[
                Route("/", self._show_page),
                Route("/events", self._events),
                Route("/metrics", self._metrics),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/status", self._status),
                Route("/log", self._one_log),
                Route("/action", self._action, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every request passes here: host, token, headers, deadline."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((k.lower().encode(), v.encode()) for k, v in _HEADERS.items()),
                ]
            await send(message)

        headers = dict(scope["headers"])
        path, refused = scope["path"], None
        if not self._access.accepts_host(headers.get(b"host", b"").decode("latin-1")):
            refused = _error(421, "this Host is not configured", "name it with --http-host")
        elif not self._access.may_read(path, headers.get(b"authorization", b"").decode("latin-1")):
            refused = _error(401, "the token is missing or wrong", "Authorization: Bearer TOKEN")
            refused.headers["WWW-Authenticate"] = "Bearer"
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = refused or self._routes
        deadline_s = None if path == "/events" and refused is None else self._limits.request_s
        try:
            async with asyncio.timeout(deadline_s):
                await answer(scope, receive, with_headers)
        except TimeoutError:  # the client does not take its answer: uvicorn closes the connection
            _log.debug("the client of %s did not take the answer", path)
        except Exception:
            _log.exception("answering %s failed", path)
            raise

    # --- answers ------------------------------------------------------------------------------

    async def _show_page(self, _: Request) -> Response:
        return HTMLResponse(self._page)

    async def _metrics(self, _: Request) -> Response:
        body, kind = exposition(self._monitor)
        return Response(body, media_type=kind)

    async def _healthz(self, _: Request) -> Response:
        return _verdict("stuck", [log for log in self._monitor.logs if log.stuck], None)

    async def _readyz(self, _: Request) -> Response:
        not_ready = [log for log in self._monitor.logs if not log.ready]
        return _verdict("not_ready", not_ready, self._waits())

    async def _status(self, _: Request) -> Response:
        whole = overview(self._monitor.logs, waits=self._waits())
        logs = [log.as_json() for log in self._monitor.logs]
        return _json({"overview": whole._asdict(), "logs": logs})

    async def _one_log(self, request: Request) -> Response:
        log = self._find(request.query_params.get("log"), request.query_params.get("cluster"))
        if log is None:
            return _error(404, "there is no such log", "see /status")
        slabs, disk = self._monitor.slabs(log.path), self._monitor.disk(log.path)
        return _json(
            {
                **log.as_json(),
                "slabs": [{"base": base, "bytes": size} for base, size in slabs.files],
                "pruned_slabs": slabs.pruned,
                "disk": None if disk is None else disk._asdict(),
                "bytes_out": self._monitor.bytes_out(log.log, log.cluster),
            }
        )

    async def _action(self, request: Request) -> Response:
        if not self._access.may_act(request.headers.get("authorization")):
            return _error(401, "an action needs the token", "start with --http-token-file")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > BODY_MAX:
                return _error(413, "the request is too large", f"at most {BODY_MAX} bytes")
        try:
            given = json.loads(body)
            action, log, cluster = (str(given[name]) for name in ("action", "log", "cluster"))
        except (ValueError, KeyError, TypeError):
            return _error(400, "an action needs action, log and cluster", "send one JSON object")
        if action not in {"pause", "resume", "retry"} or self._controls is None:
            return _error(400, "there is no such action", "use pause, resume or retry")
        try:
            getattr(self._controls, action)(log, cluster)
        except AologError as error:
            return _error(409, error.reason, error.hint or "")
        _log.warning("%s of %s by HTTP", action, log, extra={"event": "action"})
        return _json({"ok": True})

    def _find(self, name: str | None, cluster: str | None) -> LogStatus | None:
        return next(
            (x for x in self._monitor.logs if x.log == name and cluster in {None, x.cluster}), None
        )

    # --- the stream ---------------------------------------------------------------------------

    async def _events(self, _: Request) -> Response:
        if self._streams >= self._limits.streams:
            return _error(503, f"{self._limits.streams} pages are open already", "close one")
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[bytes]:
        """Ends with the process; the page connects again."""
        self._streams += 1
        try:
            after_s = 0.0
            while not self.ending():
                points = self._monitor.points(after_s)
                if points:
                    after_s = points[-1].time_s
                    yield _event("points", [point._asdict() for point in points])
                yield _event("status", self._snapshot())
                await asyncio.sleep(SAMPLE_S)
        finally:
            self._streams -= 1

    def _snapshot(self) -> dict[str, Any]:
        logs = sorted(self._monitor.logs, key=_badness, reverse=True)
        return {
            "version": aolog.__version__,
            "can_act": self._controls is not None and self._access.token is not None,
            "summary": self._monitor.summary(),
            "overview": overview(self._monitor.logs, waits=self._waits())._asdict(),
            "logs": [log.as_json() for log in logs[:LOGS_SHOWN]],
            "logs_left_out": max(0, len(logs) - LOGS_SHOWN),
            "problems": self._problems.latest(),
        }


def _badness(log: LogStatus) -> tuple[bool, bool, float, int]:
    lost = log.lost_records + log.dead_lettered + log.dropped
    return log.error is not None, log.state == "blocked", log.lag_seconds or 0.0, lost


def _verdict(name: str, found: list[LogStatus], waits: str | None) -> Response:
    shown: dict[str, Any] = {
        "ok": not found and waits is None,
        name: [
            {"log": x.log, "cluster": x.cluster, "state": x.state, "error": x.error} for x in found
        ],
    }
    if waits is not None:
        shown["error"] = waits
    return _json(shown, 200 if shown["ok"] else 503)


def _json(value: object, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def _error(status: int, error: str, hint: str) -> Response:
    return JSONResponse({"error": error, "hint": hint}, status)


def _event(name: str, value: object) -> bytes:
    return f"event: {name}\ndata: {to_json(value)}\n\n".encode()
