"""`broker`: runs the embedded broker in the foreground, to try things out without Kafka."""

from __future__ import annotations

import time

import click

from aolog.cli.output import out, to_stderr
from bridge.cli.options import TOPIC
from bridge.client.consume_command import print_line

_PARTITIONS = 4  # as in topics that the broker creates itself
_FETCH, _LOOK_S = 1_000, 0.2


@click.command
@click.option(
    "--topic", "topics", multiple=True, type=TOPIC,
    help="Print the records that arrive in this topic. Repeatable.",
)  # fmt: skip  # options read best one a line
def broker(*, topics: tuple[str, ...]) -> None:
    """Run the embedded broker on loopback until it is interrupted. Prints its HOST:PORT first.

    Use it only to try things out: it keeps 5 MiB of each partition, in memory, deletes the oldest
    records without a warning, and ends with this command. It creates a topic, with 4 partitions, when
    a client uses it. `consume` and exactly_once do not work with it; --topic shows what arrives.

    \b
    Examples, the second in another terminal:
      aolog-bridge broker --topic events
      aolog-bridge run --log LOG --topic events --bootstrap-servers 127.0.0.1:PORT
    """
    from bridge.kafka.embedded import EmbeddedBroker
    from bridge.kafka.fetcher import Fetcher

    with EmbeddedBroker() as running:
        for topic in dict.fromkeys(topics):
            running.create_topic(topic, _PARTITIONS)
        to_stderr(
            "aolog-bridge: warning: this broker keeps records in memory; they are gone when it ends"
        )
        out.line(running.bootstrap_servers)
        out.flush()
        if topics:
            fetcher = Fetcher(running.bootstrap_servers, {})
            fetcher.assign({(topic, part): 0 for topic in topics for part in range(_PARTITIONS)})
            while not (found := fetcher.fetch(_FETCH, _LOOK_S)).out_of_range:
                for message in found.messages:
                    print_line(message)
                out.flush()
            to_stderr(
                "aolog-bridge: warning: nothing is printed any more: the broker deleted records"
            )
        while True:
            time.sleep(_LOOK_S)
