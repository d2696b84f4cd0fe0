"""Options that several commands share, and what their values mean."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.parse import Parsed, log_argument
from aolog.errors import UsageError
from aolog.log.cursor_file import read_position
from aolog.read.start import parse_where
from aolog.storage.storage import Storage
from bridge.config.names import check_servers, check_topic
from bridge.errors import WrongConfiguration

if TYPE_CHECKING:
    from bridge.config.settings import Setting
    from bridge.deliver.forwarder_options import ForwarderOptions

_log = logging.getLogger("bridge")


def settings_of(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, Setting]:
    """From KEY=VALUE, for click."""
    if not pairs:
        return {}
    from bridge.config.settings import settings_of_options

    try:
        return settings_of_options(pairs)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def pairs_of(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """From KEY=VALUE, for click."""
    pairs = [each.partition("=") for each in given]
    if any(not key or not equals for key, equals, _ in pairs):
        raise click.BadParameter("use KEY=VALUE")
    return {key: value for key, _, value in pairs}


def checked(servers: str | None, settings: dict[str, Setting]) -> dict[str, Any]:
    """Settings for the client. Warns of secrets that others can read. Raises UsageError and WrongSetting;
    connects to nothing."""
    from bridge.config.settings import exposures, plain_values
    from bridge.kafka.settings import check

    if servers is not None:
        check_servers(servers)
    warn_of(exposures(settings))
    values = plain_values(settings)
    check(values)
    return values


def warn_of(exposures: list[str]) -> None:
    """Logs how others on this machine can read secrets."""
    for exposure in exposures:
        _log.warning("%s", exposure)


TOPIC = Parsed("text", check_topic)
settings_option = click.option(
    "-X", "--set", "settings", multiple=True, metavar="KEY=VALUE", callback=settings_of,
    help="A setting of librdkafka. Repeatable. A secret: KEY={file=PATH}.",
)  # fmt: skip  # options read best one a line
log_format_option = click.option(
    "--log-format", type=click.Choice(["auto", "text", "json"]), default="auto", show_default=True,
    help="Format of log lines; auto: JSON unless standard error is a terminal.",
)  # fmt: skip  # as above
create_topics_option = click.option(
    "--create-topics", type=click.Choice(["auto", "never"]),
    help="A missing topic: let the cluster create it with its own defaults, if it allows that, or"
    " wait for it.  [default: auto]",
)  # fmt: skip  # as above
read_back_option = click.option(
    "--read-back/--no-read-back", default=None,
    help="at_least_once: after a crash or a lost connection, read what has arrived (this needs the"
    " right Read on the topic), or send again what was under way, so that it may arrive twice."
    "  [default: read-back]",
)  # fmt: skip  # as above


def of_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The argument LOG, and the options that choose a cluster and a cursor. The command is called with the
    log, how the bridge forwards it, and its other options."""

    @log_argument
    @click.option("--bootstrap-servers", metavar="HOST:PORT[,...]", help="The cluster.")
    @click.option(
        "--config", "file", type=click.Path(),
        help="The bridge's configuration: cluster, settings, cursor, routes; options override it.",
    )  # fmt: skip  # options read best one a line
    @click.option(
        "--cluster", metavar="NAME",
        help="A cluster of the configuration.  [default: its default cluster]",
    )  # fmt: skip  # as above
    @click.option(
        "--cursor", help="Name of the bridge's cursor.  [default: bridge, or the configuration's]"
    )
    @settings_option
    @wraps(command)
    def with_options(
        log: str, *, bootstrap_servers: str | None, file: str | None, cluster: str | None,
        cursor: str | None, settings: dict[str, Setting], **options: Any,
    ) -> None:  # fmt: skip  # as the options
        how = _options_of(log, bootstrap_servers, file, cluster, cursor, settings)
        command(log, how, **options)

    return with_options


def _options_of(
    log: str, servers: str | None, file: str | None, cluster: str | None, cursor: str | None,
    settings: dict[str, Setting],
) -> ForwarderOptions:  # fmt: skip  # as the options
    """From options, which override a configuration if there is one. No bootstrap_servers and no routing if
    neither has them. Raises UsageError, WrongConfiguration and WrongSetting."""
    from bridge.config.load import load
    from bridge.config.routing import Routing
    from bridge.deliver.forwarder_options import ForwarderOptions

    if file is None:
        if cluster is not None:
            raise UsageError("--cluster needs a configuration", hint="name it with --config")
        return ForwarderOptions(
            bootstrap_servers=servers or "",
            settings=checked(servers, settings),
            cursor=cursor or "bridge",
        )
    try:
        config = load(file)
    except WrongConfiguration:  # it may only lack a root and logs
        config = load(file, {"logs": [log]})
    name = cluster or config.default_cluster
    if name not in config.clusters:
        known = ", ".join(config.clusters)
        raise UsageError(f"the configuration has no cluster {name!r}", hint=f"known are {known}")
    found = config.clusters[name]
    path = Path(log).absolute()
    if config.root is not None and path.is_relative_to(config.root):
        path = path.relative_to(config.root)  # its name in routes
    return ForwarderOptions(
        bootstrap_servers=servers or found.bootstrap_servers,
        settings=checked(servers, {**found.settings, **settings}),
        cursor=cursor or config.cursor_of(name),
        routing=Routing(
            config.topic,
            config.rules,
            log=str(path),
            cluster=name,
            default_cluster=config.default_cluster if len(config.clusters) > 1 else name,
        ),
        create_topics=config.create_topics,
        read_back=config.read_back,
    )


PLACES = """A place is an address, ordinal:N, earliest, latest, a time (2026-01-31T12:00:00Z, UTC unless it
has an offset), a time ago (15m-ago), cursor:NAME, or kafka:TOPIC/PARTITION@OFFSET: the address in
the header of the record at that offset (needs --bootstrap-servers or --config)."""


def address_of(path: str, text: str, how: ForwarderOptions) -> int:
    """The address of a PLACE. Raises UsageError."""
    from bridge.deliver.seek import address_in_kafka, place

    kind, colon, rest = text.partition(":")
    if colon and kind == "cursor":
        return read_position(path, rest, Storage()).address
    if colon and kind == "kafka":
        if not how.bootstrap_servers:
            raise UsageError("kafka:... needs --bootstrap-servers, or --config")
        return address_in_kafka(path, rest, how)
    return place(path, parse_where(text, "cursor:NAME", "kafka:TOPIC/PARTITION@OFFSET"))
