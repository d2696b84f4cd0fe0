"""The simulator over HTTP: the page, its events, and what the page sets and presses.

GET  /         the page
GET  /events   server-sent events: `state`, five times a second
POST /set      {"rate": 500, ...}: see Settings
POST /press    {"button": "kill"}: one of BUTTONS
POST /reset    {"rate": ..., "mode": ...}: everything begins anew with these settings
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bridge.operate.access import Access
from bridge.operate.page import load_page
from bridge.operate.server import LIMITS, Streams, carry_out, error, event, served
from bridge.simulate.settings import Settings, changed
from bridge.simulate.simulation import Simulation

EVERY_S = 0.2


@contextmanager
def serving(access: Access, simulation: Simulation) -> Iterator[tuple[str, int]]:
    """Serves in a thread of its own; yields the address. Raises UsageError where it cannot listen."""
    page, policy = load_page("bridge.simulate", "simulator.html")
    with served(_routes(page, simulation), access, policy) as at:
        yield at


def _routes(page: str, simulation: Simulation) -> Starlette:
    streams = Streams(LIMITS.streams)

    async def show_page(_: Request) -> Response:
        return HTMLResponse(page)

    async def state() -> bytes:
        return event("state", await asyncio.to_thread(simulation.snapshot))

    async def events(_: Request) -> Response:
        return streams.answer(state, EVERY_S)

    def posted(act: Callable[[dict[str, Any]], None]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            """A page of another server cannot send JSON here without the browser asking first."""
            if request.headers.get("content-type") != "application/json":
                return error(415, "the request is not JSON", "Content-Type: application/json")
            return await carry_out(request, act)

        return answer

    acts: dict[str, Callable[[dict[str, Any]], None]] = {
        "/set": lambda given: simulation.set(**given),
        "/press": lambda given: simulation.press(str(given["button"])),
        "/reset": lambda given: simulation.reset(changed(Settings(), given)),
    }
    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/events", events),
            *(Route(path, posted(act), methods=["POST"]) for path, act in acts.items()),
        ]
    )
