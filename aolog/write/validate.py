"""Checks of options and records, before anything is changed. Pure.

Each check returns the value in the form that the rest of the package uses, or raises.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, SupportsIndex

from aolog.errors import RecordRefused, RecordTooLarge, UsageError
from aolog.format.frame import BODY_LEN_MAX
from aolog.format.slab import TOPIC_LEN_MAX

if TYPE_CHECKING:
    from aolog.record import Headers

# The maximum bytes of a record in a frame: the rest is for offsets and other columns.
RECORD_BYTES_MAX = BODY_LEN_MAX - (64 << 10)
BATCH_BYTES_MAX = 1 << 30
SLAB_BYTES_MAX = 1 << 60
# Kafka's rule for names of topics, as a regular expression. A log takes any text; commands that write for Kafka
# do not.
TOPIC_NAME = "[A-Za-z0-9._-]{1,249}"
_INT64 = range(-(1 << 63), 1 << 63)
# Bytes that a record takes in a frame besides those of its parts. `check_record` counts one record,
# arrow.py and format/native/_records.h count whole columns by the same rule.
OFFSET_BYTES = 4  # of a value and of a key
HEADER_BYTES = 8  # of each header: its name's offset and its value's
TIMESTAMP_BYTES = 8

_BytesLike = bytes | bytearray | memoryview

# A record that was checked: value, key, headers, timestamp, topic, and the bytes that they take in a
# frame. A plain tuple: it is made for each record, and a named one takes several times as long.
CheckedRecord = tuple[bytes | None, bytes | None, "Headers", int | None, str | None, int]


def check_mode(mode: int) -> int:
    """The mode of a log's directory, unchanged. Raises UsageError."""
    if not hasattr(mode, "__index__") or not 0o700 <= mode <= 0o777:
        raise UsageError(
            f"mode={oct(mode) if isinstance(mode, int) else repr(mode)} is not between 0o700 and 0o777",
            hint="0o700 is for the owner alone; with 0o750 a group may read, with 0o770 write",
        )
    return mode


def read_mode(text: str) -> int:
    """The mode from its octal digits, as chmod takes them: "750". Raises UsageError."""
    if not re.fullmatch("[0-7]{1,4}", text):
        raise UsageError(f"{text!r} is not a mode", hint="use octal digits, as chmod does: 750")
    return check_mode(int(text, 8))


def _as_bytes(value: object, what: str) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, _BytesLike):
        # Not what `__bytes__` of a subclass returns: that may be no plain bytes.
        return bytes(memoryview(value))
    raise RecordRefused(
        f"the {what} is {type(value).__name__}, not bytes or None",
        hint="encode text first, for instance with .encode()"
        if isinstance(value, str)
        else "encode it first, for instance with json.dumps(...).encode()",
    )


def check_text(text: object, what: str) -> tuple[str, int]:
    """The text, as a plain str, and its bytes in UTF-8. what: for the error. Raises RecordRefused."""
    if not isinstance(text, str):
        raise RecordRefused(f"{what} is {type(text).__name__}, not str")
    if type(text) is not str:
        text = str.__str__(text)
    if text.isascii():
        return text, len(text)
    try:
        return text, len(text.encode())
    except UnicodeEncodeError:
        raise RecordRefused(f"{what} {text!r} has no UTF-8 form") from None


def check_topic(topic: str | None) -> tuple[str | None, int]:
    """The topic and its bytes in UTF-8. Raises RecordRefused."""
    if topic is None:
        return None, 0
    text, length = check_text(topic, "the topic")
    if not 0 < length <= TOPIC_LEN_MAX:
        raise RecordRefused(f"the topic has {length} bytes", hint=f"use 1 to {TOPIC_LEN_MAX}")
    return text, length


def check_headers(headers: object) -> tuple[Headers, int]:
    """The headers as pairs, and their bytes in a frame. Raises RecordRefused."""
    size = 0
    checked = []
    try:
        pairs = [(name, value) for name, value in headers]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise RecordRefused(
            "headers are not a sequence of (name, value) pairs",
            hint='such as [("language", b"en")]; of a dict, its items()',
        ) from None
    for name, value in pairs:
        text, length = check_text(name, "a header's name")
        data = value if type(value) is bytes else _as_bytes(value, f"value of header {text!r}")
        size += length + len(data or b"") + HEADER_BYTES
        checked.append((text, data))
    return tuple(checked), size


def check_record(
    value: object, key: object, headers: object, timestamp: SupportsIndex | None, topic: str | None
) -> CheckedRecord:
    """The record. Raises RecordRefused."""
    if type(value) is bytes and key is None and not headers and timestamp is None and topic is None:
        return value, None, (), None, None, len(value) + OFFSET_BYTES
    data = _as_bytes(value, "value")
    size = len(data or b"") + OFFSET_BYTES
    key_data = _as_bytes(key, "key")
    if key_data is not None:
        size += len(key_data) + OFFSET_BYTES
    pairs: Headers = ()
    if headers:
        pairs, headers_size = check_headers(headers)
        size += headers_size
    moment = None
    if timestamp is not None:
        try:
            moment = operator.index(timestamp)
        except TypeError:
            raise RecordRefused(
                f"the timestamp is {type(timestamp).__name__}, not an integer",
                hint="use microseconds since the epoch",
            ) from None
        if moment not in _INT64:
            raise RecordRefused(f"the timestamp {moment} is not a 64-bit integer")
        size += TIMESTAMP_BYTES
    name, topic_len = check_topic(topic)
    return data, key_data, pairs, moment, name, size + topic_len


def check_sizes(size: int, longest: int, max_record_bytes: int) -> None:
    """Of records for one frame. Raises RecordTooLarge for the longest, or for all. The bound is for a
    record without its value's offset: so a value alone may have that many bytes."""
    if longest - OFFSET_BYTES > max_record_bytes:
        raise too_large(longest - OFFSET_BYTES, max_record_bytes)
    if size > RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"a batch of {size} bytes is over a frame's bound of {RECORD_BYTES_MAX}",
            hint="split it; each call is one frame",
        )


def too_large(size: int, max_record_bytes: int, more: str = "") -> RecordTooLarge:
    """The error for a record over the log's bound. more: " or more" for one that goes on."""
    return RecordTooLarge(
        f"a record of {size} bytes{more} is over max_record_bytes={max_record_bytes}",
        hint="raise the bound when opening the Writer, or split the record",
    )
