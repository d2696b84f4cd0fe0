"""What `verify` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aolog.record import Gap


class Finding(NamedTuple):
    """code: stable, for programs. damage: False for a note."""

    code: str
    path: str
    message: str
    damage: bool


class Report(NamedTuple):
    """The result of `verify`.

    ok: no damage, and no gap except the known ones. known: the gaps that `repair` copied from the
    damaged log and noted in the copy; what causes them is a note. gaps: as for a reader, and what the log
    has lost at its end, if a cursor shows that. bytes: of slab files. end: address after the last intact
    frame.
    durable: address up to which a mark or a seal shows that everything was synced; more may be durable.
    tail_bytes: after the end and not blank: an append in progress, or a torn end that the next writer
    sets aside. problems: messages of damage. notes: messages of all other findings. findings: both, with
    codes.
    """

    ok: bool
    records: int
    frames: int
    slabs: int
    bytes: int
    gaps: list[Gap]
    end: int
    durable: int
    tail_bytes: int
    problems: list[str]
    notes: list[str] = []  # noqa: RUF012 -- a default that is never changed
    findings: list[Finding] = []  # noqa: RUF012 -- the same
    known: list[Gap] = []  # noqa: RUF012 -- the same

    @property
    def new_gaps(self) -> list[Gap]:
        """The gaps that are not known."""
        known = set(self.known)
        return [gap for gap in self.gaps if gap not in known]
