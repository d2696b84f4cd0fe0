"""`top`: a running bridge's status, live on the terminal."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.cursor_state import LAG_HEAD, lag_words
from aolog.cli.output import human_seconds
from aolog.errors import one_line
from bridge.cli.advice import advice_of
from bridge.cli.running import on_signals
from bridge.cli.status import ask
from bridge.deliver.status import pending

if TYPE_CHECKING:
    from rich.table import Table

_EVERY_S = 1.0
_STYLES = {"live": "green", "draining": "blue", "connecting": "yellow", "blocked": "red"}


@click.command(short_help="Watch a running bridge.")
@click.option(
    "--http", metavar="HOST:PORT", default="127.0.0.1:9100", show_default=True,
    help="Address of the running bridge, as in `run --http`.",
)  # fmt: skip  # options read best one a line
@click.option("--once", is_flag=True, help="Print one picture and end.")
def top(*, http: str, once: bool) -> None:
    """Show the logs of a running bridge, the most urgent first, until Ctrl-C.

    \b
    Examples:
      aolog-bridge top
      aolog-bridge top --http 127.0.0.1:9100 --once

    \b
    Exit status: 0 ended by Ctrl-C, 6 no bridge answers, or it has ended.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console()
    found = ask(http)  # fails before anything is drawn
    if once or not sys.stdout.isatty():
        console.print(_picture(found, None, console.height))
        return
    before: dict[str, Any] | None = None
    over = threading.Event()
    on_signals(over.set)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_picture(found, before, console.height), refresh=True)
            if over.wait(_EVERY_S):
                return
            before, found = found, ask(http)


def _picture(found: dict[str, Any], before: dict[str, Any] | None, height: int) -> Table:
    """The logs as a table; its title has the numbers of all together, which add up."""
    from rich.table import Table
    from rich.text import Text

    whole = found["overview"]
    left = pending(whole["lag_records"], whole["ahead_records"])
    oldest = "none" if left == 0 else _seconds(whole["lag_seconds"])
    title = Text.assemble(
        (whole["state"], _STYLES.get(whole["state"], "")),
        f"  oldest unsent {oldest}  {whole['rate']:,.0f}/s  ",
        f"{whole['acknowledged']:,} acknowledged, {_number(left)} pending, "
        f"{whole['dead_lettered']:,} in dead letters, {whole['dropped']:,} dropped, "
        f"{whole['lost_records']:,} lost",
    )
    table = Table(title=title, expand=True, title_justify="left")
    reason = "REASON, WHAT TO DO"
    for name in ("LOG", "STATE", *LAG_HEAD, "PER SECOND", "LOST", reason):
        table.add_column(name, justify="left" if name in {"LOG", "STATE", reason} else "right")
    earlier = {} if before is None else {(x["log"], x["cluster"]): x for x in before["logs"]}
    logs = sorted(found["logs"], key=_urgency, reverse=True)
    shown = max(3, height - 8)
    for log in logs[:shown]:
        was = earlier.get((log["log"], log["cluster"]))
        rate = log.get("rate") if was is None else log["acknowledged"] - was["acknowledged"]
        lag = lag_words(log["lag_records"], log["lag_bytes"], log["lag_seconds"])
        table.add_row(
            Text(one_line(log["log"])),
            Text(log["state"], _STYLES.get(log["state"], "")),
            *("?" if word is None else str(word) for word in lag),
            _number(rate),
            f"{log['lost_records']:,}",
            Text("; ".join(filter(None, (one_line(log["error"] or ""), advice_of(log))))),
        )
    if len(logs) > shown:
        table.caption = f"{len(logs) - shown:,} more"
    return table


def _urgency(log: dict[str, Any]) -> tuple[bool, bool, float]:
    return log["error"] is not None, log["state"] == "blocked", log["lag_seconds"] or 0.0


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "?" if value is None else human_seconds(value)
