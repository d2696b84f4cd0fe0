"""`Archiver`: keeps the archive of a local log up to date, round by round (protocol.py).

The cursor `archive` protects slabs that are not archived yet from retention, and its lock admits one
archiver of a log. What a round reads of the local log: slabs from the archive's last one on, each hashed
once in the life of the process. The durable beginning of the slab that grows is archived when it has waited for
`ship_seconds`; a full slab at once.
"""

from __future__ import annotations

import hashlib
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from aolog.errors import (
    CorruptionError,
    NewerFormat,
    StorageFailed,
    UsageError,
    load_optional,
    records_lost,
    warn,
)
from aolog.format.archive import MANIFEST, Entry, Manifest, decode_manifest
from aolog.format.slab import NO_TIMESTAMP
from aolog.log.directory import Log
from aolog.maintenance.archive.probe import require
from aolog.maintenance.archive.protection import CURSOR
from aolog.maintenance.archive.protocol import (
    Deleting,
    Done,
    Failed,
    Job,
    Looking,
    Protect,
    Protected,
    Protecting,
    Sending,
    State,
    View,
    advance,
    begin,
    request,
)
from aolog.queuefka.format1 import without
from aolog.read.reader import Reader
from aolog.storage import clock
from aolog.storage.objects.requests import Answer, Found, Get, Put, Request, Stored, Unclear
from aolog.storage.objects.url import bucket_url
from aolog.storage.storage import Storage, absolute

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aolog.log.slab_file import Slab
    from aolog.record import Gap
    from aolog.storage.objects.client import Client

SHIP_SECONDS = 300.0  # the table of cost in archive.md: 0.003 USD a day
ROUND_SECONDS = 1.0  # a commit takes about as long on some stores
OBJECT_BYTES_MAX = 5_000_000_000  # of one PUT, the least of the three providers
_WAIT_S_MIN, _WAIT_S_MAX = 0.1, 10.0


class Keep(NamedTuple):
    """The archive's retention. The newest slab always stays."""

    max_bytes: int | None = None  # that all slabs together take in the store
    max_age_s: float | None = None  # of a slab's newest record


class Stopped(Exception):
    """The caller's `wait` ended a round. The next one finds what was uploaded."""


class Archived(NamedTuple):
    """What an archiver has done so far. begin, end: of the archive, addresses. behind_bytes: of the local log
    after it. uploaded: slabs and beginnings of slabs. requests, sent_bytes: of all its requests."""

    log: str
    url: str
    begin: int
    end: int
    behind_bytes: int
    slabs: int
    uploaded: int
    sent_bytes: int
    requests: int


