"""How a configuration has logs forwarded: by cluster, everything that a forwarder is made of but the
log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.log.names import cursor_path
from aolog.storage.storage import Storage
from bridge.config.routing import Routing, Rule
from bridge.deliver.checkpoints import Checkpoints
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.options import OPTIONS, ForwarderOptions
from bridge.errors import OtherCluster

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.config.models import Config
    from bridge.deliver.rate_limit import RateLimit

__all__ = ["Plan", "plans"]


class Plan(NamedTuple):
    """How a log is forwarded to a cluster; the forwarder is made anew where it changes."""

    options: dict[str, Any]
    topic: str | None
    rules: list[Rule]
    cluster: str
    default_cluster: str
    others: dict[str, str]  # the other clusters' cursors; none where its own one is written out

    def __repr__(self) -> str:  # settings hold secrets
        return f"Plan({self.cluster!r})"

    def forwarder(self, name: str, path: str, *, named: bool = True, **more: Any) -> Forwarder:
        """Opens the log. Raises what Forwarder does. named: False for one log without rules, of
        which no configuration names the cluster: its checkpoints keep the name that one gave, and
        its routing's fingerprint is as in earlier releases. (Another one is sent records again.)"""
        routing = Routing(self.topic)
        if named:
            routing = Routing(
                self.topic,
                self.rules,
                log=name,
                cluster=self.cluster,
                default_cluster=self.default_cluster,
            )
        options = {"cluster": self.cluster if named else "", **self.options, **more}
        settings = {**options.pop("settings_by_default", {}), **options.pop("settings", {})}
        run = {key: options.pop(key) for key in ("drain_to", "losses") if key in options}
        how = ForwarderOptions(routing=routing, settings=settings, **options)
        return Forwarder(path, how, **run)

    def check_cursor(self, path: str) -> None:
        """A cursor that only the default has named may be another's by now: behind a change of the
        default it would pass what that one has not, and a new one would begin anew where the
        cluster has one already. Raises OtherCluster."""
        if not self.others:
            return
        storage, own = Storage(), self.options["cursor"]

        def check(cursor: str, names: Collection[str]) -> None:
            notes = Checkpoints.load(path, cursor, storage, topic_uuid=None, begun=False)
            if notes.cluster.name in names:
                raise OtherCluster(
                    f"{cursor!r} is the cursor of cluster {notes.cluster.name!r} in this log, and "
                    f"the configuration gives {own!r} to {self.cluster!r}",
                    hint="another cluster has become the default: write each one's `cursor`",
                    path=path,
                )

        check(own, self.others)
        if not storage.exists(cursor_path(path, own)):
            for cursor in self.others.values():
                check(cursor, {self.cluster})


def plans(config: Config, pace: RateLimit) -> dict[str, Plan]:
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
                "shared_limit": pace,
                **more,
            },
            topic=config.topic,
            rules=config.rules,
            cluster=name,
            default_cluster=config.default_cluster if several else name,
            others={
                other: config.cursor_of(other)
                for other in config.clusters
                if other != name and cluster.cursor is None
            },
        )
        for name, cluster in config.clusters.items()
    }
