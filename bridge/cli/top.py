"""`top`: a running bridge's status, live on the terminal."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aolog.errors import one_line
from bridge.cli.log_table import Line, lines_of
from bridge.cli.running import on_signals
from bridge.cli.status import ask, headlines

if TYPE_CHECKING:
    from rich.text import Text

_EVERY_S = 1.0
_LOOK_S = 0.1  # for a key, and for a signal
_STYLES = {
    "live": "green", "draining": "blue", "limited": "blue", "connecting": "yellow", "paused": "yellow",
    "blocked": "red",
}  # fmt: skip  # a table
_DEAD = {"stalled", "no answer", "refuses"}  # nothing is green under such a cluster
_KEYS = "q quit   o order: {order}"


def _urgency(log: dict[str, Any]) -> tuple[object, ...]:
    urgent = log["error"] is not None, log["state"] == "blocked", log["lag_seconds"] or 0.0
    return tuple(-part for part in urgent)


ORDERS: dict[str, Callable[[dict[str, Any]], tuple[object, ...]]] = {
    "the most urgent first": _urgency,
    "by name": lambda log: (log["log"], log["cluster"]),
    "the fastest first": lambda log: (-(log.get("rate") or 0),),
    "the most pending first": lambda log: (-(log["lag_records"] or 0),),
}


@click.command
@click.option(
    "--http", metavar="HOST:PORT", default="127.0.0.1:9100", show_default=True,
    help="Address of the running bridge, as in `run --http`.",
)  # fmt: skip  # options read best one a line
def top(*, http: str) -> None:
    """Show the status of a running bridge, the most urgent logs first, until `q` or Ctrl-C.

    Below a log that waits are the reason and what to do. `o` changes the order.

    \b
    Examples:
      aolog-bridge top
      aolog-bridge top --http 127.0.0.1:9100

    \b
    Exit status: 0 ended by `q` or Ctrl-C, 6 no bridge answers, or it has ended.
    """
    from rich.live import Live

    from bridge.cli.console import Console

    console = Console()
    found = ask(http)  # fails before anything is drawn
    orders = list(ORDERS)
    if not sys.stdout.isatty():
        console.print(picture(found, console.width, None, orders[0]), soft_wrap=True)
        return
    over = threading.Event()
    on_signals(over.set)
    with _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while not over.is_set():
            live.update(picture(found, console.width, console.height, orders[0]), refresh=True)
            pressed = ""
            for _ in range(round(_EVERY_S / _LOOK_S)):
                pressed = key(_LOOK_S, over)
                if pressed or over.is_set():
                    break
            if pressed == "q":
                return
            if pressed == "o":
                orders.append(orders.pop(0))
            else:
                found = ask(http)


@contextmanager
def _keys() -> Iterator[Callable[[float, threading.Event], str]]:
    """A function that waits for a key so long; "" if none came, or standard input is no terminal."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def key(wait_s: float, over: threading.Event) -> str:
        if not select.select([fd], [], [], wait_s)[0]:
            return ""
        return os.read(fd, 1).decode("latin-1") or _no_key(wait_s, over)  # the terminal is gone

    try:
        tty.setcbreak(fd)
        yield key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _no_key(wait_s: float, over: threading.Event) -> str:
    over.wait(wait_s)
    return ""


def _fitting(lines: list[Line], room: int) -> list[Line]:
    """The first logs, each with all of its lines, and how many more there are."""
    if len(lines) <= room:
        return lines
    begins = [i for i, line in enumerate(lines) if line.of == "log"]
    shown = max([i for i in begins if i < room], default=0)
    left = sum(i >= shown for i in begins)
    return [*lines[:shown], Line(f"{left:,} more", "note")]


def picture(found: dict[str, Any], width: int, height: int | None, order: str) -> Text:
    """What fits. found: `/status`. order: one of ORDERS. height: None: all logs, without the keys."""
    import textwrap

    from rich.text import Text

    first, *others = headlines(found)
    coming = found.get("summary", {}).get("records_in_per_s")
    if coming is not None:
        first += f", {coming:,.0f}/s in"
    head = [part for line in (first, *others) for part in textwrap.wrap(one_line(line), width)]
    lines = lines_of(sorted(found["logs"], key=ORDERS[order]), width)
    if height is not None:
        lines = _fitting(lines, max(4, height - len(head) - 3))
    dead = any(cluster["state"] in _DEAD for cluster in found.get("clusters", ()))
    text = Text("\n".join(head) + "\n\n", style="", no_wrap=True)
    for line in lines:
        row = Text(line.text + "\n", style={"head": "bold", "note": "dim"}.get(line.of, ""))
        style = _STYLES.get(line.state, "")
        if line.of == "log" and not (dead and style == "green"):
            row.stylize(style, line.at, line.at + len(line.state))
        text.append_text(row)
    if height is not None:
        blank = max(0, height - text.plain.count("\n") - 1)
        text.append("\n" * blank + _KEYS.format(order=order)[: width - 1], style="reverse")
    return text
