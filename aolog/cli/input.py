"""The input of `aolog append`: files and standard input, read in chunks and cut into records.

A splitter uses memory in proportion to the largest record: it holds at most one unfinished record,
and refuses a record over the limit as soon as it knows the length. It does no I/O. `feed` returns the
records that end in a chunk: exhaust it before the next call. `finish` returns the last record, if the
end of the input ends it. pending_bytes: of the unfinished record.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

from aolog.cli.failing import InputFailed, InputTruncated
from aolog.errors import counted
from aolog.write.validate import too_large

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.cli.stop_signals import StopSignals

Delimiter: TypeAlias = Literal["line", "nul", "length"]
DELIMITERS: tuple[Delimiter, ...] = ("line", "nul", "length")

STDIN = "-"
_READ_BYTES = 256 << 10  # a larger chunk is not faster, and a signal waits until it is appended
LENGTH = struct.Struct("<I")  # before each length-delimited record, in input and output


class Source:
    """One input, open for reading. name: for messages. Raises InputFailed."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == STDIN else path
        self._stream = self._open(path)
        try:
            self._fd: int | None = self._stream.fileno()
        except (OSError, ValueError):
            self._fd = None  # a test replaced standard input

    def _open(self, path: str) -> IO[bytes]:
        if path != STDIN:
            try:
                return Path(path).open("rb", buffering=0)
            except OSError as error:
                raise self._failed(error) from error
        return sys.stdin.buffer

    def read(self, signals: StopSignals) -> bytes | None:
        """Waits for input and returns it; b"" at the end, None after a stop signal."""
        try:
            if self._fd is None:
                return self._stream.read(_READ_BYTES)
            if not signals.wait_readable(self._fd):
                return None
            return os.read(self._fd, _READ_BYTES)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> InputFailed:
        reason = f"{self.name}: {os.strerror(error.errno or 0)}"
        return InputFailed(reason, errno=error.errno, input=self.name)

    def close(self) -> None:
        """Closes a file; standard input stays open."""
        if self._stream is not getattr(sys.stdin, "buffer", None):
            self._stream.close()


# --- cutting into records ---------------------------------------------------------------------


class _Separated:
    """A separator ends a record and is removed; the last record may lack it. No other byte changes:
    a carriage return before a newline stays."""

    def __init__(self, separator: bytes, record_bytes_max: int) -> None:
        self._separator = separator
        self._max = record_bytes_max
        self._pieces: list[bytes] = []
        self.pending_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        first, *others = chunk.split(self._separator)
        self._pieces.append(first)
        self.pending_bytes += len(first)
        if others:
            self._check()
            whole = b"".join(self._pieces)
            last = others.pop()
            self._pieces, self.pending_bytes = [last], len(last)
            yield whole
            yield from others
        self._check()

    def _check(self) -> None:
        if self.pending_bytes > self._max:
            raise too_large(self.pending_bytes, self._max, " or more")

    def finish(self) -> Iterator[bytes]:
        last = b"".join(self._pieces)
        self._pieces, self.pending_bytes = [], 0
        if last:
            yield last


class _Measured:
    """Each record has its length (u32le) before it."""

    def __init__(self, record_bytes_max: int) -> None:
        self._max = record_bytes_max
        self._pieces: list[bytes] = []
        self._needed = LENGTH.size  # bytes from the record's begin that the next step needs
        self.pending_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._pieces.append(chunk)
        self.pending_bytes += len(chunk)
        if self.pending_bytes < self._needed:
            return
        data, at = b"".join(self._pieces), 0
        while True:
            self._needed = LENGTH.size
            if len(data) - at < LENGTH.size:
                break
            (length,) = LENGTH.unpack_from(data, at)
            if length > self._max:
                raise too_large(length, self._max)
            self._needed += length
            if len(data) - at < self._needed:
                break
            yield data[at + LENGTH.size : at + self._needed]
            at += self._needed
        self._pieces = [data[at:]]
        self.pending_bytes = len(data) - at

    def finish(self) -> Iterator[bytes]:
        if self.pending_bytes:
            raise InputTruncated(
                f"the input ends {counted(self.pending_bytes, 'byte')} into a record of {self._needed}, "
                "length included",
                hint="is it length-delimited (u32le), and complete?",
            )
        yield from ()


def splitter(delimiter: Delimiter, record_bytes_max: int) -> _Separated | _Measured:
    """A new splitter."""
    if delimiter == "length":
        return _Measured(record_bytes_max)
    return _Separated(b"\n" if delimiter == "line" else b"\0", record_bytes_max)