class Archiver:
    """The archiver of a log. Not thread-safe. Close it, or use `with`.

    keep: what the archive's retention leaves. wait: waits for so many seconds; True ends the round with Stopped.
    client: sends the requests; by default obstore's, to the URL. Raises NotALog, UsageError for a log of queuefka and for
    a store that lacks what is needed, CursorLocked while another archiver of this log runs, and what opening a
    reader with a cursor raises. Nothing was written then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        url: str,
        *,
        ship_seconds: float = SHIP_SECONDS,
        keep: Keep = Keep(),  # noqa: B008 -- immutable
        deadline_s: float = 120.0,
        wait: Callable[[float], bool] | None = None,
        storage: Storage | None = None,
        client: Client | None = None,
    ) -> None:
        self.path, self.url = absolute(path), bucket_url(url)
        self._storage = storage or Storage()
        self._ship_s, self._deadline_s = ship_seconds, deadline_s
        self._keep = keep
        self._wait = wait or _wait
        self._client = client or load_optional("aolog.storage.objects.client").Client(self.url)
        self._view: View | None = None
        self._swept = False
        self._entries: dict[tuple[int, int], Entry] = {}  # hashed so far, by base and end
        self._waiting_since: float | None = None  # since when there is a beginning to archive
        self._unclear_since: float | None = None
        self._wait_s = _WAIT_S_MIN
        self.uploaded = 0
        self._log = Log(self.path, self._storage)
        try:
            self._log.require_slabs()
            if not self._log.has_headers:
                raise UsageError(
                    f"{self.path}: {without('UUID')}, and its archive could be another log's",
                    hint="copy it to a log of format 2 (`aolog read --format nul` and `aolog append`)",
                )
            self._reader = Reader(self.path, cursor=CURSOR, on_gap=self._lost, storage=storage)
        except BaseException:
            self._log.close()
            raise

    def _lost(self, gap: Gap) -> None:
        warn(
            "%s: not archived: addresses %d to %d (%s): %s",
            self.path, gap.begin, gap.end, gap.reason, records_lost(gap.records_lost),
        )  # fmt: skip  # one call

    def close(self) -> None:
        """Releases the cursor. Idempotent."""
        self._reader.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def requests(self) -> int:
        """That were sent so far."""
        return self._client.requests

    @property
    def sent_bytes(self) -> int:
        """In these requests."""
        return self._client.sent_bytes

    # --- what a round is made of ------------------------------------------------------------

    def begin(self, *, probe: bool = True) -> None:
        """Tries the store, reads the manifest, and protects the log's slabs. probe: False if this process has
        tried the store. Raises as the constructor, and CorruptionError for the archive of another log;
        nothing of the log was written then."""
        manifest = self._manifest()
        if probe:
            require(self.url, self._random(), self._attempt)
        if not self._reader.has_cursor_position:
            self._reader.commit()  # from now on retention waits
        elif manifest is not None:
            self._check_follows(manifest.manifest)
        self._view = manifest

    def _check_follows(self, manifest: Manifest) -> None:
        """Warns of records that were removed here after another archive had them: the cursor knows one archive."""
        *_, last = [None, *manifest.entries]
        ordinal = None
        if last is not None and last.ordinal is not None and last.records is not None:
            ordinal = last.ordinal + last.records
        gap = self._log.listed(lambda: self._log.pruned_before(manifest.end, ordinal))
        if gap is not None and self._reader.tell() >= gap.end:
            self._lost(gap)

    def _manifest(self) -> View | None:
        while isinstance(answer := self._attempt(Get(MANIFEST)), Unclear):
            pass  # `_attempt` waited
        if not isinstance(answer, Found):
            return None
        manifest = decode_manifest(bytes(answer.body), f"{self.url}/{MANIFEST}")
        self._require_ours(manifest.uuid)
        return View(manifest, answer.tag)

    def _require_ours(self, uuid: str) -> None:
        if uuid != self._uuid():
            raise self._failure(
                Failed("foreign", f"it is the archive of the log {uuid}, not of {self._uuid()}")
            )

    def _uuid(self) -> str:
        uuid = self._reader.topic_uuid
        assert uuid is not None  # format 2
        return uuid.hex()

    def round(self, *, now: bool = True) -> Archived:
        """One round. now: also the durable beginning of the slab that grows, however young it is. Raises
        CorruptionError if the archive has other bytes than the log, StorageError; whatever was uploaded is
        found by the next round."""
        self._log.refresh_end()
        local = self._log.listed(lambda: self._local(now=now))
        view = self._view
        drop_below = 0 if view is None else droppable(view.manifest, self._keep, clock.now_us())
        if view is not None and self._swept and not drop_below and not self._is_news(local, view):
            return self._archived(view)
        uuid, begin_at = self._uuid(), self._log.bases[0]
        write_id, sweeps = self._random(), not self._swept
        job = Job(uuid, self._reader.topic, local, write_id, begin_at, drop_below, sweeps=sweeps)
        state = begin(job, view)
        while (wanted := request(state)) is not None:
            state = self._step(state, wanted)
        if isinstance(state, Failed):
            raise self._failure(state)
        assert isinstance(state, Done)
        if drop_below and not state.view.manifest.held:
            warn(
                "%s: the archive's retention removed what is below address %d", self.url, drop_below
            )
        self._view, self._swept, self._waiting_since = state.view, True, None
        return self._archived(state.view)

    def follow(self, report: Callable[[Archived], None]) -> None:
        """Rounds until `wait` returns True. An outage of the store is waited out, with a warning. Raises as
        `round` otherwise. report: called after a round that changed the archive, and after the first."""
        before = None
        with suppress(Stopped):
            while True:
                try:
                    done = self.round(now=False)
                except StorageFailed as error:
                    warn("%s: archiving is late: %s", self.path, error)
                    self._pause(_WAIT_S_MAX)
                    continue
                if before is None or done[:5] != before[:5]:
                    report(done)
                before = done
                self._pause(ROUND_SECONDS)

    def _pause(self, seconds: float) -> None:
        if self._wait(seconds):
            raise Stopped

    @staticmethod
    def _is_news(local: tuple[Entry, ...], view: View) -> bool:
        last = view.manifest.entries[-1] if view.manifest.entries else None
        return any(
            e.end > view.manifest.end or (last and e.final and not last.final) for e in local
        )

    def _step(self, state: State, wanted: Request | Protect) -> State:
        if isinstance(wanted, Protect):
            self._protect(wanted.address)
            return advance(state, Protected())
        if isinstance(wanted, Put) and isinstance(wanted.content, Entry):
            wanted = wanted._replace(content=self._content(wanted.content))
        answer = self._client.send(wanted)
        found = isinstance(state, Looking) and isinstance(answer, Found)
        self.uploaded += isinstance(state, Sending) and isinstance(answer, Stored)
        after = advance(state, answer)
        ended = isinstance(after, Protecting | Deleting | Done)
        self._count(answer, progress=isinstance(answer, Stored) or found or ended)
        return after

    def _count(self, answer: Answer, *, progress: bool) -> None:
        """Waits after an answer that is not clear. Raises StorageFailed at the deadline."""
        if progress:
            self._unclear_since, self._wait_s = None, _WAIT_S_MIN
            return
        if not isinstance(answer, Unclear):
            return
        now = time.monotonic()
        self._unclear_since = self._unclear_since or now
        if now - self._unclear_since > self._deadline_s:
            self._unclear_since = None
            raise StorageFailed(
                f"no clear answer from the store ({answer.reason})",
                hint="nothing is lost: the next round finds what was uploaded",
                path=self.url,
            )
        self._pause(self._wait_s * random.uniform(0.5, 1.0))  # noqa: S311 -- spreads load
        self._wait_s = min(2 * self._wait_s, _WAIT_S_MAX)

    def _attempt(self, wanted: Request) -> Answer:
        """One attempt outside a round: every clear answer is progress."""
        answer = self._client.send(wanted)
        self._count(answer, progress=not isinstance(answer, Unclear))
        return answer

    def _protect(self, address: int) -> None:
        """The cursor is durable at the archive's end, or at the log's, if that is less."""
        address = min(address, self._reader.end())
        if address > self._reader.tell():
            self._reader.seek(address)
            self._reader.commit()

    def _failure(self, failed: Failed) -> Exception:
        if failed.code == NewerFormat.code:
            return NewerFormat(failed.reason, path=self.url)
        hint = "use another URL; nothing was written"
        if failed.code in {"differs", "overlaps"}:
            hint = "two copies of the log were written: archive each below a URL of its own"
        return CorruptionError(failed.reason, hint=hint, path=self.url, archive=failed.code)

    def _archived(self, view: View) -> Archived:
        entries, end = view.manifest.entries, view.manifest.end
        begin = entries[0].base if entries else end
        behind = max(0, self._reader.end() - end)
        return Archived(
            self.path, self.url, begin, end, behind, len(entries),
            self.uploaded, self.sent_bytes, self.requests,
        )  # fmt: skip  # one call

    def _random(self) -> str:
        return self._storage.system.random_bytes(16).hex()

    # --- the local slabs --------------------------------------------------------------------

    def _local(self, *, now: bool) -> tuple[Entry, ...]:
        """The slabs from the archive's last one on. Raises FileNotFoundError if one is pruned meanwhile."""
        log, found = self._log, []
        entries = self._view.manifest.entries if self._view is not None else ()
        begin = 0
        if entries and self._reader.tell() >= entries[-1].base:
            begin = entries[-1].base  # the cursor proves that what is before it was archived
        for i, base in enumerate(log.bases):
            if base < begin:
                continue
            if base in log.published:  # it has another name than the archive would give it
                break
            slab = log.slab(i)
            final = i + 1 < len(log.bases) or slab.seal() is not None
            size = slab.end_offset if final else self._beginning(slab, now=now)
            if size > 0:
                found.append(self._entry(slab, size, final=final))
        return tuple(found)

    def _beginning(self, slab: Slab, *, now: bool) -> int:
        """The bytes of a growing slab that are to be archived now: up to its last durable mark; 0: none."""
        size = slab.marked()
        archived = self._view.manifest.end if self._view is not None else 0
        if size <= slab.data_begin or slab.base + size <= archived:
            self._waiting_since = None
            return 0
        if now:
            return size
        at = time.monotonic()
        self._waiting_since = self._waiting_since or at
        return size if at - self._waiting_since >= self._ship_s else 0

    def _entry(self, slab: Slab, size: int, *, final: bool) -> Entry:
        if size > OBJECT_BYTES_MAX:
            raise UsageError(
                f"a slab of {size} bytes is larger than an object of one PUT, {OBJECT_BYTES_MAX}",
                hint="let the writer begin smaller slabs (slab_bytes)",
                path=slab.file.path,
            )
        key = slab.base, slab.base + size
        if (known := self._entries.get(key)) is not None:
            return known._replace(final=final)
        digest = hashlib.sha256()
        for _, piece in slab.file.pieces(0, size):
            digest.update(piece)
        head, seal = slab.header, slab.seal()
        times = (None, None) if seal is None else (_time(seal.least_us), _time(seal.greatest_us))
        entry = Entry(
            *key,
            final,
            digest.hexdigest(),
            None if head is None else head.known_ordinal,
            None if seal is None else seal.records,
            *times,
            0 if head is None else head.epoch,
        )
        if len(self._entries) > 64:
            self._entries.clear()
        self._entries[key] = entry
        return entry

    def _content(self, entry: Entry) -> bytes:
        """The bytes of a local slab that is to be uploaded."""
        with self._log.open_file(entry.base) as file:
            return file.pread(entry.size, 0)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def droppable(manifest: Manifest, keep: Keep, now_us: int) -> int:
    """The address below which the archive's retention removes slabs now; 0: nothing. A slab without a
    seal is as old as the next one that has times."""
    if manifest.held:
        return 0
    entries = manifest.entries
    total, below = sum(entry.stored_bytes for entry in entries), 0
    for i, entry in enumerate(entries[:-1]):
        newest = next((e.greatest_us for e in entries[i:] if e.greatest_us is not None), now_us)
        is_old = keep.max_age_s is not None and newest < now_us - keep.max_age_s * 1e6
        is_much = keep.max_bytes is not None and total > keep.max_bytes
        if not entry.final or not (is_old or is_much):
            break
        total, below = total - entry.stored_bytes, entry.end
    return below


def _time(us: int) -> int | None:
    return None if us == NO_TIMESTAMP else us
