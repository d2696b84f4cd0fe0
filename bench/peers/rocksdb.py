"""rocksdict: RocksDB's log-structured tree, whose keys are the records' numbers, in order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rocksdict

from bench.measure import Promise
from bench.peers.peer import Peer, commits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PEERS"]

_KEY_BYTES = 8


def _open(directory: str) -> Any:
    return rocksdict.Rdict(directory, rocksdict.Options(raw_mode=True))


class _Database:
    def __init__(self, directory: str) -> None:
        self._db = _open(directory)
        self._records = 0

    def append_each(self, values: Sequence[bytes]) -> None:
        self._write(commits_of(values))

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        self._write(groups)

    def _write(self, parts: Iterable[Sequence[bytes]]) -> None:
        number = self._records
        for part in parts:
            batch = rocksdict.WriteBatch(raw_mode=True)
            put = batch.put
            for value in part:
                put(number.to_bytes(_KEY_BYTES, "big"), value)
                number += 1
            self._db.write(batch)
        self._records = number

    def close(self) -> None:
        self._db.close()


class _RocksDb(Peer):
    def sink(self, directory: str) -> _Database:
        return _Database(directory)

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        db = _open(directory)
        try:
            yield db.values()
        finally:
            db.close()


PEERS: tuple[Peer, ...] = (
    _RocksDb(
        name="rocksdict",
        promise=Promise("OS", "crc32c a commit, a block"),
        note="RocksDB, its log on, not synced; a WriteBatch each MiB or group",
    ),
)
