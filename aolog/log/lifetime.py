"""What becomes of open writers and readers at a fork and at the end of the process.

A forked child inherits descriptors, buffers and locks that are its parent's: everything open is
told so in the child, before any of its code runs. At a clean exit what was not closed is closed,
and a writer that is dropped closes itself.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aolog.errors import AologError, fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.storage.system import System

__all__ = ["abandon", "close_quietly", "closed", "died", "opened"]


class Living(Protocol):
    """Something that holds descriptors."""

    path: str

    def close(self) -> None: ...


_Living = TypeVar("_Living", bound=Living)

# With its system, and the function that a forked child calls with it. Not a bound method: that
# would keep it alive.
_open: weakref.WeakKeyDictionary[Living, tuple[System, Callable[[Any], None]]]
_open = weakref.WeakKeyDictionary()


def opened(living: _Living, system: System, after_fork_in_child: Callable[[_Living], None]) -> None:
    """A forked child calls `after_fork_in_child`, and exit closes it. That function drops
    descriptors and locks, flushes nothing, and makes later calls raise Forked."""
    _open[living] = system, after_fork_in_child


def closed(living: Living) -> None:
    """It is closed."""
    _open.pop(living, None)


def died(living: Living) -> None:
    """The process that opened it died: as in a forked child, nothing is flushed or closed. Does
    nothing if it was closed."""
    entry = _open.pop(living, None)
    if entry is not None:
        _, after_fork_in_child = entry
        after_fork_in_child(living)


def abandon(system: System) -> None:
    """The process whose system this is died."""
    for living, (its_system, _) in list(_open.items()):
        if its_system is system:
            died(living)


def close_quietly(living: Living) -> None:
    """Closes what nobody closed and nobody will."""
    try:
        living.close()
    except AologError as error:
        fault("%s was not closed and now cannot be: %s", living.path, error)


def _in_child() -> None:
    for living in list(_open):
        died(living)


def _at_exit() -> None:
    for living in list(_open):
        close_quietly(living)


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
