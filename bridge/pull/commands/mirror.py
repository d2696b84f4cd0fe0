"""`mirror`: pull, then run, in one process: from one cluster through a log to another one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aolog.cli.output import json_option
from aolog.cli.parse import DIRECTORY
from aolog.errors import UsageError
from bridge.cli.options import TOPIC, checked, log_format_option, settings_of
from bridge.cli.running import INTERRUPTED, beside, on_signals
from bridge.pull.commands.pull import renewing, report_pull
from bridge.pull.commands.topics import catalog_of

if TYPE_CHECKING:
    from bridge.config.secrets import Setting
    from bridge.operate.log_lines import LogFormat


@click.command
@click.option("--topic", "topics", multiple=True, required=True, type=TOPIC, help="Repeatable.")
@click.option("--log", "path", type=DIRECTORY, required=True, help="The log between; created.")
@click.option("--from-servers", required=True, metavar="HOST:PORT[,...]", help="The source.")
@click.option("--to-servers", required=True, metavar="HOST:PORT[,...]", help="The destination.")
@click.option(
    "--from-set", "from_settings", multiple=True, metavar="KEY=VALUE", callback=settings_of,
    help="A setting of librdkafka for the source. Repeatable.",
)  # fmt: skip  # options read best one a line
@click.option(
    "--to-set", "to_settings", multiple=True, metavar="KEY=VALUE", callback=settings_of,
    help="The same for the destination.",
)  # fmt: skip  # as above
@click.option("--drain", is_flag=True, help="End when all that is in the source now is copied.")
@log_format_option
@json_option
def mirror(
    *, topics: tuple[str, ...], path: str, from_servers: str, to_servers: str,
    from_settings: dict[str, Setting], to_settings: dict[str, Setting], drain: bool, as_json: bool,
    log_format: LogFormat,
) -> None:  # fmt: skip  # as the options
    """Copy the committed records of topics to topics of the same names in another cluster.

    The log between keeps what the destination has not acknowledged. Delivery is at_least_once, as of
    `run`. A record that came from the destination is not sent back to it: its header
    aolog-origin-kafka names the clusters that it came through. So two mirrors may run in opposite
    directions.

    \b
    Example:
      aolog-bridge mirror --topic t --log LOG --from-servers a:1 --to-servers b:1

    \b
    Exit status: as of pull, and of run.
    """
    from bridge.config.load import load
    from bridge.kafka.catalog import Catalog
    from bridge.operate.log_lines import set_up
    from bridge.pull.pull_options import PullOptions
    from bridge.pull.puller import Puller
    from bridge.supervise.supervisor import Supervisor

    destination = catalog_of(to_servers, to_settings).cluster_id()
    values = checked(from_servers, from_settings)
    if Catalog(from_servers, values).cluster_id() == destination:
        raise UsageError("the source and the destination are one cluster", hint="name two clusters")
    set_up(log_format)
    config = load(
        None,
        {
            "logs": [path],
            "clusters.bootstrap_servers": to_servers,
            "clusters.settings": to_settings,
        },
    )
    renewed = renewing(from_servers, from_settings)
    puller = Puller(PullOptions(
        from_servers, topics, path, values, drain=drain, skip_clusters=frozenset({destination}),
        renewed=renewed,
    ))  # fmt: skip  # one value
    supervisor = Supervisor(config, drain=drain)

    def stop() -> None:
        puller.stop()
        supervisor.stop()

    signals = on_signals(stop)
    if drain:
        puller.run(report_pull(as_json=as_json))
        status = 0 if signals else supervisor.run(lambda _: None, every_s=config.status_seconds)
        done = puller.status().state == "drained" and supervisor.drained
        sys.exit(INTERRUPTED + signals[-1] if signals and not done else status)
    report = report_pull(as_json=as_json)
    with beside(lambda: puller.run(report), stop=puller.stop, on_end=supervisor.stop):
        status = supervisor.run(lambda _: None, every_s=config.status_seconds)
    sys.exit(status)
