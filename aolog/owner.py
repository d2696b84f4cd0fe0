"""Whose a new file or directory is: where root makes it, the owner's of the directory it is made in.

A log belongs to a service, by its directory's owner, and root looks after it: prunes, sets cursors,
repairs. What root makes there the service has to open later, for writing too: locks, cursors, slabs.
Whoever is not root, or makes something in a directory of root's, makes it as ever.

Whoever owns a directory may put there what they like, links too, between any two of our calls. So
the directory is opened once, and what is asked of its owner and what is made is that directory's;
only what is new is given away, and of a directory only what is still empty; what is there already
is opened, as asked, but through no link. Nobody is given what they could not have made themselves.

A system without owners (another's user ids, a file system of Windows') keeps it as it is made.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["make_directory", "open_file"]

_ROOT = 0
_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC


def open_file(path: str, flags: int, mode: int = 0o777, /) -> int:
    """os.open; what is created has its owner."""
    parent = _of_another(path) if flags & os.O_CREAT else None
    if parent is None:
        return os.open(path, flags, mode)
    name = _name(path)
    try:
        while True:
            try:
                made = os.open(name, flags | os.O_EXCL, mode, dir_fd=parent)
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
            else:
                return _given(made, parent)
            with suppress(FileNotFoundError):  # removed in between
                return os.open(name, flags & ~os.O_CREAT | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)


def make_directory(path: str, /) -> None:
    """os.mkdir; it has its owner."""
    parent = _of_another(path)
    if parent is None:
        os.mkdir(path)  # noqa: PTH102 -- the seam knows no Path
        return
    name = _name(path)
    try:
        os.mkdir(name, dir_fd=parent)
        with suppress(OSError):  # moved by its owner
            made = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | _DIRECTORY, dir_fd=parent)
            try:
                if os.fstat(made).st_uid == _ROOT and not os.listdir(made):
                    _give(made, parent)
            finally:
                os.close(made)
    finally:
        os.close(parent)


def _of_another(path: str) -> int | None:
    """The directory of a path, opened, if we are root and it is not root's."""
    if os.geteuid() != _ROOT:
        return None
    parent = path.removesuffix(_name(path)) or "."
    try:
        if os.stat(parent).st_uid == _ROOT:  # noqa: PTH116 -- the same
            return None
        return os.open(parent, getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY)
    except OSError:  # who asks is told what is the matter
        return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _given(made: int, parent: int) -> int:
    """The new file, which belongs to its directory's owner from here on."""
    try:
        _give(made, parent)
    except BaseException:
        os.close(made)
        raise
    return made


def _give(made: int, parent: int) -> None:
    """Where it can't be given, it stays root's."""
    owner = os.fstat(parent)
    with suppress(OSError):
        os.fchown(made, owner.st_uid, owner.st_gid)
