"""A client's counts as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_HELP = {
    "sent": "Messages given to librdkafka.",
    "failed": "Messages that were not acknowledged.",
    "received": "Records returned to the program.",
    "dropped": "Records dropped because of their signature.",
    "headers_left_out": "Headers left out of records, since their names are not UTF-8.",
    "heartbeats_sent": "Heartbeats sent.",
    "heartbeats_received": "Heartbeats received.",
}


def families(
    side: str, status: Mapping[str, Any], heartbeats: Sequence[Mapping[str, Any]]
) -> Iterator[Any]:
    """Metric families of prometheus_client. heartbeats: rows of HeartbeatWatch.status."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text in _HELP.items():
        if name in status:
            family = CounterMetricFamily(f"aolog_client_{name}", text, labels=["client"])
            family.add_metric([side], status[name])
            yield family
    age = GaugeMetricFamily(
        "aolog_client_heartbeat_age_seconds", "Age of the last heartbeat.", labels=["topic", "from"]
    )
    overdue = GaugeMetricFamily(
        "aolog_client_heartbeat_overdue",
        "1 for a heartbeat that is overdue.",
        labels=["topic", "from"],
    )
    for row in heartbeats:
        age.add_metric([row["topic"], row["client_id"]], row["age_s"])
        overdue.add_metric([row["topic"], row["client_id"]], float(row["overdue"]))
    if heartbeats:
        yield age
        yield overdue
