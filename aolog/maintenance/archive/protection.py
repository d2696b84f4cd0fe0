"""`protect`: from the first moment on, retention waits for a log's archive.

An archiver does it, too, but first it asks the store; a program that prunes must not wait for that.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from aolog.errors import CursorLocked
from aolog.log.cursor_file import cursor_path
from aolog.read.reader import Reader

if TYPE_CHECKING:
    from aolog.storage.storage import Storage

CURSOR = "archive"
_one = Lock()  # two threads of a process would meet at the cursor


def protect(path: str, storage: Storage) -> None:
    """The cursor `archive` exists on return, durably, at the log's first record if it is new. Nothing in format
    1, which has no archive. Raises what opening a reader raises."""
    with _one, suppress(CursorLocked):  # by an archiver, which protects
        if storage.exists(cursor_path(path, CURSOR)):
            return
        with Reader(path, storage=storage) as reader:
            if reader.topic_uuid is None:
                return
        with Reader(path, cursor=CURSOR, storage=storage) as reader:
            if not reader.has_cursor_position:
                reader.commit()
