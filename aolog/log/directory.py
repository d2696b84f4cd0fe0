"""A log on disk: a directory of slabs, listed once and opened as they are needed.

    LOG/00000000000000000000.slab   a slab begins at the address that is its name
    LOG/cursors/NAME.cursor         durable positions of readers (cursor.py)
    LOG/aside/...                   what recovery cut: never read, never deleted
    LOG/retention.lock              held by whoever prunes

A slab ends where its successor's name begins; what lies beyond is never read. This module reads
only; readers, the opener of a writer, verify and retention share it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from aolog.errors import CodecUnavailable, NewerFormat, NotALog, StorageFailed
from aolog.format.frame import KIND_RECORDS, KIND_SEAL, Frame
from aolog.format.slab import (
    DATA_BEGIN,
    HEADER_COPIES,
    HEADER_LEN,
    MAGIC,
    NO_TIMESTAMP,
    TRAILER_LEN,
    VERSION,
    Index,
    Mark,
    NewerVersion,
    Seal,
    SlabHeader,
    decode_seal_body,
    decode_slab_header,
    decode_trailer,
    slab_name,
)
from aolog.log.listing import list_slabs
from aolog.log.walk import Damage, QueuefkaWalker, Tail, Walker
from aolog.notices import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.storage.files import Directory, File, Inside, Stat, Storage

__all__ = ["ASIDE_DIRECTORY", "CURSOR_DIRECTORY", "MANIFEST_NAME", "RETENTION_LOCK", "Log", "Slab"]

_T = TypeVar("_T")

CURSOR_DIRECTORY = "cursors"
ASIDE_DIRECTORY = "aside"
RETENTION_LOCK = "retention.lock"
MANIFEST_NAME = "published.jsonl"

OPEN_SLABS_MAX = 16  # descriptors and indexes kept for seeks back and forth
_LOOKS_MAX = 100  # at a listing, before it is given up that slabs vanish under it
FORMAT_PROBES = 8  # slabs looked at to tell a log's format where the first are damaged
_NO_UUID = b""  # a log of format 1 has none, so a slab of format 2 in it is another log's
# A directory's time of change has a clock tick's resolution: a listing made within this of the
# last change may have missed another one in the same tick.
_RACY_NS = 50_000_000


class Slab:
    """An opened slab file. Not thread-safe.

    format: 1 or 2. header: None in format 1, and where no copy counts: every one is lost, or
    another log's (then nothing in the slab can be believed and the whole of it is damage). foreign:
    in that last case, the UUID of the other log. limit: offset at which it ends by its successor's
    name, None for the log's last. seal_offset: of the seal, once one was found. is_ours: whether a
    header that is found in the slab at a base has the log's UUID.
    """

    def __init__(
        self,
        file: File,
        base: int,
        *,
        limit: int | None,
        log_format: Callable[[], int],
        is_ours: Callable[[int, SlabHeader], bool] = lambda _base, _header: True,
    ) -> None:
        self.file = file
        self.base = base
        self.limit = limit
        self.header: SlabHeader | None = None
        self.foreign: bytes | None = None
        self._is_ours = is_ours
        self._seal: Seal | None = None
        self.seal_offset = 0
        self._walked: Index | None = None
        self._walked_to = DATA_BEGIN
        self._walked_greatest = NO_TIMESTAMP
        self._hops: Walker | None = None  # stands at _walked_to, and knows what it searched in vain
        self._intact = Mark(DATA_BEGIN, 0, NO_TIMESTAMP)  # behind the last frame known to be whole
        self._none_behind: tuple[int, Stat] | None = None  # _walked_to and file: no more was whole
        # A log has one format, and a slab too short or too damaged to say its own has the log's:
        # a damaged header in a format-2 log is never tried as format 1, nor a torn length as 2.
        first = file.pread(HEADER_LEN, 0)
        self.format = 2 if first.startswith(MAGIC[:4]) else log_format()
        if self.format == 2:
            self._read_header(first)

    def close(self) -> None:
        """Idempotent."""
        self.file.close()

    @property
    def data_begin(self) -> int:
        """Offset of the first frame."""
        return DATA_BEGIN if self.format == 2 else 0

    @property
    def compressed(self) -> bool:
        """Whether its frames may have codecs."""
        return self.header is not None and self.header.compressed

    @property
    def end_offset(self) -> int:
        """Where the slab ends, by its successor's name or else by the file's size."""
        size = self.file.stat().size
        return size if self.limit is None else min(size, self.limit)

    def _read_header(self, first: bytes) -> None:
        newer: NewerVersion | None = None
        for at in HEADER_COPIES:
            found = decode_slab_header(self.file.pread(HEADER_LEN, at) if at else first)
            if isinstance(found, NewerVersion):
                newer = found
            elif found is not None and self._counts(found):
                self.header, self.foreign = found, None
                return
        if self.header is None and (seal := self.seal()) is not None:
            self.header, self.foreign = seal.header, None
        if self.header is None and self.foreign is None and newer is not None:
            raise NewerFormat(
                f"format version {newer.version}, this release reads up to {VERSION}",
                hint="upgrade aolog",
                path=self.file.path,
            )

    def _counts(self, header: SlabHeader) -> bool:
        """Whether an intact copy of a header is this slab's and this log's."""
        uuid = header.topic_uuid
        if self.header is not None:
            return uuid == self.header.topic_uuid and header.base == self.base
        if not self._is_ours(self.base, header):
            self.foreign = uuid
            return False
        return header.base == self.base

    def seal(self) -> Seal | None:
        """The slab's seal, if it has one that is intact."""
        if self._seal is not None or self.format == 1:
            return self._seal
        end = self.end_offset
        found = decode_trailer(self.file.pread(TRAILER_LEN, max(0, end - TRAILER_LEN)))
        if found is None:
            return None
        offset, salt = found
        frame = Walker(self.file, salt, offset, limit=end).next()
        if isinstance(frame, Frame) and frame.header.kind == KIND_SEAL and frame.end == end:
            seal = decode_seal_body(frame.body)
            if seal is not None and self._counts(seal.header):
                self._seal, self.seal_offset = seal, offset
        return self._seal

    def located(self, error: CodecUnavailable, frame: Frame) -> CodecUnavailable:
        """The error, saying which records are meant."""
        address = self.base + frame.offset
        return CodecUnavailable(
            f"{counted(frame.header.records, 'record')} at address {address} cannot be read: "
            f"{error.reason}",
            hint=error.hint,
            **error.details,
            path=self.file.path,
            address=address,
            end=self.base + frame.end,
        )

    def walker(self, offset: int | None = None, *, resync: bool = False) -> Walker | QueuefkaWalker:
        """Frames from a chain's begin on (default: the slab's first). Needs a header."""
        offset = self.data_begin if offset is None else offset
        if self.format == 1:
            return QueuefkaWalker(self.file, offset, limit=self.limit, resync=resync)
        assert self.header is not None
        return Walker(self.file, self.header.salt, offset, limit=self.limit)

    def index(self) -> Index:
        """The seal's, or one rebuilt by a walk over the headers, continued at each call."""
        if (seal := self.seal()) is not None:
            return seal.index
        if self._walked is None:
            self._walked = Index()
        if self.header is None:
            return self._walked
        hops, self._hops = self._hops, None  # where this is broken off, the next begins anew
        if hops is None or hops.limit != self.limit:
            salt = self.header.salt
            hops = Walker(self.file, salt, self._walked_to, limit=self.limit, bodies=False)
        while not isinstance(found := hops.next(), Tail):
            if isinstance(found, Frame) and found.header.kind != KIND_SEAL:
                head = found.header
                self._walked.note(found.offset, head.ordinal, self._walked_greatest)
                if head.kind == KIND_RECORDS:
                    self._walked_greatest = max(self._walked_greatest, head.timestamp_us)
        self._walked_to, self._hops = found.begin, hops
        return self._walked

    def end_of_frames(self) -> tuple[int, int, int]:
        """(offset behind the last intact frame, records of the slab before it, greatest
        timestamp). A seal counts as a frame: behind it is the slab's end."""
        index = self.index()  # looks for a seal, which may come between two looks: one is taken
        if (seal := self._seal) is not None:
            return self.end_offset, seal.records, seal.greatest_us
        # Behind a power cut headers may be there without their bodies: the last stretch between two
        # marks that holds an intact frame is where the frames end, nearly always the last of all.
        begin = self._walked_to
        searched = (begin, self.file.stat())
        # A body may come without a new time of change, of a write that was seen half done: the
        # frame that would be next is looked at each time.
        if searched == self._none_behind and not self._frames(self._intact.offset, begin).run():
            return self._intact
        while begin > self._intact.offset:
            stretch = index.at_offset(begin - 1)
            if stretch is None or stretch.offset <= self._intact.offset:
                stretch = self._intact
            if (found := self._intact_from(stretch, begin)) is not None:
                self._intact = found
                break
            begin = stretch.offset
        self._none_behind = searched
        return self._intact

    def _frames(self, begin: int, end: int) -> Walker:
        """With their bodies, in [begin, end)."""
        assert self.header is not None
        limit = end if self.limit is None else min(end, self.limit)
        return Walker(self.file, self.header.salt, begin, limit=limit)

    def _intact_from(self, begin: Mark, end: int) -> Mark | None:
        """Behind the last intact frame in [begin, end); None if there is none. Nothing behind `end`
        is read: it was searched before."""
        offset, ordinal, greatest_us = begin
        frames = self._frames(offset, end)
        last = None
        while frames.offset < end and not isinstance(found := frames.next(), Tail):
            if isinstance(found, Frame):
                head = found.header
                ordinal = head.ordinal + head.records
                if head.kind == KIND_RECORDS:
                    greatest_us = max(greatest_us, head.timestamp_us)
                last = Mark(found.end, ordinal, greatest_us)
        return last

    def sealed_by_trailer(self) -> bool:
        """Whether it ends with a trailer, be the seal before it intact or not."""
        end = self.end_offset
        return decode_trailer(self.file.pread(TRAILER_LEN, max(0, end - TRAILER_LEN))) is not None

    def chain_before(self, offset: int) -> tuple[int, int, Frame | None]:
        """Follows the chain to `offset`: (begin, ordinal in slab, frame) of the frame that
        holds or follows the offset. The frame has no body; it is None where damage or the end
        stands at `begin`."""
        mark = self.index().at_offset(offset)
        at, ordinal = (mark.offset, mark.ordinal) if mark else (self.data_begin, 0)
        if self.header is None:
            return at, ordinal, None
        hops = Walker(self.file, self.header.salt, at, limit=self.limit, bodies=False)
        passed = hops.hop(offset)
        ordinal = ordinal if passed is None else passed
        while True:
            begin = hops.offset
            found = hops.next()
            if isinstance(found, Tail):
                return found.begin, ordinal, None
            if isinstance(found, Damage):
                if offset < found.end:
                    return begin, ordinal, None
                continue
            ordinal = found.header.ordinal
            if offset < found.end:
                return found.offset, ordinal, found
            ordinal += found.header.records


