"""Where a bridge goes on: its cursor moved by hand, while no bridge runs.

The cursor is half of it. The notes beside it say what each lane holds, and what a lane holds is
not sent again: so whoever goes back to have records sent once more must have the lanes forget.
Records between an old place and a new one further on are never sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aolog import Reader
from aolog.errors import CursorDiverged, CursorForeign, NoSuchCursor, UsageError
from aolog.log.cursor_file import cursor_names, read_position
from aolog.storage.storage import Storage
from bridge.deliver.checkpoints import Checkpoints, checkpoints_path
from bridge.deliver.dead_letter import dead_letter_path, end_of_dead_letters
from bridge.errors import DestinationError
from bridge.kafka.client import NotReachable, Refused
from bridge.kafka.read_back import ReadBack

if TYPE_CHECKING:
    from aolog import Gap
    from aolog.read.reader import Start

__all__ = ["Moved", "address_in_kafka", "bridge_cursors", "forget", "place", "seek"]

_KAFKA = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})"
)
_PURPOSE = "the header of the record there says its address"


class Moved(NamedTuple):
    """What a seek did, or would do. before: None if the cursor is a new one. forgot: whether
    what lies in the destination will be sent again. records: between where it was (the log's
    beginning, if it is new) and the address; None where the log does not count them.
    forgot_cluster: which one it is of."""

    cursor: str
    before: int | None
    address: int
    forgot: bool
    done: bool
    records: int | None = None
    forgot_cluster: bool = False


def bridge_cursors(path: str, storage: Storage) -> list[str]:
    """Names of the cursors of a log that a bridge has used."""
    return [n for n in cursor_names(path, storage) if storage.exists(checkpoints_path(path, n))]


def address_in_kafka(
    path: str, where: str, cursor: str, bootstrap_servers: str, settings: dict[str, str]
) -> int:
    """The address of the record at TOPIC/PARTITION@OFFSET. Raises UsageError if that is not how
    it is written, or no record of this log is there; DestinationError if nobody answers."""
    match = _KAFKA.fullmatch(where)
    if match is None:
        raise UsageError(f"{where!r} is not TOPIC/PARTITION@OFFSET")
    lane, offset = (match["topic"], int(match["partition"])), int(match["offset"])
    if lane[1] >= 2**31 or offset >= 2**63:  # as Kafka counts them
        raise UsageError(f"{where!r} is not TOPIC/PARTITION@OFFSET")
    with Reader(path) as reader:
        notes = Checkpoints.of(reader, cursor, Storage())
    looking = ReadBack({"bootstrap.servers": bootstrap_servers, **settings}, bool, purpose=_PURPOSE)
    try:
        stamp = looking.stamp_at(lane, offset)
    except NotReachable as error:
        hint = "grant Read on the topic" if isinstance(error, Refused) else "try again later"
        raise DestinationError(f"{where} at {bootstrap_servers}: {error}", hint=hint) from error
    finally:
        looking.close()
    if stamp is None or stamp.topic_uuid != notes.source:
        raise UsageError(
            f"no record of this log is at {where}",
            hint="the header aolog of a message says which log it came from",
            path=path,
        )
    return stamp.address


def place(path: str, start: Start, ordinal: int | None = None) -> int:
    """The address of a place in a log, as Reader takes it; of the earliest, its first record's,
    unless a gap is before it, which the bridge is to meet. Raises what Reader raises."""
    gaps: list[Gap] = []
    with Reader(path, "earliest" if ordinal is not None else start, on_gap=gaps.append) as reader:
        if ordinal is not None:
            return reader.seek(ordinal=ordinal)
        begin = reader.tell()
        first = reader.read() if start == "earliest" else None
        return begin if first is None or gaps else first.address


def seek(
    path: str,
    address: int | None,
    *,
    cursor: str,
    only_missing: bool = False,
    forget_cluster: bool = False,
    dry_run: bool = False,
) -> Moved:
    """Moves a bridge's cursor, if there is an address; durable on return. Going back, the lanes
    forget what they hold, unless only what is missing in the destination is to be sent.
    forget_cluster: they do, and the cursor may go to another cluster (see identity).

    Raises CursorLocked while a bridge runs, NoSuchCursor, and what Reader raises.
    """
    storage = Storage()
    if address is None:
        address = read_position(path, cursor, storage).address
    try:
        before, passed = read_position(path, cursor, storage)[:2]
    except NoSuchCursor:
        with Reader(path) as earliest:
            before, passed = None, earliest.ordinal
    back = before is not None and address < before
    forgets = back and not only_missing
    with _held(path, address, cursor) as reader:
        if not dry_run:
            if forgets or forget_cluster or before is None:
                # First: with the cursor moved they would hold.
                forget(reader, cursor, storage, cluster=forget_cluster)
            reader.seek(address)
            reader.commit()
    with Reader(path, address) as there:
        at = there.ordinal
        records = None if at is None or passed is None else abs(at - passed)
    return Moved(cursor, before, address, forgets, not dry_run, records, forget_cluster)


def _held(path: str, address: int, cursor: str) -> Reader:
    try:
        return Reader(path, address, cursor=cursor)
    except (CursorForeign, CursorDiverged) as error:
        raise UsageError(
            f"the cursor is of another log, or of another course of this one: {error.reason}",
            hint="set it anew with `aolog cursor set`",
            path=path,
        ) from error


def forget(reader: Reader, cursor: str, storage: Storage, *, cluster: bool) -> None:
    """The lanes of a cursor hold nothing, as far as its notes say, and they are of no cluster if
    that too is to be forgotten; durable on return. To be called by who holds the cursor."""
    notes = Checkpoints.of(reader, cursor, storage)
    if cluster:  # what the one refused another may take
        notes.cluster.forget()
        notes.aside_from = end_of_dead_letters(dead_letter_path(reader.path, cursor), storage)
    notes.lanes.clear()
    notes.lost = False
    notes.save()
