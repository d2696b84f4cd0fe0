"""Offsets of a stream: how far which logs were read.

In JSON `{name: [address, uuid, ended]}`, keys sorted: Spark compares texts, and keeps them in the
checkpoint. It may find another log under a name there, or none, when it comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.spark.listing import Listed

__all__ = ["Offset", "Stand", "as_json", "from_json", "stand_in"]

Offset = dict[str, Any]  # as Spark has it


class Stand(NamedTuple):
    """A log was read up to the address. uuid: as in Listed. ended: it is gone, and nothing of it was
    unread."""

    address: int
    uuid: str | None = None
    ended: bool = False

    def is_in(self, uuid: str | None) -> bool:
        """Whether a log of this UUID is the one that was read, as far as can be told."""
        return None in {self.uuid, uuid} or self.uuid == uuid


def stand_in(log: Listed, address: int, before: Stand | None = None) -> Stand:
    """An address of this log. before: in the same log, which may tell its UUID no more."""
    return Stand(address, log.uuid or (before and before.uuid))


def as_json(stands: Mapping[str, Stand]) -> Offset:
    """For Spark."""
    return {name: list(stand) for name, stand in sorted(stands.items())}


def from_json(offset: Offset) -> dict[str, Stand]:
    """From Spark; an address alone is one of any log of that name."""
    return {
        name: Stand(found) if isinstance(found, int) else Stand(*found)
        for name, found in offset.items()
    }
