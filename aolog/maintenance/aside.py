"""LOG/aside/repair-NNNN/: what a repair keeps. Nothing of it is ever removed by us, nor
read again but for the gaps that its report tells.

%020d.slab      originals that were replaced
NAME.cursor     the damaged copy of a cursor, 4096 bytes
salvage.jsonl   what damaged frames still hold (salvage.py)
report.json     what was done: the last thing, so one without it is of a repair that was killed
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aolog.errors import AologError, StorageError
from aolog.format.slab import slab_name
from aolog.log.directory import ASIDE_DIRECTORY
from aolog.maintenance.salvage import write_salvage
from aolog.notices import warn
from aolog.storage import clock
from aolog.storage.inside import Inside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.format.frame import Buffer
    from aolog.maintenance.audit import SlabAudit
    from aolog.maintenance.repair import Repaired
    from aolog.storage.files import Directory, Storage

__all__ = ["Aside", "directory_name", "recorded_gaps"]

REPORT_NAME = "report.json"
SALVAGE_NAME = "salvage.jsonl"


_PREFIX = "repair-"


def directory_name(number: int) -> str:
    """Of the n-th repair's."""
    return f"{_PREFIX}{number:04d}"


def recorded_gaps(log_path: str, storage: Storage) -> dict[tuple[int, int], str]:
    """(begin, end) of the gaps that finished repairs left, and the directory's name of the first
    that did. Addresses stay, and such a gap's bytes are zeros: one of the same range is the same.
    A report that cannot be read tells nothing; a warning says so."""
    found: dict[tuple[int, int], str] = {}
    parent = Inside(log_path, ASIDE_DIRECTORY)
    if not storage.exists(parent):
        return found
    try:
        names = sorted(storage.list_names(parent))
    except AologError as error:
        warn("what repairs recorded is not known: %s", error)
        return found
    for name in names:
        if not name.startswith(_PREFIX):
            continue
        try:
            gaps = _gaps_of(parent / name / REPORT_NAME, storage)
        except FileNotFoundError:  # it was killed
            continue
        except (StorageError, ValueError, TypeError, KeyError) as error:
            told = error if isinstance(error, StorageError) else "its report is damaged"
            warn("what %s recorded is not known: %s", name, told)
            continue
        for gap in gaps:
            found.setdefault(gap, name)
    return found


def _gaps_of(path: Inside, storage: Storage) -> list[tuple[int, int]]:
    """Raises FileNotFoundError, StorageError, and ValueError, TypeError or KeyError where it is no
    report."""
    file = storage.open_read(path)
    try:
        text = file.pread(file.stat().size, 0)
    finally:
        file.close()
    return [(int(gap["begin"]), int(gap["end"])) for gap in json.loads(text)["gaps"]]


class Aside:
    """The directory of one repair.

    One that has no report is of a repair that was killed, and is gone on with, unless an original
    that is to be kept has a namesake there, or it is none that can be looked into. Raises
    StorageError.
    """

    def __init__(self, directory: Directory, storage: Storage, bases: list[int]) -> None:
        self._storage = storage
        self.salvaged = 0
        self.salvage_path: str | None = None
        parent = directory / ASIDE_DIRECTORY
        storage.make_directory(parent)
        numbers = [
            int(name.removeprefix(_PREFIX))
            for name in storage.list_names(parent)
            if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdecimal()
        ]
        number = max(numbers, default=0)
        self.path = parent / directory_name(number)
        if (
            not number
            or not self._is_directory()
            or storage.exists(self.path / REPORT_NAME)
            or self._clashes(bases, directory)
        ):
            self.path = parent / directory_name(number + 1)
        storage.make_directory(self.path)

    def _is_directory(self) -> bool:
        try:
            self._storage.list_names(self.path)
        except AologError:
            return False
        return True

    def _clashes(self, bases: list[int], log: Directory) -> bool:
        for base in bases:
            kept = self.kept(base)
            if self._storage.exists(kept) and not self._is_same(kept, log / slab_name(base)):
                return True
        return False

    def _is_same(self, one: Inside, other: Inside) -> bool:
        inodes = []
        for path in (one, other):
            file = self._storage.open_read(path)
            inodes.append(file.stat().inode)
            file.close()
        return inodes[0] == inodes[1]

    def kept(self, base: int) -> Inside:
        """Where the original of a slab is."""
        return self.path / slab_name(base)

    def keep(self, base: int, path: Inside) -> None:
        """The original has a second name, or where there is none, a copy."""
        kept = self.kept(base)
        if self._storage.exists(kept) or self._storage.link(path, kept):
            return
        file = self._storage.open_read(path)
        try:
            pieces = file.pieces(0, file.stat().size)
            self.put(slab_name(base), (piece for _, piece in pieces))
        finally:
            file.close()

    def put(self, name: str, parts: Iterable[Buffer]) -> None:
        """A file, durable on return."""
        self._storage.write_file(self.path / name, parts)

    def sync(self) -> None:
        """Second names are on the device on return."""
        self._storage.sync_directory(self.path)

    def salvage(self, log_path: str, slabs: list[SlabAudit]) -> None:
        """What damaged frames still hold goes to a file; one of a repair that was killed stays:
        it may be of slabs that are clean by now."""
        path = self.path / SALVAGE_NAME
        if not self._storage.exists(path):
            self.salvaged = write_salvage(path, log_path, slabs, self._storage)
            if not self.salvaged:
                return
        self.salvage_path = path

    def finish(self, told: Repaired) -> None:
        """The report, the last thing."""
        text = json.dumps(
            {
                **told._asdict(),
                "gaps": [gap._asdict() for gap in told.gaps],
                "slabs": [slab._asdict() for slab in told.slabs],
                "finished_us": clock.now_us(),
            },
            indent=1,
        )
        self.put(REPORT_NAME, [text.encode() + b"\n"])
