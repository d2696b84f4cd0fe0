"""The table of logs that `status` and `top` show: it fits the width, numbers are to the right, and below a log are
why it waits and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aolog.cli.cursor_state import lag_words, state_words
from aolog.errors import one_line
from bridge.config.names import BRIDGE, BUFFER
from bridge.supervise.turns import Phase

_WIDE = 110  # from this width on there is room for every column
_NAME_MIN = 6  # of a long name, if numbers take the rest


class Column(NamedTuple):
    """cell: of a row of `/status`, or from the disk; None if it is not known. wide: on a wide screen only."""

    head: str
    cell: Callable[[dict[str, Any]], object]
    right: bool = True
    wide: bool = False


class Line(NamedTuple):
    """of: "log", "note" or "head". A log's state is at text[at : at + len(state)]."""

    text: str
    of: str
    state: str = ""
    at: int = 0


def _lag(which: int) -> Callable[[dict[str, Any]], object]:
    return lambda log: lag_words(*(log.get(f"lag_{of}") for of in ("records", "bytes", "seconds")))[
        which
    ]


def _shown_state(log: dict[str, Any]) -> str:
    return "paused" if log.get("phase") == Phase.PAUSED else str(log["state"])


_COLUMNS = (
    Column("LOG", lambda log: log["log"], right=False),
    Column("CLUSTER", lambda log: log.get("cluster"), right=False, wide=True),
    Column("STATE", _shown_state, right=False),
    Column("PENDING", _lag(0)),
    Column("BYTES", _lag(1), wide=True),
    Column("OLDEST", _lag(2)),
    Column("OUT/S", lambda log: None if log.get("rate") is None else round(log["rate"])),
    Column("LOST", lambda log: log.get("lost_records")),
)


def lines_of(logs: Sequence[dict[str, Any]], width: int | None = None) -> list[Line]:
    """logs: rows of `/status`, or from the disk. width: of the terminal; None: as wide as it gets."""
    wide = width is None or width >= _WIDE
    several = len({log.get("cluster") for log in logs}) > 1
    columns = [
        column
        for column in _COLUMNS
        if (wide or not column.wide or (several and column.head == "CLUSTER"))
        and (not logs or any(column.cell(log) is not None for log in logs))
    ]
    cells = [[_words(column.cell(log)) for column in columns] for log in logs]
    heads = [column.head for column in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if width is not None:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[0] = max(_NAME_MIN, widths[0] - max(0, over))
    at = sum(widths[: heads.index("STATE")]) + 2 * heads.index("STATE")

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(size) if column.right else _fitting(cell, size).ljust(size)
            for cell, size, column in zip(row, widths, columns, strict=True)
        )
        return "  ".join(padded).rstrip()

    lines, said = [Line(line(heads), "head")], set()
    for log, row in zip(logs, cells, strict=True):
        lines.append(Line(line(row), "log", _shown_state(log), at))
        note = notes_of(log)
        if note in said:
            note = ("as above",)
        elif note:
            said.add(note)
        lines += (Line(text, "note") for each in note for text in _wrapped(each, width))
    return lines


def _words(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else one_line(str(cell))


def _fitting(name: str, size: int) -> str:
    """The ends of a name tell more than its middle."""
    if len(name) <= size:
        return name
    end = (size - 1) // 2
    return f"{name[: size - 1 - end]}…{name[-end:]}"


def _wrapped(text: str, width: int | None) -> list[str]:
    text = one_line(text)
    if width is None:
        return [f"    {text}"]
    return textwrap.wrap(
        text, width, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
    )


# --- why, and what to do ----------------------------------------------------------------------


def notes_of(log: dict[str, Any]) -> tuple[str, ...]:
    """Lines below a log: why it waits, and what to do; none if there is nothing to say."""
    causes = [trouble["cause"] for trouble in log.get("troubles", ())]
    if not causes and log.get("error") is not None:
        causes = [state_words(log["error"], log.get("pruned_records"))]
    found = [f"why: {'; '.join(causes)}"] if causes else []
    if what := advice_of(log):
        found.append(f"do:  {what}")
    return tuple(found)


_BY_CODE = {  # of a cursor on disk
    "pruned": 'raise the writer\'s Retention(max_bytes=...), or set when_full="block"',
    "cursor_corrupt": "set it again: aolog-bridge seek LOG --to PLACE",
    "permission_denied": "run this command as the log's owner, or mend the owner of its files",
    "cursor_foreign": "it is a cursor of another log: restore the log, or seek",
}
_START = {  # what delivers a log, by its cursor
    BRIDGE: "start it: aolog-bridge run",
    BUFFER: "start the program: its Buffer sends them. If it is gone for good: aolog-bridge run --cursor buffer",
}
_PULL = "aolog-bridge pull continues it; aolog-bridge run would send its records to Kafka again"
_THEN = {
    "nothing": "it goes on by itself",
    "cause": "then it goes on by itself",
    "retry": "then send SIGHUP, or retry on the page",
}


def advice_of(log: dict[str, Any]) -> str:
    """What to do about a log, from its row in `/status` or from the disk: separated by semicolons, the most
    urgent first; "" if there is nothing to do."""
    said = []
    for trouble in log.get("troubles", ()):
        said += [part for part in (trouble["advice"], _THEN[trouble["needs"]]) if part]
    if log["state"] == "stopped" and log.get("lag_records") != 0 and "phase" not in log:
        start = _START.get(log.get("cursor", BRIDGE), "start it: aolog-bridge run --cursor NAME")
        said.append(_PULL if log.get("pulled") else start)
    if (what := _BY_CODE.get(str(log.get("error")))) is not None:
        said.append(what)
    elif "losses" not in log and (log.get("lost_records") or log.get("gaps")):
        said.append("see what was lost: aolog-bridge status --log LOG")
    if log.get("dead_lettered"):
        said.append(
            "read LOG/dead-letter with aolog read; aolog-bridge replay --dead-letter sends it"
        )
    if log.get("dropped"):
        said.append("find the producer of the records that were dropped")
    if (log.get("archive") or {}).get("error"):
        said.append("mend the archive: its error is below")
    if log.get("cut_off"):
        said.append("find what ended the process before this one")
    return "; ".join(dict.fromkeys(said))
