"""What becomes of open writers and readers at a fork and at the end of the process.

A forked child inherits descriptors, buffers and locks that are its parent's: everything open is
told so in the child, before any of its code runs. At a clean exit what was not closed is closed,
and a writer that is dropped closes itself.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING, Protocol

from aolog.errors import AologError
from aolog.notices import fault

if TYPE_CHECKING:
    from aolog.storage import Storage
    from aolog.system import System

__all__ = ["abandon", "close_quietly", "closed", "opened"]


class Living(Protocol):
    """Something that holds descriptors."""

    path: str
    storage: Storage

    def close(self) -> None: ...
    def after_fork_in_child(self) -> None: ...


_open: weakref.WeakSet[Living] = weakref.WeakSet()


def opened(living: Living) -> None:
    """It is to be told of forks and closed at exit."""
    _open.add(living)


def closed(living: Living) -> None:
    """It is closed."""
    _open.discard(living)


def abandon(system: System) -> None:
    """The process whose system this is died: as in a forked child, nothing is flushed or closed."""
    for living in list(_open):
        if living.storage.system is system:
            living.after_fork_in_child()
            _open.discard(living)


def close_quietly(living: Living) -> None:
    """Closes what nobody closed and nobody will."""
    try:
        living.close()
    except AologError as error:
        fault("%s was not closed and now cannot be: %s", living.path, error)


def _in_child() -> None:
    for living in list(_open):
        living.after_fork_in_child()
    _open.clear()


def _at_exit() -> None:
    for living in list(_open):
        close_quietly(living)


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
