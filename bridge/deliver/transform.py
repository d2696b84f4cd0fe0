"""A route's transform: the user's function between the log and Kafka.

    def redact(records: list[aolog.Record]) -> Iterable[aolog.Record]: ...        takes "records"
    def redact(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch: ...           takes "arrow"

It gets the records of a batch that its route matches. It returns them changed, in the same order, and
leaves out those that are not to be sent; the addresses stay. A record that names another topic is routed
by that topic, without another transform. It has to return the same for a record whenever it is called, in
whatever batch: after a crash what arrived is recognised by it.

What it returns is input: it is checked as `Writer.append` checks a record, and its topic as Kafka does.
Where it raises or returns something else, the batch is halved until the record is found. That record is
refused with TRANSFORM_FAILED, as poison; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from aolog.errors import load_optional
from aolog.read.batch import Batch, RecordFrame
from aolog.record import Record
from aolog.write.validate import check_record
from bridge.config.names import load_function
from bridge.config.routing import FILTERED, Routing
from bridge.kafka.error_table import TRANSFORM_FAILED
from bridge.kafka.lane import Refusal, is_topic_name

_log = logging.getLogger("bridge")
_END: Any = object()  # after the last record that a transform returned


class TransformedBatch(Batch):
    """A batch after its transforms: other records at the addresses of its frames' records, with FILTERED as the
    topic where they were left out. refusals: by address, of records on which a transform failed."""

    __slots__ = ("_records", "refusals")

    def __init__(
        self, frames: list[RecordFrame], records: list[Record], refusals: dict[int, Refusal]
    ) -> None:
        super().__init__(frames)
        self._records = records
        self.refusals = refusals

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)


def refusals_of(batch: Batch) -> dict[int, Refusal]:
    """Of records on which a transform failed."""
    return batch.refusals if isinstance(batch, TransformedBatch) else {}


class Transforms:
    """The transforms of a log's routes. filtered: records that they left out, each counted once."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self.filtered = 0
        self._counted_to = 0  # a batch may be read again

    def batch(self, batch: Batch) -> Batch:
        """The batch as it is to be sent."""
        records = list(batch)
        chosen: dict[tuple[str, bool], list[int]] = {}
        by_topic: dict[str | None, tuple[str, bool] | None] = {}  # topics recur
        for i, record in enumerate(records):
            if record.topic not in by_topic:
                by_topic[record.topic] = self._routing.transform_of(record.topic)
            if (transform := by_topic[record.topic]) is not None:
                chosen.setdefault(transform, []).append(i)
        refusals: dict[int, Refusal] = {}
        for transform, indices in chosen.items():
            changed = self._apply(transform, [records[i] for i in indices], refusals)
            for i, record in zip(indices, changed, strict=True):
                records[i] = record
        self._count(records)
        return TransformedBatch(batch.frames, records, refusals)

    def _count(self, records: list[Record]) -> None:
        counted_to = self._counted_to
        self.filtered += sum(r.topic == FILTERED and r.address >= counted_to for r in records)
        self._counted_to = max(counted_to, records[-1].address + 1)

    def _apply(
        self, transform: tuple[str, bool], records: list[Record], refusals: dict[int, Refusal]
    ) -> list[Record]:
        """As many records as it gets. One on which the function fails is unchanged, and has a refusal."""
        name, takes_arrow = transform
        function = _function(name, takes_arrow=takes_arrow)
        try:
            return self._aligned(records, function(records.copy()))
        except KeyboardInterrupt:
            raise  # the operator's
        except BaseException as error:  # noqa: BLE001 -- the user's code may raise anything
            if len(records) > 1:
                middle = len(records) // 2
                first = self._apply(transform, records[:middle], refusals)
                return first + self._apply(transform, records[middle:], refusals)
            address = records[0].address
            _log.debug("transform %s failed at address %d", name, address, exc_info=True)
            # Without the error's text: it may hold the record's contents.
            reason = f"the transform {name} raised {type(error).__name__}"
            refusals[address] = Refusal(reason, TRANSFORM_FAILED)
            return records

    def _aligned(self, records: list[Record], returned: Iterable[Record]) -> list[Record]:
        """One for each record, FILTERED where none was returned. Raises ValueError, TypeError, RecordRefused."""
        found: list[Record] = []
        rest = iter(returned)
        record = next(rest, _END)
        for before in records:
            if record is not _END and record.address == before.address:
                found.append(record if record is before else self._checked(record, before))
                record = next(rest, _END)
            else:
                found.append(Record(before.address, before.timestamp, None, None, (), FILTERED))
        if record is not _END:
            raise ValueError("it returned a record twice, out of order, or of another address")
        return found

    def _checked(self, record: Record, before: Record) -> Record:
        """The record as `Writer.append` would take it, at its address and to a topic that Kafka can
        have. Raises TypeError, ValueError, RecordRefused."""
        if not isinstance(record, Record):
            raise TypeError("it returned something else than a Record")
        value, key, headers, timestamp, topic, _ = check_record(
            record.value, record.key, record.headers, record.timestamp, record.topic
        )
        if topic is not None and topic != before.topic:
            to = self._routing.of(topic)
            if topic == FILTERED or (to is not None and not is_topic_name(to.topic or "")):
                raise ValueError("no topic can have this name")
        return Record(before.address, timestamp, key, value, headers, topic)


@lru_cache
def _function(name: str, *, takes_arrow: bool) -> Callable[[list[Record]], Iterable[Record]]:
    function = load_function(name)
    if not takes_arrow:
        return function
    arrow: Any = load_optional("bridge.deliver.transform_arrow")
    return lambda records: arrow.to_records(function(arrow.from_records(records)))
