"""Sends each row of a task to the log that it names: batches in, pending slabs out.

A batch is sorted by log at once; nothing handles rows one by one. A batch may hold few rows for a log,
so they wait until they fill a frame. The waiting bytes and the open slabs are bounded. A row with a `gap`
is no record: it says that records are lost there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from aolog.errors import StorageError, UsageError
from aolog.publish.pending import FRAME_BYTES, PendingLog, PendingSlab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.spark.sink_options import SinkOptions
    from aolog.storage.storage import Storage

_TAKEN = ("value", "key", "headers", "timestamp", "topic", "gap")
_WAITING_BYTES = 64 << 20  # of batches with waiting rows; a whole batch stays in memory for them
_OPEN_SLABS_MAX = 128  # each holds a descriptor; with more logs slabs become smaller


def _at_gaps(rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, dict[str, Any] | None]]:
    """Runs of records, without the column `gap`, each with the gap after it."""
    if "gap" not in rows.schema.names:
        yield rows, None
        return
    gaps = rows.column("gap")
    records = rows.drop_columns(["gap"])
    begin = 0
    for i in pc.indices_nonzero(gaps.is_valid()).to_pylist():
        yield records.slice(begin, i - begin), gaps[i].as_py()
        begin = i + 1
    yield records.slice(begin), None


class Router:
    """The slabs of one task. `finish` closes it; so does `discard`, which a `with` block calls if it
    raises. Not thread-safe."""

    def __init__(self, options: SinkOptions, job: str, storage: Storage | None = None) -> None:
        self._options = options
        self._job = job
        self._storage = storage
        self._logs: dict[str, PendingLog] = {}  # in the order of last use
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._kept_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes Spark's rows. Raises UsageError for an invalid log name, RecordRefused, RecordTooLarge,
        StorageError; then call `discard`."""
        for log, rows in self._by_log(batch):
            for records, gap in _at_gaps(rows):
                if records.num_rows:
                    self._add(log, records)
                if gap is not None:
                    self._drain(log).add_loss(gap["recordsLost"])
        self._kept_bytes += batch.nbytes
        if self._kept_bytes >= _WAITING_BYTES:
            self._drain_all()

    def _add(self, log: str, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(log, []).append(rows)
        size = self._waiting_bytes.get(log, 0) + rows.nbytes
        self._waiting_bytes[log] = size
        if size >= FRAME_BYTES:
            self._drain(log)

    def _by_log(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        names = batch.schema.names
        rows = pa.RecordBatch.from_arrays(
            [batch.column(names.index(name)) for name in _TAKEN if name in names],
            names=[name for name in _TAKEN if name in names],
        )
        if self._options.topic is not None:
            topics = pa.repeat(pa.scalar(self._options.topic, pa.string()), batch.num_rows)
            columns = {name: rows.column(name) for name in rows.schema.names}
            rows = pa.RecordBatch.from_pydict(columns | {"topic": topics})
        if batch.num_rows == 0:
            return
        if "log" not in names:
            yield self._options.log, rows
            return
        column = pc.fill_null(batch.column(names.index("log")).cast(pa.string()), self._options.log)
        coded = column.dictionary_encode()
        logs = coded.dictionary.to_pylist()
        if len(logs) == 1:
            yield logs[0], rows
            return
        order = pc.sort_indices(coded.indices)  # stable
        ordered = rows.take(order)
        begin = 0
        for count in pc.value_counts(coded.indices.take(order)).to_pylist():
            end = begin + count["counts"]
            yield logs[count["values"]], ordered.slice(begin, end - begin)
            begin = end

    def _drain(self, log: str) -> PendingLog:
        """Passes the waiting rows on."""
        batches = self._waiting.pop(log, [])
        self._waiting_bytes.pop(log, None)
        pending = self._logs.get(log)
        if pending is None or not pending.is_open:
            self._close_one()
        pending = pending or self._new(log)
        self._logs.pop(log, None)
        self._logs[log] = pending
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        for batch in batches:
            pending.append_arrow(batch)
        return pending

    def _drain_all(self) -> None:
        for log in list(self._waiting):
            self._drain(log)
        self._kept_bytes = 0

    def _close_one(self) -> None:
        opened = [pending for pending in self._logs.values() if pending.is_open]
        if len(opened) >= _OPEN_SLABS_MAX:
            opened[0].seal()

    def _new(self, log: str) -> PendingLog:
        root, writer = self._options.root, self._options.writer
        try:
            return PendingLog(root, log, self._job, writer, storage=self._storage)
        except UsageError as error:
            raise UsageError(f"column log: {error.reason}", hint=error.hint) from None

    def finish(self) -> list[PendingSlab]:
        """All slabs are sealed and durable on return. Raises as `write`."""
        self._drain_all()
        return [slab for pending in self._logs.values() for slab in pending.finish()]

    def discard(self) -> None:
        """Removes the slabs. A file that cannot be removed stays as a leftover."""
        for pending in self._logs.values():
            with suppress(StorageError):
                pending.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.discard()
