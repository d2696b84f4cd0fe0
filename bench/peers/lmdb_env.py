"""lmdb: a B+ tree whose keys are the records' numbers, appended in order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import lmdb

from bench.measure import Promise
from bench.peers.peer import Peer, commits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PEERS"]

_MAP_BYTES = 1 << 36  # address space, not disk
_KEY_BYTES = 8


class _Environment:
    def __init__(self, directory: str) -> None:
        self._env = lmdb.open(directory, map_size=_MAP_BYTES, sync=False, metasync=False)
        self._records = 0

    def append_each(self, values: Sequence[bytes]) -> None:
        number = self._records
        for part in commits_of(values):
            with self._env.begin(write=True) as transaction:
                put = transaction.put
                for value in part:
                    put(number.to_bytes(_KEY_BYTES, "big"), value, append=True)
                    number += 1
        self._records = number

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        for group in groups:
            begin = self._records
            self._records += len(group)
            keys = (i.to_bytes(_KEY_BYTES, "big") for i in range(begin, self._records))
            with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(list(zip(keys, group, strict=True)), append=True)

    def close(self) -> None:
        self._env.close()


class _Lmdb(Peer):
    def sink(self, directory: str) -> _Environment:
        return _Environment(directory)

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        with (
            lmdb.open(directory, map_size=_MAP_BYTES, readonly=True, lock=False) as env,
            env.begin() as transaction,
            transaction.cursor() as cursor,
        ):
            yield cursor.iternext(keys=False, values=True)


PEERS: tuple[Peer, ...] = (
    _Lmdb(
        name="lmdb", promise=Promise("OS", "none"), note="sync=False, a commit each MiB or group"
    ),
)
