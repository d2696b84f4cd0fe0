"""The loop of a pull. What one turn does is the business of partition_work, or of unit_work."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from bridge.kafka.catalog import Catalog
from bridge.kafka.fetcher import Fetcher
from bridge.pull.partition_work import PartitionWork
from bridge.pull.session import Session
from bridge.pull.unit_work import UnitWork

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.pull.pull_options import PullOptions, PullStatus


class Puller:
    """Of one log. Checks everything before it changes anything. One thread runs it; `stop` and `reload` may
    be called from any thread or signal handler. make_catalog, make_fetcher: see Session. Raises UsageError,
    DestinationError, and what Writer raises."""

    def __init__(
        self,
        options: PullOptions,
        make_catalog: type[Catalog] = Catalog,
        make_fetcher: type[Fetcher] = Fetcher,
    ) -> None:
        self._session = Session(options, make_catalog, make_fetcher)
        self._report: Callable[[PullStatus], None] = lambda _: None
        self._work = (
            PartitionWork(self._session)
            if options.units is None
            else UnitWork(self._session, lambda: self._report(self.status()))
        )

    def stop(self) -> None:
        """`run` returns soon, with everything durable."""
        self._session.stopping = True

    def reload(self) -> None:
        """Looks for topics soon."""
        self._session.look_soon()

    def status(self) -> PullStatus:
        """Of the thread that runs it."""
        return self._work.status()

    def run(self, report: Callable[[PullStatus], None] = lambda _: None) -> None:
        """Pulls until it is stopped, or drained. report: called about ten times a second."""
        session, work, self._report = self._session, self._work, report
        with closing(work):
            try:
                while not session.stopping and not work.turn():
                    report(self.status())
                work.finish()
                session.state = "stopped" if session.stopping else "drained"
                report(self.status())
            finally:
                session.fetcher.close()  # first, and the present one: new settings replace it
