"""Standard output and standard error: exact bytes for data, one line for each message.

Data goes to standard output as bytes, independent of the locale. Control characters in text from a log
(topics, cursor names, paths) are escaped, so that no record can move a terminal's cursor or fake a
line. On a terminal everything is escaped, values too.
"""

from __future__ import annotations

import base64
import functools
import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

import click

from aolog.errors import (
    StorageError,
    as_utf8,
    counted,
    escape_controls,
    one_line,
    records_lost,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aolog.record import Gap, Record

_WRITE_BYTES = 64 << 10  # the capacity of a pipe
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, errors and warnings too."
)


class OutputClosed(Exception):
    """The reader of standard output has closed it. Not an error."""


class OutputFailed(StorageError):
    """Standard output cannot be written: the disk is full, or it is closed."""

    code = "output_failed"


class _Out:
    """Standard output, buffered. Looks up sys.stdout at each use: tests and embedders replace it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Raises OutputClosed, OutputFailed."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _WRITE_BYTES:
            self._drain()

    def _drain(self) -> None:
        data = b"".join(self._pieces)
        self.forget()
        if not data:
            return
        if self.is_terminal:
            data = escape_controls(data.decode("utf-8", "backslashreplace")).encode()
        with _writing():
            sys.stdout.buffer.write(data)

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal; then control characters are escaped."""
        return sys.stdout.isatty()

    def line(self, text: str) -> None:
        """Writes a line of text in UTF-8."""
        self.write(as_utf8(text).encode() + b"\n")

    def json(self, value: object) -> None:
        """Writes a value as one line of JSON."""
        self.line(to_json(value))

    def flush(self) -> None:
        """Hands all output to the system. Raises OutputClosed, OutputFailed."""
        self._drain()
        with _writing():
            sys.stdout.flush()

    def forget(self) -> None:
        """Drops buffered output."""
        self._pieces, self._size = [], 0


out = _Out()


@contextmanager
def _writing() -> Iterator[None]:
    """Converts errors of writing to standard output to this module's."""
    try:
        yield
    except BrokenPipeError:
        silence_stdout()
        raise OutputClosed from None
    except OSError as error:
        silence_stdout()
        raise OutputFailed(
            f"standard output: {os.strerror(error.errno or 0)}", errno=error.errno
        ) from error


def silence_stdout() -> None:
    """Redirects standard output to /dev/null: the interpreter would fail again when it flushes at exit."""
    try:
        fd = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return  # it is closed, or a test replaced it
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, fd)
    os.close(null)


def tell_pruned(unread: Mapping[str, Gap], *, would: bool = False) -> None:
    """Reports unread records that retention removed, or would remove: one line for each cursor."""
    for name, gap in unread.items():
        to_stderr(
            f"{'would prune' if would else 'pruned'} {records_lost(gap.records_lost)} that cursor "
            f"{name} has not read: addresses {gap.begin} to {gap.end}"
        )


def pruned_to_json(unread: Mapping[str, Gap]) -> list[dict[str, object]]:
    """Losses by cursor, as the command line prints them."""
    return [
        {"cursor": name, "begin": gap.begin, "end": gap.end, "records_lost": gap.records_lost}
        for name, gap in unread.items()
    ]


