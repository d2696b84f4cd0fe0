"""A cursor as the command line shows it. A damaged or foreign cursor is a row like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.cli.output import human_bytes, human_seconds, iso_time
from aolog.errors import AologError, NoSuchCursor, records_lost
from aolog.log.cursor_file import cursor_names, cursor_path, read_position
from aolog.read.reader import Reader, view_of
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.cli.lock_holders import Holders
    from aolog.format.cursor_copy import CursorPosition
    from aolog.record import Gap, Lag

LAG_HEAD = ("PENDING", "BYTES", "OLDEST")
HEAD = ("CURSOR", "ADDRESS", "ORDINAL", *LAG_HEAD, "PROTECTS", "COMMITTED", "STATE")


class CursorState(NamedTuple):
    """A cursor, readable or not."""

    name: str
    # "ok"; "pruned" if retention removed unread records; "ahead" if it is past the log's end, which was cut off
    # then: see `aolog verify`; otherwise the error's code.
    state: str
    position: CursorPosition | None  # None if the error hides it
    lag: Lag | None  # the same
    held: bool | None  # whether a reader holds it; None if unknown
    pruned: Gap | None = None  # the unread records that were removed; None if there are none

    def to_json(self) -> dict[str, Any]:
        """All fields."""
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

    def row(self) -> list[object]:
        """The columns of HEAD."""
        at, lag = self.position, self.lag
        state = state_words(self.state, self.pruned.records_lost if self.pruned else None)
        return [
            self.name,
            at.address if at else None,
            at.ordinal if at else None,
            *lag_words(*(lag or (None, None, None))),
            None if at is None else "yes" if at.protects else "no",
            iso_time(at.committed_us) if at else None,
            f"{state}, held" if self.held else state,
        ]


def lag_words(records: int | None, size: int | None, seconds: float | None) -> list[object]:
    """The columns of LAG_HEAD, wherever a lag is shown: how much is pending, and the age of its oldest
    record."""
    oldest = None if seconds is None else human_seconds(seconds)
    return [
        records,
        None if size is None else human_bytes(size),
        "none" if records == 0 else oldest,
    ]


def state_words(state: str, lost: int | None) -> str:
    """The state of a cursor, wherever it is shown. lost: records, if it is `pruned`."""
    return f"pruned ({records_lost(lost)})" if state == "pruned" else state


def cursor_state(log: str, name: str, holders: Holders) -> CursorState:
    """The state of one cursor. Raises NoSuchCursor."""
    held = holders.of(cursor_path(log, name)).held
    position = lag = pruned = None
    state = "ok"
    try:
        position = read_position(log, name, Storage())
        with Reader(log) as reader:
            view_of(reader).resume_at(position)
            lag, pruned = reader.lag(), reader.pruned()
            if position.address > reader.end():
                state = "ahead"
            elif pruned is not None:
                state = "pruned"
    except NoSuchCursor:
        raise
    except AologError as error:
        state = error.code
    return CursorState(name, state, position, lag, held, pruned)


def cursor_states(log: str, holders: Holders) -> list[CursorState]:
    """All cursors of the log, by name."""
    found = []
    for name in cursor_names(log, Storage()):
        try:
            found.append(cursor_state(log, name, holders))
        except NoSuchCursor:  # deleted since the listing
            continue
    return found
