"""Which logs exist now, and to which clusters each one goes. Changes are logged once."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import TypeAlias

from aolog import Reader
from aolog.errors import AologError, StorageError
from bridge.config.models import Config
from bridge.config.routing import clusters_of
from bridge.supervise.discovery import Discovery, missing

_log = logging.getLogger("bridge.supervisor")

Key: TypeAlias = tuple[str, str]
"""The names of a log and of a cluster."""


class Assignment:
    """For one thread; `waiting_for` may be called by any."""

    def __init__(self, config: Config, *, opens_missing: bool) -> None:
        root = None if config.root is None else str(Path(config.root).absolute())
        self.discovery = Discovery(root)  # to be closed
        self.configure(config)
        self.missing_root: str | None = None  # why the root cannot be listed; None if it can
        # A drain, or one log: what is missing is opened, too, as opening reports why, and not waited for.
        self._opens_missing = opens_missing
        self._missing_logs: set[str] = set()
        self._unlisted: dict[str, str] = {}

    def configure(self, config: Config) -> None:
        """For the next scan; the root stays."""
        self._config = config
        single = {path: str(Path(path).absolute()) for path in config.logs}
        self.discovery.configure(single, config.include, config.exclude)

    def scan(self, known: Collection[Key]) -> tuple[dict[Key, str], int]:
        """The paths to forward, empty for a log that was kept as its directory could not be listed; and the exit
        status of a drain, for what could not be looked at. known: what is forwarded now. Opens logs where a route
        asks for their topic."""
        if self._opens_missing and self._config.root is None:
            found = {path: path for path in self._config.logs}
        else:
            found = self.discovery.scan()
        self._look_for_root()
        self._look_for_logs(found)
        wanted: dict[Key, str] = {}
        exit_status = StorageError.exit_status if self.discovery.unlisted else 0
        for name, path in found.items():
            try:
                wanted |= {(name, cluster): path for cluster in self._clusters(name, path)}
            except (AologError, OSError) as error:
                _log.warning("%s cannot be opened yet: %s", name, error)
                exit_status = max(
                    exit_status, getattr(error, "exit_status", StorageError.exit_status)
                )
                wanted |= {key: path for key in known if key[0] == name}
        if self.discovery.unlisted:
            for key in known:
                if key[1] in self._config.clusters and self.discovery.may_hold(key[0]):
                    wanted.setdefault(key, "")
        self._report_unlisted()
        return wanted, exit_status

    def waiting_for(self) -> str | None:
        """The root or log that is configured and missing, as a sentence; None if all exist."""
        if self.missing_root is not None:
            return f"{self.missing_root}: {self._config.root}; waiting for it"
        logs = sorted(self._missing_logs)
        return f"there is no log at {logs[0]} yet; waiting for it" if logs else None

    def _look_for_root(self) -> None:
        root, before = self.discovery.root, self.missing_root
        self.missing_root = None if root is None else missing(root)
        if self.missing_root == before or self._opens_missing:
            return
        if self.missing_root is not None:
            _log.warning("%s", self.waiting_for(), extra={"event": "root_missing"})
        else:
            _log.info("%s exists now", self._config.root, extra={"event": "root_found"})

    def _look_for_logs(self, found: Collection[str]) -> None:
        missing_logs = set(self._config.logs).difference(found)
        for path in sorted(missing_logs - self._missing_logs):
            _log.warning("there is no log at %s yet", path, extra={"event": "log_missing"})
        self._missing_logs = missing_logs

    def _report_unlisted(self) -> None:
        """Once for each reason."""
        unlisted = self.discovery.unlisted
        for name, why in sorted(unlisted.items()):
            if self._unlisted.get(name) != why and (name, why) != (".", self.missing_root):
                _log.warning("%s cannot be listed: %s", name, why, extra={"event": "unlisted"})
        self._unlisted = unlisted

    def _clusters(self, name: str, path: str) -> set[str]:
        config = self._config
        topic = None
        if len(config.clusters) > 1 and any(rule.log_topic is not None for rule in config.rules):
            with Reader(path) as reader:
                topic = reader.topic
        return clusters_of(config.rules, name, topic, config.default_cluster)
