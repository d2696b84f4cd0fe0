"""Cursors as the command line shows them: one that is damaged or foreign is a row like another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.cli.output import human_bytes, human_seconds, iso_time
from aolog.errors import AologError, records_lost
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.names import cursor_path
from aolog.read.reader import Reader, resume_at
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.cli.holder import Holders
    from aolog.log.cursor_file import Position
    from aolog.record import Gap, Lag

__all__ = ["HEAD", "Standing", "row", "standing", "standings"]


class Standing(NamedTuple):
    """A cursor. state: "ok", "pruned" where retention removed records that it has not read, or the
    code of what is wrong with it; position and lag are None as far as that hides them. held:
    whether a reader has it, None if that is unknown. pruned: what it lost, None if nothing."""

    name: str
    state: str
    position: Position | None
    lag: Lag | None
    held: bool | None
    pruned: Gap | None = None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        at = self.position
        return {
            "name": self.name,
            "state": self.state,
            "address": at.address if at else None,
            "ordinal": at.ordinal if at else None,
            "protects": at.protects if at else None,
            "committed": iso_time(at.committed_us) if at else None,
            "lag": self.lag._asdict() if self.lag else None,
            "held": self.held,
            "pruned": self.pruned._asdict() if self.pruned else None,
        }


HEAD = (
    "CURSOR",
    "ADDRESS",
    "ORDINAL",
    "LAG RECORDS",
    "LAG",
    "AGE",
    "PROTECTS",
    "COMMITTED",
    "STATE",
)


def row(each: Standing) -> list[object]:
    """Under HEAD."""
    at, lag = each.position, each.lag
    state = each.state
    if each.pruned is not None:
        state += f" ({records_lost(each.pruned.records_lost)})"
    state += ", held" if each.held else ""
    return [
        each.name,
        at.address if at else None,
        at.ordinal if at else None,
        lag.records if lag else None,
        human_bytes(lag.bytes) if lag else None,
        human_seconds(lag.seconds) if lag and lag.seconds is not None else None,
        None if at is None else "yes" if at.protects else "no",
        iso_time(at.committed_us) if at else None,
        state,
    ]


def standing(log: str, name: str, holders: Holders) -> Standing:
    """The cursor. Raises NoSuchCursor."""
    storage = Storage()
    held = holders.of(cursor_path(log, name)).held
    position = lag = pruned = None
    state = "ok"
    try:
        position = read_position(log, name, storage)
        with Reader(log) as reader:
            resume_at(reader, position)
            lag, pruned = reader.lag(), reader.pruned()
            state = "ok" if pruned is None else "pruned"
    except AologError as error:
        if error.code == "no_such_cursor":
            raise
        state = error.code
    return Standing(name, state, position, lag, held, pruned)


def standings(log: str, holders: Holders) -> list[Standing]:
    """All of the log's, by name. A file that is no cursor's by its name is left out."""
    found = []
    for name in cursor_names(log, Storage()):
        try:
            found.append(standing(log, name, holders))
        except AologError:  # deleted since the listing, or a name that no cursor has
            continue
    return found
