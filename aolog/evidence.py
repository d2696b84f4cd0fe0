"""What lies beside a log's slabs and says what the log is: asked for only where slabs cannot say it.

A damaged cursor, manifest or directory says nothing; it is no error here. Reads only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.cursor import cursor_names, read_position
from aolog.errors import AologError
from aolog.log import ASIDE_DIRECTORY
from aolog.manifest import names_log
from aolog.slab import slab_base

if TYPE_CHECKING:
    from aolog.log import Log
    from aolog.storage import Storage

__all__ = ["cursor_uuids", "is_format_2"]


def cursor_uuids(path: str, storage: Storage) -> dict[str, bytes]:
    """The log UUID in each cursor that has one, by the cursor's name. Epochs begin at 1: a cursor
    of epoch 0 belongs to a log of format 1, or was committed where no header was intact."""
    found = {}
    try:
        for name in cursor_names(path, storage):
            try:
                position = read_position(path, name, storage)
            except AologError:
                continue
            if position.epoch > 0:
                found[name] = position.topic_uuid
    except AologError:  # the directory cannot be read
        pass
    return found


def is_format_2(log: Log) -> bool:
    """Whether anything beside the slabs is found only beside slabs of format 2."""
    return (
        bool(log.unborn)  # slabs of format 1 are made under their own names
        or log.has_pending
        or bool(cursor_uuids(log.path, log.storage))
        or _repair_kept_a_slab(log.path, log.storage)
        or names_log(log.path, log.storage)
    )


def _repair_kept_a_slab(path: str, storage: Storage) -> bool:
    """Repair replaces no slab of format 1."""
    parent = f"{path}/{ASIDE_DIRECTORY}"
    return any(
        slab_base(name) is not None
        for directory in _names(parent, storage)
        if directory.startswith("repair-")
        for name in _names(f"{parent}/{directory}", storage)
    )


def _names(path: str, storage: Storage) -> list[str]:
    """In a directory; none where it cannot be read."""
    try:
        return storage.list_names(path)
    except AologError:
        return []
