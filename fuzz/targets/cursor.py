"""cursor: random commits, torn commits, flipped bits in either copy, foreign logs, diverged logs.

A reader with the cursor continues at exactly the record after the position in the newer intact copy, or
raises the right error. The target reads the file after each commit, so it knows what a copy must hold.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aolog
from aolog.format.cursor_copy import CursorPosition
from aolog.log.cursor_file import CursorFile
from aolog.log.retention import prune
from aolog.read.reader import view_of
from aolog.record import Position
from aolog.storage.storage import Storage
from fuzz.check import Mismatch
from fuzz.layout import base_of, parse_slab, read_files
from fuzz.shapes import abandon

if TYPE_CHECKING:
    import random

    from aolog.record import Record
    from fuzz.disk import Disk
    from fuzz.layout import Slab
    from fuzz.target import Case

__all__ = ["CursorTarget"]

COPIES = (0, 4096)
COPY_LEN = 68
_STEPS = [
    *["append"] * 2, *["commit"] * 3, *["tear"] * 2, *["flip"] * 3, "cut", "foreign", "forge",
    "prune", "die", "look", "look",
]  # fmt: skip  # weights


class _Copy(NamedTuple):
    """A copy as it was written. uuid: of the log that it belongs to."""

    data: bytes
    sequence: int
    uuid: bytes
    epoch: int
    address: int
    ordinal: int


class CursorTarget:
    """See the module."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def draw(self, rng: random.Random) -> Case:
        """Steps, with two numbers each."""
        steps = [
            [rng.choice(_STEPS), rng.randrange(1 << 10), rng.randrange(1 << 16)]
            for _ in range(rng.choice([3, 8, 20]))
        ]
        return {"steps": steps}

    def run(self, case: Case) -> str:
        """Carries out the steps, then looks once more."""
        history = _History(self._disk)
        try:
            for what, n, m in case["steps"]:
                history.step(what, n, m)
            history.look(0)
        finally:
            history.writer.close()
        return "+".join(sorted(history.seen))


