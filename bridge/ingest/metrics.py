"""What an ingest counts, for Prometheus. Totals count since the process started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.ingest.logs import Taken

_PREFIX = "aolog_ingest_"


class Metrics:
    """Any thread. waiting: requests that wait now. logs: how many are open now."""

    def __init__(self, waiting: Callable[[], int], logs: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            _PREFIX + "requests", "Appends that were answered, by HTTP status.", ["status"],
            registry=registry,
        )  # fmt: skip  # as the others
        self._records = Counter(
            _PREFIX + "records", "Records that are durable.", ["topic"], registry=registry
        )
        self._bytes = Counter(
            _PREFIX + "body_bytes", "Bytes of the bodies of these records.", ["topic"],
            registry=registry,
        )  # fmt: skip  # as the others
        self._repeated = Counter(
            _PREFIX + "repeated_requests", "Requests whose records were there already.", ["topic"],
            registry=registry,
        )  # fmt: skip  # as the others
        self._seconds = Histogram(
            _PREFIX + "append_seconds", "Time from a request to its answer.", registry=registry
        )
        Gauge(
            _PREFIX + "waiting_requests", "Requests that wait to be durable.", registry=registry
        ).set_function(waiting)
        Gauge(_PREFIX + "open_logs", "Logs that are open.", registry=registry).set_function(logs)
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

    def exposition(self) -> tuple[bytes, str]:
        """The text and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