@contextmanager
def progress(label: str, *, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yields what the library takes as `progress`: a bar on standard error, or None if that is not a
    terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=100, label=label, file=sys.stderr) as bar:
        yield lambda done, total: bar.update(100 * done // max(total, 1) - bar.pos)


def to_stderr(text: str) -> None:
    """Writes one line. Ignores errors: there is no other place to report them."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(one_line(text) + "\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        pass


# --- JSON -----------------------------------------------------------------------------------


def named(value: Any) -> Any:
    """A value whose named tuples become objects, in lists too."""
    if hasattr(value, "_asdict"):
        return {name: named(each) for name, each in value._asdict().items()}
    return [named(each) for each in value] if isinstance(value, list) else value


def _member(name: str, data: bytes | None) -> str:
    """The text, or `NAME_base64` where the bytes are not UTF-8."""
    if data is None:
        return f'"{name}":null'
    try:
        return f'"{name}":{encode_basestring(str(data, "utf-8"))}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{base64.b64encode(data).decode()}"'


def record_to_json(record: Record) -> bytes:
    """One line, with its newline. `timestamp` is null if there is none, or if it is outside the years
    1 to 9999. Made as text, in one expression: json's encoder takes three times as long."""
    address, at_us, key, value, headers, topic = record
    try:
        key_text = "null" if key is None else encode_basestring(str(key, "utf-8"))
        value_text = "null" if value is None else encode_basestring(str(value, "utf-8"))
        parts = f'"key":{key_text},"value":{value_text}'
    except UnicodeDecodeError:
        parts = f"{_member('key', key)},{_member('value', value)}"
    topic_text = "null" if topic is None else encode_basestring(topic)
    shown = ",".join(map(_header, headers)) if headers else ""
    return (
        f'{{"address":{address},{_times(at_us)},"topic":{topic_text},{parts},"headers":[{shown}]}}\n'
    ).encode()


def _header(header: tuple[str, bytes | None]) -> str:
    name, data = header
    return f'{{"name":{encode_basestring(name)},{_member("value", data)}}}'


@functools.lru_cache(maxsize=16)  # most records of a frame have the same timestamp
def _times(timestamp_us: int | None) -> str:
    """The members `timestamp` and `timestamp_us`."""
    if timestamp_us is None:
        return '"timestamp":null,"timestamp_us":null'
    digits = str(timestamp_us)
    begin = _second(digits[:-6]) if timestamp_us >= 1_000_000 else None
    if begin is not None:
        return f'"timestamp":"{begin}.{digits[-6:]}Z","timestamp_us":{digits}'
    at = iso_time(timestamp_us)
    return f'"timestamp":{"null" if at is None else encode_basestring(at)},"timestamp_us":{digits}'


@functools.lru_cache(maxsize=16)  # of the others, many are of the same second
def _second(seconds: str) -> str | None:
    try:
        return (_EPOCH + timedelta(seconds=int(seconds))).isoformat().removesuffix("+00:00")
    except OverflowError:
        return None


def iso_time(timestamp_us: int | None) -> str | None:
    """Microseconds since the epoch as 2026-01-31T12:00:00.000000Z; None for None, and outside the years 1
    to 9999."""
    if timestamp_us is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=timestamp_us)
    except OverflowError:
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


# --- text for people ------------------------------------------------------------------------


def human_bytes(count: int) -> str:
    """1536 as '1.5 KiB'."""
    if count < 1024:
        return counted(count, "byte")
    size, unit = float(count), ""
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):  # noqa: B007 -- used after the loop
        size /= 1024
        if size < 1024:
            break
    return f"{size:.1f} {unit}"


def human_seconds(seconds: float) -> str:
    """90 as '1.5 min'."""
    for unit, length_s in (("days", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if seconds >= length_s:
            return f"{seconds / length_s:.1f} {unit}"
    return f"{seconds:.1f} s"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns, numbers to the right, None as '-'."""
    cells = [["-" if c is None else one_line(str(c)) for c in row] for row in rows]
    numeric = [all(isinstance(row[i], int | None) for row in rows) for i in range(len(head))]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = []
    for row in ([*head], *cells):
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def fields(head: Sequence[str], row: Sequence[object]) -> str:
    """One row, with one line for each field."""
    width = max(map(len, head)) + 2
    values = ["-" if value is None else one_line(str(value)) for value in row]
    pairs = zip(head, values, strict=True)
    return "\n".join(f"{name.lower() + ':':<{width}}{value}" for name, value in pairs)


def tell_gap(gap: Gap, *, as_json: bool) -> None:
    """Reports a gap on standard error, after the records before it."""
    out.flush()
    if as_json:
        to_stderr(to_json({"gap": gap._asdict()}))
        return
    lost = "unknown" if gap.records_lost is None else f"{gap.records_lost:,}"
    to_stderr(f"aolog: gap: [{gap.begin}, {gap.end}) {gap.reason}, records lost: {lost}")
