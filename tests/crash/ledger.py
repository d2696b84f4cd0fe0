"""What a process said before it was killed, and what that obliges the log to.

A child writes lines into a file that its parent opened, each in one system call, and each only
once the call that it tells of has returned:

    taken RUN THREAD I ADDRESS    the I-th append of a thread returned this address
    kept ADDRESS                  a flush or sync returned: everything before the address counts
    trying ADDRESS                a cursor is about to be committed here
    committed ADDRESS             it was
    resumed ADDRESS               a reader begins where its cursor stands

A child's first line is `begins RUN`, before any of these.

What a record holds follows from its run, thread and number, so that what is read can be
recognised, told or not, and anything else is invented.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import NamedTuple

import aolog
from aolog.record import Gap, Record

__all__ = ["Id", "Ledger", "check", "id_of", "read_log", "say", "value_of"]


class Id(NamedTuple):
    """Which record: of which child, of which of its threads, its how many-th."""

    run: int
    thread: int
    i: int


def value_of(which: Id) -> bytes:
    """What that record holds: its id and random bytes, some of them many."""
    rng = random.Random(str(which))
    size = 30_000 if rng.randrange(40) == 0 else rng.randrange(300)
    return ".".join(map(str, which)).encode() + b";" + rng.randbytes(size)


def id_of(value: bytes) -> Id:
    """Whose value it is."""
    return Id(*map(int, value.partition(b";")[0].split(b".")))


def say(fd: int, *words: object) -> None:
    """A line, whole, from a child."""
    line = (" ".join(map(str, words)) + "\n").encode()
    assert os.write(fd, line) == len(line)


class Ledger:
    """All that was said, by all children, about one log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def open(self) -> int:
        """A descriptor for a child."""
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def words(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()]

    def taken(self, run: int) -> dict[int, Id]:
        """A child's records by the address that their append returned."""
        found = {}
        for words in self.words():
            if words[0] == "taken":
                which = Id(*map(int, words[1:4]))
                if which.run == run:
                    found[int(words[4])] = which
        return found

    def kept(self) -> int:
        """Everything before this address was acknowledged."""
        return max((int(words[1]) for words in self.words() if words[0] == "kept"), default=0)


def read_log(path: str) -> tuple[dict[int, Record], list[Gap]]:
    """Everything, by address, and the gaps."""
    with aolog.Reader(path) as reader:
        listed = list(reader)
        gaps = reader.gaps
    records = {record.address: record for record in listed}
    assert len(records) == len(listed), "an address twice"
    assert list(records) == sorted(records)
    return records, gaps


def check(
    path: str,
    taken: dict[int, Id],
    kept: int,
    *,
    reasons: frozenset[str] = frozenset({"torn"}),
    in_order: bool = True,
) -> dict[int, Id]:
    """Everything acknowledged is there, byte for byte, at its address; nothing else is but what was
    being appended; gaps have the reasons that are documented. What is there.

    in_order: of what was not acknowledged only an end is missing (not so after a power cut, when
    later bytes may have come to the device before earlier ones).
    """
    records, gaps = read_log(path)
    assert {gap.reason for gap in gaps} <= reasons, gaps
    first = min((gap.end for gap in gaps if gap.reason == "pruned"), default=0)
    if "pruned" in reasons:
        first = max(first, int(min(Path(path).glob("*.slab")).stem))
    owed = {address: which for address, which in taken.items() if first <= address < kept}
    for address, which in owed.items():
        assert address in records, f"{which} at {address} was acknowledged and is gone; {gaps}"
        assert records[address].value == value_of(which), f"{which} at {address} is another"
    there: dict[int, Id] = {}
    numbers: dict[tuple[int, int], list[int]] = {}
    for address, record in records.items():
        assert record.value is not None
        which = id_of(record.value)
        assert record.value == value_of(which), f"invented at {address}: {record.value[:40]!r}"
        assert taken.get(address, which) == which, f"{which} at {address}, as {taken[address]}"
        there[address] = which
        numbers.setdefault(which[:2], []).append(which.i)
    for thread, found in numbers.items():
        assert found == sorted(set(found)), f"{thread}: {found}"
        if in_order:
            begin = found[0] if first else 0
            assert found == list(range(begin, begin + len(found))), f"{thread}: {found}"
    report = aolog.verify(path)
    assert report.records == len(records)
    assert report.problems == []
    assert report.gaps == gaps
    return there
