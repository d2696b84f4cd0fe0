"""Measurements of the whole process that no status has: latencies, retries, transactions.

They go straight into Prometheus' own client, which is thread-safe. `bridge.operate.metrics` publishes
REGISTRY, and the documentation's page has REFERENCE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import confluent_kafka
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
CLIENT_VERSION: str = confluent_kafka.libversion()[0]
REFERENCE: list[tuple[str, str, str, str, str]] = []
"""Of each: name, type, labels, meaning, and what to do."""
_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)


def _made(
    kind: type[_Metric], name: str, labels: tuple[str, ...], meaning: str, advice: str, **more: Any
) -> _Metric:
    name = f"aolog_bridge_{name}"
    shown = f"{name}_total" if kind is Counter else name
    REFERENCE.append((shown, kind.__name__.lower(), ", ".join(labels), meaning, advice))
    return kind(name, meaning, labels, registry=REGISTRY, **more)


COMMIT_SECONDS = _made(
    Histogram, "commit_seconds", (),
    "Time to make a cursor durable: the syncs of the cursor's file, the checkpoints and the log.",
    "above 1 s: look at the disk",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)  # fmt: skip  # a table
TRANSACTIONS = _made(
    Counter, "transactions", ("outcome",),
    "Transactions of exactly_once, by outcome: committed or aborted.",
    "aborted: read the log lines",
)  # fmt: skip  # as above
_ROUND_TRIP_SECONDS = _made(
    Gauge, "broker_round_trip_seconds", ("broker",),
    "Time from a request to the broker's answer, 99th percentile of the last seconds.",
    "look at the network and the broker",
)  # fmt: skip  # as above
_QUEUED = _made(
    Gauge, "broker_requests", ("broker",),
    "Requests that wait to be sent to the broker, or for its answer.", "as above",
)  # fmt: skip  # as above
_RETRIED = _made(
    Counter, "requests_retried", ("broker",),
    "Requests that were sent to the broker again, because it did not answer or refused for now.",
    "as above",
)  # fmt: skip  # as above
REJECTED = _made(
    Counter, "records_rejected", ("outcome", "reason"),
    "Records that the cluster never accepts, by what became of them and by the reason's code.",
    "look the code up in the [errors](errors.md)",
)  # fmt: skip  # as above
COPIES = _made(
    Counter, "copies", ("topic",),
    "Messages with stamps of a log that are not its records where they are; they do not count as"
    " delivered.",
    "find who copies messages with their headers, or whether the log was copied or restored",
)  # fmt: skip  # as above
LOST = _made(
    Counter, "records_lost_by_reason", ("reason",),
    "Lost records by reason: `pruned`, removed by retention before they were delivered; others: damage.",
    "`pruned`: raise the retention; others: `aolog verify LOG`",
)  # fmt: skip  # as above
LOST.labels("pruned")  # an increase from nothing is not seen


def note_brokers(statistics: Mapping[str, Any], retries: dict[str, int]) -> None:
    """Takes what a client's statistics say of each broker. retries: the client's so far; updated."""
    for broker in statistics["brokers"].values():
        if broker["nodeid"] < 0:  # a bootstrap address, or the client's own
            continue
        name = broker["nodename"]
        if broker["rtt"]["cnt"]:
            _ROUND_TRIP_SECONDS.labels(name).set(broker["rtt"]["p99"] / 1e6)
        _QUEUED.labels(name).set(broker["outbuf_cnt"] + broker["waitresp_cnt"])
        _RETRIED.labels(name).inc(max(0, broker["txretries"] - retries.get(name, 0)))
        retries[name] = broker["txretries"]
