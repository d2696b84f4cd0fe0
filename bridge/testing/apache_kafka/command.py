"""`cluster`: runs a real Apache Kafka in the foreground, for development and tests."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aolog.cli.output import json_option, out, to_stderr
from bridge.cli.options import pairs_of
from bridge.cli.running import on_signals

if TYPE_CHECKING:
    from bridge.testing.apache_kafka.server import KafkaServer


_LOOK_S = 0.2


@click.command
@click.option(
    "--nodes", type=click.Choice(["1", "3"]), default="1", show_default=True,
    help="3: replicated, and one node may die.",
)  # fmt: skip  # options read best one a line
@click.option("--tls", is_flag=True, help="Clients connect with TLS; a certificate is made.")
@click.option("--sasl", is_flag=True, help="Clients authenticate with SASL PLAIN; a user is made.")
@click.option(
    "--jars", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of Kafka's jars, such as libs of its distribution."
    "  [default: fetched through Maven once]",
)  # fmt: skip  # as above
@click.option(
    "--server-config", "config", multiple=True, metavar="KEY=VALUE", callback=pairs_of,
    help="A property of the servers, such as num.partitions=1. Repeatable.",
)  # fmt: skip  # as above
@json_option
def cluster(
    *, nodes: str, tls: bool, sasl: bool, jars: Path | None, config: dict[str, str], as_json: bool
) -> None:
    """Run Apache Kafka (KRaft) on loopback until it is interrupted, and delete its data then.

    It needs Java 17 or later. When it is ready, it prints the servers and a properties file with
    librdkafka's settings for clients; --json prints one object: bootstrap_servers, settings,
    properties, nodes. With --tls or --sasl the nodes also have a plain listener among themselves.

    \b
    Examples, the second in another terminal:
      aolog-bridge cluster --nodes 3
      aolog-bridge topics --bootstrap-servers 127.0.0.1:PORT,...

    \b
    Exit status:
      0  stopped by SIGINT or SIGTERM
      2  usage
      6  Kafka cannot run here, or it ended by itself
    """
    from bridge.errors import DestinationError
    from bridge.testing.apache_kafka.access import LISTENER, make_access
    from bridge.testing.apache_kafka.cluster import KafkaCluster
    from bridge.testing.apache_kafka.server import KafkaServer

    stopped = threading.Event()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aolog-kafka-")))
        access = make_access(directory, tls=tls, sasl=sasl)
        own = access.config | config
        if not as_json:
            to_stderr("aolog-bridge: Kafka starts, which takes seconds")
        on_signals(stopped.set, stopped.set)  # a terminal that is closed sends SIGHUP
        running: KafkaServer | KafkaCluster
        if nodes == "1":
            running = KafkaServer(directory / "1", own, access.listeners, jars=jars)
            servers = [running]
        else:
            running = KafkaCluster(directory, own, access.listeners, jars)
            servers = list(running.nodes.values())
        stack.enter_context(running)
        reach = running.bootstrap_of(LISTENER) if access.listeners else running.bootstrap_servers
        settings = {"bootstrap.servers": reach, **access.settings}
        properties = directory / "client.properties"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if as_json:
            of_nodes = [{"pid": each.pid, "data": os.fspath(each.data)} for each in servers]
            out.json({
                "bootstrap_servers": reach, "settings": access.settings,
                "properties": os.fspath(properties), "nodes": of_nodes,
            })  # fmt: skip  # one object
        else:
            out.line(f"bootstrap servers: {reach}")
            out.line(f"properties file:   {properties}")
            options = "".join(f" -X {key}={value}" for key, value in access.settings.items())
            out.line(f"options:           --bootstrap-servers {reach}{options}")
        out.flush()
        while not stopped.wait(_LOOK_S):
            for server in servers:
                if not server.is_alive():
                    raise DestinationError(f"a node of Kafka ended:\n{server.log_tail()}")
