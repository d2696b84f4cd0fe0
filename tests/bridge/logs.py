"""Logs for tests of the bridge: filling them, and what is in them and beside them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aolog import Reader, Record, Retention, Writer
from aolog.errors import StorageFull
from aolog.log.cursor_file import read_position
from aolog.storage.directory import Inside
from aolog.storage.file import File
from aolog.storage.storage import Storage
from bridge.deliver.checkpoint_file import CheckpointFile
from bridge.deliver.checkpoints import checkpoints_path
from bridge.deliver.dead_letter import read_dead_letter


def fill(
    log: Path, numbers: int | range, *, keys: int = 50, size: int = 20, **options: Any
) -> None:
    """Appends records of which each says its number: so many, or these."""
    with Writer(log, **options) as writer:
        given = range(numbers) if isinstance(numbers, int) else numbers
        append(writer, given, keys=keys, size=size)


def append(writer: Writer, numbers: Iterable[int], *, keys: int = 50, size: int = 20) -> None:
    for number in numbers:
        key = b"k%d" % (number % keys) if keys else None
        writer.append((b"%d " % number).ljust(size, b"."), key=key, timestamp=number * 1_000_777)


def bounded(log: Path, **options: Any) -> Writer:
    """A writer that removes what no cursor has read, beyond some thousand small records."""
    return Writer(
        log,
        slab_bytes=32 << 10,
        batch_bytes=2000,
        flush_seconds=0.02,
        retention=Retention(max_bytes=128 << 10, when_full="prune"),
        **options,
    )


def gone(log: Path, appended: int, delivered: int = 0) -> int:
    """Records that are not there any more and were not delivered."""
    return appended - len(records_of(log)) - delivered


def records_of(log: Path, **options: Any) -> list[Record]:
    """All records of a log."""
    with Reader(log, **options) as reader:
        return list(reader)


def cursor_of(log: Path, name: str = "bridge") -> int:
    return read_position(str(log), name, Storage()).address


def notes_of(log: Path, cursor: str = "bridge") -> dict[str, Any]:
    """What the bridge noted beside its cursor."""
    path = checkpoints_path(str(log), cursor)
    found: dict[str, Any] | None = CheckpointFile(path, Storage()).load(dict, "the test fails")
    assert found is not None
    return found


def letters(log: Path) -> list[Any]:
    """What was set aside."""
    with Reader(log / "dead-letter") as reader:
        found = [read_dead_letter(record) for record in reader]
    assert None not in found
    return found


def with_large(log: Path) -> list[int]:
    """500 records, of which three are too large for the client: their addresses."""
    large = []
    with Writer(log) as writer:
        for number in range(5):
            append(writer, range(number * 100, number * 100 + 100))
            if number < 3:
                large.append(
                    writer.append(
                        b"x" * 2_000_000,
                        key=b"k%d" % number,
                        headers=[("h", b"1"), ("aolog-code", None)],
                        timestamp=77,
                    )
                )
    return large


class FullStorage(Storage):
    """No room for another byte of a new file, as long as it is full."""

    is_full = True

    def create(self, path: Inside) -> File:
        if self.is_full:
            raise StorageFull("no room", path=path)
        return super().create(path)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"
