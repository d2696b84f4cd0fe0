"""`simulate`: the simulator's page."""

from __future__ import annotations

import threading

import click

from aolog.cli.output import out
from bridge.cli.running import on_signals


@click.command
@click.option(
    "--http", metavar="HOST:PORT", default="127.0.0.1:9109", show_default=True,
    help="Where to serve the page: a loopback address.",
)  # fmt: skip  # options read best one a line
def simulate(*, http: str) -> None:
    """Run the real log and the real bridge against the embedded broker, with a page to break them.

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
