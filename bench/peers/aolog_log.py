"""aolog itself, with sync="never" as nobody else syncs either.

A slab that is full is sealed and synced whatever the policy says: at the normal size that is in
no timed part, at the large size in one of every 64 MiB.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import aolog
from bench.measure import Promise
from bench.peers.peer import ALL_RUNS, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["PEERS", "VALUES_ALONE", "log_path", "slab_paths", "write_log"]

BATCH_BYTES = 64 << 10
VALUES_ALONE = "aolog, values()"
_PROMISE = Promise("OS", "xxh3 a batch")


def log_path(directory: str) -> str:
    return str(Path(directory, "log"))


def slab_paths(directory: str) -> list[Path]:
    """The log's files in order."""
    return sorted(Path(log_path(directory)).glob("*.slab"))


def write_log(
    directory: str, values: Sequence[bytes], *, batch_bytes: int, full: bool = False
) -> None:
    """A log of these values, appended one by one and closed."""
    sink = _Log(directory, full=full, batch_bytes=batch_bytes)
    try:
        sink.append_each(values)
    finally:
        sink.close()


class _Log:
    def __init__(self, directory: str, *, full: bool, **options: Any) -> None:
        self._writer = aolog.Writer(log_path(directory), sync="never", **options)
        self._full = full

    def append_each(self, values: Sequence[bytes]) -> None:
        append = self._writer.append
        if self._full:
            for i, value in enumerate(values):
                append(
                    value,
                    key=value[:8],
                    headers=(("trace", value[:16]),),
                    timestamp=1_700_000_000_000_000 + i,
                    topic="orders" if i % 4 else "returns",
                )
        else:
            for value in values:
                append(value)
        self._writer.flush()

    def append_groups(self, groups: Sequence[Sequence[bytes]]) -> None:
        append_many = self._writer.append_many
        for group in groups:
            append_many(group)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _read_all(reader: aolog.Reader) -> Iterable[bytes]:
    return map(attrgetter("value"), reader)


def _read_calls(reader: aolog.Reader) -> Iterable[bytes]:
    return map(attrgetter("value"), iter(reader.read, None))


def _read_values(reader: aolog.Reader) -> Iterable[bytes]:
    return cast("Iterable[bytes]", reader.values())  # none of them is None


@dataclass(frozen=True, kw_only=True)
class _Aolog(Peer):
    batch_bytes: int = BATCH_BYTES
    flush_records: int | None = None
    format: Literal["aolog", "queuefka"] = "aolog"
    full: bool = False
    read: Callable[[aolog.Reader], Iterable[bytes]] = _read_all

    def sink(self, directory: str) -> _Log:
        return _Log(
            directory, full=self.full, batch_bytes=self.batch_bytes, flush_records=self.flush_records,
            format=self.format,
        )  # fmt: skip  # a line or two

    @contextmanager
    def values(self, directory: str) -> Iterator[Iterable[bytes]]:
        with aolog.Reader(log_path(directory), strict=True) as reader:
            yield self.read(reader)

    def arrays(self, directory: str) -> Iterator[Any]:
        with aolog.Reader(log_path(directory), strict=True) as reader:
            while (batch := reader.read_batch()) is not None:
                yield batch.to_arrow(["value"]).column(0)


_SMALL: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("frame a record", "batch_bytes=0", {"batch_bytes": 0}),
    ("frame a full record", "batch_bytes=0", {"batch_bytes": 0, "full": True}),
    ("frames of ten", "flush_records=10", {"flush_records": 10}),
    ("format 1", 'format="queuefka"', {"format": "queuefka"}),
)
PEERS: tuple[Peer, ...] = (
    _Aolog(name="aolog", promise=_PROMISE, note="defaults: batches of 64 KiB", runs=ALL_RUNS),
    _Aolog(
        name="aolog, full records",
        promise=_PROMISE,
        note="key, header, timestamp and topic too",
        runs=frozenset({"append", "read"}),
        full=True,
    ),
    _Aolog(
        name="aolog, frame a record",
        promise=Promise("OS", "xxh3 a record"),
        note="batch_bytes=0",
        runs=frozenset({"append", "read"}),
        batch_bytes=0,
    ),
    _Aolog(
        name=VALUES_ALONE,
        promise=_PROMISE,
        note="values without their records",
        runs=frozenset({"read"}),
        read=_read_values,
    ),
    *(
        _Aolog(
            name=f"aolog, {what}{how}",
            promise=Promise("OS", "xxh3 a frame"),
            note=note,
            runs=frozenset({"read"}),
            read=read,
            **given,
        )
        for what, note, given in _SMALL
        for how, read in (("", _read_all), (", values()", _read_values))
        if f"{what}{how}" != "frame a record"
    ),
    _Aolog(
        name="aolog, read() calls",
        promise=_PROMISE,
        note="a call a record, not iteration",
        runs=frozenset({"read"}),
        read=_read_calls,
    ),
)
