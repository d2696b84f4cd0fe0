"""persist-queue: its file queue as it comes, pickled items in chunks of 100.

Each put renames an `info` file into place, and each chunk's end is synced; neither can be turned
off. Getting consumes, but nothing is removed until `task_done`, which is not called here.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from persistqueue import Queue

from bench.measure import Promise
from bench.peers.peer import ALL_RUNS, Peer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PEERS"]


def _queue(directory: str) -> Queue:
    path = Path(directory, "queue")
    path.mkdir(exist_ok=True)
    return Queue(str(path), tempdir=str(path))


class _Puts:
    def __init__(self, directory: str) -> None:
        self._queue = _queue(directory)

    def append_each(self, values: Sequence[bytes]) -> None:
        put = self._queue.put
        for value in values:
            put(value)

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        put = self._queue.put
        for group in groups:
            put(list(group))

    def close(self) -> None:
        _close(self._queue)


def _close(queue: Queue) -> None:
    """It has no close of its own."""
    queue.headf.close()
    queue.tailf.close()


class _PersistQueue(Peer):
    def sink(self, directory: str) -> _Puts:
        return _Puts(directory)

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        queue = _queue(directory)
        try:
            yield _items(queue)
        finally:
            _close(queue)


def _items(queue: Queue) -> Iterator[bytes]:
    for _ in range(queue.qsize()):
        item = queue.get_nowait()
        if isinstance(item, list):
            yield from item
        else:
            yield item


PEERS: tuple[Peer, ...] = (
    _PersistQueue(
        name="persist-queue",
        promise=Promise("OS; fsync 100 puts", "none"),
        note="a rename each put; a group is one put",
        is_slow=True,
        runs=ALL_RUNS - {"arrow"},
    ),
)
