"""Open writers and readers, at a fork and at the end of the interpreter.

A forked child inherits its parent's descriptors, buffers and locks. Before any code of the child runs,
each open object there drops them.

At exit the interpreter waits for threads, calls the exit handlers, the last registered one first, and deletes all
objects; records come in each of these steps. A file of Python's takes them all. So exit does not close a writer,
it *settles* it: everything is sealed and durable, as after `close`, its threads have ended, and each record that
comes later is flushed at once. `Writer.__del__` closes it. A writer that is never deleted, because a daemon thread
or a logger refers to it, leaves such records unsealed; the next writer finds them. Readers stay as they are.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

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


class _Entry(NamedTuple):
    """The arguments of `opened`. Not bound methods: those would keep the object alive."""

    system: System
    after_fork_in_child: Callable[[Any], None]
    settle: Callable[[Any], None] | None


_open: weakref.WeakKeyDictionary[Living, _Entry] = weakref.WeakKeyDictionary()


def opened(
    living: _Living,
    system: System,
    after_fork_in_child: Callable[[_Living], None],
    settle: Callable[[_Living], None] | None = None,
) -> None:
    """after_fork_in_child: drops descriptors and locks, flushes nothing, and makes later calls raise
    Forked. settle: what exit does with it, see the module."""
    _open[living] = _Entry(system, after_fork_in_child, settle)


def closed(living: Living) -> None:
    """Removes an object that was closed."""
    _open.pop(living, None)


def died(living: Living) -> None:
    """Simulates the death of the process that opened it: as in a forked child, nothing is flushed or
    closed. Does nothing if it was closed."""
    if (entry := _open.pop(living, None)) is not None:
        entry.after_fork_in_child(living)


def abandon(system: System | None = None) -> None:
    """The process that used this system died, or this one is a forked child: all that it had open died."""
    for living, entry in list(_open.items()):
        if system is None or entry.system is system:
            died(living)


def is_ending() -> bool:
    """Whether the interpreter ends, and this is the thread in which it calls exit handlers and
    finalizers."""
    main = threading.main_thread()
    return main.ident == threading.get_ident() and not main.is_alive()


def settle(living: Living) -> None:
    """Does what exit does with it. Does nothing if it was closed."""
    entry = _open.get(living)
    if entry is not None and entry.settle is not None:
        entry.settle(living)


def close_quietly(living: Living) -> None:
    """Closes an object that its owner dropped. Logs any exception instead of raising it."""
    _quietly(living, living.close)


def _quietly(living: Living, close: Callable[[], None]) -> None:
    """Logs an interrupt (KeyboardInterrupt) too: no caller is left who could handle it, and at exit
    other logs are closed after this one."""
    try:
        close()
    except AologError as error:
        fault("%s was not closed: %s", living.path, error)
    except BaseException as error:  # noqa: BLE001 -- as said
        fault("%s was not closed: %r", living.path, error, trace=error)


def _at_exit() -> None:
    with ExitStack() as last:  # which goes on even if a handler of logging raises
        for living in list(_open):
            last.callback(_quietly, living, partial(settle, living))


os.register_at_fork(after_in_child=abandon)
atexit.register(_at_exit)
