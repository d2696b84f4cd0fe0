"""The commands `simulate` (the simulator's page), `demo` (the whole path on real input), and `broker` (the embedded
broker in the foreground, to try things out without Kafka)."""

from __future__ import annotations

import sys
import threading
import time

import click

from aolog.cli.output import out, to_stderr
from bridge.cli.options import TOPIC
from bridge.cli.running import on_signals

_PARTITIONS = 4  # as in topics that the broker creates itself
_FETCH, _LOOK_S = 1_000, 0.2


@click.command
@click.option(
    "--http", metavar="HOST:PORT", default="127.0.0.1:9109", show_default=True,
    help="Where to serve the page: a loopback address.",
)  # fmt: skip  # options read best one a line
def simulate(*, http: str) -> None:
    """Run log and bridge with a page to break them: the real ones, against the embedded broker.

    The page has sliders for the input rate and the output delay, buttons for faults (broker down,
    disk full, kill -9, a crash of the program after append, flush or sync) and a switch for the modes
    of Buffer. Lost and repeated records are counted by a consumer, and are always in sight. The log
    is in a temporary directory, which is removed at the end. Ends at Ctrl-C.

    \b
    Examples:
      aolog-bridge simulate
      aolog-bridge simulate --http 127.0.0.1:8000
    """
    from bridge.operate.access import Access
    from bridge.simulate.routes import serving
    from bridge.simulate.simulation import Simulation

    access = Access(http)
    access.address()  # an unusable address is refused before anything starts
    over = threading.Event()
    on_signals(over.set)
    with Simulation() as simulation, serving(access, simulation) as (host, port):
        out.line(f"http://{host}:{port}/")
        out.flush()
        over.wait()


@click.command
@click.argument(
    "files", nargs=-1, type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=False)
)
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
def demo(files: tuple[str, ...], *, as_json: bool) -> None:
    """Watch real records survive an outage and a kill on their way to an embedded broker.

    Appends the lines of FILES (by default the text of this Python's standard library) to a log,
    forwards them to a broker that goes down and comes back, kills the forwarding process once,
    reads everything back and compares. Nothing leaves this machine.

    \b
    Examples:
      aolog-bridge demo
      aolog-bridge demo /var/log/syslog

    Exit status 0 only if nothing is missing, repeated or out of order.
    """
    from bridge.simulate.demo import run_demo

    sys.exit(run_demo(files, as_json=as_json))


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
    from bridge.client.consume_command import print_line
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
