"""Cuts the tail that a crash left after a slab's last intact frame.

The tail is copied to `aside/` under a new name, and is durable there, before it is cut. A process may
be killed in each step: the next opening makes another copy, and cuts. recovery_cases.py decides what is
cut and copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.names import ASIDE_DIRECTORY
from aolog.write.recovery_cases import Case

if TYPE_CHECKING:
    from aolog.log.directory import Log
    from aolog.storage.directory import Inside
    from aolog.write.recovery_cases import Decision, LastSlab


def cut_tail(log: Log, decision: Decision, last: LastSlab, tail_end: int) -> tuple[str | None, int]:
    """Carries out the decision about the last slab; durable on return. tail_end: offset after the last
    byte that is not zero. Returns where the copy is, and its bytes."""
    storage, cut_at = log.storage, decision.cut_at
    kept = _kept_aside(log, last.base + last.end_of_frames)
    if cut_at is None:
        if decision.case is Case.UNSEALED and len(kept) > 1:  # killed before the next slab began
            with storage.open_read(kept[-2]) as copy:
                return kept[-2], copy.stat().size
        return None, 0
    aside = kept[-1]
    with storage.open_write(log.slab_path(last.base)) as file:
        if decision.aside:
            storage.make_directory(log.directory / ASIDE_DIRECTORY)
            storage.write_file(aside, (piece for _, piece in file.pieces(cut_at, tail_end)))
        file.truncate(cut_at)
        file.datasync()
    return (aside, tail_end - cut_at) if decision.aside else (None, 0)


def _kept_aside(log: Log, address: int) -> list[Inside]:
    """Earlier copies of tails cut at this address, oldest first, and an unused name."""
    stem = log.directory / ASIDE_DIRECTORY / f"{address:020d}"
    paths = [stem + ".torn"]
    while log.storage.exists(paths[-1]):
        paths.append(stem + f".{len(paths) + 1}.torn")
    return paths
