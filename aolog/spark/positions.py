"""Where a stream is in its logs, and the form in which Spark stores it: JSON `{name: [address, uuid,
ended, ordinal]}`, and `closed` if it is true, with sorted keys, because Spark compares the text. Older
checkpoints have fewer fields.

A log's name depends on what is loaded, so a log is recognised by its UUID; by its name only if a UUID is
unknown, as without headers.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aolog.errors import AologError
from aolog.log.directory import Log
from aolog.read.seek import at_address
from aolog.record import count_between
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.spark.listing import Listed

Offset = dict[str, Any]  # in the form that Spark stores


class LogPosition(NamedTuple):
    """A log was read up to the address. uuid: as in Listed. ended: the log is away, and all of it was
    read, or its loss was reported. ordinal: records of the log before the address; None if unknown,
    as without headers. closed: when a batch ended here, no record was after it, and the log's writer had
    closed it."""

    address: int
    uuid: str | None = None
    ended: bool = False
    ordinal: int | None = None
    closed: bool = False

    def is_in(self, uuid: str | None) -> bool:
        """Whether a log with this UUID is the log that was read. True if either UUID is unknown."""
        return None in {self.uuid, uuid} or self.uuid == uuid


def position_in(
    log: Listed, address: int, ordinal: int | None = None, before: LogPosition | None = None
) -> LogPosition:
    """An address of this log. ordinal: at the address, if the caller knows it. before: an earlier
    position, whose UUID counts if the log's is unknown now."""
    if ordinal is None and address == log.end:
        ordinal = log.ordinal
    elif ordinal is None and address == 0 and log.has_headers:
        ordinal = 0
    return LogPosition(address, log.uuid or (before and before.uuid), ordinal=ordinal)


def located(log: Listed, address: int) -> LogPosition:
    """As `position_in`; looks up the ordinal, which may need to open the log."""
    position = position_in(log, address)
    if position.ordinal is not None or not log.has_headers:
        return position
    with suppress(AologError, FileNotFoundError), Log(log.path, Storage()) as opened:
        return position._replace(ordinal=opened.listed(lambda: at_address(opened, address)).ordinal)
    return position


def records_between(begin: LogPosition | None, end: LogPosition) -> int | None:
    """The records from the first position to the second one in a log; None if unknown."""
    return None if begin is None else count_between(begin.ordinal, end.ordinal)


class _Identified(Protocol):
    """A position, or a log."""

    @property
    def uuid(self) -> str | None:
        """In hex."""


def recognised(
    positions: Mapping[str, LogPosition], others: Mapping[str, _Identified]
) -> dict[str, str]:
    """The name among `others`, logs or later positions, for each position's name; without those whose
    log is not there. Copies of a log have one UUID: the longest common end of the names decides."""
    found = {
        name: name
        for name, position in positions.items()
        if name in others and position.is_in(others[name].uuid)
    }
    unclaimed: dict[str, list[str]] = {}
    for name in others.keys() - found.keys():
        if (uuid := others[name].uuid) is not None:
            unclaimed.setdefault(uuid, []).append(name)
    for name in sorted(positions.keys() - found.keys()):
        if names := unclaimed.get(positions[name].uuid or ""):
            best = max(sorted(names), key=lambda other: _common_end(name, other))
            names.remove(best)
            found[name] = best
    return found


def by_present_name(
    positions: Mapping[str, LogPosition], others: Mapping[str, _Identified]
) -> dict[str, LogPosition]:
    """The positions by the names of `recognised`."""
    return {name: positions[old] for old, name in recognised(positions, others).items()}


def _common_end(name: str, other: str) -> int:
    """Parts of two names that are the same, from the end."""
    parts = zip(reversed(name.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], parts))


def as_json(positions: Mapping[str, LogPosition]) -> Offset:
    """The offset as Spark stores it."""
    return {
        name: list(position if position.closed else position[:-1])
        for name, position in sorted(positions.items())
    }


def from_json(offset: Offset) -> dict[str, LogPosition]:
    """The inverse of `as_json`; a plain address belongs to any log with that name."""
    return {
        name: LogPosition(found) if isinstance(found, int) else LogPosition(*found)
        for name, found in offset.items()
    }
