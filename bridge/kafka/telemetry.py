"""Measurements of the whole process that no status has: latencies, retries, transactions.

They go straight into Prometheus' own client, which is thread-safe. `bridge.operate.metrics` publishes
REGISTRY, and its reference names each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTRY = CollectorRegistry()
CLIENT_VERSION: str = confluent_kafka.libversion()[0]
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
_RETRIED = Counter(
    "aolog_bridge_requests_retried",
    "Requests that were sent to the broker again, because it did not answer or refused for now.",
    ["broker"],
    registry=REGISTRY,
)
REJECTED = Counter(
    "aolog_bridge_records_rejected",
    "Records that the cluster never accepts, by what became of them and by the reason's code.",
    ["outcome", "reason"],
    registry=REGISTRY,
)
LOST = Counter(
    "aolog_bridge_records_lost_by_reason",
    "Lost records by reason: `pruned`, removed by retention before they were delivered; others: damage.",
    ["reason"],
    registry=REGISTRY,
)
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
