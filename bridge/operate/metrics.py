"""Metrics for Prometheus, made of the last statuses when they are asked for.

FAMILIES and OTHERS are the reference: name, type, labels, meaning, and what to do. The documentation's
page is made from them; the alerts and the dashboard are held against it by tests. Names carry their units.

A process may have thousands of logs. The first LOGS_MAX have labels of their own for as long as they exist;
the others are summed per cluster in a row called `other`. What was counted of a log that was removed stays
in that row, too: totals never fall.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

import aolog
from aolog.errors import as_utf8, one_line
from bridge.kafka import telemetry
from bridge.operate.monitor import Monitor, seen_of
from bridge.supervise.status import STATES, LogStatus
from bridge.supervise.turns import Phase

# Rows of each family: at a scrape each 15 s what one Prometheus takes without notice.
LOGS_MAX = 500
OTHER = "other"
PREFIX = "aolog_bridge_"


class Family(NamedTuple):
    """A family of metrics."""

    name: str  # without the prefix, and without `_total`
    kind: Literal["counter", "gauge"]
    meaning: str
    advice: str
    of: Callable[[LogStatus, Monitor], float | None]  # None if it is not known
    joined: Callable[[list[float]], float] = sum  # how `other` combines rows


def _field(name: str) -> Callable[[LogStatus, Monitor], float | None]:
    """Of the forwarder's status."""
    return lambda log, _: None if log.status is None else getattr(log.status, name)


def _flow(name: str) -> Callable[[LogStatus, Monitor], float | None]:
    """A total of the monitor's."""
    return lambda log, monitor: getattr(monitor.flow(log.log, log.cluster), name)


def _archived(name: str) -> Callable[[LogStatus, Monitor], float | None]:
    """Of the log's archive."""
    return lambda log, monitor: getattr(monitor.archived(log.path), name, None)


