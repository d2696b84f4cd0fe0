"""Metrics for Prometheus, made from statuses at each request. The tables below have the names, with
units; the prefix is `aolog_bridge_`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

import aolog
from aolog.errors import as_utf8, one_line
from bridge.supervise.status import STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bridge.supervise.status import LogStatus

__all__ = ["exposition"]

_LABELS = ("log", "cluster")
_COUNTERS: list[tuple[str, str, Callable[[LogStatus], int]]] = [
    ("records_acknowledged", "Records that the cluster has acknowledged.",
     lambda x: x.acknowledged),
    ("records_skipped", "Records that were found in the cluster after a restart, so not sent again.",
     lambda x: x.skipped),
    ("records_lost", "Records that were damaged, or pruned before they were delivered, if counted.",
     lambda x: x.lost_records),
    ("gaps", "Gaps of the log: damaged, or pruned before they were delivered.", lambda x: x.gaps),
    ("records_dead_lettered", "Records that the cluster will never accept, written to the dead-letter log.",
     lambda x: x.dead_lettered),
    ("records_dropped", "Records that the cluster will never accept, dropped.", lambda x: x.dropped),
    ("restarts", "Times that forwarding failed and began again.", lambda x: x.restarts),
]  # fmt: skip  # a table
_LAGS: list[tuple[str, str, Callable[[LogStatus], float | None]]] = [
    ("lag_records", "Records in the log that are not acknowledged.", lambda x: x.lag_records),
    ("lag_bytes", "Bytes in the log after the last acknowledged record.", lambda x: x.lag_bytes),
    ("lag_seconds", "Age of the oldest record that is not acknowledged.", lambda x: x.lag_seconds),
]
_GAUGES: list[tuple[str, str, Callable[[Any], float | None]]] = [
    ("outstanding_records", "Records sent and not acknowledged.", lambda s: s.outstanding),
    ("cluster_reachable", "Whether the cluster answers.", lambda s: s.reachable),
    ("committed_address", "Address at which the cursor is durable.", lambda s: s.committed),
]  # fmt: skip  # a table


class _Collector:
    def __init__(self, logs: Sequence[LogStatus]) -> None:
        self._logs = logs

    def collect(self) -> Iterator[Any]:
        """All metrics."""
        yield InfoMetricFamily(
            "aolog_bridge", "The version that runs.", {"version": aolog.__version__}
        )
        for name, text, of in _COUNTERS:
            counter = CounterMetricFamily(f"aolog_bridge_{name}", text, labels=_LABELS)
            for log in self._logs:
                counter.add_metric([_label(log.log), log.cluster], of(log))
            yield counter
        for name, text, of_log in _LAGS:
            yield self._gauge(name, text, of_log)
        for name, text, of_status in _GAUGES:
            yield self._gauge(name, text, partial(_of_status, of_status))
        state = GaugeMetricFamily(
            "aolog_bridge_state", "1 for the state that a log is in.", labels=[*_LABELS, "state"]
        )
        logs = GaugeMetricFamily(
            "aolog_bridge_logs", "Logs and clusters in each phase.", labels=["phase"]
        )
        phases: dict[str, int] = {}
        for log in self._logs:
            phases[log.phase] = phases.get(log.phase, 0) + 1
            for name in STATES:
                state.add_metric([_label(log.log), log.cluster, name], name == log.state)
        for phase, count in sorted(phases.items()):
            logs.add_metric([phase], count)
        yield state
        yield logs
        yield self._stalled()

    def _stalled(self) -> GaugeMetricFamily:
        """A sample for each lane, while it is stalled."""
        gauge = GaugeMetricFamily(
            "aolog_bridge_stalled_seconds",
            "Age of the records under way to a lane that acknowledges nothing.",
            labels=[*_LABELS, "topic", "partition", "leader"],
        )
        for log in self._logs:
            for stall in () if log.status is None else log.status.stalled:
                lane = (stall["topic"], str(stall["partition"]), stall["leader"])
                gauge.add_metric([_label(log.log), log.cluster, *lane], stall["seconds"])
        return gauge

    def _gauge(
        self, name: str, text: str, of: Callable[[LogStatus], float | None]
    ) -> GaugeMetricFamily:
        """Without a sample where the value is unknown."""
        gauge = GaugeMetricFamily(f"aolog_bridge_{name}", text, labels=_LABELS)
        for log in self._logs:
            value = of(log)
            if value is not None:
                gauge.add_metric([_label(log.log), log.cluster], value)
        return gauge


def _label(name: str) -> str:
    """A log's name without control characters, for terminals. A newline stays: the format escapes
    it."""
    return "\n".join(map(one_line, as_utf8(name).split("\n")))


def _of_status(of: Callable[[Any], float | None], log: LogStatus) -> float | None:
    return None if log.status is None else of(log.status)


_process = CollectorRegistry()
ProcessCollector(registry=_process)
PlatformCollector(registry=_process)


def exposition(logs: Sequence[LogStatus]) -> tuple[bytes, str]:
    """The text and its content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(logs))
    return generate_latest(registry) + generate_latest(_process), CONTENT_TYPE_LATEST
