"""The root of the command line: the list of commands. Errors end as aolog's do."""

from __future__ import annotations

import click

import aolog
from aolog.cli.failing import CONTEXT_SETTINGS, Root
from bridge.cli.broker import broker
from bridge.cli.check_config import check_config
from bridge.cli.cluster import cluster
from bridge.cli.consume import consume
from bridge.cli.cursors import cursors
from bridge.cli.demo.command import demo
from bridge.cli.files import files
from bridge.cli.ingest import ingest
from bridge.cli.mirror import mirror
from bridge.cli.pull import pull
from bridge.cli.replay import replay
from bridge.cli.run import run
from bridge.cli.seek import seek
from bridge.cli.simulate import simulate
from bridge.cli.status import status
from bridge.cli.top import top
from bridge.cli.topics import offsets, topics


class _Root(Root):
    program = error_prefix = "aolog-bridge"


@click.group(cls=_Root, name="aolog-bridge", context_settings=CONTEXT_SETTINGS)
@click.version_option(aolog.__version__, prog_name="aolog-bridge", message="%(prog)s %(version)s")
def main() -> None:
    """Drain append-only logs to Kafka: in order, through outages, crashes and restarts.

    \b
    Examples:
      aolog-bridge demo           # see it work, on a broker of its own
      aolog-bridge run --log LOG --topic events --bootstrap-servers kafka:9092
      aolog-bridge run --root LOGS --bootstrap-servers kafka:9092
      aolog-bridge run --config bridge.toml
    """


for _command in (
    run, status, top, check_config, seek, replay, cursors, files, demo, simulate, broker, cluster, pull,
    topics, offsets, consume, ingest, mirror,
):  # fmt: skip  # a list
    main.add_command(_command)
