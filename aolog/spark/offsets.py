"""Offsets of a stream: how far which logs were read.

In JSON `{name: [address, uuid, ended]}`, with sorted keys: Spark compares the text, and stores it in
the checkpoint. When the query restarts, a name may belong to another log, or to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.spark.listing import Listed


Offset = dict[str, Any]  # as Spark has it


class Stand(NamedTuple):
    """A log was read up to the address. uuid: as in Listed. ended: the log is deleted, and all of it
    was read."""

    address: int
    uuid: str | None = None
    ended: bool = False

    def is_in(self, uuid: str | None) -> bool:
        """Whether a log with this UUID is the log that was read. True if either UUID is unknown."""
        return None in {self.uuid, uuid} or self.uuid == uuid


def stand_in(log: Listed, address: int, before: Stand | None = None) -> Stand:
    """An address of this log. before: an earlier one, whose UUID counts if the log's is unknown now."""
    return Stand(address, log.uuid or (before and before.uuid))


def as_json(stands: Mapping[str, Stand]) -> Offset:
    """The offset as Spark stores it."""
    return {name: list(stand) for name, stand in sorted(stands.items())}


def from_json(offset: Offset) -> dict[str, Stand]:
    """The inverse of `as_json`; a plain address belongs to any log with that name."""
    return {
        name: Stand(found) if isinstance(found, int) else Stand(*found)
        for name, found in offset.items()
    }