_WATCH = "nothing; for rates"
# Those with other labels: type, labels, meaning, and what to do.
_OWN = {
    "info": ("gauge", "version, python, librdkafka, backend",
             "What runs: versions, and whether aolog's helper is compiled.", "nothing"),
    "start_time_seconds": ("gauge", "", "When the process started.", "nothing"),
    "state": ("gauge", "log, cluster, state", "1 for the state that a log is in.",
              "`blocked`: read the reason in `aolog-bridge status`"),
    "logs": ("gauge", "phase", "Logs and clusters by phase.", "nothing"),
    "stalled_seconds": ("gauge", "log, cluster, topic, partition, leader",
                        "Age of what is under way to a partition that acknowledges nothing.",
                        "look at the leader"),
}  # fmt: skip  # a table
OTHERS = [*((PREFIX + name, *row) for name, row in _OWN.items()), *telemetry.REFERENCE]
FAMILIES = [
    Family("records_seen", "gauge", "Records that were pending at the start or came since: the sum of"
           " acknowledged, skipped, dead-lettered, dropped, filtered, lost and pending.", _WATCH,
           lambda log, _: seen_of(log)),
    Family("records_in", "counter", "Records that came since the process first saw the log; a seek back"
           " counts again.", _WATCH, _flow("records_in")),
    Family("bytes_in", "counter", "Bytes that the log grew by since then.", _WATCH, _flow("bytes_in")),
    Family("records_acknowledged", "counter", "Records that the cluster has acknowledged.", _WATCH,
           lambda log, _: log.acknowledged),
    Family("records_skipped", "counter", "Records that were found in the cluster after a restart and"
           " were not sent again.", _WATCH, lambda log, _: log.skipped),
    Family("records_lost", "counter", "Records that were damaged, or pruned before they were delivered,"
           " where their number is known.", "run `aolog-bridge status --log LOG`; raise the retention",
           lambda log, _: log.lost_records),
    Family("gaps", "counter", "Gaps of the log: damaged, or pruned before they were delivered.",
           "run `aolog-bridge status --log LOG`", lambda log, _: log.gaps),
    Family("records_dead_lettered", "counter", "Records that the cluster never accepts, written to"
           " LOG/dead-letter.", "read them with `aolog read LOG/dead-letter`; then replay",
           lambda log, _: log.dead_lettered),
    Family("records_dropped", "counter", "Records that the cluster never accepts, dropped as --poison"
           " drop says.", "find their producer", lambda log, _: log.dropped),
    Family("records_filtered", "counter", "Records that a route's transform left out.", _WATCH,
           lambda log, _: log.filtered),
    Family("restarts", "counter", "Times that forwarding failed and was begun again.",
           "read `error` in `aolog-bridge status`", lambda log, _: log.restarts),
    Family("cut_off", "gauge", "1 if the process before this one was killed, or stopped with records under"
           " way.", "read what ended it: the kernel's log, or the service manager's", lambda log, _: log.cut_off, max),
    Family("bytes_out", "counter", "Bytes of the log that the position has passed.", _WATCH,
           _flow("bytes_out")),
    Family("lag_records", "gauge", "Records in the log that are not acknowledged.",
           "find whether the cluster or the rate limit is too slow", lambda log, _: log.lag_records),
    Family("lag_bytes", "gauge", "Bytes of the log after the last acknowledged record.",
           "as lag_records", lambda log, _: log.lag_bytes),
    Family("lag_seconds", "gauge", "Age of the oldest record that is not acknowledged.",
           "as lag_records", lambda log, _: log.lag_seconds, max),
    Family("outstanding_records", "gauge", "Records sent and not acknowledged.", _WATCH,
           _field("outstanding")),
    Family("cluster_reachable", "gauge", "1 while the cluster answers.", "check the network and the"
           " brokers", _field("reachable"), min),
    Family("position_address", "gauge", "Address before which every record is acknowledged.", _WATCH,
           _field("position"), max),
    Family("committed_address", "gauge", "Address at which the cursor is durable.", _WATCH,
           _field("committed"), max),
    Family("durable_address", "gauge", "Address before which all of the log survives power loss.",
           "does not grow: look at the writer's `sync`, and at the disk", _field("durable"), max),
    Family("lanes_waiting", "gauge", "Partitions whose records wait in the log.",
           "read `error` in `aolog-bridge status`", _field("held_back")),
    Family("lanes_blocked", "gauge", "Partitions that wait until somebody acts: a reload or a restart"
           " tries them again.", "mend the cause, then send SIGHUP", _field("standing")),
    Family("slabs", "gauge", "Slab files of the log.", "nothing", lambda log, monitor: len(
        monitor.measured(log.path).files)),
    Family("disk_bytes", "gauge", "Bytes of the log's slab files.", "prune, or raise the limit",
           lambda log, monitor: monitor.measured(log.path).bytes),
    Family("disk_free_bytes", "gauge", "Free bytes of the file system that holds the log.",
           "make room", lambda log, monitor: getattr(monitor.measured(log.path).disk, "free_bytes", None), min),
    Family("disk_full_seconds", "gauge", "Seconds until that file system is full, at the rate of the"
           " last minutes; missing while it does not fill.", "make room, or bound the log",
           lambda log, monitor: getattr(monitor.measured(log.path).disk, "full_in_s", None), min),
    Family("retention_full_seconds", "gauge", "Seconds until the log reaches --log-max-bytes, at the rate of"
           " the last minutes; missing without it, and while the log does not grow.",
           "bring the cluster back, or raise the writer's bound",
           lambda log, monitor: getattr(monitor.measured(log.path).bound, "full_in_s", None), min),
    Family("silent_seconds", "gauge", "Seconds since the log's thread last made progress.",
           "above 60 it hangs: look at the disk; restart", lambda log, _: log.silent_s, max),
    Family("scrub_damage", "gauge", "Gaps and other damage that the last check of the log found; missing"
           " before it.", "run `aolog verify LOG`; restore a backup",
           lambda log, monitor: getattr(monitor.scrubbed(log.path), "damage", None)),
    Family("scrub_timestamp_seconds", "gauge", "When the last check of the log ended, in seconds since"
           " 1970.", "old: raise scrub_bytes_per_second",
           lambda log, monitor: getattr(monitor.scrubbed(log.path), "ended_s", None), min),
    Family("archive_behind_bytes", "gauge", "Bytes of the log that are not archived; missing without an"
           " archive, and before its first round.", "read `archive` in `aolog-bridge status`",
           _archived("behind_bytes")),
    Family("archive_waiting_seconds", "gauge", "Seconds since the archive last grew, while it is behind.",
           "above ship_seconds: read `archive` in `aolog-bridge status`", _archived("waiting_seconds"), max),
    Family("archive_end_address", "gauge", "Address before which the log is archived.", _WATCH,
           _archived("end"), max),
    Family("archive_requests", "gauge", "Requests to the object store since the process started.",
           "each costs: raise ship_seconds", _archived("requests")),
    Family("archive_sent_bytes", "gauge", "Bytes sent to the object store since the process started.", _WATCH,
           _archived("sent_bytes")),
    Family("archive_failed", "gauge", "1 if the last attempt to archive the log failed.",
           "read `archive` in `aolog-bridge status`",
           lambda log, monitor: None if (found := monitor.archived(log.path)) is None else found.error is not None, max),
]  # fmt: skip  # a table
LABELS = ("log", "cluster")


