"""How a configuration has logs forwarded: by cluster, everything that a forwarder is made of but the
log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.forwarder import OPTIONS, Forwarder
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

    def __repr__(self) -> str:  # settings hold secrets
        return f"Plan({self.cluster!r})"

    def forwarder(self, name: str, path: str, **more: Any) -> Forwarder:
        """Opens the log. Raises what Forwarder does."""
        routing = Routing(
            self.topic,
            self.rules,
            log=name,
            cluster=self.cluster,
            default_cluster=self.default_cluster,
        )
        options = {**self.options, **more}
        settings = {**options.pop("settings_by_default", {}), **options.pop("settings", {})}
        return Forwarder(path, routing=routing, settings=settings, **options)


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
        )
        for name, cluster in config.clusters.items()
    }
