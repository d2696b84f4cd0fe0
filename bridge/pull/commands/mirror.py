"""`mirror`: pull, then run, in one process: from one cluster through a log to another one."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
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
    from collections.abc import Callable, Iterator

    from bridge.config.models import Config
    from bridge.config.secrets import Setting
    from bridge.operate.log_lines import LogFormat
    from bridge.pull.puller import Puller
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
    """Copy the committed records of topics to topics of the same names in another cluster.

    The log between keeps what the destination has not acknowledged: `aolog-bridge status --log LOG`
    shows how much that is. Without --max-bytes it grows as long as the destination is away; what has
    arrived stays until `aolog prune LOG --max-bytes 1`. Delivery is at_least_once, as of
    `run`. A record that came from the destination is not sent back to it: its header
    aolog-origin-kafka names the clusters that it came through. So two mirrors may run in opposite
    directions.

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
    supervisor, report_sent = Supervisor(config, drain=drain), _report_sent(as_json=as_json)

    def stop() -> None:
        puller.stop()
        supervisor.stop()

    signals = on_signals(stop)
    if drain:
        puller.run(report_pull(as_json=as_json))
        status = 0 if signals else supervisor.run(report_sent, every_s=config.status_seconds)
        done = puller.status().state == "drained" and supervisor.drained
        sys.exit(INTERRUPTED + signals[-1] if signals and not done else status)
    bounded = max_bytes is not None
    with _pulling(puller, config, bounded=bounded, as_json=as_json, on_end=supervisor.stop):
        status = supervisor.run(report_sent, every_s=config.status_seconds)
    sys.exit(status)


def _report_sent(*, as_json: bool) -> Callable[[Overview], None]:
    """Log lines beside those of the pull; with --json the lines are the pull's alone."""
    lines = LogLines()

    def report(status: Overview) -> None:
        if not as_json:
            lines(status.state, words(status._asdict()), status.error)

    return report


@contextmanager
def _pulling(
    puller: Puller, config: Config, *, bounded: bool, as_json: bool, on_end: Callable[[], None]
) -> Iterator[None]:
    """Pulls beside the block; into a bounded log only once the bridge has begun its cursor, as until then
    the log would delete what was not sent."""
    report, ending = report_pull(as_json=as_json), threading.Event()
    (path,), cursor = config.logs, config.cursor_of(config.default_cluster)

    def pull() -> None:
        while bounded and cursor not in cursor_names(path, Storage()) and not ending.wait(_LOOK_S):
            pass
        puller.run(report)

    def stop() -> None:
        ending.set()
        puller.stop()

    with beside(pull, stop=stop, on_end=on_end):
        yield
