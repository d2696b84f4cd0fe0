"""What a reader does at a gap: it remembers the gap, calls the user, and raises if it is strict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import GapFound, records_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.record import Gap

__all__ = ["GapReport"]


class GapReport:
    """gaps: all that were reported, in order. on_gap: called with each. strict: raise GapFound."""

    def __init__(self, path: str, on_gap: Callable[[Gap], None] | None, *, strict: bool) -> None:
        self.gaps: list[Gap] = []
        self._path = path
        self._on_gap = on_gap
        self._strict = strict

    def report(self, gap: Gap) -> None:
        """Raises GapFound if the reader is strict, and what `on_gap` raises."""
        self.gaps.append(gap)
        if self._on_gap is not None:
            self._on_gap(gap)
        if self._strict:
            raise GapFound(
                f"addresses {gap.begin} to {gap.end} cannot be read ({gap.reason}): "
                f"{records_lost(gap.records_lost)}",
                hint="read again to continue after the gap"
                + ("" if gap.reason == "pruned" else "; `aolog verify` lists all gaps"),
                path=self._path,
                gap=gap,
            )
