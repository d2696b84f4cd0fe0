"""Open writers and readers, at a fork and at the end of the process.

A forked child inherits its parent's descriptors, buffers and locks. Before any code of the child runs,
each open object there drops them. At a clean exit this module closes what is still open, and a writer
that is collected closes itself.
"""

from __future__ import annotations

import atexit
import os
import weakref
from contextlib import ExitStack
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
    """Closes an object that its owner dropped. Logs any exception instead of raising it, an interrupt
    (KeyboardInterrupt) too: no caller is left who could handle it, and at exit other logs must be
    closed after this one."""
    try:
        living.close()
    except BaseException as error:  # noqa: BLE001 -- as said
        is_ours = isinstance(error, AologError)
        reason = error if is_ours else repr(error)
        fault("%s was not closed: %s", living.path, reason, trace=None if is_ours else error)


def _at_exit() -> None:
    with ExitStack() as last:  # which goes on even if a handler of logging raises
        for living in list(_open):
            last.callback(close_quietly, living)


os.register_at_fork(after_in_child=abandon)
atexit.register(_at_exit)
