"""The limits of the machine: the same bytes written and read with nothing in between.

There are two kinds. A raw file with one call for each record shows the cost of CPython itself. The log's
own bytes in blocks show the cost of the kernel and of the hash: the floor.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from bench.measure import Contender, Promise, Wrong
from bench.payloads import groups_of, prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.payloads import Proof

__all__ = [
    "RAW_BLOCKS",
    "RAW_FILE",
    "READ",
    "READ_AND_HASH",
    "read_blocks",
    "read_calls",
    "write_blocks",
    "write_calls",
    "write_lines",
]

RAW_FILE = "raw file"
RAW_BLOCKS = "raw blocks"
READ = "read"
READ_AND_HASH = "read + xxh3_64"

BLOCK_BYTES = 1 << 20  # what aolog flushes at once
READ_BYTES = 1 << 20
_NO_CHECKSUM = "none"
_IN_SYSTEM = "OS"
_PREFIX_BYTES = 4


def _framed(values: Sequence[bytes]) -> list[bytes]:
    """Each value with its length before it, which every stream needs."""
    return [len(value).to_bytes(_PREFIX_BYTES, "little") + value for value in values]


@contextmanager
def _write(work: Callable[[Path], int], directory: str) -> Iterator[Callable[[], int]]:
    yield partial(work, Path(directory, "raw"))


def _read_back(length: int, directory: str) -> Proof:
    with Path(directory, "raw").open("rb") as file:
        read = partial(file.read, _PREFIX_BYTES + length)
        return prove(entry[_PREFIX_BYTES:] for entry in iter(read, b""))


def write_calls(
    values: Sequence[bytes], expected: Proof, *, flushes_each: bool = False
) -> Contender:
    """A write for each record, through one buffer."""
    framed = _framed(values)

    def work(path: Path) -> int:
        with path.open("wb", buffering=BLOCK_BYTES) as file:
            write, flush = file.write, file.flush
            if flushes_each:
                for entry in framed:
                    write(entry)
                    flush()
            else:
                for entry in framed:
                    write(entry)
        return len(framed)

    return Contender(
        f"{RAW_FILE}, flush each" if flushes_each else RAW_FILE,
        Promise(_IN_SYSTEM, _NO_CHECKSUM),
        len(framed),
        partial(_write, work),
        partial(_read_back, len(values[0])),
        expected,
        "a buffered write a record, framed beforehand",
    )


def write_lines(values: Sequence[bytes], expected: Proof, per_call: int) -> Contender:
    """A writelines for each `per_call` records, through one buffer."""
    groups = list(groups_of(_framed(values), per_call))

    def work(path: Path) -> int:
        with path.open("wb", buffering=BLOCK_BYTES) as file:
            for group in groups:
                file.writelines(group)
        return sum(map(len, groups))

    return Contender(
        RAW_FILE,
        Promise(_IN_SYSTEM, _NO_CHECKSUM),
        len(values),
        partial(_write, work),
        partial(_read_back, len(values[0])),
        expected,
        "writelines, framed beforehand",
    )


def write_blocks(stored: bytes, records: int, expected: Proof) -> Contender:
    """A log's own bytes, one block in each call."""
    blocks = [memoryview(stored)[i : i + BLOCK_BYTES] for i in range(0, len(stored), BLOCK_BYTES)]

    def work(path: Path) -> int:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            written = sum(os.write(fd, block) for block in blocks)
        finally:
            os.close(fd)
        if written != len(stored):
            raise Wrong(f"{RAW_BLOCKS}: wrote {written} bytes of {len(stored)}")
        return records

    return Contender(
        RAW_BLOCKS,
        Promise(_IN_SYSTEM, _NO_CHECKSUM),
        records,
        partial(_write, work),
        None,
        expected,
        f"the log's bytes, {BLOCK_BYTES >> 20} MiB a write",
    )


def read_calls(path: Path, values: Sequence[bytes], expected: Proof) -> Contender:
    """A read for each record, through one buffer. Writes the file that it reads."""
    path.write_bytes(b"".join(values))
    length = len(values[0])

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        yield work

    def work() -> int:
        total = 0
        with path.open("rb", buffering=READ_BYTES) as file:
            for value in iter(partial(file.read, length), b""):
                total += len(value)
        return total // length

    def proof(_: str) -> Proof:
        with path.open("rb") as file:
            return prove(iter(partial(file.read, length), b""))

    return Contender(
        RAW_FILE,
        Promise("-", _NO_CHECKSUM),
        len(values),
        session,
        proof,
        expected,
        "a buffered read a record, of a known length",
    )


def read_blocks(
    paths: Sequence[Path],
    records: int,
    expected: Proof,
    *,
    hashed: bool,
    read_bytes: int = READ_BYTES,
) -> Contender:
    """Files read into memory, each byte hashed once or not at all.

    With `os.pread`, a new object for each read_bytes, as anything must that hands out views of what
    it read. (Into one reused buffer the same took two thirds as long on a quiet machine.)
    """
    name, size_read = READ_AND_HASH if hashed else READ, f"{read_bytes >> 10:,} KiB a call"
    size = sum(path.stat().st_size for path in paths)

    def work() -> int:
        total = 0
        for path in paths:
            fd = os.open(path, os.O_RDONLY)
            try:
                at = 0
                while chunk := os.pread(fd, read_bytes, at):
                    at += len(chunk)
                    if hashed:
                        xxhash.xxh3_64_intdigest(chunk)
            finally:
                os.close(fd)
            total += at
        if total != size:
            raise Wrong(f"{READ}: read {total} bytes of {size}")
        return records

    return Contender(
        name if read_bytes == READ_BYTES else f"{name}, {size_read}",
        Promise("-", "xxh3 a read" if hashed else _NO_CHECKSUM),
        records,
        lambda _: nullcontext(work),
        None,
        expected,
        f"the log's bytes, os.pread of {size_read}",
    )
