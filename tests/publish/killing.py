"""This process, killed by SIGKILL just before a call of the operating system's."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from aolog.storage.system import System
from tests.publish.job import CHANGES


def kill_before_call(which: str) -> None:
    """The first call that `which` says: its name, and a glob over the path that it makes."""
    wanted, pattern = which.split()

    def struck(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def strike(*args: Any, **options: Any) -> Any:
            if name == wanted and fnmatchcase(str(_path(args)), pattern):
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return strike

    for name in sorted(CHANGES):
        setattr(System, name, staticmethod(struck(name, getattr(System, name))))


def _path(args: tuple[Any, ...]) -> object:
    return args[1] if len(args) > 1 and isinstance(args[1], str) else args[0]  # a rename's new one
