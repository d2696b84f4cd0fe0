"""A consistent view of many logs: all of each publication, or nothing of it (FORMAT.md, *Manifest*)."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from aolog.log.lock import lock_directory
from aolog.log.log_tree import is_log
from aolog.log.manifest import manifest_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog.storage.storage import Storage

_T = TypeVar("_T")
_LOOKS = 5  # without success, before publications have to wait


def steadily(roots: Iterable[str], look: Callable[[], _T], storage: Storage) -> _T:
    """The result of `look` at the logs below these roots: all of each publication, or nothing of it.

    Repeats `look` if there was a publication meanwhile. If there always is one, it locks the roots,
    so that publications wait. It does not lock a root that is a log: that lock is the writer's, and
    a view of one log has all of a publication or nothing anyway. Raises what `look` raises,
    StorageError.
    """
    watched = sorted(set(roots))  # locked in this order: two callers never wait for each other
    with ExitStack() as held:
        before = _contents(watched, storage)
        for looks in count(1):
            found, after = look(), _contents(watched, storage)
            if after == before:
                break
            if looks >= _LOOKS:
                held.close()
                watched = [root for root in watched if not is_log(root, storage)]
                for root in [root for root in watched if root in after]:
                    held.enter_context(lock_directory(root, storage))
                after = _contents(watched, storage)
            before = after
    return found


def _contents(roots: Iterable[str], storage: Storage) -> dict[str, bytes]:
    """The content of each manifest that exists, by root."""
    found = ((root, manifest_content(root, storage)) for root in roots)
    return {root: data for root, data in found if data is not None}
