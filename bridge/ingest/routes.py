"""The HTTP endpoint of `ingest`.

    POST /topics/TOPIC    appends a batch (bodies.py); 200 when its records are durable:
                          {"topic", "first", "records", "repeated"}. Idempotency-Key: a repeated
                          request appends nothing and gets the same answer
    GET  /topics/TOPIC    records as NDJSON; ?from=ADDRESS, else from the earliest. The header Aolog-Next
                          has the address to continue at
    GET  /topics          the logs that are open: topic, end, durable
    GET  /metrics         for Prometheus
    GET  /healthz         200

503 with Retry-After: too many requests wait, or the disk or a log is full; send the request again, with
its Idempotency-Key. 413: the body is too large. With a token every request but /healthz needs it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aolog.errors import (
    AddressBeyondEnd,
    AddressPruned,
    AologError,
    CallInterrupted,
    LogClosed,
    NotALog,
    StorageFull,
    UsageError,
)
from bridge.ingest.bodies import DECODERS, line_of
from bridge.ingest.logs import Logs, Taken
from bridge.operate.access import Access
from bridge.operate.server import Limits, body_of, error, json_response, served

_log = logging.getLogger("bridge.ingest")
_T = TypeVar("_T")

THREADS = 16  # requests that wait for the device at once share one sync
WAITING_MAX = 256  # requests, with bodies in memory
KEY_MAX = 256  # bytes of an idempotency key
READ_BYTES = 1 << 20
RETRY_S = "1"
LIMITS = Limits(connection_s=60.0, request_s=30.0, connections=1_024)


@contextmanager
def serving(
    access: Access, logs: Logs, *, body_bytes: int, waiting_max: int = WAITING_MAX
) -> Iterator[tuple[str, int]]:
    """Serves in a thread of its own; yields the address that it listens on. Raises UsageError where it
    cannot listen."""
    access = access._replace(reads_need_it=access.token is not None)
    with ThreadPoolExecutor(THREADS, "ingest") as pool:
        answers = _Answers(pool, logs, body_bytes, waiting_max)
        with served(
            answers.routes(), access, "default-src 'none'", limits=LIMITS, refused=answers.refused
        ) as at:
            yield at


class _Answers:
    """One method a route."""

    def __init__(
        self, pool: ThreadPoolExecutor, logs: Logs, body_bytes: int, waiting_max: int
    ) -> None:
        self._pool, self._logs = pool, logs
        self._body_bytes, self._waiting_max = body_bytes, waiting_max
        self._waiting = 0
        self._metrics = _Metrics(lambda: self._waiting, lambda: len(logs.state()))

    def routes(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/topics/{topic}", self._append, methods=["POST"]),
                Route("/topics/{topic}", self._read),
                Route("/topics", self._topics),
                Route("/metrics", self._show_metrics),
                Route("/healthz", self._healthz),
            ]
        )

    def refused(self, method: str, status: int) -> None:
        """A request was refused before its route: counted if it was an append."""
        if method == "POST":
            self._metrics.answered(status, 0.0)

    async def _in_pool(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _append(self, request: Request) -> Response:
        begun_s = time.monotonic()
        if self._waiting >= self._waiting_max:
            answer = _later("too many requests wait")
        else:
            self._waiting += 1
            try:
                answer = await self._append_body(request)
            finally:
                self._waiting -= 1
        self._metrics.answered(answer.status_code, time.monotonic() - begun_s)
        return answer

    async def _append_body(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        if not self._logs.accepts(topic):
            return error(404, "this topic is not accepted", "see --topic; names are as Kafka's")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in DECODERS:
            return error(415, f"the content type is {kind!r}", f"use {' or '.join(DECODERS)}")
        key = request.headers.get("idempotency-key")
        if key is not None and not 0 < len(key) <= KEY_MAX:
            return error(400, f"an idempotency key has 1 to {KEY_MAX} characters", "shorten it")
        body = await body_of(request, self._body_bytes)
        if body is None:
            return error(413, "the body is too large", f"at most {self._body_bytes} bytes")
        named = None if key is None else key.encode("latin-1")
        try:
            columns = DECODERS[kind](body)
            if not columns.values:
                return error(400, "the body has no record", "send at least one")
            taken = await self._in_pool(partial(self._logs.take, topic, columns, named))
        except (StorageFull, LogClosed, CallInterrupted) as passing:
            return _later(passing.reason)
        except UsageError as refused:
            return error(400, refused.reason, refused.hint)
        except AologError as failed:
            _log.error("%s: %s", topic, failed, extra={"event": "append_failed"})
            return error(500, failed.reason, failed.hint or "see the log of this server")
        self._metrics.taken(taken, len(body))
        return json_response(taken._asdict())

    async def _read(self, request: Request) -> Response:
        topic, start = request.path_params["topic"], request.query_params.get("from")
        if not self._logs.accepts(topic):
            return error(404, "this topic is not accepted", "see --topic")
        if start is not None and not (start.isascii() and start.isdigit() and len(start) < 20):
            return error(400, "from is no address", "use an address from an answer")
        where = None if start is None else int(start)
        try:
            records, after = await self._in_pool(partial(self._logs.read, topic, where, READ_BYTES))
        except NotALog:
            return error(404, "this topic has no log", "append to it first")
        except AddressPruned as gone:
            return error(410, gone.reason, "leave out from: reads begin at the earliest record")
        except AddressBeyondEnd as beyond:
            return error(416, beyond.reason, beyond.hint)
        except AologError as failed:
            return error(500, failed.reason, failed.hint)
        lines = b"".join(map(line_of, records))
        return Response(
            lines, media_type="application/x-ndjson", headers={"Aolog-Next": str(after)}
        )

    async def _topics(self, _: Request) -> Response:
        return json_response({"topics": self._logs.state()})

    async def _show_metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def _healthz(self, _: Request) -> Response:
        return json_response({"ok": True})


class _Metrics:
    """What is counted since the process started. Any thread. waiting: requests that wait now. logs:
    how many are open now."""

    def __init__(self, waiting: Callable[[], int], logs: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"aolog_ingest_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str, value: Callable[[], int]) -> None:
            Gauge(f"aolog_ingest_{name}", about, registry=registry).set_function(value)

        self._requests = counter(
            "requests", "Appends that were answered, by HTTP status.", "status"
        )
        self._records = counter("records", "Records that are durable.", "topic")
        self._bytes = counter("body_bytes", "Bytes of the bodies of these records.", "topic")
        self._repeated = counter(
            "repeated_requests", "Requests whose records were there already.", "topic"
        )
        self._seconds = Histogram(
            "aolog_ingest_append_seconds", "Time from a request to its answer.", registry=registry
        )
        gauge("waiting_requests", "Requests that wait to be durable.", waiting)
        gauge("open_logs", "Logs that are open.", logs)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def answered(self, status: int, seconds: float) -> None:
        """An append was answered."""
        self._requests.labels(str(status)).inc()
        self._seconds.observe(seconds)

    def taken(self, taken: Taken, body_bytes: int) -> None:
        """A batch is durable."""
        if taken.repeated:
            self._repeated.labels(taken.topic).inc()
        else:
            self._records.labels(taken.topic).inc(taken.records)
            self._bytes.labels(taken.topic).inc(body_bytes)


def _later(why: str) -> Response:
    refused = error(503, why, "send the request again, with its Idempotency-Key")
    refused.headers["Retry-After"] = RETRY_S
    return refused
