"""A directory that holds a log in one state after another; only the differences are written.

All files of the fuzzer are here: in a memory file system if there is one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fuzz.layout import read_files

if TYPE_CHECKING:
    from fuzz.layout import Files

__all__ = ["Disk"]

_MEMORY = Path("/dev/shm")  # noqa: S108 -- a fresh directory of its own is made in it


class Disk:
    """A directory of its own, removed at the end. path: of the log in it."""

    def __init__(self) -> None:
        parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self.root = Path(tempfile.mkdtemp(prefix="aolog-fuzz-", dir=parent))
        self.path = str(self.root / "log")
        self._there: Files = {}

    def fresh(self) -> str:
        """Removes the log. Returns `path`, where another log may be created."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._there = {}
        return self.path

    def put(self, files: Files) -> str:
        """Makes the log exactly these files. Returns `path`."""
        root = Path(self.path)
        root.mkdir(exist_ok=True)
        for name in self._there.keys() - files.keys():
            (root / name).unlink()
        for name, data in files.items():
            if self._there.get(name) is not data and self._there.get(name) != data:
                at = root / name
                at.parent.mkdir(exist_ok=True)
                at.write_bytes(data)
        self._there = dict(files)
        return self.path

    def take(self) -> Files:
        """The files as they are now."""
        self._there = read_files(self.path)
        return self._there

    def close(self) -> None:
        """Removes all of it. Idempotent."""
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
