"""Request bodies to columns of records, and records to lines. Pure.

application/x-ndjson       a JSON object on each line:
                           {"value": "text", "key": "text", "timestamp_us": 0,
                            "headers": [{"name": "text", "value": "text"}]}; bytes that are not
                           UTF-8 as value_base64, key_base64; only the value is required, and
                           may be null. `aolog read --json` prints the same names
application/octet-stream   the length (u32le) before each value, as `aolog append --delimiter length`
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from aolog.errors import RecordRefused, unique_names
from aolog.record import Headers, Record

_LENGTH = struct.Struct("<I")
# An address is ignored: a line that a GET returned can be sent again.
_NAMES = {"value", "value_base64", "key", "key_base64", "headers", "timestamp_us", "address"}


_LINE = 'each line is an object, such as {"value": "hi", "key": "k"}'


class Columns(NamedTuple):
    """A request's records, as `Writer.append_many` takes them."""

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[Headers] | None = None
    timestamps: list[int | None] | None = None


def _of_lines(body: bytes) -> Columns:
    found = Columns([], [], [], [])
    assert found.keys is not None
    assert found.headers is not None
    assert found.timestamps is not None
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line, object_pairs_hook=unique_names)
            if not isinstance(given, dict) or not {"value", "value_base64"} & given.keys():
                raise ValueError("no object with a value")
            if unknown := given.keys() - _NAMES:
                raise ValueError(f"unknown name {min(unknown)!r}")
            found.values.append(_bytes(given, "value"))
            found.keys.append(_bytes(given, "key"))
            found.headers.append(
                tuple((each["name"], _bytes(each, "value")) for each in given.get("headers", ()))
            )
            stamp = given.get("timestamp_us")
            if stamp is not None and type(stamp) is not int:  # true is an int too
                raise ValueError("timestamp_us is not an integer")
            found.timestamps.append(stamp)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RecordRefused(f"line {number}: {error}", hint=_LINE) from None
    return found


def _bytes(given: dict[str, Any], name: str) -> bytes | None:
    if name in given and f"{name}_base64" in given:
        raise ValueError(f"{name} and {name}_base64: use one of them")
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{name}_base64: {error}") from None
    text = given.get(name)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{name} is not a string")
    return None if text is None else text.encode()


def _of_lengths(body: bytes) -> Columns:
    values: list[bytes | None] = []
    at = 0
    while at < len(body):
        if len(body) - at < _LENGTH.size:
            raise RecordRefused("the body ends within a length")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if length > len(body) - at:
            raise RecordRefused("the body ends within a record")
        values.append(body[at : at + length])
        at += length
    return Columns(values)


DECODERS: dict[str, Callable[[bytes], Columns]] = {
    "application/x-ndjson": _of_lines,
    "application/octet-stream": _of_lengths,
}


def line_of(record: Record) -> bytes:
    """A record as a line, as a POST takes it, with its address."""
    found: dict[str, Any] = {"address": record.address, "timestamp_us": record.timestamp}
    found |= _member("key", record.key) | _member("value", record.value)
    if record.headers:
        found["headers"] = [{"name": name, **_member("value", v)} for name, v in record.headers]
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _member(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}
