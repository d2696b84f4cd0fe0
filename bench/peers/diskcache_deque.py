"""diskcache: its Deque, a queue in a table of sqlite."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from diskcache import Deque

from bench.measure import Promise
from bench.peers.peer import ALL_RUNS, Peer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PEERS"]


class _Queue:
    def __init__(self, directory: str) -> None:
        self._deque = Deque(directory=directory)

    def append_each(self, values: Sequence[bytes]) -> None:
        append = self._deque.append
        for value in values:
            append(value)

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        append = self._deque.append
        for group in groups:
            append(list(group))

    def close(self) -> None:
        self._deque.cache.close()


class _Diskcache(Peer):
    def sink(self, directory: str) -> _Queue:
        return _Queue(directory)

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        deque = Deque(directory=directory)
        try:
            yield _items(deque)
        finally:
            deque.cache.close()


def _items(deque: Deque) -> Iterator[bytes]:
    for item in deque:
        if isinstance(item, list):
            yield from item
        else:
            yield item


PEERS: tuple[Peer, ...] = (
    _Diskcache(
        name="diskcache",
        promise=Promise("OS; fsync a checkpoint", "sum a WAL page"),
        note="Deque, a transaction each append; a group is one item",
        is_slow=True,
        runs=ALL_RUNS - {"arrow"},
    ),
)
