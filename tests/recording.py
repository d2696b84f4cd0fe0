"""Records the demo in a pseudo-terminal as an animated picture, for the README.

    python -m tests.recording [--into FILE]

    pseudo-terminal ► pyte (a terminal in memory) ► screens at most every 0.3 s ► SVG

The picture needs no script and no other file. Each row of the terminal is a strip of all that the row
showed, and a CSS animation moves the strip. A viewer that shows no animation, or whose user wants none,
shows the last screen. Its description is the last screen as text.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterable, Sequence
from fcntl import ioctl
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import pyte

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "aolog/docs/images/demo.svg"
COMMAND = "python -m bridge demo"
COLUMNS, LINES = 90, 27
SCREEN_S = 0.3  # shorter screens are left out
QUIET_S = 0.02  # a screen is complete when the command has printed nothing for this time
LAST_SCREEN_S = 12.0  # to read the table
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 14  # of a 14 pixel font
STRIDE = 2 * CELL_HEIGHT  # of a strip; lines of tables are higher than a cell
# Name in the terminal: light, dark. Text has a contrast of at least 4.5 to 1 on its background.
COLOURS = {
    "ground": ("#ffffff", "#0d1117"),
    "default": ("#1f2328", "#e6edf3"),
    "grey": ("#848d97", "#6e7681"),  # lines only
    "red": ("#b3123a", "#ff7b92"),
    "green": ("#116329", "#56d364"),
    "brown": ("#7d4e00", "#e3b341"),
    "blue": ("#0550ae", "#79c0ff"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#0e6470", "#56d4dd"),
}


class Run(NamedTuple):
    """Cells of one style, side by side."""

    column: int
    text: str
    colour: str
    bold: bool


Row = tuple[Run, ...]


class Screen(NamedTuple):
    """What the terminal showed from a moment on."""

    at_s: float
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        """The screen as text, without blank lines at its end."""
        lines = []
        for row in self.rows:
            line = ""
            for run in row:
                line = line.ljust(run.column) + run.text
            lines.append(line)
        return "\n".join(lines).rstrip()


def _colour(name: str) -> str:
    """One of ours for pyte's: a name, or six hexadecimal digits."""
    if name in COLOURS:
        return name
    red, green, blue = bytes.fromhex(name)
    if max(red, green, blue) - min(red, green, blue) < 32:
        return "grey"
    return "red" if red > green else "green"


def _row(screen: pyte.Screen, y: int) -> Row:
    cells = [screen.buffer[y][x] for x in range(screen.columns)]
    while cells and cells[-1].data == " ":
        cells.pop()
    runs, column = [], 0
    for (colour, bold), same in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in same)
        if text.strip():
            runs.append(Run(column, text, _colour(colour), bold))
        column += len(text)
    return tuple(runs)


def record(command: Sequence[str], shown: str) -> list[Screen]:
    """Runs a command in a terminal, after a prompt with `shown`. Returns the screens, the first at 0.
    Raises RuntimeError if the command fails."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {shown}\r\n".encode())
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        os.environ.pop("COLORTERM", None)
        os.execvp(command[0], command)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    begin_s = time.monotonic()
    screens: list[Screen] = []

    def look() -> None:
        rows = tuple(_row(screen, y) for y in range(LINES))
        if not screens or rows != screens[-1].rows:
            screens.append(Screen(time.monotonic() - begin_s if screens else 0.0, rows))

    look()
    try:
        while True:
            if not select.select([terminal], [], [], QUIET_S)[0]:
                if time.monotonic() - begin_s - screens[-1].at_s >= SCREEN_S:
                    look()
                continue
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:  # the command has ended
                break
            if not data:
                break
            stream.feed(data)
    finally:
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    look()
    if status:
        raise RuntimeError(f"{shown} ended with {status}:\n{screens[-1].text}")
    return screens


def _strip(versions: Iterable[Row]) -> str:
    lines = []
    for number, row in enumerate(versions):
        y = number * STRIDE + 13  # the baseline
        runs = []
        for run in row:
            kind = " ".join(["b"] * run.bold + [run.colour] * (run.colour != "default"))
            style = f' class="{kind}"' if kind else ""
            x, width = run.column * CELL_WIDTH, len(run.text) * CELL_WIDTH
            place = f'x="{x:g}" textLength="{width:g}"'
            runs.append(f"<tspan {place}{style}>{escape(run.text)}</tspan>")
        lines.append(f'<text y="{y}">{"".join(runs)}</text>')
    return "".join(lines)


def _styles(number: int) -> str:
    """Colours: the light ones, or the dark ones."""
    ground, *rest = COLOURS.items()
    return f"svg{{fill:{COLOURS['default'][number]}}}#g{{fill:{ground[1][number]}}}" + "".join(
        f".{name}{{fill:{both[number]}}}" for name, both in rest if name != "default"
    )


def picture(screens: Sequence[Screen], title: str) -> str:
    """The screens as an animated SVG."""
    whole_s = screens[-1].at_s + LAST_SCREEN_S
    height = len(screens[-1].text.split("\n"))
    rows, frames = [], []
    for y in range(height):
        versions: list[Row] = []
        moments: list[str] = []
        for screen in screens:
            if not versions or screen.rows[y] != versions[-1]:
                moments.append(
                    f"{100 * screen.at_s / whole_s:.4g}%"
                    f"{{transform:translateY({-len(versions) * STRIDE}px)}}"
                )
                versions.append(screen.rows[y])
        top = MARGIN + y * CELL_HEIGHT
        last = -(len(versions) - 1) * STRIDE
        rows.append(
            f'<svg y="{top}" height="{CELL_HEIGHT}"><g id="r{y}" class="s" '
            f'transform="translate(0 {last})">{_strip(versions)}</g></svg>\n'
        )
        if len(versions) > 1:
            frames.append(f"@keyframes k{y}{{{''.join(moments)}}}#r{y}{{animation-name:k{y}}}\n")
    wide, high = COLUMNS * CELL_WIDTH + 2 * MARGIN, height * CELL_HEIGHT + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high}" '
        f'width="{wide:g}" height="{high}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(screens[-1].text)}</desc>\n'
        "<style>"
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "white-space:pre}.b{font-weight:bold}\n"
        f"{_styles(0)}\n@media (prefers-color-scheme:dark){{{_styles(1)}}}\n"
        f"@media (prefers-reduced-motion:no-preference){{.s{{animation:{whole_s:.1f}s step-end infinite}}\n"
        f"{''.join(frames)}}}</style>\n"
        '<rect id="g" width="100%" height="100%" rx="8"/>\n'
        f'<svg x="{MARGIN}">\n{"".join(rows)}</svg>\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the demo as an animated picture.")
    parser.add_argument("--into", type=Path, default=PICTURE)
    into = parser.parse_args().into
    screens = record([sys.executable, "-m", "bridge", "demo"], COMMAND)
    text = picture(screens, f"A recording of {COMMAND}, {screens[-1].at_s:.0f} seconds")
    into.write_text(text, encoding="utf-8")
    print(screens[-1].text)
    print(f"{into}: {len(screens)} screens, {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
