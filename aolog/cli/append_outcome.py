"""The outcome of `aolog append`: how many records it took."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from aolog.cli.output import out, tell_pruned, to_stderr
from aolog.errors import AddressPruned, AologError, counted
from aolog.log.pruned_records import pruned_to_json
from aolog.read.reader import Reader

if TYPE_CHECKING:
    from signal import Signals

    from aolog.write.writer import Writer


@dataclass(slots=True)
class Tally:
    """Counts the records that the writer took. The fields are members of the JSON."""

    records: int = 0
    bytes: int = 0
    first_address: int | None = None
    last_address: int | None = None
    null_keys: int = 0
    null_topics: int = 0
    unusable_timestamps: int = 0
    unappended_bytes: int = 0

    def add(self, address: int, size: int) -> None:
        """Counts one record."""
        if self.first_address is None:
            self.first_address = address
        self.last_address = address
        self.records += 1
        self.bytes += size


def _deleted(log: str, tally: Tally) -> int | None:
    """How many records of the run retention has deleted; None if this is unknown. Other writers may
    have appended since."""
    if tally.last_address is None:
        return 0
    try:
        with Reader(log) as reader:
            if reader.tell() <= (tally.first_address or 0):
                return 0
            first = reader.ordinal
            reader.seek(tally.last_address)
            last = reader.ordinal
    except AddressPruned:
        return tally.records
    except AologError:
        return None
    if first is None or last is None:
        return None
    return max(0, tally.records - (last + 1 - first))


def print_outcome(
    log: str,
    tally: Tally,
    writer: Writer,
    stopped_by: Signals | None,
    *,
    bounded: bool,
    as_json: bool,
) -> None:
    """Prints the outcome of a run without an error, after the writer is closed. bounded: retention may
    have deleted records of the run."""
    deleted = _deleted(log, tally) if bounded else 0
    if as_json:
        out.json(
            {
                "log": log,
                **asdict(tally),
                "deleted": deleted,
                "durable": writer.durable,
                "pruned_unread": pruned_to_json(writer.pruned_unread),
                "stopped_by": stopped_by.name if stopped_by else None,
            }
        )
        return
    first, last = tally.first_address, tally.last_address
    where = "" if first is None else f"addresses {first}..{last}, "
    text = f"{counted(tally.records, 'record')}, {counted(tally.bytes, 'byte')}, {where}durable"
    if deleted:
        why = "" if writer.pruned_unread else ": no cursor needs them"
        text += f"; retention has deleted {deleted} of them already{why}"
    for count, what in (
        (tally.null_keys, "without a key"),
        (tally.null_topics, "without a topic of their own"),
        (tally.unusable_timestamps, "without a usable timestamp (they carry the time of append)"),
    ):
        text += f"; {count} {what}" if count else ""
    if tally.unappended_bytes:
        text += f"; {counted(tally.unappended_bytes, 'byte')} read but not appended"
    to_stderr(text if stopped_by is None else f"stopped by {stopped_by.name}: {text}")
    tell_pruned(writer.pruned_unread)
