"""Sending again: a range of a log, or its dead letters.

A range goes out as the bridge sends it, under a cursor of its own, "replay", which is removed
when all of it was acknowledged. Its records carry the same stamps as before, so only what every
bridge of the log has passed may be replayed: stamps further on would make a bridge that restarts
take what lies before them for delivered.

Dead letters, of a bridge or a Buffer, go to the topics that they were meant for, with the headers
that they had, and an `aolog-origin`; their stamps are those of the dead-letter log, whose cursor
"replay" advances as they are acknowledged. What is refused again stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog import Reader, Record
from aolog.errors import UsageError
from aolog.log.cursor_file import read_position
from aolog.log.names import cursor_path
from aolog.storage.storage import Storage
from bridge.config.names import REPLAY
from bridge.config.routing import Routing, Rule
from bridge.deliver.checkpoints import checkpoints_path
from bridge.deliver.dead_letter import ORIGIN, dead_letter_path, first_dead_letter, read_dead_letter
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.seek import bridge_cursors, forget
from bridge.kafka.origin import encode_stamp

if TYPE_CHECKING:
    from bridge.deliver.position import Poison

__all__ = [
    "count_by_topic",
    "dead_letters_of",
    "finished",
    "replay_dead_letters",
    "replay_range",
    "route",
    "to_another_cluster",
]


def replay_range(
    path: str,
    begin: int,
    end: int,
    *,
    topic: str | None,
    routing: Routing | None = None,
    poison: Poison = "stop",
    **options: Any,
) -> Forwarder:
    """A forwarder that sends [begin, end) again and ends. topic, routing: see `route`. options: of
    Forwarder. Raises UsageError where a bridge has not passed the range, CursorLocked where a
    replay runs."""
    storage = Storage()
    if end <= begin:
        raise UsageError(f"nothing lies from {begin} to {end}", hint="give --from before --to")
    for name in bridge_cursors(path, storage):
        if name != REPLAY and (stands := read_position(path, name, storage).address) < end:
            raise UsageError(
                f"bridge {name!r} has passed {stands} only, and not yet {end}",
                hint="replay what it has passed; it sends the rest itself",
                path=path,
            )
    with Reader(path, begin, cursor=REPLAY) as reader:  # what an earlier one left is begun anew
        forget(reader, REPLAY, storage, cluster=True)
        reader.seek(begin)
        reader.commit()
    return Forwarder(
        path, routing=route(topic, routing), cursor=REPLAY, until=end, poison=poison, **options
    )


def route(topic: str | None, routing: Routing | None = None) -> Routing:
    """Where a replay sends records: all to `topic` if one is given, also those that name a topic of
    their own; otherwise where the routing sends them (without one, to their own topic or the
    log's)."""
    if topic is not None:
        return Routing(rules=[Rule(topic=topic)])
    return routing or Routing()


def count_by_topic(path: str, begin: int, end: int, routing: Routing) -> dict[str, int]:
    """How many records of [begin, end) a replay would send to each topic; "" holds those that no
    topic can be found for. Reads the range."""
    counts: dict[str, int] = {}
    with Reader(path, begin) as reader:
        routing.of_log(reader.topic)
        for record in reader:
            if record.address >= end:
                break
            if (destination := routing.of(record.topic)) is not None:
                topic = destination.topic or ""
                counts[topic] = counts.get(topic, 0) + 1
    return counts


def to_another_cluster(path: str, cursor: str) -> None:
    """What was replayed of a log's dead letters went elsewhere: the rest may go to any cluster."""
    storage = Storage()
    dead = dead_letters_of(path, cursor)
    with Reader(dead, cursor=REPLAY) as reader:
        forget(reader, REPLAY, storage, cluster=True)


def finished(path: str) -> None:
    """Removes the cursor of a replay that has ended, so that it protects nothing any more."""
    storage = Storage()
    for each in (cursor_path(path, REPLAY), checkpoints_path(path, REPLAY)):
        if storage.exists(each):
            storage.unlink(each)


def dead_letters_of(path: str, cursor: str = "bridge") -> str:
    """The dead-letter log of a log's bridge, or the path itself where that is one. Raises
    UsageError if there is neither."""
    storage = Storage()
    dead = dead_letter_path(path, cursor)
    if storage.exists(dead):
        return dead
    if first_dead_letter(path, storage) is None:
        raise UsageError("there are no dead letters", path=path)
    return path


def replay_dead_letters(
    path: str, *, cursor: str = "bridge", poison: Poison = "stop", **options: Any
) -> Forwarder:
    """A forwarder that sends the dead letters of a log's bridge, or of a dead-letter log, that
    were not sent again yet, and ends. Raises UsageError if there are none, CursorLocked where
    another does."""
    dead = dead_letters_of(path, cursor)
    first = first_dead_letter(dead, Storage())
    return Forwarder(
        dead,
        topic=None,
        cursor=REPLAY,
        drain=True,
        poison=poison,
        view=_as_it_was,
        keyless=None if first is None else first.origin.topic_uuid,  # as it would have gone
        **options,
    )


def _as_it_was(record: Record) -> Record:
    letter = read_dead_letter(record)
    if letter is None:
        return record
    origin = encode_stamp(*letter.origin)
    return Record(
        record.address,
        letter.origin.timestamp_us if letter.origin.timestamp_us is not None else record.timestamp,
        record.key,
        record.value,
        (*letter.headers, (ORIGIN, origin)),
        letter.topic or record.topic,
    )
