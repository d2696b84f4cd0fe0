"""What gaps that were met come to: how many, what they cost, and the error that says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import GapFound
from aolog.notices import counted

if TYPE_CHECKING:
    from aolog.record import Gap

__all__ = ["Losses"]


class Losses:
    """Each gap is given once. records: those that were lost, where their number is known; unknown:
    gaps where it is not."""

    def __init__(self) -> None:
        self.gaps = self.records = self.unknown = 0
        self._reasons: dict[str, int] = {}

    def add(self, gap: Gap) -> None:
        """One more."""
        self.gaps += 1
        self.records += gap.records_lost or 0
        self.unknown += gap.records_lost is None
        self._reasons[gap.reason] = self._reasons.get(gap.reason, 0) + 1

    def check(self, path: str, done: str) -> None:
        """Raises GapFound if there were any. done: what became of what is intact, in a word."""
        if not self.gaps:
            return
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self._reasons.items()))
        lost = f"{counted(self.records, 'record', ',')} lost"
        if self.unknown:
            lost = f"{lost} and " if self.records else ""
            lost += f"an unknown number in {self.unknown} of them"
        raise GapFound(
            f"{counted(self.gaps, 'gap')} met ({reasons}): {lost}",
            hint=f"what is intact was {done}; {self._where_shown()}",
            path=path,
            gaps=self.gaps,
            records_lost=None if self.unknown else self.records,
        )

    def _where_shown(self) -> str:
        """`verify` knows nothing of what is not there any more."""
        pruned = self._reasons.get("pruned", 0)
        gone = "was let go by retention or `aolog prune`"
        if pruned == self.gaps:
            return f"what is missing {gone}"
        shown = "`aolog verify` shows all"
        return f"{shown} but what {gone}" if pruned else shown
