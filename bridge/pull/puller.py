"""A pull while it runs: its options, its cluster, what it reports, and its loop. What one turn does is the
business of partition_work, or of unit_work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from aolog.errors import counted
from bridge.errors import DestinationError
from bridge.kafka.catalog import Catalog, Place
from bridge.kafka.consumed import Omissions
from bridge.kafka.fetcher import Fetcher
from bridge.pull.partition_work import PartitionWork
from bridge.pull.pull_options import PullOptions, PullStatus
from bridge.pull.topics import WantedTopics
from bridge.pull.unit_work import UnitWork

_log = logging.getLogger("bridge")
_LOOK_S = 5.0  # between looks for topics and partitions that came or went


class Puller:
    """Of one log. Checks everything before it changes anything. One thread runs it; `stop` and `reload` may
    be called from any thread or signal handler; the other attributes are for its work. make_catalog,
    make_fetcher: as the classes. Raises UsageError, DestinationError, and what Writer raises."""

    def __init__(
        self,
        options: PullOptions,
        make_catalog: type[Catalog] = Catalog,
        make_fetcher: type[Fetcher] = Fetcher,
    ) -> None:
        self.options = options
        self.stopping = False  # the work is to end soon
        # See PullStatus.
        self.state = "pulling"
        self.error: str | None = None
        self.pulled = self.skipped = self.lost = self.units = 0
        self.deleted: int | None = 0
        self.omissions = Omissions()  # what was left out of records
        self.topics = WantedTopics(options.topics, options.topics_file)
        self._make_catalog, self._make_fetcher = make_catalog, make_fetcher
        self._renewed: dict[str, Any] | None = None
        self._look_due_s = time.monotonic() + _LOOK_S
        self._report: Callable[[PullStatus], None] = lambda _: None
        self.catalog = make_catalog(options.servers, options.settings)
        self.cluster = self.catalog.cluster_id()
        self._work = PartitionWork(self) if options.units is None else UnitWork(self)

    def stop(self) -> None:
        """`run` returns soon, with everything durable."""
        self.stopping = True

    def reload(self) -> None:
        """Looks for topics soon."""
        self._look_due_s = 0.0

    def status(self) -> PullStatus:
        """Of the thread that runs it."""
        return PullStatus(
            self.state, self.pulled, self.skipped, self.lost, self._work.positions(), self.error,
            self.units, self.deleted, self.omissions.total,
        )  # fmt: skip  # one value

    def run(self, report: Callable[[PullStatus], None] = lambda _: None) -> None:
        """Pulls until it is stopped, or drained. report: called about ten times a second."""
        self._report = report
        with closing(self._work):
            try:
                while not self.stopping and not self._work.turn():
                    self.report()
                self._work.checkpoint()
                self.state = "stopped" if self.stopping else "drained"
                self.report()
            finally:
                self.fetcher.close()  # first, and the present one: new settings replace it

    # --- for its work -------------------------------------------------------------------------

    def report(self) -> None:
        """In the course of a turn, too."""
        self._report(self.status())

    def lose(self, place: Place, begin: int, end: int) -> None:
        """The cluster has deleted the offsets [begin, end) before they were pulled: counts them, and logs an
        error. Raises DestinationError if the pull is to fail then."""
        self.lost += end - begin
        what = (
            f"{place[0]}/{place[1]}: the cluster has deleted {counted(end - begin, 'offset')} before they"
            f" were pulled ({begin} to {end - 1})"
        )
        if self.options.out_of_range == "fail":
            raise DestinationError(what, hint="--out-of-range earliest goes on at its first record")
        _log.error("%s", what)

    def connect(self) -> None:
        """Makes a fetcher, and a catalog if settings to connect anew with have come."""
        if self._renewed is not None:
            self.options, self._renewed = replace(self.options, settings=self._renewed), None
            self.catalog = self._make_catalog(self.options.servers, self.options.settings)
        options = self.options
        self.fetcher = self._make_fetcher(options.servers, options.settings, group=options.group)

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
