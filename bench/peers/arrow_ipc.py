"""pyarrow: a stream of record batches in Arrow's own IPC format."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.measure import Promise
from bench.peers.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PEERS"]

_SCHEMA = pa.schema([pa.field("value", pa.binary())])
_PROMISE = Promise("OS", "none")
_BATCH_BYTES = 64 << 10  # as in the log: what reads them gets as many at once


class _Stream:
    def __init__(self, directory: str) -> None:
        self._file = pa.OSFile(str(Path(directory, "stream")), "wb")
        self._writer = pa.ipc.new_stream(self._file, _SCHEMA)

    def append_each(self, values: Sequence[bytes]) -> None:
        gathered: list[bytes] = []
        size = 0
        for value in values:
            gathered.append(value)
            size += len(value)
            if size >= _BATCH_BYTES:
                self._write(gathered)
                gathered, size = [], 0
        if gathered:
            self._write(gathered)

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        for group in groups:
            self._write(group)

    def _write(self, values: Sequence[bytes]) -> None:
        self._writer.write_batch(pa.record_batch([pa.array(values, pa.binary())], schema=_SCHEMA))

    def close(self) -> None:
        self._writer.close()
        self._file.close()


@dataclass(frozen=True, kw_only=True)
class _ArrowIpc(Peer):
    mapped: bool = False

    def sink(self, directory: str) -> _Stream:
        return _Stream(directory)

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        yield chain.from_iterable(array.to_pylist() for array in self.arrays(directory))

    def arrays(self, directory: str) -> Iterator[Any]:
        path = str(Path(directory, "stream"))
        with (
            pa.memory_map(path) if self.mapped else pa.OSFile(path) as file,
            pa.ipc.open_stream(file) as reader,
        ):
            for batch in reader:
                yield batch.column(0)


PEERS: tuple[Peer, ...] = (
    _ArrowIpc(name="arrow IPC", promise=_PROMISE, note="a batch each 64 KiB or group"),
    _ArrowIpc(
        name="arrow IPC, mapped",
        promise=_PROMISE,
        note="the same file mapped: no value is touched",
        runs=frozenset({"arrow"}),
        mapped=True,
    ),
)
