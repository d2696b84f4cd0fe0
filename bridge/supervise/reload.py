"""Reload, on SIGHUP: the configuration is read again, and what is blocked is retried. Rotation, without a
signal: files of secrets and certificates that have changed are read again, and nothing else.

A wrong configuration or file changes nothing. Some keys keep their values until a restart. A running
worker whose options changed ends, and begins anew with the new ones; the others go on undisturbed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from aolog.errors import AologError
from bridge.errors import WrongConfiguration
from bridge.supervise.turns import Phase

if TYPE_CHECKING:
    from bridge.config.models import Config
    from bridge.supervise.cluster_options import ClusterOptions
    from bridge.supervise.worker import Worker

_log = logging.getLogger("bridge.supervisor")
_LOOK_S = 1.0  # a `stat` of each file
# A reload cannot change these; it logs another value and keeps the old one.
_FIXED = (
    "root", "cursor", "delivery", "http", "http_token", "http_hosts", "log_format", "status_seconds",
    "scrub_seconds", "scrub_bytes_per_second", "archive",
)  # fmt: skip  # a list


def read_again(
    read: Callable[[], Config], present: Config, *, what: str = "the new configuration"
) -> Config | None:
    """The new configuration, with the present values of keys that cannot change. None, and an error is logged, if it
    is wrong. what: was read, for log lines."""
    try:
        config = read()
    except AologError as error:
        problems = error.problems if isinstance(error, WrongConfiguration) else [str(error)]
        event = {"event": "reload_refused", "code": error.code}
        for problem in problems:
            _log.error("%s is wrong: %s", what, problem, extra=event)
        _log.error("the configuration is not changed", extra=event)
        return None
    return config.model_copy(update=_kept(config, present))


def _kept(config: Config, present: Config) -> dict[str, object]:
    """What a running process keeps of the present one. Logs a warning for each value that would change."""
    kept: dict[str, object] = {}
    other_kind = (config.root is None) != (present.root is None)
    for name in (*_FIXED, "logs") if other_kind else _FIXED:
        if getattr(config, name) != getattr(present, name):
            kept[name] = getattr(present, name)
            new, old = config.http_token, present.http_token
            if name == "http_token" and new and old and new.path == old.path is not None:
                continue  # the endpoint follows the file
            _log.warning(
                "%s cannot change while it runs; it stays", name, extra={"event": "reload_kept"}
            )
    return kept


class Rotation:
    """Looks at the files of a configuration's settings once a second. config: its files are in use.

    A change is due when two looks in a row agree: a key and its certificate are not taken while only one of
    them was replaced."""

    def __init__(self, config: Config) -> None:
        self._used = self._seen = config.stamps()
        self._look_at_s = time.monotonic() + _LOOK_S

    def due(self, config: Config) -> bool:
        """Whether the files have changed since it last returned True, and rest. Logs which ones."""
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + _LOOK_S
        before, self._seen = self._seen, config.stamps()
        if self._seen == self._used or self._seen != before:
            return False
        for path in sorted(self._seen):
            if self._seen[path] != self._used.get(path):
                _log.info("%s has changed; reading it again", path, extra={"event": "rotated"})
        self._used = self._seen
        return True


def apply_options(workers: Iterable[Worker], options: Mapping[str, ClusterOptions]) -> None:
    """Workers whose options changed begin anew; blocked ones are retried. options: by cluster."""
    for worker in workers:
        new = options.get(worker.options.cluster)
        changed = new is not None and new != worker.options
        if new is not None:  # otherwise the scan removes the worker
            worker.options = new
        if worker.phase == Phase.PARKED and changed:
            worker.turns.reconfigure()
        elif worker.phase != Phase.RUNNING or not changed:
            worker.try_again()
        elif worker.turns.ending in {None, "park"}:
            worker.stop("reload")
