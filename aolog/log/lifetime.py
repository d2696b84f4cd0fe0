"""Open writers and readers, at a fork and at the end of the process.

A forked child inherits its parent's descriptors, buffers and locks. Before any code of the child runs,
each open object there drops them. At a clean exit this module closes what is still open, and a writer
that is collected closes itself.
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


class Living(Protocol):
    """Something that holds descriptors."""

    path: str

    def close(self) -> None:
        """Releases what it holds."""


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
    """Removes an object that was closed."""
    _open.pop(living, None)


def died(living: Living) -> None:
    """Simulates the death of the process that opened it: as in a forked child, nothing is flushed or
    closed. Does nothing if it was closed."""
    entry = _open.pop(living, None)
    if entry is not None:
        _, after_fork_in_child = entry
        after_fork_in_child(living)


def abandon(system: System | None = None) -> None:
    """The process that used this system died, or this one is a forked child: all that it had open died."""
    for living, (its_system, _) in list(_open.items()):
        if system is None or its_system is system:
            died(living)


def close_quietly(living: Living) -> None:
    """Closes an object that its owner dropped. Logs an error instead of raising it."""
    try:
        living.close()
    except AologError as error:
        fault("%s was not closed and now cannot be: %s", living.path, error)


def _at_exit() -> None:
    for living in list(_open):
        close_quietly(living)


os.register_at_fork(after_in_child=abandon)
atexit.register(_at_exit)
