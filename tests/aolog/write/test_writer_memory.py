"""What a writer holds in memory is bounded by its batch and flush settings. Four seconds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import aolog

BATCH_BYTES, FLUSH_BYTES = 16 << 10, 64 << 10
RECORDS, RECORD_BYTES = 30_000, 100


def one_by_one(writer: aolog.Writer) -> None:
    for i in range(RECORDS):
        writer.append(i.to_bytes(RECORD_BYTES))


def with_keys(writer: aolog.Writer) -> None:
    for i in range(RECORDS // 3):
        writer.append(i.to_bytes(RECORD_BYTES), key=b"%d" % i)


def by_hundreds(writer: aolog.Writer) -> None:
    for i in range(RECORDS // 100):
        writer.append_many([i.to_bytes(RECORD_BYTES)] * 100)


@pytest.mark.parametrize("append", [one_by_one, with_keys, by_hundreds])
def test_memory_does_not_grow_with_what_is_appended(
    tmp_path: Path, append: Callable[[aolog.Writer], None]
) -> None:
    with aolog.Writer(
        tmp_path / "log",
        batch_bytes=BATCH_BYTES,
        flush_bytes=FLUSH_BYTES,
        slab_bytes=1 << 20,
        sync="never",
        flush_seconds=None,
    ) as writer:
        append(writer)  # what is made once is there
        tracemalloc.start()
        try:
            append(writer)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # Frames that wait, the open batch as objects, its columns, and a write's parts put together.
    assert peak < 2 * FLUSH_BYTES + 8 * BATCH_BYTES
