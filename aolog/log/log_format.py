"""Which format a log has: its slabs have headers, marks and seals (format 2), or none of them (format 1).

A log has one format: a writer refuses to mix them. An intact part of a slab shows it. If the first slabs are
damaged, files beside them may: format 1 has no temporary or pending slabs, no cursors with a UUID, and no
manifest names its logs. Otherwise the size of the first slab gives a guess. Reads only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from aolog.format.frame import Frame
from aolog.format.slab import DATA_BEGIN, HEADER_COPIES, HEADER_LEN, MAGIC, decode_slab_header
from aolog.log.identity import cursor_uuids
from aolog.log.manifest import names_log
from aolog.log.slab_file import Slab
from aolog.log.walk import Damage, Walker
from aolog.queuefka.framing import CHAINED

if TYPE_CHECKING:
    from aolog.storage.file import File
    from aolog.storage.storage import Storage

_PROBES = 8  # slabs that are read if the first ones are damaged


class Listed(Protocol):
    """What is asked of a listed log: see Log."""

    path: str
    storage: Storage
    bases: list[int]
    unborn: list[str]
    has_pending: bool

    def open_file(self, base: int) -> File:
        """A slab's file. Raises FileNotFoundError."""

    def index_of(self, address: int) -> int:
        """Of the slab with an address."""

    def limit(self, i: int) -> int | None:
        """The offset at which a slab ends by its successor's name."""


class LogFormat(NamedTuple):
    """What is known of a log's format."""

    shown: bool | None  # whether slabs have headers; None if nothing in the log shows it
    guess: bool | None = None  # of a log that does not show it; None: it has no slab left

    @property
    def has_headers(self) -> bool:
        """As it is shown, otherwise the guess."""
        return (self.guess if self.shown is None else self.shown) is not False


def find_format(log: Listed) -> LogFormat:
    """The format of a log as it is listed. Raises CorruptionError, StorageError."""
    guess = _guess(log)  # first: a writer may write meanwhile
    probed = (_shown_in(log, base) for base in log.bases[:_PROBES])
    shown = next((each for each in probed if each is not None), None)
    if shown is None and _has_traces_of_headers(log):
        shown = True
    return LogFormat(shown, guess)


def _has_traces_of_headers(log: Listed) -> bool:
    return (
        bool(log.unborn)  # a slab without a header never has a temporary name
        or log.has_pending
        or any(cursor_uuids(log.path, log.storage))
        or names_log(log.path, log.storage)
    )


def _guess(log: Listed) -> bool | None:
    """If nothing is intact: a slab with a header gets its name with the whole prelude written."""
    try:
        with log.open_file(log.bases[0]) as file:
            return file.stat().size >= DATA_BEGIN
    except FileNotFoundError:
        return None


def _shown_in(log: Listed, base: int) -> bool | None:
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
        limit = log.limit(log.index_of(base))
        if Slab(file, base, limit=limit, log_has_headers=lambda: True).seal() is not None:
            return True
        return False if isinstance(first, Damage) else None
