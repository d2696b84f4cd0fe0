"""The pictures of the pages, drawn from what the code does:

    python -m aolog.docs.pictures       writes aolog/docs/images/{addresses,deliveries,full}.svg

`addresses` is a log on a simulated file system whose power is cut; `full` is a log at its bound, once for each
`when_full`. `deliveries` draws the table of this module: what a kill at each step costs. The same code gives the
same files, which a test compares.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from html import escape
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal, NamedTuple

import aolog
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGES = Path(__file__).parent / "images"
# Light, dark. Text has a contrast of at least 4.5 to 1 on the ground.
_COLOURS = {
    "ground": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9198a1"),
    "safe": ("#0550ae", "#79c0ff"),
    "new": ("#116329", "#56d364"),
    "lost": ("#b3123a", "#ff7b92"),
}
_WIDTH = 760


class Drawing:
    """An SVG in the making. Colours are names in _COLOURS."""

    def __init__(self, height: int, title: str, about: str) -> None:
        self._height = height
        self._parts = [
            f"<title>{escape(title)}</title>\n<desc>{escape(about)}</desc>",
            '<rect class="ground" width="100%" height="100%" rx="6"/>',
        ]

    def text(
        self, x: float, y: float, text: str, *, colour: str = "ink", anchor: str = "start", bold: bool = False
    ) -> None:  # fmt: skip  # as the other shapes
        """Text on the line at y; several lines where it has newlines."""
        look = f"{colour} bold" if bold else colour
        for i, line in enumerate(text.split("\n")):
            self._parts.append(
                f'<text class="{look}" x="{x:g}" y="{y + 16 * i:g}" text-anchor="{anchor}">'
                f"{escape(line, quote=False)}</text>"
            )

    def box(
        self, x: float, y: float, width: float, height: float, colour: str, *, opacity: float
    ) -> None:
        """A rectangle with a border."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(
            f'<rect class="{colour} line" {place} fill-opacity="{opacity:g}" rx="2"/>'
        )

    def path(
        self, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False
    ) -> None:
        """A line through the points."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline class="{colour} line" fill="none" points="{at}"{dash}/>')

    def svg(self) -> str:
        """The file."""
        schemes = [
            "\n".join(
                f".{name}{{fill:{pair[i]}}} .{name}.line{{stroke:{pair[i]}}}"
                for name, pair in _COLOURS.items()
            )
            for i in (0, 1)
        ]
        style = (
            f"{schemes[0]}\n@media (prefers-color-scheme: dark) {{\n{schemes[1]}\n}}\n"
            "polyline.line{fill:none;stroke-width:1.5}\n"
            "text{font:13px system-ui,sans-serif;font-variant-numeric:tabular-nums} text.bold{font-weight:600}"
        )
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self._height}" '
            f'width="{_WIDTH}" height="{self._height}" role="img">\n'
            f"<style>\n{style}\n</style>\n{body}\n</svg>\n"
        )


# --- addresses and epochs -------------------------------------------------------------------


class _Frame(NamedTuple):
    begin: int
    end: int
    records: int


def _frames(system: SimulatedSystem) -> list[_Frame]:
    """Of the log: addresses of records increase by one within a frame, and jump between frames."""
    with aolog.Reader("/log", storage=Storage(system)) as reader:
        addresses = [record.address for record in reader]
    found: list[_Frame] = []
    for address in addresses:
        if found and found[-1].end == address:
            found[-1] = found[-1]._replace(end=address + 1, records=found[-1].records + 1)
        else:
            found.append(_Frame(address, address + 1, 1))
    return found


def _append(writer: aolog.Writer, records: int) -> None:
    for _ in range(records):
        writer.append(b"x" * 40)
    writer.flush()


def addresses() -> str:
    """A log before its power is cut, and after the next writer has opened it."""
    system = SimulatedSystem(piece_bytes=512)
    writer = aolog.Writer("/log", storage=Storage(system), flush_seconds=None, sync="never")
    _append(writer, 3)
    _append(writer, 2)
    durable = writer.sync()
    _append(writer, 4)
    seen, end = _frames(system), writer.end
    survivor = min(system.power_cut(limit=100), key=lambda one: len(_frames(one.system)))
    kept = _frames(survivor.system)
    with aolog.Writer("/log", storage=Storage(survivor.system), sync="never") as again:
        begin = again.end
        _append(again, 2)
        new = [frame for frame in _frames(survivor.system) if frame.begin >= begin]
    drawing = Drawing(
        310,
        "Addresses before and after a power cut",
        f"Records up to address {durable} are durable. Readers have seen records up to {end}. After the power "
        f"cut the log ends at {durable}, and the next writer begins a new epoch at {begin}.",
    )
    drawing.text(20, 30, "Before the power cut: epoch 1", bold=True)
    x = _draw_frames(drawing, 20, 48, seen, lambda f: "safe" if f.end <= durable else "lost")
    drawing.text(
        x + 12,
        72,
        "← a reader has seen these four,\n   which are only in the page cache",
        colour="lost",
    )
    drawing.text(20, 126, f"synced: everything before {durable:,} is durable", colour="safe")
    drawing.text(20, 176, "After it: the next writer begins epoch 2", bold=True)
    x = _draw_frames(drawing, 20, 194, kept, lambda _: "safe")
    drawing.box(x, 194, 176, 40, "lost", opacity=0)
    drawing.text(x + 88, 219, "never used again", colour="lost", anchor="middle")
    _draw_frames(drawing, x + 176, 194, new, lambda _: "new")
    drawing.text(
        20, 276,
        f"Epoch 2 begins at {begin:,}, above every address that can have been seen. A cursor at {end:,},\n"
        "or a record in Kafka with such an address, can never be taken for one of the new records.",
    )  # fmt: skip  # one text
    return drawing.svg()


def _draw_frames(
    drawing: Drawing, x: float, y: float, frames: Sequence[_Frame], colour_of: Callable[[_Frame], str]
) -> float:  # fmt: skip  # as the other functions
    """A box for each frame, with its addresses below. Returns where the last one ends."""
    for frame in frames:
        colour, width = colour_of(frame), 40 + 26 * frame.records
        drawing.box(x, y, width, 40, colour, opacity=0.15)
        drawing.text(
            x + width / 2, y + 25, f"{frame.records} records", colour=colour, anchor="middle"
        )
        drawing.text(x, y + 57, f"{frame.begin:,}", colour="soft")
        x += width
    return x


# --- a full log -----------------------------------------------------------------------------

_Policy = Literal["prune", "block", "error"]
_POLICIES: tuple[_Policy, ...] = ("prune", "block", "error")
_STEPS, _OUTAGE = 60, range(10, 40)  # the bridge's cursor does not move in the outage
_RECORD, _BOUND = b"x" * 4000, 160_000
_WAITS_S = 3.0  # an append that takes longer waits for the cursor; others take a millisecond


class _Step(NamedTuple):
    """After one step of the producer, which wants to append one record in each."""

    bytes: int
    appended: bool
    lost: int  # in all


def _fill(policy: _Policy) -> list[_Step]:
    """What becomes of a log at its bound while a cursor stands still, and after that."""
    steps = []
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent, "log")
        retention = aolog.Retention(max_bytes=_BOUND, when_full=policy)
        with aolog.Writer(path, retention=retention, sync="never") as writer:
            writer.flush()
            waiting: Thread | None = None
            with aolog.Reader(path, cursor="bridge") as bridge:
                bridge.commit()
                for i in range(_STEPS):
                    if i not in _OUTAGE:
                        _deliver(bridge)
                    if waiting is not None and i not in _OUTAGE:
                        waiting.join()
                        waiting = None
                    appended = False
                    if waiting is None:
                        waiting, appended = _try(writer, policy)
                    size = sum(slab.stat().st_size for slab in path.glob("*.slab"))
                    lost = sum(gap.records_lost or 0 for gap in writer.pruned_unread.values())
                    steps.append(_Step(size, appended, lost))
    return steps


def _deliver(bridge: aolog.Reader) -> None:
    for _ in bridge:
        pass
    bridge.commit()


def _try(writer: aolog.Writer, policy: _Policy) -> tuple[Thread | None, bool]:
    """Appends a record. Returns the thread of an append that waits, and whether it appended."""

    def append() -> None:
        writer.append(_RECORD)
        writer.flush()

    if policy != "block":
        try:
            append()
        except aolog.RetentionFull:
            return None, False
        return None, True
    thread = Thread(target=append, daemon=True)
    thread.start()
    thread.join(_WAITS_S)
    return (thread, False) if thread.is_alive() else (None, True)


def full() -> str:
    """The size of a log that reaches its bound, for each `when_full`."""
    left, top, width, height, apart = 170, 56, 560, 84, 132
    drawing = Drawing(
        top + apart * len(_POLICIES) + 30,
        "A log that reaches its bound while the bridge's cursor stands still",
        "prune deletes unread records, block makes append wait, error makes append raise.",
    )
    drawing.text(left, 30, "the size of the log; Kafka is away in the shaded part", colour="soft")
    for i, policy in enumerate(_POLICIES):
        steps, y = _fill(policy), top + apart * i
        unit, scale = width / _STEPS, height / (1.15 * _BOUND)
        bottom, bound = y + height, y + height - _BOUND * scale
        drawing.box(
            left + unit * _OUTAGE.start, y, unit * len(_OUTAGE), height, "soft", opacity=0.1
        )
        drawing.path([(left, bound), (left + width, bound)], "soft", dashed=True)
        drawing.path([(left, bottom), (left + width, bottom)], "soft")
        drawing.path([
            (left + unit * (k + 0.5), bottom - step.bytes * scale) for k, step in enumerate(steps)
        ], "safe")  # fmt: skip  # one line of the picture
        lost = [0, *(step.lost for step in steps)]
        for k, step in enumerate(steps):
            if not step.appended or lost[k + 1] > lost[k]:
                drawing.box(left + unit * k + 1, bottom + 3, unit - 2, 8, "lost", opacity=0.8)
        missed = sum(not step.appended for step in steps)
        said = {
            "prune": f"{lost[-1]} unread records\ndeleted and counted",
            "block": f"append waits;\n{lost[-1]} records lost",
            "error": f"{missed} appends refused;\n{lost[-1]} records lost",
        }[policy]
        drawing.text(20, y + 24, f'"{policy}"', bold=True)
        drawing.text(20, y + 46, said, colour="ink")
        drawing.text(left - 8, bound + 4, "bound", colour="soft", anchor="end")
    drawing.text(
        left, top + apart * len(_POLICIES) + 8,
        "red: a slab with unread records is deleted, append waits, or append raises RetentionFull", colour="lost",
    )  # fmt: skip  # one text
    return drawing.svg()


# --- deliveries -----------------------------------------------------------------------------


# For each delivery: its steps, and what the next start does after a kill that follows the step.
_DELIVERIES = {
    "at least once": (
        ("read from the log", "Nothing was sent:\nit reads them again."),
        (
            "send",
            "Perhaps they arrived:\nit reads the end of the\npartition, and sends\nwhat is not there.",
        ),
        (
            "Kafka acknowledges",
            "They arrived:\nit finds them in Kafka,\nand does not send\nthem again.",
        ),
        ("commit the cursor", "The cursor has passed\nthem: it continues\nafter them."),
    ),
    "exactly once": (
        ("begin a transaction", "Nothing was sent:\nit reads them again."),
        (
            "send",
            "Kafka aborts the\ntransaction: readers of\ncommitted records see\nnone. It sends again.",
        ),
        (
            "send the cursor",
            "The same: the cursor is\na record in the same\ntransaction, and is\naborted with it.",
        ),
        (
            "commit the transaction",
            "Records and cursor\narrived together: it\ncontinues after them.",
        ),
    ),
}


def deliveries() -> str:
    """The steps of both deliveries, and what a kill after each step costs."""
    width, gap, apart = 162, 24, 172
    drawing = Drawing(
        10 + apart * len(_DELIVERIES),
        "What a kill costs, after each step of a delivery",
        " ".join(
            f"{name}: {step}: {then}" for name, of in _DELIVERIES.items() for step, then in of
        ),
    )
    for i, (name, steps) in enumerate(_DELIVERIES.items()):
        y = 30 + apart * i
        drawing.text(20, y, name[0].upper() + name[1:], bold=True)
        drawing.text(
            _WIDTH - 20,
            y,
            "below each step: the next start after a kill",
            colour="soft",
            anchor="end",
        )
        for k, (step, then) in enumerate(steps):
            x, last = 20 + k * (width + gap), k == len(steps) - 1
            drawing.box(x, y + 14, width, 34, "new" if last else "safe", opacity=0.15)
            drawing.text(x + width / 2, y + 36, step, anchor="middle")
            drawing.text(x, y + 70, then, colour="new" if last else "ink")
            if not last:
                drawing.text(x + width + gap / 2, y + 36, "►", colour="soft", anchor="middle")
    return drawing.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "addresses": addresses,
    "deliveries": deliveries,
    "full": full,
}

if __name__ == "__main__":
    logging.disable(logging.WARNING)  # pruned records are what `full` is about
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")
