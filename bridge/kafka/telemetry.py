"""Measurements of the whole process that no status has: latencies, retries, transactions.

They go straight into Prometheus' own client, which is thread-safe. `bridge.operate.metrics` publishes
REGISTRY, and its reference names each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTRY = CollectorRegistry()
COMMIT_SECONDS = Histogram(
    "aolog_bridge_commit_seconds",
    "Time to make a cursor durable: the syncs of the cursor's file, the checkpoints and the log.",
    registry=REGISTRY,
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)
TRANSACTIONS = Counter(
    "aolog_bridge_transactions",
    "Transactions of exactly_once, by outcome: committed or aborted.",
    ["outcome"],
    registry=REGISTRY,
)
_ROUND_TRIP_SECONDS = Gauge(
    "aolog_bridge_broker_round_trip_seconds",
    "Time from a request to the broker's answer, 99th percentile of the last seconds.",
    ["broker"],
    registry=REGISTRY,
)
_QUEUED = Gauge(
    "aolog_bridge_broker_requests",
    "Requests that wait to be sent to the broker, or for its answer.",
    ["broker"],
    registry=REGISTRY,
)
_RETRIES = Gauge(
    "aolog_bridge_broker_retries",
    "Requests to the broker that the present connections have repeated.",
    ["broker"],
    registry=REGISTRY,
)


def note_brokers(statistics: Mapping[str, Any]) -> None:
    """Takes what the client's statistics say of each broker."""
    for broker in statistics["brokers"].values():
        if broker["nodeid"] < 0:  # a bootstrap address, or the client's own
            continue
        name = broker["nodename"]
        if broker["rtt"]["cnt"]:
            _ROUND_TRIP_SECONDS.labels(name).set(broker["rtt"]["p99"] / 1e6)
        _QUEUED.labels(name).set(broker["outbuf_cnt"] + broker["waitresp_cnt"])
        _RETRIES.labels(name).set(broker["txretries"])
