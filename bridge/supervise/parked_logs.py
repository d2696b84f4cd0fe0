"""Whether the clusters of parked logs answer. A parked log has no connection, so each cluster with parked logs
has one, for all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from bridge.deliver.log_lines import naming
from bridge.deliver.trouble import TroubleLog
from bridge.kafka.cluster_watch import ClusterWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.supervise.cluster_options import ClusterOptions

_log = logging.getLogger("bridge.supervisor")


class _Watched(NamedTuple):
    options: ClusterOptions
    watch: ClusterWatch
    log: TroubleLog


class ParkedLogs:
    """By cluster. For the supervisor's thread; `cluster` may be called by any."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def cluster(self, name: str) -> ClusterWatch | None:
        """The watch of a cluster; None if no log of it was parked."""
        found = self._watched.get(name)
        return None if found is None else found.watch

    def look(self, options: Mapping[str, ClusterOptions], parked: set[str], now_s: float) -> None:
        """Asks clusters with parked logs whether they answer, and does not wait for answers. options: of all
        clusters. parked: the names of those with parked logs. A cluster that had one is asked until its options
        change."""
        for name, (of, watch, _) in list(self._watched.items()):
            if options.get(name) != of:
                watch.close()
                del self._watched[name]
        for name in parked & options.keys() - self._watched.keys():
            base = options[name].base
            watch = ClusterWatch(base.bootstrap_servers, base.settings)
            self._watched[name] = _Watched(options[name], watch, TroubleLog())
        for name, (_, watch, log) in self._watched.items():
            watch.look(now_s)
            with naming(name):
                if watch.reachable:
                    log.over()
                elif name in parked and watch.trouble is not None:
                    log.say(watch.trouble, now_s, what="no parked log can send")

    def close(self) -> None:
        """Ends the connections."""
        for _, watch, _ in self._watched.values():
            watch.close()
