"""Where a log's delivery resumes: at the cluster's cursor record, or at the local cursor if that is
ahead (it passed addresses without records, or was moved by hand). A cursor record that does not fit
the log is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog import Reader
from aolog.errors import AddressBeyondEnd, AddressPruned, CursorDiverged, CursorForeign
from aolog.log.cursor_file import Position as CursorPosition
from aolog.read.gaps import reported_elsewhere
from aolog.read.reader import resume_at
from bridge.deliver.position import Position

if TYPE_CHECKING:
    from bridge.deliver.log_source import LogSource
    from bridge.kafka.cursor_record import CursorRecord


def resume_position(source: LogSource, record: CursorRecord | None, local: Position) -> Position:
    """local: the committed position, as far as this machine knows. Raises CursorForeign,
    CursorDiverged."""
    if record is None:
        return local
    address, ordinal, uuid, epoch, _, last = record
    reader = source.reader
    try:
        reader.end()  # lists the slabs anew
        cursor = CursorPosition(address, ordinal, uuid, epoch, protects=True)
        resume_at(reader, cursor, kept_outside=True)
        if last is not None and not _has(source, *last, epoch):
            raise CursorDiverged(
                f"at {last[0]} the log has another record than the one that was delivered: "
                "it was restored from a backup",
                path=reader.path,
            )
    except (CursorForeign, CursorDiverged) as error:
        raise type(error)(
            f"the cluster's cursor record does not fit the log: {error}",
            hint="compare both; another --cursor starts from the beginning and sends all again",
            path=reader.path,
        ) from None
    return Position(address, ordinal) if address > local.address else local


def _has(source: LogSource, address: int, timestamp_us: int, epoch: int) -> bool:
    """Whether the log has that record, or lost it with everything that follows in its epoch."""
    with Reader(source.reader.path, on_gap=reported_elsewhere, storage=source.storage) as reader:
        try:
            reader.seek(address)
        except (AddressBeyondEnd, AddressPruned):
            return True
        batch = reader.read_batch(0)
        if batch is None or reader.gaps or batch.frames[0].epoch > epoch:
            return True
        record = next(iter(batch))
        return (record.address, record.timestamp) == (address, timestamp_us)
