"""Picking a part out of a record's bytes: for its key, its topic, its timestamp. Pure.

field:N[:SEP]   the N-th field (from 1) between SEPs; a tab unless given
json:PATH       the member at a dotted path of a JSON object; a number is an array's index
regex:PATTERN   the first group of the first match
"""

from __future__ import annotations

import codecs
import functools
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from aolog.cli.parse import ParamType
from aolog.read.seek import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.cli.tally import Tally

__all__ = ["PICK", "Pick", "Picks", "pick", "timestamp_us"]

Pick: TypeAlias = "Callable[[bytes], bytes | None]"

_HINT = "use field:N[:SEP], json:PATH or regex:PATTERN"
_UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_CALENDAR_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)  # years 1 to 9999
_NOTHING = object()


def pick(spec: str) -> Pick:
    """What the spec asks for: from a record's bytes to the part, None where it is missing.
    Raises ValueError with a reason."""
    kind, _, rest = spec.partition(":")
    match kind:
        case "field":
            return _field(rest)
        case "json":
            return _json(rest)
        case "regex":
            return _regex(rest)
    raise ValueError(_HINT)


def _field(rest: str) -> Pick:
    number, colon, separator = rest.partition(":")
    if not re.fullmatch(r"[0-9]{1,9}", number) or int(number) == 0:
        raise ValueError(f"{number!r} is no number of a field: they count from 1")
    i = int(number) - 1
    between = _unescaped(separator) if colon else b"\t"
    if not between:
        raise ValueError("the separator is empty")

    def field(line: bytes) -> bytes | None:
        fields = line.split(between, i + 1)
        return fields[i] if i < len(fields) else None

    return field


def _unescaped(text: str) -> bytes:
    r"""`\t`, `\x1f` and the like stand for what they do in most languages."""
    if "\\" not in text:
        return text.encode()
    try:
        return codecs.escape_decode(text.encode())[0]
    except ValueError:
        raise ValueError(f"{text!r} is no separator") from None


def _json(rest: str) -> Pick:
    path = rest.split(".")
    if not all(path):
        raise ValueError(f"{rest!r} is no dotted path")

    def member(line: bytes) -> bytes | None:
        found = _parsed(line)
        for name in path:
            if isinstance(found, dict):
                found = found.get(name, _NOTHING)
            elif isinstance(found, list) and name.isascii() and name.isdigit():
                found = found[int(name)] if int(name) < len(found) else _NOTHING
            else:
                return None
        return _as_bytes(found)

    return member


@functools.lru_cache(maxsize=1)  # key, topic and timestamp of a line come from one parse
def _parsed(line: bytes) -> Any:
    try:
        # Numbers stay as they are written: 1.0 and 10000000000000000000001 keep their digits.
        return json.loads(line, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return _NOTHING


def _as_bytes(found: Any) -> bytes | None:
    if found is None or found is _NOTHING:
        return None
    text = found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: no text
        return None


def _regex(rest: str) -> Pick:
    try:
        pattern = re.compile(rest.encode())
    except re.error as error:
        raise ValueError(f"{rest!r} is no regular expression: {error}") from None
    if not pattern.groups:
        raise ValueError(f"{rest!r} has no group: put what is wanted in parentheses")

    def first_group(line: bytes) -> bytes | None:
        match = pattern.search(line)
        return match[1] if match else None

    return first_group


def timestamp_us(text: bytes, unit: str) -> int | None:
    """A number of `unit`s since the epoch, or a time in ISO 8601 (UTC unless it says otherwise),
    in microseconds; None if it is neither or beyond the calendar."""
    try:
        word = text.decode("ascii").strip()
        if re.fullmatch(r"-?[0-9]{1,18}", word):
            found = int(word) * _UNITS_US[unit]
        elif re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", word):
            found = round(Decimal(word) * _UNITS_US[unit])
        else:
            moment = datetime.fromisoformat(word)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            found = microseconds(moment)
    except (ValueError, OverflowError):
        return None
    return found if found in _CALENDAR_US else None


@dataclass(frozen=True, slots=True)
class Picks:
    """Where the parts of a record come from; None: it has none of its own."""

    key: Pick | None
    topic: Pick | None
    timestamp: Pick | None
    timestamp_unit: str

    @property
    def any(self) -> bool:
        """Whether there is any."""
        return not (self.key is self.topic is self.timestamp is None)

    def parts(self, value: bytes, tally: Tally) -> dict[str, Any]:
        """Arguments for the writer's append. What is missing is counted."""
        found: dict[str, Any] = {}
        if self.key is not None:
            found["key"] = key = self.key(value)
            tally.null_keys += key is None
        if self.topic is not None:
            name = self.topic(value)
            if name:
                try:
                    found["topic"] = name.decode()
                except UnicodeDecodeError:
                    name = None
            tally.null_topics += not name
        if self.timestamp is not None:
            text = self.timestamp(value)
            moment = None if text is None else timestamp_us(text, self.timestamp_unit)
            found["timestamp"] = moment
            tally.unusable_timestamps += moment is None
        return found


class _Pick(ParamType):
    name = "spec"

    def convert(self, value: Any, param: Any, ctx: Any) -> Pick:
        if callable(value):
            return value  # type: ignore[no-any-return]
        try:
            return pick(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


PICK = _Pick()