class Log:
    """The listing of a log and its opened slabs. directory: is open as long as the log is, and all
    that is inside is found by it. Not thread-safe."""

    def __init__(self, path: str | Directory, storage: Storage) -> None:
        self.path = path if isinstance(path, str) else path.path
        self._is_named = isinstance(path, str)
        self.storage = storage
        self.bases: list[int] = []
        self.unborn: list[str] = []  # names of slabs that a dead writer began and never named
        self.published: dict[int, str] = {}  # pending names that slabs still have, by base
        self.has_pending = False  # whether pending slabs are listed, published or not
        self._listed_at_ns = 0
        self._changed_ns = -1
        self._slabs: OrderedDict[int, Slab] = OrderedDict()
        self.directory = storage.open_directory(path)
        self.foreign_bases: list[int] = []  # slabs of other logs, as far as they were met
        self._uuid: bytes | None = None  # None: no header said it yet
        self._uuid_bases: list[int] | None = None  # the listing on which it was decided
        self._format: int | None = None
        self._format_guess: int | None = None  # where no slab of this listing says
        self.refresh()

    def close(self) -> None:
        """Idempotent."""
        for slab in self._slabs.values():
            slab.close()
        self._slabs.clear()
        self.directory.close()

    def is_replaced(self) -> bool:
        """Whether what stands at its path is another directory, or another last slab, than what is
        open here: it was removed, and made anew or put back. False where nothing stands there."""
        lstat = self.storage.system.lstat
        try:
            if lstat(f"{self.path}/.").st_ino != self.directory.stat().inode:  # behind a link, too
                return True
            last = self._slabs.get(self.bases[-1]) if self.bases else None
            return last is not None and (
                lstat(self.slab_path(last.base)).st_ino != last.file.stat().inode
            )
        except OSError:
            return False

    def refresh(self, *, force: bool = False) -> bool:
        """Lists the directory again if it changed; whether the slabs did."""
        changed_ns = self.directory.stat().mtime_ns
        racy = self._listed_at_ns - self._changed_ns < _RACY_NS
        same = changed_ns == self._changed_ns and not racy and not self.has_pending
        if same and not force:  # pending slabs are published without a change of this directory
            return False
        self._listed_at_ns = time.time_ns()
        self._changed_ns = changed_ns
        listing = list_slabs(self.directory, self.storage, self.published)
        if self._is_named and not self.storage.exists(self.path):
            raise NotALog("it was moved", hint="open it where it is now", path=self.path)
        bases = listing.bases
        self.unborn, self.published = listing.unborn, listing.published
        self.has_pending = bool(listing.pending)
        if bases == self.bases:
            return False
        self.bases, self._format_guess = bases, None
        for base, slab in list(self._slabs.items()):
            i = bisect_right(bases, base) - 1
            if i < 0 or bases[i] != base:
                self._slabs.pop(base).close()
            else:
                slab.limit = self.limit(i)
        return True

    def require_slabs(self) -> None:
        """Raises NotALog if there is none."""
        if not self.bases:
            raise NotALog(
                "no log: the directory holds no slab",
                hint="the first append creates it",
                path=self.path,
            )

    def listed(self, look: Callable[[], _T]) -> _T:
        """What `look` finds in the listed slabs, which may be pruned meanwhile: then it looks again.
        Raises StorageFailed if there is no end to that, and what `look` raises."""
        for _ in range(_LOOKS_MAX):
            try:
                return look()
            except FileNotFoundError:
                self.refresh(force=True)
        raise StorageFailed(
            "slabs vanish faster than they can be looked at", hint="try again", path=self.path
        )

    def slab_path(self, base: int) -> Inside:
        """Where the slab's file is, or was just now, if it is published and being renamed."""
        return self.directory / (self.published.get(base) or slab_name(base))

    def open_file(self, base: int) -> File:
        """The slab's file, opened for the caller. Raises FileNotFoundError if it was pruned."""
        try:
            return self.storage.open_read(self.slab_path(base))
        except FileNotFoundError:
            if self.published.pop(base, None) is None:
                raise
        return self.open_file(base)  # it has its own name by now

    def position(self, address: int) -> int:
        """Which slab in `bases` holds the address; -1 if it lies before the first."""
        return bisect_right(self.bases, address) - 1

    def after(self, base: int) -> int | None:
        """The base of the first slab behind this one's."""
        i = bisect_right(self.bases, base)
        return self.bases[i] if i < len(self.bases) else None

    def limit(self, i: int) -> int | None:
        """The offset at which the i-th slab ends by its successor's name; None for the last."""
        return self.bases[i + 1] - self.bases[i] if i + 1 < len(self.bases) else None

    def slab(self, i: int) -> Slab:
        """The i-th slab, opened. Valid until 16 others were asked for. Raises
        FileNotFoundError if it was pruned since the listing."""
        base = self.bases[i]
        slab = self._slabs.get(base)
        if slab is None:
            slab = self.open_slab(i)
            self._keep(slab)
        else:
            self._slabs.move_to_end(base)
        return slab

    def open_slab(self, i: int) -> Slab:
        """The i-th slab, opened for the caller, who closes it. One that is open already is handed
        over."""
        base = self.bases[i]
        if (opened := self._slabs.pop(base, None)) is not None:
            return opened
        file = self.open_file(base)
        try:
            return Slab(
                file,
                base,
                limit=self.limit(i),
                log_format=self._first_format,
                is_ours=self._is_ours,
            )
        except BaseException:
            file.close()
            raise

    def give_back(self, slab: Slab) -> None:
        """Keeps a slab that was handed over, as if it had been asked for: who seeks comes back."""
        i = self.position(slab.base)
        if i < 0 or self.bases[i] != slab.base or slab.base in self._slabs:
            slab.close()
            return
        slab.limit = self.limit(i)
        self._keep(slab)

    def _keep(self, slab: Slab) -> None:
        self._slabs[slab.base] = slab
        while len(self._slabs) > OPEN_SLABS_MAX:
            self._slabs.popitem(last=False)[1].close()

    def _keep_where_room(self, slab: Slab) -> None:
        """Keeps a slab that was opened beside those that callers hold, and closes none of those."""
        if len(self._slabs) < OPEN_SLABS_MAX and slab.base not in self._slabs:
            self._slabs[slab.base] = slab
        else:
            slab.close()

    def _is_ours(self, base: int, header: SlabHeader) -> bool:
        """Whether the header, found in the slab at `base`, has the log's UUID (identity.py). That
        is decided when the first header is met, and again where another UUID is met in another
        listing. Raises IdentityUnclear."""
        uuid = header.topic_uuid
        if uuid != self._uuid and self._uuid_bases is not self.bases:
            self._decide_uuid({self.position(base): uuid} if header.base == base else {})
        return self._uuid is None or uuid == self._uuid

    def _decide_uuid(self, known: dict[int, bytes | None]) -> None:
        from aolog.log.evidence import Headers, log_uuid

        slabs = Headers(self, known, self._keep_where_room)
        is_format_1 = slabs[0] is None and self._first_format() == 1
        self._uuid = _NO_UUID if is_format_1 else log_uuid(self, slabs)
        self._uuid_bases = self.bases
        self.foreign_bases = []
        for i, said in slabs.known.items():
            if said is not None and said != self._uuid:
                self.foreign_bases.append(self.bases[i])
        for base, slab in list(self._slabs.items()):
            if slab.header is not None and slab.header.topic_uuid != self._uuid:
                self._slabs.pop(base).close()  # it was opened before that was decided

    def _first_format(self) -> int:
        """The format of the first slab that says so; what an unclear one is taken for. A log
        has one format: a writer refuses to mix them."""
        if self._format is None and self._format_guess is None:
            found = filter(None, map(self._format_said_by, self.bases[:FORMAT_PROBES]))
            self._format = next(found, None) or self._format_said_beside()
        known = self._format or self._format_guess
        if known is not None:
            return known
        try:  # nothing is intact: a format-2 slab is born with its prelude, however short its life
            file = self.open_file(self.bases[0])
        except FileNotFoundError:
            return 2
        try:
            self._format_guess = 2 if file.stat().size >= DATA_BEGIN else 1
            return self._format_guess
        finally:
            file.close()

    def _format_said_beside(self) -> int | None:
        from aolog.log.evidence import is_format_2

        return 2 if is_format_2(self) else None

    @property
    def says_format(self) -> bool:
        """Whether anything in the log says of which format it is; otherwise it is a guess."""
        return self._first_format() == self._format

    def take_for_format_1(self) -> None:
        """Whoever asks knows better than a guess."""
        assert not self.says_format
        self._format_guess = 1

    def _format_said_by(self, base: int) -> int | None:
        try:
            file = self.open_file(base)
        except FileNotFoundError:
            return None
        try:
            if file.pread(HEADER_LEN, 0).startswith(MAGIC[:4]):
                return 2
            first = QueuefkaWalker(file, 0).next()
            if isinstance(first, Frame):  # before what a record of it may hold, of another log
                return 1
            if decode_slab_header(file.pread(HEADER_LEN, HEADER_COPIES[1])) is not None:
                return 2
            limit = self.limit(self.position(base))
            if Slab(file, base, limit=limit, log_format=lambda: 2).seal() is not None:
                return 2
            return 1 if isinstance(first, Damage) else None
        finally:
            file.close()

    @property
    def format(self) -> int:
        """1 or 2: of the log's slabs."""
        self.require_slabs()
        return self._first_format()

    def find(self, reached: Callable[[SlabHeader], bool]) -> int:
        """The last slab whose header satisfies a condition that, once false, stays false; 0 if
        none does. Reads O(log n) headers; slabs without one count as their predecessor does, and
        are never the answer."""
        low, high = 0, len(self.bases)
        while high - low > 1:
            middle = probe = (low + high) // 2
            header = None
            while header is None and probe > low:
                header = self._header(probe)
                probe -= 1 if header is None else 0
            if probe == low or (header is not None and reached(header)):
                low = middle
            else:
                high = probe
        while low > 0 and self._header(low) is None:
            low -= 1
        return low

    def _header(self, i: int) -> SlabHeader | None:
        try:
            return self.slab(i).header
        except FileNotFoundError:
            return None
