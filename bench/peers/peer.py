"""The interface of every peer, so that all do the same work.

On return of an append the records are in the operating system: they survive a crash of the
process, not of the machine. Where a peer has transactions, one is committed each FLUSH_BYTES,
as aolog flushes. Nobody syncs inside the timed part unless its promise says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from bench.measure import Promise

__all__ = ["ALL_RUNS", "FLUSH_BYTES", "Peer", "Sink", "commits_of"]

FLUSH_BYTES = 1 << 20
ALL_RUNS = frozenset({"append", "append_many", "read", "arrow"})
_ARROW_VALUES = 1000  # values that become one array, where a peer has no batches of its own


class Sink(Protocol):
    """A store that is open for appending."""

    def append_each(self, values: Sequence[bytes]) -> None:
        """One call a record; all in the operating system on return."""

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        """One call a group; all in the operating system on return."""

    def close(self) -> None:
        """Releases everything."""


@dataclass(frozen=True, kw_only=True)
class Peer(ABC):
    """A way to keep records in a directory. is_slow: a thousand times slower than the others,
    and given fewer records one by one. runs: the cases that it takes part in."""

    name: str
    promise: Promise
    note: str = ""
    is_slow: bool = False
    runs: frozenset[str] = ALL_RUNS

    @abstractmethod
    def sink(self, directory: str) -> Sink:
        """A new store in an empty directory."""

    @abstractmethod
    def values(self, directory: str) -> AbstractContextManager[Iterable[bytes]]:
        """The values in order, one by one, as cheaply as the library gives them."""

    def arrays(self, directory: str) -> Iterator[Any]:
        """The values in order as pyarrow's binary arrays."""
        import pyarrow as pa

        with self.values(directory) as values:
            source = iter(values)
            while chunk := list(islice(source, _ARROW_VALUES)):
                yield pa.array(chunk, pa.binary())


def commits_of(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The values in order, cut where a transaction is committed."""
    count = max(1, FLUSH_BYTES // len(values[0])) if values else 1
    for i in range(0, len(values), count):
        yield values[i : i + count]
