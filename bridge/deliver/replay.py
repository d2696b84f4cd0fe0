"""Replay: sends a range of a log, or its dead letters, again.

A range is sent as the bridge sends it, with a cursor of its own, "replay", which is removed when all
of it was acknowledged. Its records carry the same stamps as before. So only what every bridge of the
log has passed may be replayed: later stamps would make a bridge that restarts count the records before
them as delivered.

Dead letters, of a bridge or a Buffer, go to the topics that they were meant for, with their own headers
and an `aolog-origin`. Their stamps are of the dead-letter log, whose cursor "replay" advances as they
are acknowledged. A letter that is refused again stays.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

from aolog import Reader, Record
from aolog.errors import CursorLocked, NoSuchCursor, UsageError
from aolog.log.cursor_file import delete_cursor, read_position
from aolog.storage.storage import Storage
from bridge.config.names import REPLAY, dead_letter_path
from bridge.config.routing import Routing, Rule
from bridge.deliver.dead_letter import ORIGIN, first_dead_letter, read_dead_letter
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.seek import bridge_cursors, forget
from bridge.kafka.stamp import encode_stamp


def replay_range(
    path: str, begin: int, end: int, options: ForwarderOptions, *, topic: str | None
) -> Forwarder:
    """A forwarder that sends [begin, end) and ends. topic: see `route`. Raises UsageError if a bridge has
    not passed the range, CursorLocked if another replay runs."""
    storage = Storage()
    if end <= begin:
        raise UsageError(
            f"no record lies from {begin} (--from) to {end} (--to)",
            hint="give an earlier --from or a later --to",
        )
    for name in bridge_cursors(path, storage):
        if name != REPLAY and (passed := read_position(path, name, storage).address) < end:
            raise UsageError(
                f"bridge {name!r} has passed {passed} only, and not yet {end}",
                hint=f"give --to cursor:{name} (that is {passed}), or wait: it sends the rest itself",
                path=path,
            )
    with Reader(path, begin, cursor=REPLAY) as reader:  # an earlier replay may have left its cursor
        forget(reader, REPLAY, storage, cluster=True)
        reader.seek(begin)
        reader.commit()
    how = replace(options, routing=route(topic, options.routing), cursor=REPLAY, until=end)
    return Forwarder(path, how)


def route(topic: str | None, routing: Routing | None) -> Routing:
    """Where a replay sends records: all to `topic` if it is given, even those that name another;
    otherwise as the routing says, or without one to their own topic or the log's."""
    if topic is not None:
        return Routing(rules=[Rule(topic=topic)])
    return routing or Routing()


def count_by_topic(path: str, begin: int, end: int, routing: Routing) -> dict[str, int]:
    """How many records of [begin, end) a replay would send to each topic; "": to none. Reads the range."""
    counts: Counter[str] = Counter()
    with Reader(path, begin) as reader:
        routing.of_log(reader.topic)
        for record in reader:
            if record.address >= end:
                break
            if (destination := routing.of(record.topic)) is not None:
                counts[destination.topic or ""] += 1
    return counts


def to_another_cluster(path: str, cursor: str) -> None:
    """Lets the next replay of a log's dead letters go to any cluster."""
    with Reader(dead_letters_of(path, cursor), cursor=REPLAY) as reader:
        forget(reader, REPLAY, Storage(), cluster=True)


def finished(path: str) -> None:
    """Removes the cursor of a replay that has ended, so that it no longer protects records."""
    with suppress(CursorLocked, NoSuchCursor):  # another replay has begun, or ended
        delete_cursor(path, REPLAY, Storage())


def dead_letters_of(path: str, cursor: str) -> str:
    """The dead-letter log of a log's bridge, or the path itself if that is one. Raises UsageError without either."""
    storage = Storage()
    dead = dead_letter_path(path, cursor)
    if storage.exists(dead):
        return dead
    if first_dead_letter(path, storage) is None:
        raise UsageError("there are no dead letters", path=path)
    return path


def replay_dead_letters(path: str, options: ForwarderOptions) -> Forwarder:
    """A forwarder that sends the dead letters, of a log's bridge or of a dead-letter log, that were not replayed yet,
    and ends. options: with the bridge's cursor. Raises UsageError if there are none, CursorLocked."""
    dead = dead_letters_of(path, options.cursor)
    first = first_dead_letter(dead, Storage())
    # Records without a key go to the partition that they were meant for.
    keyless = None if first is None else first.origin.topic_uuid
    how = replace(options, cursor=REPLAY, routing=None, drain=True, view=_original, keyless=keyless)
    return Forwarder(dead, how)


def _original(record: Record) -> Record:
    letter = read_dead_letter(record)
    if letter is None:
        return record
    return Record(
        record.address,
        letter.origin.timestamp_us,
        record.key,
        record.value,
        (*letter.headers, (ORIGIN, encode_stamp(*letter.origin))),
        letter.topic or record.topic,
    )
