"""Makes the golden log of format 2: `python -m tests.golden.format2.make DIRECTORY`.

    DIRECTORY/log/*.slab, log/cursors/reader.cursor     a log as a killed writer left it
    DIRECTORY/records.json                              what a reader is to return, gaps and all

Everything that differs from run to run is fixed: clock, randomness, boot and inode.

A golden never changes within a version of the format. Where the code no longer makes these
bytes, the code is wrong, or the format has a new version and a directory of its own; what is
here is then still read, and no longer made.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import aolog
from aolog.storage import clock as aolog_clock
from aolog.storage.file import File, Stat
from aolog.storage.storage import Storage
from aolog.storage.system import System

if TYPE_CHECKING:
    from collections.abc import Callable

T0_US = 1_700_000_000_000_000
TORN_BYTES = 60  # what is left of the last frame: its header and half of its body
HEADERS = (("trace", b"\x00\x01"), ("trace", None), ("größe", b""))


class GoldenFile(File):
    """A file whose inode is always the same."""

    def stat(self) -> Stat:
        return super().stat()._replace(inode=0x1D0DE)

    def identity(self) -> int:
        return self.stat().inode


class GoldenSystem(System):
    """A machine that never boots."""

    def boot_id(self) -> bytes:
        return bytes(range(0xB0, 0xC0))


class GoldenStorage(Storage):
    """The real file system."""

    def _open(self, path: str, flags: int) -> File:
        plain = super()._open(path, flags)
        golden = GoldenFile(plain.path, plain.fd)
        plain.fd = -1
        return golden


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.us = T0_US

    def tick(self) -> None:
        """A second passes."""
        self.us += 1_000_000

    def now_us(self) -> int:
        return self.us


def randomness() -> Callable[[int], bytes]:
    numbers = count()
    return lambda size: hashlib.sha256(b"%d" % next(numbers)).digest()[:size]


def fixed(clock: Clock) -> list[Any]:
    return [
        mock.patch.object(aolog_clock, "now_us", clock.now_us),
        mock.patch.object(os, "urandom", randomness()),
    ]


class Recorder:
    """Appends, and keeps what a reader is to return."""

    def __init__(self, log: aolog.Writer, clock: Clock) -> None:
        self.log, self.clock = log, clock
        self.expected: list[aolog.Record] = []

    def append(self, value: bytes | None, **parts: Any) -> None:
        address = self.log.append(value, **parts)
        self.expected.append(
            aolog.Record(
                address,
                parts.get("timestamp", self.clock.us),
                parts.get("key"),
                value,
                parts.get("headers", ()),
                parts.get("topic"),
            )
        )

    def append_many(self, values: list[bytes | None]) -> None:
        addresses = self.log.append_many(values).tolist()
        for address, value in zip(addresses, values, strict=True):
            self.expected.append(aolog.Record(address, self.clock.us, None, value, (), None))

    def cut(self) -> None:
        """The open batch becomes a frame; a second passes."""
        self.log.flush()
        self.clock.tick()

    def mark(self) -> None:
        """What the writer's own thread does once everything is durable and nothing comes."""
        self.log.sync()
        with self.log._lock:
            self.log._chain.slab.add_mark(self.clock.us)
        self.cut()


def write(path: str, clock: Clock, killed: Callable[[], None]) -> tuple[list[aolog.Record], int]:
    """Writes the log, and calls `killed` where the writer is to die: what is in the page cache
    then is what it leaves. What was appended, and the address at which an unfinished frame
    begins."""
    options: dict[str, Any] = {
        "slab_bytes": 28 << 10,
        "topic": "orders",
        "flush_seconds": None,
        "sync_seconds": 3600.0,
        "storage": GoldenStorage(GoldenSystem()),
    }
    with aolog.Writer(path, **options) as log:
        to = Recorder(log, clock)
        write_slabs(to)
    clock.tick()
    with aolog.Writer(path, **options) as log:
        again = Recorder(log, clock)
        again.append(b"in the third slab, opened anew")
        again.append(b"in a batch", key=b"k")
        again.cut()
        with aolog.Reader(path, cursor="reader", storage=GoldenStorage(GoldenSystem())) as reader:
            for _ in range(9):
                reader.read()
            reader.commit()
            reader.read()
            reader.commit()
        unfinished = log.append(b"of this frame only a part came to the disk")
        log.flush()
        killed()
    return to.expected + again.expected, unfinished


def write_slabs(to: Recorder) -> None:
    """A slab with every kind of frame and column, and the begin of the next."""
    to.append(b"hello")
    to.cut()
    to.append(b"")
    to.cut()
    to.append(None)
    to.cut()
    to.append(b"first", key=b"k", headers=HEADERS, timestamp=T0_US - 5, topic="audit")
    to.append(None, key=None, timestamp=-1, topic="größe")
    to.append(b"", key=b"", headers=(("", None),), topic=None)
    to.append("größe".encode(), timestamp=T0_US + 10**12)
    to.cut()
    to.append(b"one topic", topic="audit")
    to.append(b"for all", topic="audit")
    to.cut()
    to.append_many([b"many", b"", None, b"more"])
    to.cut()
    to.mark()
    to.append(b"x" * 17_000)
    to.cut()
    to.append_many([b"%02d" % i for i in range(30)])
    to.cut()
    to.log.sync()
    to.append(b"behind a sync", key=b"key")
    to.append(b"y" * 1000)
    to.cut()
    to.append(b"z" * 2000)  # behind it the slab is full
    to.cut()
    to.append(b"in the second slab")


def as_json(record: aolog.Record) -> dict[str, Any]:
    """Bytes in hex; a long run of one byte as that byte and how many."""

    def octets(data: bytes | None) -> str | list[str | int] | None:
        if data is not None and len(data) > 100 and len(set(data)) == 1:
            return [data[:1].hex(), len(data)]
        return None if data is None else data.hex()

    return {
        "address": record.address,
        "timestamp": record.timestamp,
        "key": octets(record.key),
        "value": octets(record.value),
        "headers": [[name, octets(value)] for name, value in record.headers],
        "topic": record.topic,
    }


def from_json(fields: dict[str, Any]) -> aolog.Record:
    def octets(data: str | list[Any] | None) -> bytes | None:
        if isinstance(data, list):
            return bytes.fromhex(data[0]) * data[1]
        return None if data is None else bytes.fromhex(data)

    headers = tuple((name, octets(value)) for name, value in fields["headers"])
    return aolog.Record(
        fields["address"],
        fields["timestamp"],
        octets(fields["key"]),
        octets(fields["value"]),
        headers,
        fields["topic"],
    )


def make(directory: Path) -> None:
    """Makes everything anew in an empty directory."""
    clock = Clock()
    patches = fixed(clock)
    for patch in patches:
        patch.start()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            path = f"{scratch}/log"
            records, unfinished = write(
                path, clock, lambda: shutil.copytree(path, directory / "log")
            )
    finally:
        for patch in patches:
            patch.stop()
    last = max((directory / "log").glob("*.slab"))
    os.truncate(last, unfinished - int(last.stem) + TORN_BYTES)
    lines = ",\n ".join(json.dumps(as_json(r), ensure_ascii=False) for r in records)
    (directory / "records.json").write_text(f"[\n {lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
