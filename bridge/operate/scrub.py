"""Scrubbing: logs are verified in the background, one after the other, no faster than a rate.

A damaged byte in a sealed slab is found by the reader that meets it, which may be months later; this
finds it while a copy still exists. A pass is `aolog.verify`: it reads what the log held when the pass
began, and changes nothing. Results are kept in memory: after a restart every log is verified anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from aolog.errors import AologError, counted
from aolog.maintenance.report import Report
from aolog.maintenance.verify import verify
from aolog.storage.storage import Storage
from bridge.supervise.status import LogStatus
from bridge.supervise.turns import Phase

_log = logging.getLogger("bridge.scrub")
_LOOK_S = 1.0  # delay before a new log or a due pass is noticed
_WAIT_S_MAX = 3_600.0  # a lock takes no time-out of centuries
_KEPT = 100  # findings in a status
_SHOWN = 3  # findings in a log line


class Scrub(NamedTuple):
    """The last pass over a log."""

    ended_s: float  # seconds since 1970
    bytes: int
    records: int
    damage: int  # gaps, except known ones of a repaired copy, and other damages
    findings: tuple[str, ...]  # the first _KEPT of them, as text
    gaps: tuple[tuple[int, int], ...] = ()  # addresses [begin, end) of the first _KEPT gaps


class _Ending(Exception):
    pass


class Scrubber:
    """Verifies the logs of `look` in a thread of its own, each every `every_s`, at `bytes_per_s` at most.
    A context manager; `of` is for any thread."""

    def __init__(
        self,
        look: Callable[[], Sequence[LogStatus]],
        storage: Storage,
        *,
        every_s: float,
        bytes_per_s: float,
    ) -> None:
        self._look, self._storage = look, storage
        self._every_s, self._bytes_per_s = every_s, bytes_per_s
        self._due_s: dict[str, float] = {}  # by path
        self._found: dict[str, Scrub] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrub", daemon=True)

    def of(self, path: str) -> Scrub | None:
        """The last pass over a log; None before the first one ended."""
        return self._found.get(path)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                self._turn()
            except Exception:  # noqa: BLE001 -- as in a pass
                _log.exception("no log was verified in this turn", extra={"event": "scrub_failed"})

    def _turn(self) -> None:
        paths = {log.path for log in self._look() if log.phase != Phase.REMOVED}
        for path in self._due_s.keys() - paths:
            del self._due_s[path]
            self._found.pop(path, None)
        for path in sorted(paths, key=lambda path: self._due_s.get(path, 0.0)):
            begun_s = time.monotonic()
            if self._over.is_set() or begun_s < self._due_s.get(path, 0.0):
                break
            self._due_s[path] = begun_s + self._every_s
            self._pass(path, begun_s)

    def _pass(self, path: str, begun_s: float) -> None:
        def throttle(done: int, _: int) -> None:
            due_s = begun_s + done / self._bytes_per_s
            while (left_s := due_s - time.monotonic()) > 0 or self._over.is_set():
                if self._over.wait(min(left_s, _WAIT_S_MAX)):
                    raise _Ending

        try:
            report = verify(path, progress=throttle, storage=self._storage)
        except _Ending:
            return
        except Exception as error:  # noqa: BLE001 -- the other logs are verified still
            bug = None if isinstance(error, AologError | OSError) else error
            event = {"event": "scrub_failed"}
            _log.warning("%s: not verified: %s", path, error, extra=event, exc_info=bug)
            return
        found = _result(report)
        before = self._found.get(path)
        self._found[path] = found
        if found.damage and (before is None or before.findings != found.findings):
            _log.warning(
                "%s: %s found: %s; run `aolog verify`",
                path,
                counted(found.damage, "damaged place"),
                "; ".join(found.findings[:_SHOWN]),
                extra={"event": "scrub_damage"},
            )
        else:
            _log.debug("%s: verified, %d bytes", path, found.bytes)


def _result(report: Report) -> Scrub:
    new = report.new_gaps
    gaps = [f"gap {gap.begin}-{gap.end} ({gap.reason})" for gap in new]
    findings = (*gaps, *report.problems)
    places = tuple((gap.begin, gap.end) for gap in new[:_KEPT])
    return Scrub(time.time(), report.bytes, report.records, len(findings), findings[:_KEPT], places)