class _History:
    def __init__(self, disk: Disk) -> None:
        self.path = disk.fresh()
        self.file = Path(self.path) / "cursors" / "c.cursor"
        self.writer = self.open()
        self.copies: dict[int, list[_Copy]] = {0: [], 1: []}  # by place: all that were there
        self.seen: set[str] = set()
        self.append(5)
        other = disk.root / "other"
        if not other.exists():
            with aolog.Writer(other, flush_seconds=None, sync="never") as writer:
                writer.append(b"other")
            with aolog.Reader(other, cursor="c") as reader:
                reader.read()
                reader.commit()
        self.foreign = (other / "cursors" / "c.cursor").read_bytes()

    def open(self) -> aolog.Writer:
        return aolog.Writer(self.path, slab_bytes=8300, flush_seconds=None, sync="never")

    def reopen(self) -> None:
        """Opens the log again. A writer refuses an only slab that the only cursor contradicts."""
        copy, slabs = self.intact(), self.slabs()
        contradicted = copy is not None and len(slabs) == 1 and slabs[0].uuid != copy.uuid
        try:
            self.writer = self.open()
        except aolog.IdentityUnclear:
            if not contradicted:
                raise
            self.seen.add("identity_unclear")
            self.file.unlink()
            self.writer = self.open()
        else:
            if contradicted:
                raise Mismatch(f"a writer opened {slabs[0].base} beside {copy}")

    def slabs(self) -> list[Slab]:
        return [
            parse_slab(base, data)
            for name, data in sorted(read_files(self.path).items())
            if (base := base_of(name)) is not None
        ]

    def append(self, n: int) -> None:
        for i in range(n):
            self.writer.append(b"%d" % i, timestamp=i)
            if i % 3 == 0:
                self.writer.flush()
        self.writer.flush()

    def step(self, what: str, n: int, m: int) -> None:
        if what == "append":
            self.append(n % 9)
        elif what == "commit":
            self.look(1 + n % 5)
        elif what == "tear":
            self.tear(n % 5, m % (COPY_LEN + 1))
        elif what == "die":
            abandon(self.writer)
            self.reopen()
        elif what == "prune":
            if self.intact():
                prune(self.path, Storage(), aolog.Retention(max_slabs=n % 3 + 1))
        elif what == "look":
            self.look(0)
        elif self.file.exists():
            data = bytearray(self.file.read_bytes())
            if what == "flip" and data:
                at = COPIES[n % 2] + m // 8 % COPY_LEN
                if at < len(data):
                    data[at] ^= 1 << m % 8
            elif what == "cut":
                del data[(0, 67, 68, 4096, 4163, 4164)[n % 6] :]
            elif what == "foreign":
                data = bytearray(self.foreign)
                self.note(b"", self.foreign)
            elif what == "forge":
                self.forge(n, m)
                return
            self.file.write_bytes(data)

    # --- what the file holds -----------------------------------------------------------------

    def read(self) -> bytes:
        return self.file.read_bytes() if self.file.exists() else b""

    def note(self, before: bytes, after: bytes) -> None:
        """Notes the copy that differs between these two: it is intact; the other may be damaged."""
        for place, at in enumerate(COPIES):
            copy = after[at : at + COPY_LEN]
            if copy.startswith(b"AOCURSOR") and copy != before[at : at + COPY_LEN]:
                epoch, sequence, uuid, address, ordinal = struct.unpack_from("<IQ16sQQ", copy, 12)
                self.copies[place].append(_Copy(copy, sequence, uuid, epoch, address, ordinal))

    def intact(self) -> _Copy | None:
        data = self.read()
        there = [
            copy
            for place, at in enumerate(COPIES)
            for copy in self.copies[place]
            if data[at : at + COPY_LEN] == copy.data
        ]
        return max(there, key=lambda copy: copy.sequence, default=None)

    def tear(self, n: int, keep: int) -> None:
        """A commit of which only the first `keep` bytes reached the disk."""
        if self.intact() is None:
            return
        before = self.file.read_bytes()
        if not self.look(1 + n):
            return
        after = self.file.read_bytes()
        changed = next((at for at in COPIES if before[at : at + 68] != after[at : at + 68]), None)
        if changed is not None:
            data = bytearray(after[: changed + keep] + before[changed + keep :])
            self.file.write_bytes(data)

    def forge(self, n: int, m: int) -> None:
        """An intact copy with a position of another epoch or address."""
        copy = self.intact()
        if copy is None:
            return
        address = copy.address + (m % 4096 if m % 2 else (m % 8) << 40)
        before = self.read()
        cursor = CursorFile(self.path, "c", Storage())
        cursor.commit(CursorPosition(address, copy.ordinal, copy.uuid, 1 + n % 3, n % 2 == 0))
        cursor.close()
        self.note(before, self.read())

    # --- what a reader must say --------------------------------------------------------------

    def look(self, n: int) -> bool:
        """Opens a reader with the cursor, checks where it continues, reads n records and commits. Returns
        whether the reader opened."""
        copy, before = self.intact(), self.read()
        wanted = self.wanted(copy) if self.file.exists() else None
        try:
            reader = aolog.Reader(self.path, cursor="c")
        except aolog.AologError as error:
            if error.code != wanted:
                raise Mismatch(f"{copy}: {error.code}, and not {wanted or 'resumed'}") from error
            self.seen.add(error.code)
            return False
        with reader:
            if wanted is not None:
                raise Mismatch(f"{copy}: resumed at {reader.tell()}, and not {wanted}")
            self.check_position(reader, copy)
            view_of(reader).return_to(view_of(reader).position)
            for _ in range(n):
                reader.read()
            if n:
                reader.commit()
        self.note(before, self.read())
        return True

    def wanted(self, copy: _Copy | None) -> str | None:
        """The code of the error that the reader must raise; None if it must open."""
        if copy is None:
            return "cursor_corrupt"
        slabs = self.slabs()
        if any(slab.epoch > copy.epoch and slab.base < copy.address for slab in slabs):
            return "cursor_diverged"
        return "cursor_foreign" if slabs[0].uuid != copy.uuid else None

    def check_position(self, reader: aolog.Reader, copy: _Copy | None) -> None:
        with aolog.Reader(self.path) as whole:
            records = list(whole)
        begin = 0 if copy is None else copy.address
        rest = [record for record in records if record.address >= begin]
        first = reader.read()
        self.compare(first, rest[0] if rest else None)
        lost = [gap.records_lost for gap in reader.gaps if gap.reason == "pruned"]
        self.seen.add("pruned" if lost else "resumed" if copy is not None else "begun")
        if lost and copy is not None and rest and copy.ordinal <= (reader.ordinal or 0):
            wanted = (reader.ordinal or 0) - 1 - copy.ordinal
            if lost != [wanted]:
                raise Mismatch(f"{lost} records are said to be pruned, not {wanted}")
        if first is not None and not lost:
            view_of(reader).return_to(Position(begin or first.address, copy.ordinal if copy else 0))
        elif first is not None:
            reader.seek(first.address)

    def compare(self, found: Record | None, wanted: Record | None) -> None:
        if found != wanted:
            raise Mismatch(f"the reader goes on at {found}, and not at {wanted}")
