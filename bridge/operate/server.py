"""How pages and answers are served: uvicorn in a thread, and a guard around every request.

The guard checks the Host header and the token (access.py), adds the security headers, and bounds the
time of an answer. A connection without a request under way is closed in time, and there is a bound on
connections (listener.py): a slow or silent client holds nothing up. Knows nothing of what is served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from aolog.errors import AologError, to_json
from bridge.operate.access import Access
from bridge.operate.listener import EXHAUSTED, Listener

_log = logging.getLogger("bridge.http")

SAMPLE_S = 1.0
_BODY_MAX = 4_096
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Limits(NamedTuple):
    """What clients may take."""

    connection_s: float = 10.0  # without a request under way; a scrape takes milliseconds
    request_s: float = 10.0  # of an answer, the client included
    connections: int = 64  # at once; more are closed: a Prometheus, some probes, a dozen open pages
    streams: int = 16  # of /events, at once


LIMITS = Limits()


class Streams:
    """Server-sent events to open pages: at most so many at once. The end of the server cancels them."""

    def __init__(self, most: int) -> None:
        self._most, self._open = most, 0

    def answer(self, events: Callable[[], Awaitable[bytes]], every_s: float) -> Response:
        """Sends what `events` returns, again and again. The page connects again."""
        if self._open >= self._most:
            return error(503, f"{self._most} pages are open already", "close one")
        return StreamingResponse(self._send(events, every_s), media_type="text/event-stream")

    async def _send(
        self, events: Callable[[], Awaitable[bytes]], every_s: float
    ) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            while True:
                yield await events()
                await asyncio.sleep(every_s)
        finally:
            self._open -= 1


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
def served(
    app: ASGIApp,
    access: Access,
    policy: str,
    *,
    limits: Limits = LIMITS,
    sample: Callable[[], None] = lambda: None,
    refused: Callable[[str, int], None] = lambda _method, _status: None,
) -> Iterator[tuple[str, int]]:
    """Serves an application in a thread of its own; yields the address that it listens on.

    policy: the Content-Security-Policy. sample: called each second in that thread. refused: called
    for each request that the application does not see. Raises UsageError where it cannot listen."""
    host, port = access.address()
    listener = Listener(access.where, host, port, limits.connections)
    server = uvicorn.Server(
        uvicorn.Config(
            _Guard(app, access, policy, limits, refused),
            interface="asgi3",
            http=type("_Connection", (_Connection,), {"wait_s": limits.connection_s}),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",  # what goes wrong in an answer is logged below
            timeout_keep_alive=60,  # a connection is closed before
            timeout_graceful_shutdown=0,
            server_header=False,
        )
    )
    thread = threading.Thread(
        target=_run, args=(server, listener, sample), name="http", daemon=True
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


def _run(server: uvicorn.Server, listener: socket.socket, sample: Callable[[], None]) -> None:
    async def sampling() -> None:
        while not server.should_exit:
            await asyncio.sleep(SAMPLE_S)
            try:
                sample()
            except Exception:  # noqa: BLE001 -- a bug in one sample must not end all that follow
                _log.exception("a sample failed: the page and the metrics are those before it")

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in EXHAUSTED):  # the listener logs that
            loop.default_exception_handler(context)

    async def both() -> None:
        asyncio.get_running_loop().set_exception_handler(failed)
        samples = asyncio.create_task(sampling())
        try:
            await server.serve(sockets=[listener])
        finally:
            samples.cancel()

    asyncio.run(both())


class _Guard:
    """Every request passes here: host, token, headers, deadline."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        policy: str,
        limits: Limits,
        refused: Callable[[str, int], None],
    ) -> None:
        self._app, self._access, self._limits, self._refused = app, access, limits, refused
        given = {**_HEADERS, "Content-Security-Policy": policy}
        self._headers = [(k.lower().encode(), v.encode()) for k, v in given.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or passes the request on."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        headers = dict(scope["headers"])
        path, refused = scope["path"], None
        if not self._access.accepts_host(headers.get(b"host", b"").decode("latin-1")):
            refused = error(421, "this Host is not configured", "name it with --http-host")
        elif not self._access.may_read(path, headers.get(b"authorization", b"").decode("latin-1")):
            refused = error(401, "the token is missing or wrong", "Authorization: Bearer TOKEN")
            refused.headers["WWW-Authenticate"] = "Bearer"
        if refused is not None:
            self._refused(scope["method"], refused.status_code)
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = refused or self._app
        deadline_s = None if path == "/events" and refused is None else self._limits.request_s
        try:
            async with asyncio.timeout(deadline_s):
                await answer(scope, receive, with_headers)
        except TimeoutError:  # the client does not take its answer: uvicorn closes the connection
            _log.debug("the client of %s did not take the answer", path)
        except Exception:
            _log.exception("answering %s failed", path)
            raise


# --- answers --------------------------------------------------------------------------------


def json_response(value: object, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(to_json(value), status, media_type="application/json")


def error(status: int, what: str, hint: str | None) -> Response:
    """What is wrong, and what to do, if that is known."""
    said = {"error": what} if hint is None else {"error": what, "hint": hint}
    return JSONResponse(said, status)


def event(name: str, value: object) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {to_json(value)}\n\n".encode()


async def body_of(request: Request, most: int) -> bytes | None:
    """The request's body; None if it has more than `most` bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            return None
    return body


async def carry_out(request: Request, act: Callable[[dict[str, Any]], object]) -> Response:
    """Does what a small JSON object asks for, in a thread, as it may read the disk. By default the answer is ok."""
    body = await body_of(request, _BODY_MAX)
    if body is None:
        return error(413, "the request is too large", f"at most {_BODY_MAX} bytes")
    try:
        found = await asyncio.to_thread(act, json.loads(body))
        return json_response({"ok": True} if found is None else found)
    except AologError as refused:
        return error(409, refused.reason, refused.hint)
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: nested too deeply
        return error(400, "a field is missing or unknown", "send one JSON object; see the docs")