class _Collector:
    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._logs = monitor.look()
        present = [(x.log, x.cluster) for x in self._logs if x.phase != Phase.REMOVED]
        self._named = monitor.named(present, LOGS_MAX)

    def collect(self) -> Iterator[Any]:
        """All metrics."""
        yield InfoMetricFamily(
            "aolog_bridge",
            _OWN["info"][2],
            {
                "version": aolog.__version__,
                "python": platform.python_version(),
                "librdkafka": telemetry.CLIENT_VERSION,
                "backend": aolog.backend,
            },
        )
        started = _gauge("start_time_seconds")
        started.add_metric([], self._monitor.started_s)
        yield started
        for family in FAMILIES:
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            shown = kind(PREFIX + family.name, family.meaning, labels=LABELS)
            for labels, value in self._rows(family):
                shown.add_metric(list(labels), value)
            yield shown
        yield from self._states()
        yield self._stalled()

    def _rows(self, family: Family) -> Iterator[tuple[tuple[str, str], float]]:
        """What is not known is left out."""
        others: dict[str, list[float]] = {}
        for log in self._logs:
            value = family.of(log, self._monitor)
            if value is None or (log.phase == Phase.REMOVED and family.kind == "gauge"):
                continue
            if (log.log, log.cluster) in self._named:
                yield (_label(log.log), log.cluster), value
            else:
                others.setdefault(log.cluster, []).append(value)
        for cluster, values in others.items():
            yield (OTHER, cluster), family.joined(values)

    def _states(self) -> Iterator[GaugeMetricFamily]:
        state, logs = _gauge("state"), _gauge("logs")
        for log in self._logs:
            if (log.log, log.cluster) in self._named:
                for name in STATES:
                    state.add_metric([_label(log.log), log.cluster, name], name == log.state)
        for phase, count in sorted(Counter(log.phase for log in self._logs).items()):
            logs.add_metric([phase], count)
        yield state
        yield logs

    def _stalled(self) -> GaugeMetricFamily:
        """A sample for each lane, while it is stalled."""
        gauge = _gauge("stalled_seconds")
        stalls = (
            (log, stall)
            for log in self._logs
            if log.status is not None
            for stall in log.status.stalled
        )
        for log, stall in list(stalls)[:LOGS_MAX]:
            lane = (stall["topic"], str(stall["partition"]), stall["leader"])
            gauge.add_metric([_label(log.log), log.cluster, *lane], stall["seconds"])
        return gauge


def _gauge(name: str) -> GaugeMetricFamily:
    _, labels, meaning, _ = _OWN[name]
    return GaugeMetricFamily(PREFIX + name, meaning, labels=labels.split(", ") if labels else ())


def _label(name: str) -> str:
    """Without control characters: scrapes are read on terminals too. The format escapes a newline."""
    return "\n".join(map(one_line, as_utf8(name).split("\n")))


_process = CollectorRegistry()
ProcessCollector(registry=_process)
PlatformCollector(registry=_process)


def exposition(monitor: Monitor) -> tuple[bytes, str]:
    """The text and its content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(monitor))
    parts = (generate_latest(each) for each in (registry, telemetry.REGISTRY, _process))
    return b"".join(parts), CONTENT_TYPE_LATEST
