"""Damage to a cursor: every bit and every length of either copy. The newer copy that is intact
counts; where none is, that is an error and the file is left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import aolog
from fuzz.disk import Disk

COPIES = (0, 4096)
COPY_LEN = 68


class Committed(NamedTuple):
    """path: of the log. file, data: the cursor's. by_copy: address that each copy says."""

    path: str
    file: Path
    data: bytes
    by_copy: list[int]

    @property
    def newer(self) -> int:
        return self.by_copy.index(max(self.by_copy))

    def resumes_at(self, data: bytes) -> int | str:
        """Where a reader goes on with these bytes as the cursor; else the error's code."""
        self.file.write_bytes(data)
        try:
            with aolog.Reader(self.path, cursor="c") as reader:
                address = reader.tell()
                record = reader.read()
        except aolog.AologError as error:
            assert self.file.read_bytes() == data
            return error.code
        assert record is None or record.address == address
        return address


@pytest.fixture(scope="module")
def committed() -> Iterator[Committed]:
    with Disk() as disk:
        path = disk.fresh()
        with aolog.Writer(path, flush_seconds=None, sync="never") as writer:
            writer.append_many([b"%d" % i for i in range(9)])
        by_copy = [0, 0]
        file = Path(path) / "cursors" / "c.cursor"
        with aolog.Reader(path, cursor="c") as reader:
            for n in range(5):
                reader.read()
                before = file.read_bytes() if n else b""
                reader.commit()
                data = file.read_bytes()
                changed = [data[at : at + 68] != before[at : at + 68] for at in COPIES]
                if n > 1:
                    assert sum(changed) == 1
                by_copy[changed.index(True)] = reader.tell()
        yield Committed(path, file, data, by_copy)


def flipped(data: bytes, *bits: int) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("copy", [0, 1])
def test_any_flipped_bit_of_a_copy_leaves_the_other(committed: Committed, copy: int) -> None:
    for bit in range(8 * COPY_LEN):
        found = committed.resumes_at(flipped(committed.data, 8 * COPIES[copy] + bit))
        assert found == committed.by_copy[1 - copy if copy == committed.newer else committed.newer]


def test_a_cursor_cut_at_any_byte_is_what_is_left_of_it(committed: Committed) -> None:
    first, second = committed.by_copy
    edges = [*range(70), *range(100, 4096, 500), *range(4090, 4170), 8191, 8192]
    for size in edges:
        left = [first] if size >= COPY_LEN else []
        left += [second] if size >= COPIES[1] + COPY_LEN else []
        expected = max(left) if left else "cursor_corrupt"
        assert committed.resumes_at(committed.data[:size]) == expected, size


def test_a_commit_that_came_in_part_is_the_one_before(committed: Committed) -> None:
    """The older copy's place is overwritten, from its begin up to any byte."""
    committed.file.write_bytes(committed.data)
    with aolog.Reader(committed.path, cursor="c") as reader:
        reader.read()
        reader.commit()
        address = reader.tell()
    after = committed.file.read_bytes()
    at = COPIES[1 - committed.newer]
    for come in range(COPY_LEN + 1):
        data = committed.data[:at] + after[at : at + come] + committed.data[at + come :]
        expected = address if data == after else max(committed.by_copy)
        assert committed.resumes_at(data) == expected, come
