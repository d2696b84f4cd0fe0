"""Directories whose time of change stands still, for a test or the rest of a child process."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from aolog.storage.system import System

PUT_BACK_NS = 1_700_000_000_123_456_789  # as after a tool that sets times back
WHOLE_SECONDS_NS = 1_700_000_000_000_000_000  # as in small inodes, and there after 2038 for ever
TIMES = {"put back": PUT_BACK_NS, "whole seconds": WHOLE_SECONDS_NS}


def hold(changed_ns: int, replace: Callable[[type[System], str, Any], None] = setattr) -> None:
    """From now on every directory has this time. replace: as setattr; monkeypatch's for a test."""

    def shown(found: os.stat_result) -> Any:
        if not stat.S_ISDIR(found.st_mode):
            return found
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**fields | {"st_mtime_ns": changed_ns, "st_ctime_ns": changed_ns})

    def lstat(path: str, *, dir_fd: int | None = None) -> Any:
        return shown(os.lstat(path, dir_fd=dir_fd))

    replace(System, "fstat", staticmethod(lambda fd: shown(os.fstat(fd))))
    replace(System, "lstat", staticmethod(lstat))
