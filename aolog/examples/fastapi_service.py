"""A FastAPI service under uvicorn with several workers: one log for each worker, and no blocked loop.

    ORDERS=LOGS uvicorn --workers 4 aolog.examples.fastapi_service:app

Each worker process opens its log when its application starts and closes it when it ends (`lifespan`), so
no log is open at a fork. A bridge drains all logs: `aolog-bridge run --root LOGS`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response

from aolog import aio


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens and closes this worker's log."""
    root = Path(os.environ.get("ORDERS", "orders"))
    async with aio.Writer(root / f"worker-{os.getpid()}", topic="orders") as log:
        app.state.log = log
        yield


app = FastAPI(lifespan=lifespan)


async def order(request: Request) -> Response:
    """Answered when the order survives power loss. Requests at the same time share one sync."""
    log: aio.Writer = request.app.state.log
    await log.append(await request.body(), key=request.headers.get("customer", "").encode())
    await log.sync()
    return Response(status_code=204)


app.add_route("/orders", order, methods=["POST"])
