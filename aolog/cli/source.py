"""Where append reads from: files and standard input, piece by piece, as they come."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from aolog.cli.failing import InputFailed

if TYPE_CHECKING:
    from aolog.cli.stopping import Stopping

__all__ = ["STDIN", "Source", "total_bytes"]

STDIN = "-"
_READ_BYTES = 256 << 10  # more gains nothing, and what a signal finds read is appended first


class Source:
    """An input: a file or standard input. `name` as messages have it."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == STDIN else path
        self._stream = self._open(path)
        try:
            self._fd: int | None = self._stream.fileno()
        except (OSError, ValueError):
            self._fd = None  # a test's
        if self._fd is not None and stat.S_ISDIR(os.fstat(self._fd).st_mode):
            raise self._failed(IsADirectoryError(errno.EISDIR, ""))

    def _open(self, path: str) -> IO[bytes]:
        if path != STDIN:
            try:
                return Path(path).open("rb", buffering=0)
            except OSError as error:
                raise self._failed(error) from error
        if sys.stdin is None:
            raise InputFailed("standard input is closed", hint="name a file")
        return sys.stdin.buffer

    def read(self, stopping: Stopping) -> bytes | None:
        """What is there, waiting for the first of it; b"" at the end, None if asked to stop."""
        try:
            if self._fd is None:
                return self._stream.read(_READ_BYTES)
            if not stopping.wait_readable(self._fd):
                return None
            return os.read(self._fd, _READ_BYTES)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> InputFailed:
        reason = f"{self.name}: {os.strerror(error.errno or 0)}"
        return InputFailed(reason, errno=error.errno, input=self.name)

    def close(self) -> None:
        """Standard input stays open."""
        if self._stream is not getattr(sys.stdin, "buffer", None):
            self._stream.close()


def total_bytes(paths: tuple[str, ...]) -> int:
    """Of all inputs; 0 if one has no size that is known."""
    total = 0
    for path in paths:
        found = None if path == STDIN else Path(path).stat()
        if found is None or not stat.S_ISREG(found.st_mode):
            return 0
        total += found.st_size
    return total
