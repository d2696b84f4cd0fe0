"""`top`: a running bridge's status, live on the terminal."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from aolog.errors import one_line
from bridge.cli.running import on_signals
from bridge.cli.status import HEAD, ask, row_of, summary

if TYPE_CHECKING:
    from rich.table import Table

_EVERY_S = 1.0
_STYLES = {"live": "green", "draining": "blue", "connecting": "yellow", "blocked": "red"}


@click.command
@click.option(
    "--http", metavar="HOST:PORT", default="127.0.0.1:9100", show_default=True,
    help="Address of the running bridge, as in `run --http`.",
)  # fmt: skip  # options read best one a line
def top(*, http: str) -> None:
    """Show the status of a running bridge, the most urgent logs first, until Ctrl-C.

    \b
    Examples:
      aolog-bridge top
      aolog-bridge top --http 127.0.0.1:9100

    \b
    Exit status: 0 ended by Ctrl-C, 6 no bridge answers, or it has ended.
    """
    from rich.live import Live

    from bridge.cli.console import Console

    console = Console()
    found = ask(http)  # fails before anything is drawn
    if not sys.stdout.isatty():
        console.print(_picture(found, console.height))
        return
    over = threading.Event()
    on_signals(over.set)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_picture(found, console.height), refresh=True)
            if over.wait(_EVERY_S):
                return
            found = ask(http)


def _picture(found: dict[str, Any], height: int) -> Table:
    """As many logs as fit."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*HEAD, title=Text(summary(found["overview"])), expand=True, title_justify="left")
    logs = sorted(found["logs"], key=_urgency, reverse=True)
    shown = max(3, height - 8)
    for log in logs[:shown]:
        cells = ("-" if cell is None else one_line(str(cell)) for cell in row_of(log))
        table.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in cells))
    if len(logs) > shown:
        table.caption = f"{len(logs) - shown:,} more"
    return table


def _urgency(log: dict[str, Any]) -> tuple[bool, bool, float]:
    return log["error"] is not None, log["state"] == "blocked", log["lag_seconds"] or 0.0
