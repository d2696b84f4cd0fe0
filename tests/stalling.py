"""A real disk whose syncs can be held up, or fail."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aolog.storage.system import System

__all__ = ["StallingSystem"]

_TOO_LONG_S = 60.0


class StallingSystem(System):
    """A disk that sometimes takes nothing. errno: what its syncs fail with, if they do."""

    def __init__(self) -> None:
        self._flows = threading.Event()
        self._flows.set()
        self.errno: int | None = None

    @contextmanager
    def stalled(self) -> Iterator[None]:
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    def fdatasync(self, fd: int, /) -> None:  # type: ignore[override]  # a method for a function
        if not self._flows.wait(_TOO_LONG_S):
            raise OSError(errno.ETIMEDOUT, "stalled for too long for a test")
        if self.errno is not None:
            raise OSError(self.errno, os.strerror(self.errno))
        os.fdatasync(fd)
