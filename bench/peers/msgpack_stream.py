"""msgpack: each value packed, one after the other in one buffered file."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack

from bench.measure import Promise
from bench.peers import MSGPACK
from bench.peers.peer import FLUSH_BYTES, Peer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PEERS"]

_READ_BYTES = 1 << 20


class _Stream:
    def __init__(self, directory: str) -> None:
        self._file = Path(directory, "stream").open("wb", buffering=FLUSH_BYTES)  # noqa: SIM115
        self._pack = msgpack.Packer().pack

    def append_each(self, values: Sequence[bytes]) -> None:
        write, pack = self._file.write, self._pack
        for value in values:
            write(pack(value))
        self._file.flush()

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        for group in groups:
            self._file.writelines(map(self._pack, group))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _Msgpack(Peer):
    def sink(self, directory: str) -> _Stream:
        return _Stream(directory)

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        with Path(directory, "stream").open("rb", buffering=0) as file:
            yield msgpack.Unpacker(file, read_size=_READ_BYTES)


PEERS: tuple[Peer, ...] = (
    _Msgpack(
        name=MSGPACK, promise=Promise("OS", "none"), note="packed values in one buffered file"
    ),
)
