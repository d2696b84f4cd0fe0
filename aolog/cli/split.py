"""Cutting a stream of bytes into records, in memory bounded by the largest record. Pure.

A splitter is fed chunks and yields the records that end in them, in order; `finish` yields what
is left at the end of the input. It holds at most one unfinished record, and refuses one that is
over the bound as soon as that is known, after it has yielded all records before it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from aolog.cli.failing import InputTruncated
from aolog.errors import RecordTooLarge, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DELIMITERS", "Delimiter", "Splitter", "splitter"]

Delimiter: TypeAlias = Literal["line", "nul", "length"]
DELIMITERS: tuple[Delimiter, ...] = ("line", "nul", "length")

_LENGTH = struct.Struct("<I")


class Splitter(Protocol):
    """From chunks to records."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a record whose end has not come."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Records that end in the chunk. To be consumed before the next call. Raises
        RecordTooLarge."""

    def finish(self) -> Iterator[bytes]:
        """The last record, if its end needs no mark. Raises InputTruncated."""


class _Separated:
    """Records end at a byte, which is removed; the last one may lack it. Nothing else is
    touched: a carriage return before a newline stays."""

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
            if self.pending_bytes > self._max:
                raise _too_large(self.pending_bytes, self._max, " or more")
            whole = b"".join(self._pieces)
            last = others.pop()
            self._pieces, self.pending_bytes = [last], len(last)
            yield whole
            yield from others
        if self.pending_bytes > self._max:
            raise _too_large(self.pending_bytes, self._max, " or more")

    def finish(self) -> Iterator[bytes]:
        last = b"".join(self._pieces)
        self._pieces, self.pending_bytes = [], 0
        if last:
            yield last


class _Measured:
    """Records stand behind their length, u32le."""

    def __init__(self, record_bytes_max: int) -> None:
        self._max = record_bytes_max
        self._pieces: list[bytes] = []
        self._needed = _LENGTH.size
        self.pending_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._pieces.append(chunk)
        self.pending_bytes += len(chunk)
        if self.pending_bytes < self._needed:
            return
        data, at = b"".join(self._pieces), 0
        while True:
            self._needed = _LENGTH.size
            if len(data) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(data, at)
                if length > self._max:
                    raise _too_large(length, self._max)
                self._needed += length
            if len(data) - at < self._needed or self._needed == _LENGTH.size > len(data) - at:
                break
            yield data[at + _LENGTH.size : at + self._needed]
            at += self._needed
        self._pieces = [data[at:]]
        self.pending_bytes = len(data) - at

    def finish(self) -> Iterator[bytes]:
        if self.pending_bytes:
            raise InputTruncated(
                f"the input ends {counted(self.pending_bytes, 'byte')} into a record of {self._needed}, "
                "length included",
                hint="is it length-delimited (u32le), and whole?",
            )
        yield from ()


def _too_large(size: int, bound: int, more: str = "") -> RecordTooLarge:
    return RecordTooLarge(f"a record of {size} bytes{more} is over max_record_bytes={bound}")


def splitter(delimiter: Delimiter, record_bytes_max: int) -> Splitter:
    """A fresh one."""
    if delimiter == "length":
        return _Measured(record_bytes_max)
    return _Separated(b"\n" if delimiter == "line" else b"\0", record_bytes_max)
