"""Reload, on SIGHUP: the configuration is read again, and what is blocked is retried.

A wrong configuration changes nothing. Some keys keep their values until a restart. A running worker
whose options changed ends, and begins anew with the new ones; the others go on undisturbed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aolog.errors import AologError
from bridge.errors import WrongConfiguration
from bridge.supervise.status import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.config.models import Config
    from bridge.supervise.options import ClusterOptions
    from bridge.supervise.worker import Worker

_log = logging.getLogger("bridge.supervisor")
# A reload cannot change these; it logs another value and keeps the old one.
_FIXED = (
    "root", "cursor", "delivery", "http", "http_token", "http_hosts", "log_format", "status_seconds"
)  # fmt: skip  # a list


def read_again(
    read: Callable[[], Config], present: Config, check: Callable[[Config], object]
) -> Config | None:
    """The new configuration, with the present values of keys that cannot change. None, and an error is
    logged, if it is wrong. check: raises AologError for what is found only when it is used."""
    try:
        config = read()
        check(config)
    except AologError as error:
        problems = error.problems if isinstance(error, WrongConfiguration) else [str(error)]
        event = {"event": "reload_refused", "code": error.code}
        for problem in problems:
            _log.error("the new configuration is wrong: %s", problem, extra=event)
        _log.error("the configuration is not changed", extra=event)
        return None
    return config.model_copy(update=_kept(config, present))


def _kept(config: Config, present: Config) -> dict[str, object]:
    """Values of the present configuration that a running process keeps. Logs a warning for each that a
    new configuration would change."""
    kept: dict[str, object] = {}
    other_kind = (config.root is None) != (present.root is None)
    for name in (*_FIXED, "logs") if other_kind else _FIXED:
        if getattr(config, name) != getattr(present, name):
            _log.warning(
                "%s cannot change while it runs; it stays", name, extra={"event": "reload_kept"}
            )
            kept[name] = getattr(present, name)
    return kept


def apply_options(workers: Iterable[Worker], options: Mapping[str, ClusterOptions]) -> None:
    """Workers whose options changed begin anew; blocked ones are retried. options: by cluster."""
    for worker in workers:
        new = options.get(worker.options.cluster)
        changed = new is not None and new != worker.options
        if new is not None:  # otherwise the scan removes the worker
            worker.options = new
        if worker.phase == Phase.PARKED and changed:  # the cluster's servers may be others
            worker.phase = Phase.QUEUED
        elif worker.phase != Phase.RUNNING or not changed:
            worker.try_again()
        elif worker.ending in {None, "park"}:
            worker.stop("reload")
