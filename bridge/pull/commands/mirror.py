"""`mirror`: pull, then run, in one process: from one cluster through a log to another one."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from aolog.cli.output import json_option
from aolog.cli.parse import DIRECTORY, SIZE
from aolog.errors import UsageError
from aolog.log.cursor_file import cursor_names
from aolog.storage.storage import Storage
from bridge.cli.options import TOPIC, checked, log_format_option, settings_of
from bridge.cli.report import LogLines, words
from bridge.cli.running import INTERRUPTED, beside, on_signals
from bridge.pull.commands.pull import renewing, report_pull
from bridge.pull.commands.topics import catalog_of

if TYPE_CHECKING:
    from bridge.config.run_options import LogFormat
    from bridge.config.settings import Setting
    from bridge.supervise.status import Overview

_LOOK_S = 0.1  # for the bridge's cursor, at the start


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
@click.option(
    "--max-bytes", type=SIZE, metavar="SIZE",
    help="Largest size of the log between, such as 10G: then the pull waits for the destination."
    " Not with --drain, which pulls all before it sends.",
)  # fmt: skip  # as above
@log_format_option
@json_option
def mirror(
    *, topics: tuple[str, ...], path: str, from_servers: str, to_servers: str,
    from_settings: dict[str, Setting], to_settings: dict[str, Setting], drain: bool, max_bytes: int | None,
    as_json: bool, log_format: LogFormat,
) -> None:  # fmt: skip  # as the options
    """Copy topics to another cluster, through a log.

    Committed records go to topics of the same names. The log keeps what the destination has not
    acknowledged: `aolog-bridge status --log LOG` shows how much that is. Without --max-bytes it grows
    as long as the destination is away; what has arrived stays until `aolog prune LOG --max-bytes 1`.
    Delivery is at_least_once, as of `run`. A record that came from the destination is not sent back
    to it: its header aolog-origin-kafka names the clusters that it came through. So two mirrors may
    run in opposite directions.

    \b
    Example:
      aolog-bridge mirror --topic t --log LOG --from-servers a:1 --to-servers b:1

    \b
    Exit status: as of pull, and of run.
    """
    if drain and max_bytes is not None:
        raise click.UsageError(
            "--max-bytes does not go with --drain, which pulls all before it sends"
        )
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
        renewed=renewed, max_bytes=max_bytes,
    ))  # fmt: skip  # one value
    supervisor, lines = Supervisor(config, drain=drain), LogLines()

    def report_sent(status: Overview) -> None:
        if not as_json:  # otherwise the lines are the pull's alone
            lines(status.state, words(status._asdict()), status.error)

    def stop() -> None:
        puller.stop()
        supervisor.stop()

    signals = on_signals(stop)
    if drain:
        puller.run(report_pull(as_json=as_json))
        status = 0 if signals else supervisor.run(report_sent, every_s=config.status_seconds)
        done = puller.status().state == "drained" and supervisor.drained
        sys.exit(INTERRUPTED + signals[-1] if signals and not done else status)
    cursor = config.cursor_of(config.default_cluster)

    def pull() -> None:
        # A bounded log would delete what was not sent, until the bridge has begun its cursor.
        while max_bytes and not puller.stopping and cursor not in cursor_names(path, Storage()):
            time.sleep(_LOOK_S)
        puller.run(report_pull(as_json=as_json))

    with beside(pull, stop=puller.stop, on_end=supervisor.stop):
        status = supervisor.run(report_sent, every_s=config.status_seconds)
    sys.exit(status)
