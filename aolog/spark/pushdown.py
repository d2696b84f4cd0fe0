"""Filters that a log can look up: they choose logs, addresses, slabs and frames before records are
decoded, and drop the rows of what is left.

A condition is one term of a conjunction, on one of the columns below. It is evaluated as Spark would:
a comparison with null is null, and only rows for which it is true are kept. What a condition cannot
express stays with Spark. Damage in what the conditions exclude is not read, so it is not reported.

    log              chooses logs
    offset           narrows the range of addresses
    timestamp        skips slabs by their seals (least and greatest timestamp), and frames
    topic            skips frames that have one topic
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from aolog.errors import AologError
from aolog.format.slab import NO_TIMESTAMP
from aolog.log.directory import Log
from aolog.read import seek
from aolog.spark.planning import Span
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.read.batch import RecordFrame

_KINDS = {
    "log": pa.string(), "topic": pa.string(),
    "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip  # a table
# Names of pyarrow.compute's functions: loading it takes a read without conditions as long as planning.
_ORDERS = {
    "EqualTo": "equal", "LessThan": "less", "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater", "GreaterThanOrEqual": "greater_equal",
}  # fmt: skip  # a table
_PARTS = {
    "StringStartsWith": "starts_with", "StringEndsWith": "ends_with",
    "StringContains": "match_substring",
}  # fmt: skip  # a table
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class Condition(NamedTuple):
    """A term on a column. test: the name of Spark's filter. value: what it compares with, timestamps in
    microseconds; of In, a tuple; None of tests without one. negated: whether Not is around it."""

    column: str
    test: str
    value: Any = None
    negated: bool = False

    def __str__(self) -> str:
        """As Spark shows pushed filters."""
        inner = ",".join(map(str, (self.column, self.value)[: 1 + (self.value is not None)]))
        return f"Not({self.test}({inner}))" if self.negated else f"{self.test}({inner})"


def condition_of(column: str, test: str, value: Any, *, negated: bool = False) -> Condition | None:
    """The condition with these parts of a filter of Spark's; None if it has to stay with Spark."""
    kind = _KINDS.get(column)
    if kind is None:
        return None
    if test in {"IsNull", "IsNotNull"}:
        return Condition(column, test, None, negated)
    if test == "EqualNullSafe":
        if value is None:
            return Condition(column, "IsNull", None, negated)
    elif test == "In":
        values = tuple(_value(kind, each) for each in value)
        return None if None in values else Condition(column, test, values, negated)
    elif test not in (_PARTS if kind == pa.string() else _ORDERS) and test != "EqualTo":
        return None
    known = _value(kind, value)
    return None if known is None else Condition(column, test, known, negated)


