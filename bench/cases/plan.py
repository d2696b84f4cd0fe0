"""The arguments of every case, and how a peer becomes a contender."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.measure import Contender, Promise, Skipped, Wrong
from bench.payloads import Proof, make_payloads, prove
from bench.peers import load_peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.peers.peer import Peer, Sink
    from bench.sizes import Size

__all__ = ["Plan", "Values", "append_contender", "read_contender"]


@dataclass(frozen=True)
class Values:
    """Payloads of one length, and their proofs."""

    all: list[bytes]
    proof: Proof
    few: list[bytes]  # for slow peers
    few_proof: Proof

    def of(self, peer: Peer, *, by_groups: bool = False) -> tuple[list[bytes], Proof]:
        if peer.is_slow and not by_groups:
            return self.few, self.few_proof
        return self.all, self.proof


@dataclass(frozen=True)
class Plan:
    """The sizes, the directory and the peers of a run. names: of the peers, if not all of them run."""

    directory: str
    size: Size
    record_bytes: Sequence[int]
    names: Sequence[str] | None = None
    peers: list[Peer] = field(init=False)
    skipped: list[Skipped] = field(init=False)

    def __post_init__(self) -> None:
        peers, skipped = load_peers()
        if self.names is not None:
            peers = [peer for peer in peers if peer.name in self.names]
        object.__setattr__(self, "peers", peers)
        object.__setattr__(self, "skipped", skipped)

    def values(self, record_bytes: int) -> Values:
        values = make_payloads(self.size.records_of(record_bytes), record_bytes)
        few = values[: self.size.records_slow]
        return Values(values, prove(values), few, prove(few))

    @contextmanager
    def fixture(self) -> Iterator[str]:
        """A directory for the files that a group reads."""
        with tempfile.TemporaryDirectory(prefix="fixture-", dir=self.directory) as directory:
            yield directory


def _note(peer: Peer, given: int, whole: int) -> str:
    return f"{peer.note}; only {given:,} records" if given < whole else peer.note


def append_contender(
    peer: Peer, values: Values, append: Callable[[Sink], None], *, by_groups: bool
) -> Contender:
    """A peer that appends into a store that is opened and closed untimed, proved by reading."""
    given, expected = values.of(peer, by_groups=by_groups)

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        sink = peer.sink(directory)

        def work() -> int:
            append(sink)
            return len(given)

        try:
            yield work
        finally:
            sink.close()

    def proof(directory: str) -> Proof:
        with peer.values(directory) as found:
            return prove(found)

    note = _note(peer, len(given), len(values.all))
    return Contender(peer.name, peer.promise, len(given), session, proof, expected, note)


def read_contender(peer: Peer, values: Values, directory: str) -> Contender:
    """A peer that reads one by one what it wrote, opening included. Writes it."""
    given, expected = values.of(peer)
    sink = peer.sink(directory)
    try:
        sink.append_each(given)
    finally:
        sink.close()
    bytes_expected = sum(map(len, given))

    def work() -> int:
        records = size = 0
        with peer.values(directory) as found:
            for value in found:
                records += 1
                size += len(value)
        if size != bytes_expected:
            raise Wrong(f"{peer.name}: read {size} bytes of {bytes_expected}")
        return records

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        yield work

    def proof(_: str) -> Proof:
        with peer.values(directory) as found:
            return prove(found)

    promise = Promise("-", peer.promise.checksum)
    note = _note(peer, len(given), len(values.all))
    return Contender(peer.name, promise, len(given), session, proof, expected, note)
