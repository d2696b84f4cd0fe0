"""Seek: moves a bridge's cursor by hand, while no bridge runs.

The checkpoints beside the cursor say what each lane holds, and that is not sent again. So going back
clears them as well, unless only missing records are to be sent. Going forward skips records: they are
never sent.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from aolog import Gap, Reader
from aolog.errors import NoSuchCursor, UsageError
from aolog.log.cursor_file import cursor_names, read_position
from aolog.storage.storage import Storage
from bridge.config.names import dead_letter_path
from bridge.deliver.checkpoints import Checkpoints, checkpoints_path
from bridge.deliver.dead_letter import end_of_dead_letters
from bridge.errors import DestinationError, ReadForbidden, Unanswered
from bridge.kafka.consumed import stamp_of
from bridge.kafka.read_back import ReadBack

if TYPE_CHECKING:
    from aolog.read.start import Where
    from bridge.deliver.forwarder_options import ForwarderOptions

_KAFKA = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})"
)
_PURPOSE = "the header of the record there says its address"


class Moved(NamedTuple):
    """What a seek did, or would do."""

    cursor: str
    before: int | None  # the old address; None if the cursor is new
    address: int
    forgot: bool  # records that are in the destination will be sent again
    done: bool
    records: int | None = None  # between old (or the beginning) and new; None: not counted
    forgot_cluster: bool = False  # the cursor may be used with another cluster


def bridge_cursors(path: str, storage: Storage) -> list[str]:
    """The cursors of a log that a bridge has used."""
    return [n for n in cursor_names(path, storage) if storage.exists(checkpoints_path(path, n))]


def address_in_kafka(path: str, where: str, options: ForwarderOptions) -> int:
    """The address of the record at TOPIC/PARTITION@OFFSET. Raises UsageError for other text, or if no
    record of this log is there; DestinationError if the cluster does not answer."""
    match = _KAFKA.fullmatch(where)
    # Kafka's limits: the client takes no larger numbers.
    if match is None or int(match["partition"]) >= 2**31 or int(match["offset"]) >= 2**63:
        raise UsageError(f"{where!r} is not TOPIC/PARTITION@OFFSET")
    with Reader(path) as log:
        source = Checkpoints.load(log.path, options.cursor, Storage(), log.topic_uuid).source
    servers = options.bootstrap_servers
    settings = {"bootstrap.servers": servers, **options.settings}
    lane = match["topic"], int(match["partition"])
    try:
        with closing(ReadBack(settings, bool, purpose=_PURPOSE)) as reader:
            message = reader.message_from(lane, int(match["offset"]))
    except Unanswered as error:
        hint = "grant Read on the topic" if isinstance(error, ReadForbidden) else "try again later"
        raise DestinationError(f"{where} at {servers}: {error}", hint=hint) from error
    stamp = None if message is None else stamp_of(message)
    if stamp is None or stamp.topic_uuid != source:
        raise UsageError(
            f"no record of this log is at {where}",
            hint="the header aolog of a message says which log it came from",
            path=path,
        )
    return stamp.address


def place(path: str, where: Where) -> int:
    """The address of a position in a log. The earliest is the first record, unless a gap is before it,
    which the bridge is to count. Raises what Reader raises."""
    gaps: list[Gap] = []
    with where.open(path, on_gap=gaps.append) as reader:
        begin = reader.tell()
        first = reader.read() if where == ("earliest", None) else None
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
    """Moves a bridge's cursor; durable on return. address: None leaves it where it is. Going back
    clears the checkpoints, unless only_missing: then only records that are missing in the destination
    are sent. forget_cluster: clears them too, and the cursor may be used with another cluster (see
    bridge.kafka.identity).

    Raises CursorLocked while a bridge runs, NoSuchCursor, and what Reader raises."""
    storage = Storage()
    with Reader(path, "earliest" if address is None else address, cursor=cursor) as reader:
        # The reader holds the cursor: a bridge has ended, and moves it no more.
        try:
            before, passed = read_position(path, cursor, storage)[:2]
        except NoSuchCursor:
            if address is None:
                raise
            with Reader(path) as earliest:
                before, passed = None, earliest.ordinal
        if address is None:
            assert before is not None
            address = before
        back = before is not None and address < before
        forgets = back and not only_missing
        reader.seek(address)  # nothing is forgotten for a place that is refused
        if not dry_run:
            if forgets or forget_cluster or before is None:
                # First: a crash between the two must not leave them with the moved cursor.
                forget(reader, cursor, storage, cluster=forget_cluster)
            reader.commit()
    with Reader(path, address) as there:
        at = there.ordinal
        records = None if at is None or passed is None else abs(at - passed)
    return Moved(cursor, before, address, forgets, not dry_run, records, forget_cluster)


def forget(reader: Reader, cursor: str, storage: Storage, *, cluster: bool) -> None:
    """Clears the checkpoints of a cursor that the reader holds; durable on return. cluster: forgets that, too."""
    checkpoints = Checkpoints.load(reader.path, cursor, storage, reader.topic_uuid)
    if cluster:  # another cluster may take what this one refused
        checkpoints.cluster.forget()
        dead_letters = dead_letter_path(reader.path, cursor)
        checkpoints.aside_from = end_of_dead_letters(dead_letters, storage)
    checkpoints.forget_lanes()
    checkpoints.save()
