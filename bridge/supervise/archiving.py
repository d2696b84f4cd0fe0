"""Archiving: the logs of a bridge are archived in an object store while it runs (aolog/docs/reference/archive.md).

Each log has an archive of its own, below the configured URL. A few threads take turns over the logs; each log
belongs to one of them. A log whose last slab did not change takes no request. A store that fails delays the
archive only: records go to Kafka as before, and local slabs wait, because the cursor `archive` protects them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import quote

from aolog.errors import AologError, StorageFailed, load_optional
from aolog.log.retention import prune
from aolog.maintenance.archive.archiver import ROUND_SECONDS, Archived, Archiver, Keep, Stopped
from aolog.maintenance.archive.protection import protect
from bridge.deliver.backoff import Backoff
from bridge.deliver.log_lines import naming
from bridge.deliver.log_source import LAST_SLAB
from bridge.supervise.discovery import Growth, growth
from bridge.supervise.turns import Phase

if TYPE_CHECKING:
    from aolog.storage.storage import Storage
    from bridge.config.models import Config
    from bridge.supervise.status import LogStatus

_log = logging.getLogger("bridge.archive")
_THREADS = 4  # at 100 ms a round, 40 logs a second
_REST = 4  # times the duration of a look at all logs
_OPEN_MAX = 64  # archivers of each thread that stay open, with their manifests
_DEADLINE_S = 10.0  # of one round without a clear answer; then other logs have their turn
_RETRY_S, _RETRY_S_MAX = 1.0, 60.0


class ArchiveStatus(NamedTuple):
    """The archive of one log."""

    url: str
    begin: int | None = None  # an address, as is end; None before the first round
    end: int | None = None
    behind_bytes: int | None = None  # of the local log after the end
    waiting_seconds: float = 0.0  # since the archive last grew, while it is behind
    slabs: int = 0  # in the archive
    uploaded: int = 0  # since the process started, as are requests and sent_bytes
    requests: int = 0
    sent_bytes: int = 0
    error: str | None = None  # of the last round, as is code
    code: str | None = None


class _Log:
    """A log, for the thread to which it belongs."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.status = ArchiveStatus(url)
        self.archiver: Archiver | None = None
        self.seen: Growth | None = None  # at the last round
        self.round_s = 0.0  # when that was
        self.grew_s = time.monotonic()  # when the archive last grew, or was whole
        self.due_s = 0.0
        self.backoff = Backoff(_RETRY_S, _RETRY_S_MAX)
        self.counted = (0, 0, 0)  # of the present archiver

    def count(self) -> None:
        """Adds what the present archiver did since the last call."""
        archiver, before = self.archiver, self.counted
        assert archiver is not None
        self.counted = now = archiver.uploaded, archiver.requests, archiver.sent_bytes
        uploaded, requests, sent = (b - a for a, b in zip(before, now, strict=True))
        status = self.status
        self.status = status._replace(
            uploaded=status.uploaded + uploaded,
            requests=status.requests + requests,
            sent_bytes=status.sent_bytes + sent,
        )

    def took(self, done: Archived, now_s: float) -> bool:
        """A round has ended. Returns whether the archive grew."""
        grew = self.status.end is None or done.end > self.status.end
        if grew or not done.behind_bytes:
            self.grew_s = now_s
        self.status = self.status._replace(
            begin=done.begin, end=done.end, behind_bytes=done.behind_bytes, slabs=done.slabs,
            error=None, code=None,
        )  # fmt: skip  # one value
        return grew

    def close(self) -> None:
        if self.archiver is not None:
            self.count()
            self.archiver.close()
            self.archiver, self.counted = None, (0, 0, 0)


