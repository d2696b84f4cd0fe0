"""The root of the command line: the list of commands. Errors end as aolog's do."""

from __future__ import annotations

import click

import aolog
from aolog.cli.failing import CONTEXT_SETTINGS, Root

_COMMANDS = {
    "broker": ("bridge.simulate.broker_command", "Run a broker to try things out."),
    "check-config": ("bridge.cli.check_config", "Show what a configuration would run."),
    "cluster": ("bridge.testing.apache_kafka.command", "Run a real Apache Kafka, for development."),
    "consume": ("bridge.client.consume_command", "Print the records of a topic."),
    "cursors": ("bridge.cli.cursors", "Show the cursors of bridges."),
    "demo": ("bridge.simulate.demo.command", "Watch an outage and a kill lose nothing."),
    "files": ("bridge.client.files.command", "Files to a topic, or a topic to files."),
    "ingest": ("bridge.ingest.command", "Take records over HTTP into logs."),
    "mirror": ("bridge.pull.commands.mirror", "Copy topics from one cluster to another."),
    "offsets": (
        "bridge.pull.commands.topics",
        "Show offsets, lag of a group; set a group's offsets.",
    ),
    "pull": ("bridge.pull.commands.pull", "Write topics to a log."),
    "replay": ("bridge.cli.replay", "Send a range, or dead letters, again."),
    "run": ("bridge.cli.run", "Forward logs to topics."),
    "seek": ("bridge.cli.seek", "Move a bridge's cursor."),
    "simulate": ("bridge.simulate.command", "Try faults on a page in the browser."),
    "status": ("bridge.cli.status", "Show a bridge's status."),
    "top": ("bridge.cli.top", "Watch a running bridge."),
    "topics": ("bridge.pull.commands.topics", "List, describe or create topics."),
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
