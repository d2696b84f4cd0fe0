"""A route's transform: the user's function between the log and Kafka.

    def redact(records: list[aolog.Record]) -> Iterable[aolog.Record]: ...        takes "records"
    def redact(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch: ...           takes "arrow"

It gets the records of a batch that its route matches. It returns them changed, in the same order, and
leaves out those that are not to be sent; the addresses stay. A record that names another topic is routed
by that topic, without another transform. It has to return the same for a record whenever it is called, in
whatever batch: after a crash what arrived is recognised by it.

Where it raises or returns something else, the batch is halved until the record is found. That record is
refused with TRANSFORM_FAILED, as poison; the others go on.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aolog.errors import load_optional
from aolog.read.batch import Batch
from aolog.record import Record
from bridge.config.named_function import load_function
from bridge.config.routing import FILTERED
from bridge.kafka.error_table import TRANSFORM_FAILED
from bridge.kafka.lane import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aolog.read.batch import RecordFrame
    from bridge.config.routing import Routing

_log = logging.getLogger("bridge")


class TransformedBatch(Batch):
    """A batch after its transforms: its records are not those of its frames, but have the same
    addresses, and FILTERED as the topic where they were left out. refusals: by address, of records on
    which a transform failed."""

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


class View:
    """In place of Transforms: one function changes each record, as a replay needs it."""

    filtered = 0

    def __init__(self, one: Callable[[Record], Record]) -> None:
        self.one = one

    def batch(self, batch: Batch) -> Batch:
        """The batch as it is to be sent."""
        return TransformedBatch(batch.frames, list(map(self.one, batch)), {})


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
        for (name, takes_arrow), indices in chosen.items():
            function = _function(name, takes_arrow=takes_arrow)
            changed = _apply(name, function, [records[i] for i in indices], refusals)
            for i, record in zip(indices, changed, strict=True):
                records[i] = record
        self._count(records)
        return TransformedBatch(batch.frames, records, refusals)

    def _count(self, records: list[Record]) -> None:
        counted_to = self._counted_to
        self.filtered += sum(r.topic == FILTERED and r.address >= counted_to for r in records)
        self._counted_to = max(counted_to, records[-1].address + 1)

    def one(self, record: Record) -> Record:
        """A record as it is to be sent."""
        transform = self._routing.transform_of(record.topic)
        if transform is None:
            return record
        function = _function(transform[0], takes_arrow=transform[1])
        return _apply(transform[0], function, [record], {})[0]


def _apply(
    name: str,
    function: Callable[[list[Record]], Sequence[Record]],
    records: list[Record],
    refusals: dict[int, Refusal],
) -> list[Record]:
    """As many records. One on which the function fails stays as it is, with a refusal."""
    try:
        return _aligned(records, function(records))
    except Exception as error:  # noqa: BLE001 -- the user's code may raise anything
        if len(records) > 1:
            middle = len(records) // 2
            first = _apply(name, function, records[:middle], refusals)
            return first + _apply(name, function, records[middle:], refusals)
        address = records[0].address
        _log.debug("transform %s failed at address %d", name, address, exc_info=True)
        # Without the error's text: it may hold the record's contents.
        reason = f"the transform {name} raised {type(error).__name__}"
        refusals[address] = Refusal(reason, TRANSFORM_FAILED)
        return records


def _aligned(records: list[Record], returned: Sequence[Record]) -> list[Record]:
    """One for each of the records, FILTERED where none was returned. Raises ValueError."""
    found: list[Record] = []
    rest = iter(returned)
    record = next(rest, None)
    for before in records:
        if record is not None and record.address == before.address:
            found.append(record)
            record = next(rest, None)
        else:
            found.append(Record(before.address, before.timestamp, None, None, (), FILTERED))
    if record is not None:
        raise ValueError("it returned a record twice, out of order, or of another address")
    return found


@lru_cache
def _function(name: str, *, takes_arrow: bool) -> Callable[[list[Record]], Sequence[Record]]:
    function = load_function(name)
    if not takes_arrow:
        return lambda records: [_checked(record) for record in function(records)]
    arrow: Any = load_optional("bridge.deliver.transform_arrow")
    return lambda records: [
        _checked(record) for record in arrow.to_records(function(arrow.from_records(records)))
    ]


def _checked(record: Record) -> Record:
    """Raises TypeError: what reaches the compiled producer is of the right types."""
    _, timestamp, key, value, headers, topic = record
    right = (
        isinstance(timestamp, int | None)
        and isinstance(key, bytes | None)
        and isinstance(value, bytes | None)
        and isinstance(topic, str | None)
        and all(isinstance(n, str) and isinstance(v, bytes | None) for n, v in headers)
    )
    if not right:
        raise TypeError("a field has the wrong type")
    return record
