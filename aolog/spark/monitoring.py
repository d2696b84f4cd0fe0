"""`lag`: the loss and the lag of a query, from its progress. Needs no Spark.

The reader of a stream puts them into `latestOffset` (backlog.py), the only part of a progress that a
source in Python can write. On the driver, what tasks counted is added (skipped.py).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import UsageError
from aolog.record import Lag
from aolog.spark.skipped import losses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aolog.spark.skipped import Lost

NOTHING = Lag(0, 0, 0.0)
_RECORDS, _UNCOUNTED = 0, 1  # in the counts of a report
_Counts = dict[str, dict[str, int]]  # by log and reason


class QueryLag(NamedTuple):
    """What a query has not read, and what it has lost.

    total: of all logs, after the batch of this progress. logs: by name, the furthest behind first, at
    most 100. lost: records by reason (as of `aolog.Gap`), as far as they could be counted, since the
    query was started, in tasks since `register`. uncounted: losses by reason without a number of
    records. lost_by_log: records by log and reason, uncounted_by_log: losses without a number, at most 100
    logs each."""

    total: Lag
    logs: dict[str, Lag]
    lost: dict[str, int]
    uncounted: dict[str, int]
    lost_by_log: dict[str, dict[str, int]]
    uncounted_by_log: dict[str, dict[str, int]]


def lag(progress: Mapping[str, Any] | str) -> QueryLag:
    """Of a `StreamingQueryProgress`, such as `query.lastProgress`, or of its JSON; the sum of the query's
    sources of logs. Raises UsageError for a progress without one, and for a progress of an older aolog."""
    found = json.loads(progress) if isinstance(progress, str) else progress
    sources = found.get("sources", ()) if hasattr(found, "get") else ()
    reports = [report for source in sources if (report := _report(source)) is not None]
    if not reports:
        raise UsageError(
            "no progress of a query that reads logs",
            hint="pass query.lastProgress once it is not None; the first batch after a restart has no report",
        )
    tasks, planned = (
        _summed([_of_count(lost) for lost in losses_of(str(found.get("id")), planned=each)])
        for each in (False, True)
    )
    reported = _summed([_of_source(report) for report in reports])
    return _summed([_with_plan(reported, planned), tasks])


def _report(source: Mapping[str, Any]) -> dict[str, Any] | None:
    """The report of a source of logs; None for other sources."""
    latest = source.get("latestOffset")
    if isinstance(latest, str):
        try:
            latest = json.loads(latest)
        except ValueError:
            return None
    return latest if isinstance(latest, dict) and latest.get("aolog") == 1 else None


def _of_source(report: dict[str, Any]) -> QueryLag:
    behind, lost = report["behind"], report["lost"]
    return QueryLag(
        Lag(behind["records"], behind["bytes"], behind["seconds"]),
        {name: Lag(*found) for name, found in behind["logs"].items()},
        _nonzero(lost["reasons"], _RECORDS),
        _nonzero(lost["reasons"], _UNCOUNTED),
        _by_log(lost["logs"], _RECORDS),
        _by_log(lost["logs"], _UNCOUNTED),
    )


def _by_log(logs: Mapping[str, Mapping[str, list[int]]], which: int) -> _Counts:
    found = {log: _nonzero(counts, which) for log, counts in logs.items()}
    return {log: counts for log, counts in found.items() if counts}


def _nonzero(counts: Mapping[str, list[int]], which: int) -> dict[str, int]:
    return {reason: found[which] for reason, found in counts.items() if found[which]}


def _with_plan(reported: QueryLag, planned: QueryLag) -> QueryLag:
    """planned: as counted on the driver. That includes the losses of the batch of this progress, whose report
    was made before it was planned. reported: includes losses of which no batch has been done yet."""
    return reported._replace(
        lost=_greater_sum(reported.lost, reported.lost_by_log, planned.lost_by_log),
        uncounted=_greater_sum(
            reported.uncounted, reported.uncounted_by_log, planned.uncounted_by_log
        ),
        lost_by_log=_greater(reported.lost_by_log, planned.lost_by_log),
        uncounted_by_log=_greater(reported.uncounted_by_log, planned.uncounted_by_log),
    )


def _greater(one: _Counts, other: _Counts) -> _Counts:
    """The greater one of each count. (A union of Counters.)"""
    return {log: dict(Counter(one.get(log)) | Counter(other.get(log))) for log in {**one, **other}}


def _greater_sum(total: dict[str, int], one: _Counts, other: _Counts) -> dict[str, int]:
    """The sum of `_greater`, and what of the total is not in the first: that has the greatest 100 logs."""
    rest = Counter(total) - Counter(_by_reason(one.values()))
    return dict(rest + Counter(_by_reason(_greater(one, other).values())))


def _of_count(lost: Lost) -> QueryLag:
    of_log = {lost.log: {lost.reason: [lost.records, lost.uncounted]}}
    records, uncounted = _by_log(of_log, _RECORDS), _by_log(of_log, _UNCOUNTED)
    return QueryLag(
        NOTHING, {}, records.get(lost.log, {}), uncounted.get(lost.log, {}), records, uncounted
    )


def _summed(found: list[QueryLag]) -> QueryLag:
    logs: dict[str, Lag] = {}
    for each in found:
        for name, behind in each.logs.items():
            logs[name] = _sum([logs.get(name, NOTHING), behind])
    return QueryLag(
        _sum([each.total for each in found]),
        logs,
        _by_reason([each.lost for each in found]),
        _by_reason([each.uncounted for each in found]),
        _logs_by_reason([each.lost_by_log for each in found]),
        _logs_by_reason([each.uncounted_by_log for each in found]),
    )


def _sum(lags: list[Lag]) -> Lag:
    ages = [each.seconds for each in lags]
    return Lag(
        _known([each.records for each in lags]),
        sum(each.bytes for each in lags),
        None if None in ages else max((age for age in ages if age is not None), default=0.0),
    )


def _known(numbers: list[int | None]) -> int | None:
    """The sum; None if one is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _logs_by_reason(found: Iterable[_Counts]) -> _Counts:
    total: _Counts = {}
    for logs in found:
        for name, counts in logs.items():
            total[name] = _by_reason([total.get(name, {}), counts])
    return total


def _by_reason(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(total)
