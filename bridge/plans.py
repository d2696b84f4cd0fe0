"""How a configuration has logs forwarded: by cluster, everything that a forwarder is made of but the
log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.cursor import cursor_path
from aolog.storage import Storage
from bridge.errors import OtherCluster
from bridge.forwarder import OPTIONS, Forwarder
from bridge.lanes import LaneNotes
from bridge.routing import Routing, Rule

if TYPE_CHECKING:
    from bridge.config import Config
    from bridge.pace import Pace

__all__ = ["Plan", "plans"]


class Plan(NamedTuple):
    """How a log is forwarded to a cluster; the forwarder is made anew where it changes."""

    options: dict[str, Any]
    topic: str | None
    rules: list[Rule]
    cluster: str
    default_cluster: str
    others: frozenset[str] = frozenset()  # cursors of the other clusters

    def __repr__(self) -> str:  # settings hold secrets
        return f"Plan({self.cluster!r})"

    def forwarder(self, name: str, path: str, **more: Any) -> Forwarder:
        """Opens the log. Raises what Forwarder does, and OtherCluster."""
        self._check_cursor(path)
        routing = Routing(
            self.topic,
            self.rules,
            log=name,
            cluster=self.cluster,
            default_cluster=self.default_cluster,
        )
        options = {**self.options, **more}
        settings = {**options.pop("settings_by_default", {}), **options.pop("settings", {})}
        return Forwarder(path, routing=routing, settings=settings, cluster=self.cluster, **options)

    def _check_cursor(self, path: str) -> None:
        """A new cursor begins the log anew: not where the cluster has one that is meant for another
        now, as behind a change of the default. Raises OtherCluster."""
        storage, own = Storage(), self.options["cursor"]
        if not self.others or storage.exists(cursor_path(path, own)):
            return
        for each in sorted(self.others):
            notes = LaneNotes.load(path, each, storage, topic_uuid=None, begun=False)
            if notes.cluster.name == self.cluster:
                raise OtherCluster(
                    f"the cursor of cluster {self.cluster!r} is {each!r} in this log, and the "
                    f"configuration gives it {own!r}, which would begin anew",
                    hint="another cluster has become the default: write each one's `cursor`",
                    path=path,
                )


def plans(config: Config, pace: Pace) -> dict[str, Plan]:
    """By cluster. pace: of all logs together; the same one each time, so that plans stay equal
    where nothing changed."""
    more = {name: getattr(config, name) for name in OPTIONS}
    several = len(config.clusters) > 1
    return {
        name: Plan(
            options={
                "bootstrap_servers": cluster.bootstrap_servers,
                "settings": cluster.client_settings(),
                "cursor": config.cursor_of(name),
                "commit_s": config.commit_seconds,
                "prune_delivered": config.retention or False,
                "shared_pace": pace,
                **more,
            },
            topic=config.topic,
            rules=config.rules,
            cluster=name,
            default_cluster=config.default_cluster if several else name,
            others=frozenset(config.cursor_of(other) for other in config.clusters if other != name),
        )
        for name, cluster in config.clusters.items()
    }
