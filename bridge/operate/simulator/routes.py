"""The simulator over HTTP: the page, its events, and what the page sets and presses.

GET  /         the page
GET  /events   server-sent events: `state`, five times a second
POST /set      {"rate": 500, ...}: see Settings
POST /press    {"button": "kill"}: one of BUTTONS
POST /reset    {"rate": ..., "mode": ...}: everything begins anew with these settings
"""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from aolog.errors import AologError
from bridge.operate.page import load_page
from bridge.operate.server import LIMITS, Ending, body_of, error, event, json_response, served
from bridge.operate.simulator.simulation import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.requests import Request

    from bridge.operate.access import Access
    from bridge.operate.simulator.simulation import Simulation

EVERY_S = 0.2
BODY_MAX = 4_096


@contextmanager
def serving(access: Access, simulation: Simulation) -> Iterator[tuple[str, int]]:
    """Serves in a thread of its own; yields the address. Raises UsageError where it cannot listen."""
    page, policy = load_page("simulator.html")
    ending = Ending()
    answers = _Answers(page, simulation, ending)
    with served(answers.routes(), access, policy, ending) as at:
        yield at


class _Answers:
    """One method a route."""

    def __init__(self, page: str, simulation: Simulation, ending: Ending) -> None:
        self._page, self._simulation, self._ending = page, simulation, ending
        self._streams = 0

    def routes(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/", self._show_page),
                Route("/events", self._events),
                Route("/set", self._set, methods=["POST"]),
                Route("/press", self._press, methods=["POST"]),
                Route("/reset", self._reset, methods=["POST"]),
            ]
        )

    async def _show_page(self, _: Request) -> Response:
        return HTMLResponse(self._page)

    async def _events(self, _: Request) -> Response:
        if self._streams >= LIMITS.streams:
            return error(503, f"{LIMITS.streams} pages are open already", "close one")
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            while not self._ending.is_set:
                yield event("state", await asyncio.to_thread(self._simulation.snapshot))
                await asyncio.sleep(EVERY_S)
        finally:
            self._streams -= 1

    async def _set(self, request: Request) -> Response:
        return await self._do(request, lambda given: self._simulation.set(**given))

    async def _press(self, request: Request) -> Response:
        return await self._do(request, lambda given: self._simulation.press(str(given["button"])))

    async def _reset(self, request: Request) -> Response:
        return await self._do(request, lambda given: self._simulation.reset(Settings(**given)))

    async def _do(self, request: Request, act: Callable[[dict[str, Any]], None]) -> Response:
        """Does what a page of this server asks for. A page of another one cannot send JSON here without
        the browser asking first."""
        if request.headers.get("content-type") != "application/json":
            return error(415, "the request is not JSON", "Content-Type: application/json")
        body = await body_of(request, BODY_MAX)
        if body is None:
            return error(413, "the request is too large", f"at most {BODY_MAX} bytes")
        try:
            given = json.loads(body)
            await asyncio.to_thread(act, {str(k): v for k, v in given.items()})
        except AologError as refused:
            return error(409, refused.reason, refused.hint or "")
        except (ValueError, TypeError, AttributeError, KeyError):
            return error(400, "the request is not an object of known settings", "see the page")
        return json_response({"ok": True})
