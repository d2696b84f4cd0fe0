"""The options of a forwarder, from a configuration: one value for each cluster, the same for all logs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple

from aolog.log.cursor_file import cursor_path
from aolog.storage.storage import Storage
from bridge.config.models import Config
from bridge.config.routing import Routing, Rule
from bridge.config.settings import Stamps, stamps
from bridge.deliver.checkpoints import Checkpoints
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.forwarder_options import OPTIONS, USUAL, ForwarderOptions, Waits
from bridge.deliver.losses import LogLosses
from bridge.deliver.rate_limit import RateLimit
from bridge.errors import OtherCluster


class ClusterOptions(NamedTuple):
    """How any log is forwarded to one cluster. A forwarder is made anew when this changes."""

    base: ForwarderOptions  # without what differs between logs
    topic: str | None
    rules: list[Rule]
    cluster: str
    default_cluster: str
    other_cursors: dict[str, str]  # by cluster; empty if the configuration writes this one's out
    files: Stamps  # what its settings are read from
    archives: bool

    def forwarder(
        self, path: str, log: str | None, drain_to: int | None, losses: LogLosses, **more: Any
    ) -> Forwarder:
        """Opens the log. Raises what Forwarder raises. log: its name; None without a configuration: its checkpoints
        keep the cluster's name that a configuration wrote, and its routing has the fingerprint of earlier releases.
        (With another one, records would be sent again.) drain_to, losses: see Forwarder. more: of ForwarderOptions."""
        routing = Routing(self.topic)
        if log is not None:
            clusters = {"cluster": self.cluster, "default_cluster": self.default_cluster}
            routing = Routing(self.topic, self.rules, log=log, **clusters)
        cluster = "" if log is None else self.cluster
        how = replace(self.base, cluster=cluster, routing=routing, **more)
        return Forwarder(path, how, drain_to=drain_to, losses=losses)

    def check_cursor(self, path: str) -> None:
        """Raises OtherCluster for a cursor of another cluster: the default gives a cursor its name, and after a change
        of the default cluster it would skip records that the new one lacks."""
        if not self.other_cursors:
            return
        storage, own = Storage(), self.base.cursor

        def check(cursor: str, names: Collection[str]) -> None:
            notes = Checkpoints.load(path, cursor, storage, None)
            if notes.cluster.name in names:
                raise OtherCluster(
                    f"{cursor!r} is the cursor of cluster {notes.cluster.name!r} in this log, and "
                    f"the configuration gives {own!r} to {self.cluster!r}",
                    hint="the default cluster has changed: write the `cursor` of each cluster",
                    path=path,
                )

        check(own, self.other_cursors)
        if not storage.exists(cursor_path(path, own)):
            for cursor in self.other_cursors.values():
                check(cursor, {self.cluster})


def cluster_options(
    config: Config, limit: RateLimit, waits: Waits = USUAL
) -> dict[str, ClusterOptions]:
    """By cluster. limit: the rate limit of all logs together. Pass the same one each time, so that options
    compare equal where nothing changed."""
    more = {name: getattr(config, name) for name in OPTIONS}
    several = len(config.clusters) > 1
    return {
        name: ClusterOptions(
            base=ForwarderOptions(
                bootstrap_servers=cluster.bootstrap_servers,
                settings=cluster.client_settings(),
                cursor=config.cursor_of(name),
                commit_s=config.commit_seconds,
                shared_limit=limit,
                waits=waits,
                **more,
            ),
            topic=config.topic,
            rules=config.rules,
            cluster=name,
            default_cluster=config.default_cluster if several else name,
            other_cursors={
                other: config.cursor_of(other)
                for other in config.clusters
                if other != name and cluster.cursor is None
            },
            files=stamps(cluster.settings),
            archives=config.archive is not None,
        )
        for name, cluster in config.clusters.items()
    }
