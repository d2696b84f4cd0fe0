"""`demo`: the whole path, with an embedded broker."""

from __future__ import annotations

import sys

import click

from aolog.cli.parse import DIRECTORY


@click.command
@click.argument(
    "files", nargs=-1, type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=False)
)
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.option("--keep", type=DIRECTORY, help="Keep the log in this directory.")
def demo(files: tuple[str, ...], *, as_json: bool, keep: str | None) -> None:
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
    from bridge.simulate.demo.demo import run_demo

    sys.exit(run_demo(files, as_json=as_json, keep=keep))
