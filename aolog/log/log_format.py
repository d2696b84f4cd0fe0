"""Which format a log has: its slabs have headers, marks and seals (format 2), or none of them (format 1). See
FORMAT.md, *How a slab's format is determined*. Reads only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.format.frame import Frame
from aolog.format.slab import DATA_BEGIN, HEADER_COPIES, HEADER_LEN, MAGIC, decode_slab_header
from aolog.log.identity import cursor_uuids
from aolog.log.manifest import names_log
from aolog.log.slab_file import HeadedSlab, Slab
from aolog.log.walk import Damage, Walker
from aolog.queuefka.framing import CHAINED

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.slab import SlabHeader
    from aolog.log.slab_list import SlabList
    from aolog.storage.file import File

_PROBES = 8  # slabs that are read if the first ones are damaged


class LogFormat(NamedTuple):
    """What is known of a log's format."""

    shown: bool | None  # whether slabs have headers; None if nothing in the log shows it
    guess: bool | None = None  # of a log that does not show it; None: it has no slab left

    @property
    def has_headers(self) -> bool:
        """As it is shown, otherwise the guess."""
        return (self.guess if self.shown is None else self.shown) is not False


def opened(
    file: File,
    base: int,
    limit: int | None,
    log_format: Callable[[], LogFormat],
    is_ours: Callable[[int, SlabHeader], bool],
) -> Slab:
    """A slab of the format that it shows. One that is too short or too damaged to show its own has the log's:
    a damaged header is never read as a frame's length, nor a torn length as a header."""
    first = file.pread(HEADER_LEN, 0)
    if first.startswith(MAGIC[:4]) or log_format().has_headers:
        return HeadedSlab(file, base, limit=limit, first=first, is_ours=is_ours)
    return Slab(file, base, CHAINED, limit=limit)


def find_format(log: SlabList) -> LogFormat:
    """The format of a log as it is listed. Raises CorruptionError, StorageError."""
    # First: a writer may write meanwhile. A slab with a header gets its name with the whole prelude written.
    entry = log.storage.entry(log.slab_path(log.bases[0]))
    probed = (_shown_in(log, base) for base in log.bases[:_PROBES])
    shown = next((each for each in probed if each is not None), None)
    if shown is None and (
        log.unborn  # a slab without a header never has a temporary name
        or log.has_pending
        or any(cursor_uuids(log.path, log.storage))
        or names_log(log.path, log.storage)
    ):
        shown = True
    return LogFormat(shown, None if entry is None else entry.size >= DATA_BEGIN)


def _shown_in(log: SlabList, base: int) -> bool | None:
    """Whether a slab's format has headers; None if nothing in it is intact, or it was pruned."""
    try:
        file = log.open_file(base)
    except FileNotFoundError:
        return None
    with file:
        if file.pread(HEADER_LEN, 0).startswith(MAGIC[:4]):
            return True
        first = Walker(file, CHAINED, 0).next()
        if isinstance(first, Frame):  # first: its records may contain a slab with a header
            return False
        if decode_slab_header(file.pread(HEADER_LEN, HEADER_COPIES[1])) is not None:
            return True
        if HeadedSlab(file, base, limit=log.limit(base)).seal() is not None:
            return True
        return False if isinstance(first, Damage) else None
