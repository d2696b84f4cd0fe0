"""What a stream has lost and what it has not read: the part of a query's progress that Spark shows.

For a source in Python, Spark has no metrics of its own: it calls `reportLatestOffset`, and shows the JSON
as `latestOffset` of the source's progress. `monitoring` reads it there. Losses are counted from the start
of the query. This module does not know how a loss is found.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.read.lag import oldest_us
from aolog.spark.options import PARTITION_BYTES
from aolog.spark.planning import Span, bytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.record import GapReason
    from aolog.spark.listing import Listed
    from aolog.spark.positions import LogPosition
    from aolog.spark.watching import Watching

LOGS_MAX = 100  # in a report, the furthest behind: Spark keeps 100 reports of a query in memory


class Loss(NamedTuple):
    """Records of a log that a stream will not read. begin: the address of the first. records: None if
    their number is unknown. What is found again has the same log, reason and begin."""

    log: str
    reason: GapReason
    begin: int
    records: int | None


class _Total:
    """Losses of one log for one reason. begin: of the last one, which may be found again, and may have
    grown."""

    def __init__(self) -> None:
        self.begin = -1
        self.records = self.last = self.unknown = 0

    def add(self, loss: Loss) -> None:
        if loss.begin != self.begin:
            self.begin, self.last = loss.begin, 0
            self.unknown += loss.records is None
        more = max(0, (loss.records or 0) - self.last)
        self.records += more
        self.last += more


class Backlog:
    """The report of one reader. Not thread-safe."""

    def __init__(self) -> None:
        self._losses: dict[tuple[str, GapReason], _Total] = {}
        self._oldest: dict[str, tuple[int, int | None]] = {}  # by log: address, its time

    def lost(self, loss: Loss) -> None:
        """Counts a loss, once."""
        self._losses.setdefault((loss.log, loss.reason), _Total()).add(loss)

    def report(
        self,
        logs: Mapping[str, Listed],
        ends: Mapping[str, LogPosition],
        watching: Watching,
    ) -> dict[str, Any]:
        """In the form that Spark shows. ends: of the next batch."""
        lags = {}
        for name, log in logs.items():
            end = ends.get(name)
            since = log.bases[0] if end is None or not end.is_in(log.uuid) else end.address
            if since < log.end:
                lags[name] = self._lag(Span(log, since, log.end), end, watching)
        self._oldest = {name: self._oldest[name] for name in lags if name in self._oldest}
        return {
            "aolog": 1,
            "ends": {name: [log.end, log.uuid] for name, log in logs.items()},
            "behind": _sums(lags),
            "lost": self._lost(),
        }

    def _lag(self, span: Span, end: LogPosition | None, watching: Watching) -> list[Any]:
        """Records, bytes and seconds, as of `aolog.Lag`."""
        name, since = span.log.name, span.since
        first, last = _ordinal(span.log, since, end, watching), span.log.ordinal
        records = None if first is None or last is None else max(0, last - first)
        if records == 0:  # marks, seals and headers
            return [0, 0, 0.0]
        if self._oldest.get(name, (None,))[0] != since:
            self._oldest[name] = since, watching.ask(span.log, lambda log: oldest_us(log, since))
        oldest = self._oldest[name][1]
        seconds = None if oldest is None else round(max(0.0, time.time() - oldest / 1e6), 3)
        return [records, bytes_of(span, PARTITION_BYTES), seconds]

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


def _ordinal(
    log: Listed, address: int, position: LogPosition | None, watching: Watching
) -> int | None:
    """Records of the log before the address, or before what is left after it."""
    if position is not None and position.address == address >= log.bases[0]:
        return position.ordinal
    return watching.ordinal_at(log, max(address, log.bases[0]))


def _sums(lags: Mapping[str, list[Any]]) -> dict[str, Any]:
    """In total, and of the logs that are furthest behind."""
    records, sizes, ages = zip(*lags.values(), strict=True) if lags else ((), (), ())
    known = [age for age in ages if age is not None]
    most = sorted(lags, key=lambda name: -lags[name][1])[:LOGS_MAX]
    return {
        "records": None if None in records else sum(records),
        "bytes": sum(sizes),
        "seconds": None if lags and not known else max(known, default=0.0),
        "logs": {name: lags[name] for name in most},
    }