def _value(kind: pa.DataType, value: Any) -> Any:
    """None for a value that the column cannot have."""
    if kind == pa.string():
        return value if isinstance(value, str) else None
    if pa.types.is_timestamp(kind) and isinstance(value, datetime):
        return None if value.tzinfo is None else seek.microseconds(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and _LEAST <= value <= _GREATEST else None


def condition_of_filter(given: Any) -> Condition | None:
    """The condition of a filter of `pyspark.sql.datasource`."""
    test = type(given).__name__
    if test == "Not":
        inner = condition_of_filter(given.child)
        return None if inner is None else inner._replace(negated=not inner.negated)
    column = given.attribute
    return None if len(column) > 1 else condition_of(column[0], test, getattr(given, "value", None))


# --- rows -----------------------------------------------------------------------------------


def _passes(condition: Condition, column: pa.Array) -> pa.Array:
    """For each entry true, false, or null."""
    import pyarrow.compute as pc

    _, test, value, negated = condition
    kind = _KINDS[condition.column]
    if test in {"IsNull", "IsNotNull"}:
        found = pc.is_null(column) if test == "IsNull" else pc.is_valid(column)
    elif test == "In":
        found = pc.is_in(column, value_set=pa.array(value, kind))
        found = pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    elif test == "EqualNullSafe":
        found = pc.equal(column, pa.scalar(value, kind)).fill_null(False)
    elif test in _ORDERS:
        found = getattr(pc, _ORDERS[test])(column, pa.scalar(value, kind))
    else:
        found = getattr(pc, _PARTS[test])(column, pattern=value)
    return pc.invert(found) if negated else found


def keep_rows(batch: pa.RecordBatch, conditions: Iterable[Condition]) -> pa.RecordBatch:
    """The rows for which all conditions on columns of the batch are true."""
    for condition in conditions:
        if condition.column in batch.schema.names:
            passes = _passes(condition, batch.column(condition.column))
            if passes.true_count < batch.num_rows:
                batch = batch.filter(passes)
    return batch


def _holds(condition: Condition, value: str | None) -> bool:
    return _passes(condition, pa.array([value], _KINDS[condition.column]))[0].as_py() is True


# --- frames ---------------------------------------------------------------------------------


class Frames:
    """Which frames of a log may have rows for which the conditions hold. topic: the log's default."""

    def __init__(self, conditions: Iterable[Condition], topic: str | None) -> None:
        self._since, self._until = bounds(conditions, "timestamp")
        self._on_topic = [each for each in conditions if each.column == "topic"]
        self._on_time = any(each.column == "timestamp" for each in conditions)
        self._topic = topic
        self._topics: dict[str | None, bool] = {}

    def may_hold(self, frame: RecordFrame) -> bool:
        """Whether a record of the frame may pass."""
        columns, stamp = frame.columns, frame.timestamp_us
        if self._on_time and stamp is not None and stamp != NO_TIMESTAMP:
            if stamp < self._since:  # its greatest
                return False
            if columns.timestamps is None and stamp > self._until:
                return False
        if not self._on_topic or columns.topics is not None:
            return True
        topic = self._topic if columns.topic is None else columns.topic
        if topic not in self._topics:
            self._topics[topic] = all(_holds(each, topic) for each in self._on_topic)
        return self._topics[topic]


# --- logs, addresses, slabs -----------------------------------------------------------------


def bounds(conditions: Iterable[Condition], column: str) -> tuple[int, int]:
    """The least and the greatest value for which the conditions on the column can hold; the whole range
    if they say nothing about it."""
    least, greatest = _LEAST, _GREATEST
    for name, test, value, negated in conditions:
        if name != column or negated:
            continue
        if test in {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}:
            least = max(least, value + (test == "GreaterThan"))
        if test in {"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"}:
            greatest = min(greatest, value - (test == "LessThan"))
        if test == "In":
            least = max(least, min(value, default=_GREATEST))
            greatest = min(greatest, max(value, default=_LEAST))
    return least, greatest


def narrowed(spans: Iterable[Span], conditions: list[Condition]) -> list[Span]:
    """What is left of the spans: all records for which the conditions hold, and others; and all losses of
    which one may have been. A log may have several spans."""
    on_log = [each for each in conditions if each.column == "log"]
    least, greatest = bounds(conditions, "offset")
    times = bounds(conditions, "timestamp")
    found: list[Span] = []
    for span in spans:
        log = span.log
        if not all(_holds(each, log.name) for each in on_log):
            continue
        if span.lost is not None:
            found += [span] if span.lost.begin <= greatest and span.lost.end > least else []
            continue
        since, until = max(span.since, least), min(span.until, greatest + 1)
        if since < until:
            cut = _cut(span, since, until)
            is_whole = times == (_LEAST, _GREATEST) or not log.has_headers
            found += [cut] if is_whole else _in_time(cut, *times)
    return found


def _cut(span: Span, since: int, until: int) -> Span:
    return Span(span.log, since, until, span.ordinal if since == span.since else None)


def _in_time(span: Span, least_us: int, greatest_us: int) -> list[Span]:
    """The parts of the span whose slabs may have records of these times; a slab without a seal may."""

    def parts(log: Log) -> list[Span]:
        begin, until = max(span.since, seek.at_time(log, least_us).address), span.until
        if begin >= until or least_us > greatest_us:
            return []
        found: list[Span] = []
        bases = [base for base in span.log.bases if begin < base < until]
        for low, high in pairwise([begin, *bases, until]):
            if not _may_hold(log, low, least_us, greatest_us):
                continue
            if found and found[-1].until == low:
                found[-1] = found[-1]._replace(until=high)
            else:
                found.append(_cut(span, low, high))
        return found

    try:
        with Log(span.log.path, Storage()) as log:
            return log.listed(partial(parts, log))
    except AologError:  # the task that reads it reports the error
        return [span]


def _may_hold(log: Log, address: int, least_us: int, greatest_us: int) -> bool:
    """Whether the slab with this address may have records of these times."""
    index = log.index_of(address)
    seal = log.slab(index).seal() if index >= 0 else None
    return seal is None or (seal.least_us <= greatest_us and seal.greatest_us >= least_us)
