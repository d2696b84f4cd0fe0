"""The outcome of `aolog append`: how many records it took, which are durable, where to resume.

No I/O except `print_outcome`.
"""

from __future__ import annotations

import shlex
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aolog.cli.output import out, tell_pruned, to_stderr
from aolog.errors import counted
from aolog.log.pruned_records import pruned_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from signal import Signals

    from aolog.cli.input import Delimiter
    from aolog.write.writer import Writer


@dataclass(slots=True)
class Tally:
    """Counts the records that the writer took. `_runs` has the begin of each run of consecutive
    addresses that is not durable yet, so that an address can be converted to a number of records."""

    records: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    null_keys: int = 0
    null_topics: int = 0
    unusable_timestamps: int = 0
    unappended_bytes: int = 0
    _runs: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, address: int, size: int) -> None:
        """Counts one record."""
        if self.last is None or address != self.last + 1:
            self._runs.append((address, self.records))
            if self.first is None:
                self.first = address
        self.last = address
        self.records += 1
        self.bytes += size

    def forget(self, durable: int) -> None:
        """Drops the runs before this address."""
        while len(self._runs) > 1 and self._runs[1][0] <= durable:
            self._runs.popleft()

    def records_before(self, address: int) -> int:
        """The number of records before an address that was not dropped."""
        at_most = self.records
        for begin, before in reversed(self._runs):
            if begin < address:
                return min(before + (address - begin), at_most)
            at_most = before
        return at_most


class Inputs:
    """The inputs in their order. Converts a number of records to a position in an input."""

    def __init__(self, paths: Sequence[str], delimiter: Delimiter) -> None:
        self.ended = False  # every input was read to its end
        self._paths = paths
        self._noun = "line" if delimiter == "line" else "record"
        self._begun: list[tuple[str, int]] = []  # (name, records of the inputs before it)

    def begin(self, name: str, before: int) -> None:
        """The next input begins, after so many records."""
        self._begun.append((name, before))

    def position(
        self, records: int, durable: int, taken: int
    ) -> tuple[str, str | None, dict[str, Any]]:
        """(text, what to do, details for JSON). records: of the input, in the log. durable: of these.
        taken: accepted by the writer, which may have dropped some."""
        text = f"{counted(records, 'record', ',')} {'is' if records == 1 else 'are'} in the log"
        if durable < records:
            text += f", {durable:,} of them durable"
        elif records:
            text += " and durable"
        details: dict[str, Any] = {
            "records_in_log": records, "records_durable": durable, "resume": None
        }  # fmt: skip  # one thing
        if self.ended and records == taken:
            return f"{text}: the whole input", None, details
        begun = [i for i, (_, before) in enumerate(self._begun) if before <= records]
        if not begun:
            return text, None, details
        name, before = self._begun[begun[-1]]
        number = records - before
        if number:
            text += f", up to {self._noun} {number} of {name}"
        details["resume"] = {"input": name, self._noun: number + 1}
        to_do = f"append {name} from {self._noun} {number + 1} on"
        if rest := self._paths[begun[-1] + 1 :]:
            to_do += f", then {shlex.join(rest)}"
        return f"{text}; the rest of the input was not appended", to_do, details


def print_outcome(
    log: str, tally: Tally, writer: Writer, stopped_by: Signals | None, *, as_json: bool
) -> None:
    """Prints the outcome of a run without an error, after the writer is closed."""
    if as_json:
        out.json(
            {
                "log": log,
                "records": tally.records,
                "bytes": tally.bytes,
                "first_address": tally.first,
                "last_address": tally.last,
                "durable": writer.durable,
                "null_keys": tally.null_keys,
                "null_topics": tally.null_topics,
                "unusable_timestamps": tally.unusable_timestamps,
                "unappended_bytes": tally.unappended_bytes,
                "pruned_unread": pruned_to_json(writer.pruned_unread),
                "stopped_by": stopped_by.name if stopped_by else None,
            }
        )
        return
    where = "" if tally.first is None else f"addresses {tally.first}..{tally.last}, "
    text = f"{counted(tally.records, 'record')}, {counted(tally.bytes, 'byte')}, {where}durable"
    for count, what in (
        (tally.null_keys, "without a key"),
        (tally.null_topics, "without a topic of their own"),
        (tally.unusable_timestamps, "without a usable timestamp (they carry the time of append)"),
    ):
        text += f"; {count} {what}" if count else ""
    if tally.unappended_bytes:
        text += f"; {counted(tally.unappended_bytes, 'byte')} read but not appended"
    to_stderr(text if stopped_by is None else f"stopped by {stopped_by.name}: {text}")
    tell_pruned(writer.pruned_unread)
