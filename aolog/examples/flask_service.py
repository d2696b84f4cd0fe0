"""A Flask service under gunicorn with several workers: one log for each worker.

    ORDERS=LOGS gunicorn --workers 4 --threads 8 aolog.examples.flask_service:app

A log has one writer, so each worker process has a log of its own, LOGS/worker-PID; a bridge drains all of
them: `aolog-bridge run --root LOGS`. The log is opened at the worker's first request, that is after the
fork (also with --preload: a writer that was opened before the fork refuses every call in the child). It is
closed when the worker ends; a worker that is killed loses nothing that was synced.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path

from flask import Flask, Response, request

import aolog

app = Flask(__name__)


opening = threading.Lock()  # `cache` alone lets two first requests open the log twice


def log() -> aolog.Writer:
    """This worker's log. aolog closes it when the process ends."""
    with opening:
        return open_log()


@cache
def open_log() -> aolog.Writer:
    """Opens it once."""
    root = Path(os.environ.get("ORDERS", "orders"))
    return aolog.Writer(root / f"worker-{os.getpid()}", topic="orders")


@app.post("/orders")
def order() -> Response:
    """Answered when the order survives power loss. Requests at the same time share one sync."""
    log().append(request.get_data(), key=request.headers.get("Customer", "").encode())
    log().sync()
    return Response(status=204)
