"""What of the input is in the log after append had to end early, and how the rest gets there."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.cli.output import counted
from aolog.cli.source import STDIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aolog.cli.split import Delimiter

__all__ = ["Inputs"]


class _Input(NamedTuple):
    path: str
    name: str  # as messages have it
    before: int  # records of the inputs before it


class Inputs:
    """The inputs in their order. paths: all of them. has_options: appending was told more than
    where from and to, which the rest needs as well."""

    def __init__(
        self, log: str, paths: Sequence[str], delimiter: Delimiter, *, has_options: bool
    ) -> None:
        self.ended = False  # every input was read to its end
        self._log = log
        self._paths = paths
        self._noun = "line" if delimiter == "line" else "record"
        self._has_options = has_options
        self._begun: list[_Input] = []

    def begin(self, path: str, name: str, before: int) -> None:
        """Records from here on are this input's, the next of the paths."""
        self._begun.append(_Input(path, name, before))

    def told(
        self, records: int, durable: int, taken: int
    ) -> tuple[str, str | None, dict[str, Any]]:
        """For people, what to do, and for programs. records: of the input that are in the log;
        durable: of these; taken: by the writer, which may have dropped some."""
        text = f"{counted(records, 'record', ',')} {'is' if records == 1 else 'are'} in the log"
        if durable < records:
            text += f", {durable:,} of them durable"
        elif records:
            text += " and durable"
        fields: dict[str, Any] = {"records_in_log": records, "records_durable": durable}
        fields["resume"] = None
        if self.ended and records == taken:
            return f"{text}: the whole input", None, fields
        begun = [i for i, one in enumerate(self._begun) if one.before <= records]
        if not begun:
            return text, None, fields
        last = self._begun[begun[-1]]
        number = records - last.before
        if number:
            text += f", up to {self._noun} {number} of {last.name}"
        fields["resume"] = {"input": last.name, self._noun: number + 1}
        how = self._how(last, number, list(self._paths[begun[-1] + 1 :]))
        return f"{text}; the rest of the input was not appended", how, fields

    def _how(self, last: _Input, number: int, rest: list[str]) -> str:
        """A command, where the input is still there for one."""
        same = " (with the same options)" if self._has_options else ""
        path, log = (_no_option(path) for path in (last.path, self._log))
        if not _is_file(last.path) or STDIN in rest or (number and self._noun != "line"):
            behind = f", then {shlex.join(rest)}" if rest else ""
            return f"append {last.name} from {self._noun} {number + 1} on{behind}{same}"
        if not number:
            return shlex.join(["aolog", "append", log, path, *rest]) + same
        tail = shlex.join(["tail", "-n", f"+{number + 1}", path])
        inputs = [STDIN, *rest] if rest else []
        return f"{tail} | {shlex.join(['aolog', 'append', log, *inputs])}{same}"


def _is_file(path: str) -> bool:
    try:
        return path != STDIN and stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:  # removed meanwhile
        return False


def _no_option(path: str) -> str:
    return f"./{path}" if path.startswith("-") else path
