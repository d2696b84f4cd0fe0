"""`lag`: the loss and the lag of a query, from its progress. Needs no Spark.

The reader of a stream puts them into `latestOffset` (backlog.py), the only part of a progress that a
source in Python can write. On the driver, what tasks skipped is added (skipped.py).
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


class QueryLag(NamedTuple):
    """What a query has not read, and what it has lost.

    total: of all logs, after the batch of this progress. logs: by name, the furthest behind first, at
    most 100. lost: records by reason (as of `aolog.Gap`), as far as they could be counted, since the
    query was started, in tasks since `register`. uncounted: losses by reason without a number of
    records. lost_by_log: records by log and reason, at most 100 logs."""

    total: Lag
    logs: dict[str, Lag]
    lost: dict[str, int]
    uncounted: dict[str, int]
    lost_by_log: dict[str, dict[str, int]]


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
    of_tasks = losses_of(str(found.get("id")))
    return _summed([*(_of_source(report) for report in reports), *map(_of_task, of_tasks)])


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
    reasons = lost["reasons"].items()
    return QueryLag(
        total=Lag(behind["records"], behind["bytes"], behind["seconds"]),
        logs={name: Lag(*found) for name, found in behind["logs"].items()},
        lost={reason: records for reason, (records, _) in reasons if records},
        uncounted={reason: losses for reason, (_, losses) in reasons if losses},
        lost_by_log={
            log: {reason: records for reason, (records, _) in found.items() if records}
            for log, found in lost["logs"].items()
        },
    )


def _of_task(lost: Lost) -> QueryLag:
    counts = {lost.reason: lost.records} if lost.records else {}
    uncounted = {lost.reason: lost.uncounted} if lost.uncounted else {}
    return QueryLag(NOTHING, {}, counts, uncounted, {lost.log: counts} if counts else {})


def _summed(found: list[QueryLag]) -> QueryLag:
    logs: dict[str, Lag] = {}
    by_log: dict[str, dict[str, int]] = {}
    for each in found:
        for name, behind in each.logs.items():
            logs[name] = _sum([logs.get(name, NOTHING), behind])
        for name, lost in each.lost_by_log.items():
            by_log[name] = _by_reason([by_log.get(name, {}), lost])
    return QueryLag(
        _sum([each.total for each in found]),
        logs,
        _by_reason([each.lost for each in found]),
        _by_reason([each.uncounted for each in found]),
        by_log,
    )


def _sum(lags: list[Lag]) -> Lag:
    ages = [each.seconds for each in lags]
    return Lag(
        _known([each.records for each in lags]),
        sum(each.bytes for each in lags),
        None if None in ages else max(age for age in ages if age is not None),
    )


def _known(numbers: list[int | None]) -> int | None:
    """The sum; None if one is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _by_reason(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(total)
