"""The root of the command line: the list of commands. Errors end as aolog's do."""

from __future__ import annotations

import click

import aolog
from aolog.cli.failing import CONTEXT_SETTINGS, Root

_COMMANDS = {
    "broker": ("bridge.simulate.command", "Run the embedded broker on loopback."),
    "check-config": ("bridge.cli.check_config", "Check FILE and show what `run` would do with it."),
    "cluster": ("bridge.testing.apache_kafka.command", "Run Apache Kafka (KRaft) on loopback."),
    "consume": ("bridge.client.consume_command", "Print the records of TOPIC as they come."),
    "cursors": ("bridge.cli.cursors", "Show the cursors of bridges on LOG."),
    "demo": ("bridge.simulate.command", "Watch real records survive an outage and a kill."),
    "files": ("bridge.client.files.command", "Run one of hazdev-broker's file clients."),
    "ingest": ("bridge.ingest.command", "Answer a POST when its records are durable in a log."),
    "mirror": ("bridge.pull.commands.mirror", "Copy topics to another cluster, through a log."),
    "offsets": ("bridge.pull.commands.topics", "Show the offsets of partitions, and of a group."),
    "pull": ("bridge.pull.commands.pull", "Write the records of topics to a log, each once."),
    "replay": ("bridge.cli.replay", "Send a range of LOG again, or its dead letters."),
    "run": ("bridge.cli.run", "Forward logs to topics."),
    "seek": ("bridge.cli.cursors", "Move the cursor of the bridge of LOG."),
    "simulate": ("bridge.simulate.command", "Run log and bridge with a page to break them."),
    "status": ("bridge.cli.status", "Show the status of a running bridge."),
    "top": ("bridge.cli.top", "Show the status of a running bridge, the most urgent logs first."),
    "topics": ("bridge.pull.commands.topics", "List topics, describe one, or create one."),
}


class _Root(Root):
    program = error_prefix = "aolog-bridge"


@click.group(cls=_Root, name="aolog-bridge", table=_COMMANDS, context_settings=CONTEXT_SETTINGS)
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