class Archiving:
    """Archives the logs of `look`, as the configuration's `archive` says. A context manager; `of` is for any
    thread. Raises UsageError without obstore."""

    def __init__(
        self, look: Callable[[], Sequence[LogStatus]], config: Config, storage: Storage
    ) -> None:
        assert config.archive is not None
        load_optional("aolog.storage.objects.client")  # at the start, not once for each log
        self._look, self._archive, self._storage = look, config.archive, storage
        self._prunes, self._has_root = config.prune, config.root is not None
        self._keep = Keep(self._archive.max_bytes, self._archive.max_age_seconds)
        self._logs: dict[str, _Log] = {}  # by path; each thread adds and removes its own
        self._probed = False
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(share,), name=f"archive {share}", daemon=True)
            for share in range(_THREADS)
        ]

    def of(self, path: str) -> ArchiveStatus | None:
        """The archive of a log; None before its first turn."""
        log = self._logs.get(path)
        if log is None:
            return None
        behind = log.status.behind_bytes != 0
        waiting_s = time.monotonic() - log.grew_s if behind else 0.0
        return log.status._replace(waiting_seconds=round(waiting_s, 3))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Does not wait for a request that is under way: what it uploads is found by the next process."""
        self._over.set()
        for thread in self._threads:
            thread.join(1.0)

    # --- a thread's side ----------------------------------------------------------------------

    def _run(self, share: int) -> None:
        logs: dict[str, _Log] = {}
        pause_s = 0.0
        while not self._over.wait(pause_s):
            begun_s = time.monotonic()
            try:
                self._turns(logs, share)
            except Exception:  # noqa: BLE001 -- as in the turn of one log
                event = {"event": "archive_failed"}
                _log.exception("no log was archived in this turn", extra=event)
            pause_s = max(ROUND_SECONDS, _REST * (time.monotonic() - begun_s))
        for log in logs.values():
            log.close()

    def _turns(self, logs: dict[str, _Log], share: int) -> None:
        self._share(logs, share)
        for path, log in logs.items():
            if not self._over.is_set():
                with naming(log.name):
                    self._turn(path, log)
        opened = [log for log in logs.values() if log.archiver is not None]
        for log in opened[: max(0, len(opened) - _OPEN_MAX)]:
            log.close()

    def _share(self, logs: dict[str, _Log], share: int) -> None:
        """Takes new logs, and leaves those that are gone."""
        present = {
            log.path: log.log
            for log in self._look()
            if log.phase != Phase.REMOVED and zlib.crc32(os.fsencode(log.path)) % _THREADS == share
        }
        for path in logs.keys() - present.keys():
            logs.pop(path).close()
            self._logs.pop(path, None)
        for path in present.keys() - logs.keys():
            self._logs[path] = logs[path] = _Log(present[path], self._url(present[path]))

    def _url(self, name: str) -> str:
        """Of the archive of a log: by its name below the root, or the last part of its path."""
        below = name if self._has_root else PurePath(name).name
        url = self._archive.url.rstrip("/")
        return url if below == "." else f"{url}/{quote(below, errors='surrogateescape')}"

    def _turn(self, path: str, log: _Log) -> None:
        now_s = time.monotonic()
        if now_s < log.due_s:
            return
        try:
            grown = growth(path)
            if grown is None or (log.archiver is None and not self._is_due(log, grown, now_s)):
                return
            done = self._round(path, log)
        except Stopped:
            return
        except Exception as error:  # noqa: BLE001 -- the other logs of this thread go on
            self._failed(log, error, now_s)
            return
        log.seen, log.round_s = grown, now_s
        log.backoff.reset()
        if log.took(done, now_s):
            _log.debug("%s: archived up to %d", path, done.end)
            if self._prunes:  # what the other cursors had passed waited for this one
                try:
                    prune(path, self._storage, LAST_SLAB)
                except (AologError, OSError) as error:  # the archive has grown all the same
                    _log.warning("%s: not pruned: %s", log.name, error)

    def _is_due(self, log: _Log, grown: Growth, now_s: float) -> bool:
        """Whether a log whose archiver was closed has a full slab to archive now, or something that has waited."""
        if log.seen is None or grown.name != log.seen.name or log.status.error is not None:
            return True
        waited = now_s - log.round_s >= self._archive.ship_seconds
        return waited and grown != log.seen

    def _round(self, path: str, log: _Log) -> Archived:
        reopened = log.archiver is None and log.seen is not None
        try:
            if log.archiver is None:
                protect(path, self._storage)
                log.archiver = Archiver(
                    path, log.status.url, ship_seconds=self._archive.ship_seconds, keep=self._keep,
                    deadline_s=_DEADLINE_S, wait=self._over.wait, storage=self._storage,
                )  # fmt: skip  # one value
                log.archiver.begin(probe=not self._probed)
                self._probed = True
            return log.archiver.round(now=reopened)
        except BaseException as error:
            if not isinstance(error, StorageFailed | Stopped):
                log.close()  # the next turn finds out anew
            raise
        finally:
            if log.archiver is not None:
                log.count()

    def _failed(self, log: _Log, error: Exception, now_s: float) -> None:
        log.due_s = now_s + log.backoff.next_s()
        code = error.code if isinstance(error, AologError) else AologError.code
        if str(error) != log.status.error:
            event = {"event": "archive_failed", "code": code}
            bug = None if isinstance(error, AologError | OSError) else error
            _log.warning("%s: not archived: %s", log.name, error, extra=event, exc_info=bug)
        log.status = log.status._replace(error=str(error), code=code)
