"""sqlite: a table with a write-ahead log."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Promise
from bench.peers.peer import ALL_RUNS, Peer, commits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PEERS"]

_INSERT = "INSERT INTO log (value) VALUES (?)"


def _connect(directory: str) -> sqlite3.Connection:
    return sqlite3.connect(Path(directory, "log.db"), isolation_level=None)


class _Table:
    def __init__(self, directory: str, synchronous: str) -> None:
        self._connection = _connect(directory)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode=WAL")
        self._execute(f"PRAGMA synchronous={synchronous}")
        self._execute("CREATE TABLE log (address INTEGER PRIMARY KEY, value BLOB NOT NULL)")

    def append_each(self, values: Sequence[bytes]) -> None:
        execute = self._execute
        for part in commits_of(values):
            execute("BEGIN")
            for value in part:
                execute(_INSERT, (value,))
            execute("COMMIT")

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        for group in groups:
            self._execute("BEGIN")
            self._connection.executemany(_INSERT, zip(group, strict=True))
            self._execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, kw_only=True)
class _Sqlite(Peer):
    synchronous: str

    def sink(self, directory: str) -> _Table:
        return _Table(directory, self.synchronous)

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        with closing(_connect(directory)) as connection:
            rows = connection.execute("SELECT value FROM log ORDER BY address")
            yield map(itemgetter(0), rows)


_WAL_SUM = "sum a WAL page"  # none once the page is in the database

PEERS: tuple[Peer, ...] = (
    _Sqlite(
        name="sqlite WAL",
        promise=Promise("OS", _WAL_SUM),
        note="synchronous=OFF, a commit each MiB or group",
        synchronous="OFF",
    ),
    _Sqlite(
        name="sqlite WAL, synced",
        promise=Promise("OS; fsync a checkpoint", _WAL_SUM),
        note="synchronous=NORMAL, a checkpoint each 1000 pages",
        runs=ALL_RUNS - {"read", "arrow"},
        synchronous="NORMAL",
    ),
)
