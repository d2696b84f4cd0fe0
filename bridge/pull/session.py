"""A pull while it runs: its options, its cluster, and what it reports. What both kinds of work share."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridge.kafka.catalog import Catalog
from bridge.kafka.consumed import Omissions
from bridge.kafka.fetcher import Fetcher
from bridge.pull.topics import WantedTopics

if TYPE_CHECKING:
    from bridge.pull.pull_options import PullOptions

_LOOK_S = 5.0  # between looks for topics and partitions that came or went


class Session:
    """stopping: the work is to end soon. state, error: see PullStatus. omissions: what was left out of
    records. make_catalog, make_fetcher: as the classes. Raises DestinationError."""

    def __init__(
        self,
        options: PullOptions,
        make_catalog: type[Catalog] = Catalog,
        make_fetcher: type[Fetcher] = Fetcher,
    ) -> None:
        self.options = options
        self.stopping = False
        self.state = "pulling"
        self.error: str | None = None
        self.omissions = Omissions()
        self.topics = WantedTopics(options.topics, options.topics_file)
        self._make_catalog, self._make_fetcher = make_catalog, make_fetcher
        self._renewed: dict[str, Any] | None = None
        self._look_due_s = time.monotonic() + _LOOK_S
        self.catalog = make_catalog(options.servers, options.settings)
        self.cluster = self.catalog.cluster_id()

    def connect(self) -> None:
        """Makes a fetcher, and a catalog if settings to connect anew with have come."""
        if self._renewed is not None:
            self.options, self._renewed = replace(self.options, settings=self._renewed), None
            self.catalog = self._make_catalog(self.options.servers, self.options.settings)
        options = self.options
        self.fetcher = self._make_fetcher(
            options.servers, options.settings, group=options.group, protocol=options.protocol
        )

    @property
    def renewed(self) -> bool:
        """Whether settings to connect anew with have come."""
        self._renewed = self.options.renewed() or self._renewed
        return self._renewed is not None

    def looks(self) -> bool:
        """Whether to look for topics now; then True again after a while."""
        now_s = time.monotonic()
        if now_s < self._look_due_s:
            return False
        self._look_due_s = now_s + _LOOK_S
        return True

    def look_soon(self) -> None:
        """From any thread or signal handler."""
        self._look_due_s = 0.0
