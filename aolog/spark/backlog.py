"""What a stream has lost and what it has not read: the part of a query's progress that Spark shows.

For a source in Python, Spark has no metrics of its own: it calls `reportLatestOffset`, and shows the JSON
as `latestOffset` of the source's progress. `monitoring` reads it there. Losses are counted from the start
of the query. This module does not know how a loss is found.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.read.lag import oldest_us
from aolog.record import Lag, count_between
from aolog.spark.options import PARTITION_BYTES
from aolog.spark.planning import Span, bytes_of
from aolog.spark.positions import by_present_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.record import Gap, GapReason
    from aolog.spark.listing import Listed
    from aolog.spark.positions import LogPosition
    from aolog.spark.watching import Watching

LOGS_MAX = 100  # in a report, the furthest behind: Spark keeps 100 reports of a query in memory


class Loss(NamedTuple):
    """Records of a log that a stream will not read. What is found again has the same log, reason and
    begin."""

    log: str
    gap: Gap


class _Total:
    """Losses of one log for one reason. begin: of the last one, which may be found again, and may have
    grown."""

    def __init__(self) -> None:
        self.begin = -1
        self.records = self.last = self.unknown = 0

    def add(self, gap: Gap) -> None:
        if gap.begin != self.begin:
            self.begin, self.last = gap.begin, 0
            self.unknown += gap.records_lost is None
        more = max(0, (gap.records_lost or 0) - self.last)
        self.records += more
        self.last += more


class _First(NamedTuple):
    """The first unread record of a log, or where it will be. Looked up once, as Spark asks 90 times a
    second."""

    address: int
    ordinal: int | None
    at_us: int | None


class Backlog:
    """The report of one reader. Not thread-safe."""

    def __init__(self) -> None:
        self._losses: dict[tuple[str, GapReason], _Total] = {}
        self._first: dict[str, _First] = {}  # unread record of each log

    def lost(self, loss: Loss) -> None:
        """Counts a loss, once."""
        self._losses.setdefault((loss.log, loss.gap.reason), _Total()).add(loss.gap)

    def report(
        self,
        logs: Mapping[str, Listed],
        ends: Mapping[str, LogPosition],
        watching: Watching,
    ) -> dict[str, Any]:
        """In the form that Spark shows. ends: of the next batch."""
        lags: dict[str, Lag] = {}
        ends = by_present_name(ends, logs)
        for name, log in logs.items():
            end = ends.get(name)
            since = log.bases[0] if end is None else max(end.address, log.bases[0])
            if since < log.end:
                ordinal = end.ordinal if end is not None and end.address == since else None
                lag = self._lag(Span(log, since, log.end, ordinal), watching)
                if lag is not None:
                    lags[name] = lag
        self._first = {name: self._first[name] for name in lags}
        return {
            "aolog": 1,
            "ends": {name: [log.end, log.uuid] for name, log in logs.items()},
            "behind": _sums(lags),
            "lost": self._lost(),
        }

    def _lag(self, span: Span, watching: Watching) -> Lag | None:
        """None if there is no record."""
        name, since = span.log.name, span.since
        first, last = self._first.get(name), span.log.ordinal
        if first is None or first.address != since:
            first = _first(span, watching)
        if first.ordinal is not None and first.ordinal == last:  # only marks, seals and headers
            return None
        self._first[name] = first
        records = count_between(first.ordinal, last)
        age_s = None if first.at_us is None else max(0.0, time.time() - first.at_us / 1e6)
        size = bytes_of(span, PARTITION_BYTES)
        return Lag(records, size, None if age_s is None else round(age_s, 3))

    def _lost(self) -> dict[str, Any]:
        reasons: dict[str, list[int]] = {}
        logs: dict[str, dict[str, list[int]]] = {}
        for (log, reason), total in self._losses.items():
            found = [total.records, total.unknown]
            before = reasons.get(reason, [0, 0])
            reasons[reason] = [a + b for a, b in zip(before, found, strict=True)]
            logs.setdefault(log, {})[reason] = found
        most = sorted(logs, key=lambda log: -sum(n for n, _ in logs[log].values()))[:LOGS_MAX]
        return {"reasons": reasons, "logs": {log: logs[log] for log in most}}


def _first(span: Span, watching: Watching) -> _First:
    log, since, _, ordinal, _ = span
    if ordinal is None and log.has_headers:
        ordinal = watching.ordinal_at(log, since)
    if ordinal is not None and ordinal == log.ordinal:
        return _First(since, ordinal, None)  # nothing to read
    return _First(since, ordinal, watching.ask(log, lambda opened: oldest_us(opened, since)))


def _sums(lags: Mapping[str, Lag]) -> dict[str, Any]:
    """In total, and of the logs that are furthest behind."""
    records, sizes, ages = zip(*lags.values(), strict=True) if lags else ((), (), ())
    known = [age for age in ages if age is not None]
    most = sorted(lags, key=lambda name: -lags[name].bytes)[:LOGS_MAX]
    return {
        "records": None if None in records else sum(records),
        "bytes": sum(sizes),
        "seconds": None if lags and not known else max(known, default=0.0),
        "logs": {name: lags[name] for name in most},
    }
