"""Where `aolog append` finds a record's key, topic and timestamp in the record's bytes. No I/O.

field:N[:SEP]   the N-th field (from 1), separated by SEP (default: a tab)
json:PATH       the member at a dotted path of a JSON object; a number is an index into an array. A string
                is its text, everything else its JSON text: as it is written, without spaces
regex:PATTERN   the first group of the first match
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from aolog.cli.parse import Parsed
from aolog.read.seek import microseconds
from aolog.read.start import utc_time

if TYPE_CHECKING:
    from collections.abc import Callable

Spec: TypeAlias = "Callable[[bytes], bytes | None]"

_HINT = "use field:N[:SEP], json:PATH or regex:PATTERN"
_UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_CALENDAR_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)  # years 1 to 9999
_ABSENT = object()


def parse_spec(text: str) -> Spec:
    """A function from a record's bytes to the part, None if it is absent. Raises ValueError."""
    kind, _, rest = text.partition(":")
    match kind:
        case "field":
            return _field(rest)
        case "json":
            return _json(rest)
        case "regex":
            return _regex(rest)
    raise ValueError(f"{text!r}: {_HINT}")


def _field(rest: str) -> Spec:
    number, colon, separator = rest.partition(":")
    if not re.fullmatch(r"[0-9]{1,9}", number) or int(number) == 0:
        raise ValueError(f"{number!r} is not a field number; fields count from 1")
    i = int(number) - 1
    between = separator.encode() if colon else b"\t"
    if not between:
        raise ValueError("the separator is empty")

    def field(line: bytes) -> bytes | None:
        fields = line.split(between, i + 1)
        return fields[i] if i < len(fields) else None

    return field


def _json(rest: str) -> Spec:
    path = rest.split(".")
    if not all(path):
        raise ValueError(f"{rest!r} is not a dotted path")

    def member(line: bytes) -> bytes | None:
        found = _parsed(line)
        for name in path:
            if isinstance(found, dict):
                found = found.get(name, _ABSENT)
            elif isinstance(found, list) and name.isascii() and name.isdigit():
                found = found[int(name)] if int(name) < len(found) else _ABSENT
            else:
                return None
        return _as_bytes(found)

    return member


class _Number(str):
    """A number as it is written: 1.0 and 10000000000000000000001 keep their digits."""

    __slots__ = ()


@functools.lru_cache(maxsize=1)  # key, topic and timestamp of a line come from one parse
def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return _ABSENT


def _as_bytes(found: Any) -> bytes | None:
    if found is None or found is _ABSENT:
        return None
    try:
        return (found if isinstance(found, str) else _json_text(found)).encode()
    except (UnicodeEncodeError, RecursionError):  # half of a surrogate pair; nested too deeply
        return None


def _json_text(value: Any) -> str:
    """A value of `_parsed`, as JSON in UTF-8 without spaces."""
    match value:
        case _Number():
            return value
        case list():
            return f"[{','.join(map(_json_text, value))}]"
        case dict():
            return f"{{{','.join(f'{_json_text(k)}:{_json_text(v)}' for k, v in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def _regex(rest: str) -> Spec:
    try:
        pattern = re.compile(rest.encode())
    except re.error as error:
        raise ValueError(f"{rest!r} is not a regular expression: {error}") from None
    if not pattern.groups:
        raise ValueError(f"{rest!r} has no group: put the wanted part in parentheses")

    def first_group(line: bytes) -> bytes | None:
        match = pattern.search(line)
        return match[1] if match else None

    return first_group


def timestamp_us(text: bytes, unit: str) -> int | None:
    """Microseconds since the epoch, from a number of `unit`s or a time in ISO 8601 (default: UTC);
    None if the text is neither, or is outside the years 1 to 9999."""
    try:
        word = text.decode("ascii").strip()
        if re.fullmatch(r"-?[0-9]{1,18}", word):
            found = int(word) * _UNITS_US[unit]
        elif re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", word):
            found = round(Decimal(word) * _UNITS_US[unit])
        else:
            found = microseconds(utc_time(word))
    except (ValueError, OverflowError):
        return None
    return found if found in _CALENDAR_US else None


@dataclass(slots=True)
class Tally:
    """Counts the records that the writer took. The fields are members of the JSON."""

    records: int = 0
    bytes: int = 0
    first_address: int | None = None
    last_address: int | None = None
    null_keys: int = 0
    null_topics: int = 0
    unusable_timestamps: int = 0
    unappended_bytes: int = 0

    def add(self, address: int, size: int) -> None:
        """Counts one record."""
        if self.first_address is None:
            self.first_address = address
        self.last_address = address
        self.records += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class RecordParts:
    """Where each part of a record comes from; None: records have no such part."""

    key: Spec | None
    topic: Spec | None
    timestamp: Spec | None
    timestamp_unit: str

    @property
    def any(self) -> bool:
        """Whether any part comes from the record."""
        return not (self.key is self.topic is self.timestamp is None)

    def of(self, value: bytes, tally: Tally) -> dict[str, Any]:
        """Arguments for `Writer.append`. Counts absent parts in the tally."""
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


SPEC = Parsed("spec", parse_spec)
