"""Large: addresses near the end, records of gigabytes, logs of many slabs."""

from __future__ import annotations

import gc
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

import aolog
from aolog.write.validate import RECORD_BYTES_MAX
from tests.aolog.conftest import (
    NEVER,
    WAYS,
    WatchedStorage,
    assert_clean,
    begin_at,
    by_iteration,
    read_all,
    slab_files,
    values,
)

GIB = 1 << 30


# --- addresses -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1 << 32, 1 << 53, 1 << 60, (1 << 63) - (1 << 34)], ids=hex)
def test_a_log_that_begins_high_is_read_in_every_way(log_path: str, first: int) -> None:
    given = []
    begin_at(log_path, first)
    with aolog.Writer(log_path, slab_bytes=9000, batch_bytes=300) as writer:
        for i in range(60):
            given.append(writer.append(b"%050d" % i, key=b"k"))
            given += writer.append_many([b"many", None]).tolist()
    assert given[0] == first + 8192
    assert given[-1] > first + 20_000
    expected = by_iteration(log_path)
    assert [record.address for record in expected.records] == given
    for way in WAYS:
        assert way(log_path) == expected
        assert way(log_path, start=given[100]).records == expected.records[100:]
    assert_clean(log_path)


def test_a_log_that_reaches_2_to_the_63_refuses_the_next_slab_and_keeps_the_rest(
    log_path: str,
) -> None:
    first = (1 << 63) - (1 << 32) - (1 << 24) - 8192 - 9000 - 9000
    begin_at(log_path, first)
    with aolog.Writer(log_path, slab_bytes=9000, batch_bytes=0) as writer:
        with pytest.raises(aolog.UsageError, match="2\\^63"):
            for _ in range(1000):
                writer.append(b"x" * 100)
        with pytest.raises(aolog.UsageError, match="2\\^63"):
            writer.append(b"x" * 100)
    assert len(values(log_path)) > 0
    assert_clean(log_path)


# --- records and batches -------------------------------------------------------------------------


def test_what_is_over_a_frame_is_refused_before_it_is_copied(log_path: str) -> None:
    piece = bytes(64 << 20)
    with aolog.Writer(log_path, max_record_bytes=RECORD_BYTES_MAX) as writer:
        tracemalloc.start()
        try:
            with pytest.raises(aolog.RecordTooLarge, match="split it"):
                writer.append_many([piece] * 64)
            assert tracemalloc.get_traced_memory()[1] < len(piece)
        finally:
            tracemalloc.stop()
        assert writer.end == 8192
    with pytest.raises(aolog.UsageError):
        aolog.Writer(log_path, max_record_bytes=RECORD_BYTES_MAX + 1)


# --- many slabs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many_slabs(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("many") / "log")
    with aolog.Writer(path, slab_bytes=8200, batch_bytes=0, **NEVER) as writer:
        for i in range(400):
            writer.append(b"%d" % i, timestamp=i * 1000)
    assert len(slab_files(path)) == 400
    return path


def test_seeking_reads_few_slabs_of_many(many_slabs: str) -> None:
    from datetime import UTC, datetime, timedelta

    records = read_all(many_slabs)
    for i in (3, 199, 397):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=i * 1000)
        for how in (
            lambda reader, i=i: reader.seek(records[i].address),
            lambda reader, i=i: reader.seek(ordinal=i),
            lambda reader, moment=moment: reader.seek(moment),
        ):
            storage = WatchedStorage()
            with aolog.Reader(many_slabs, storage=storage) as reader:
                how(reader)
                assert reader.read() == records[i]
            assert len({path for path in storage.opened if path.endswith(".slab")}) <= 13


# --- gigabytes -----------------------------------------------------------------------------------


@pytest.fixture
def room(tmp_path: Path) -> Iterator[str]:
    """A place for gigabytes, on a disk: in memory they would count twice."""
    if shutil.disk_usage(tmp_path).free < 16 * GIB:
        pytest.skip("needs 16 GiB of disk")
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 16 * GIB:
        pytest.skip("needs 16 GiB of memory")
    yield str(tmp_path / "log")
    shutil.rmtree(tmp_path)
    gc.collect()


def pattern(size: int) -> bytes:
    """Bytes that differ everywhere."""
    piece = bytes(range(251)) * 4178  # 1 MiB or so, of no power of two
    return (piece * (size // len(piece) + 1))[:size]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_record_of_three_gibibytes_at_2_to_the_60(room: str) -> None:
    value = pattern(3 * GIB)
    digest = xxhash.xxh3_64_intdigest(value)
    begin_at(room, 1 << 60)
    with aolog.Writer(room, max_record_bytes=3 * GIB) as writer:
        before = writer.append(b"before")
        address = writer.append(value)
        behind = writer.append(b"behind", key=b"k")
        assert writer.sync() > behind
        del value
        assert before < address < behind
        assert behind - address > 3 * GIB
    gc.collect()
    with aolog.Reader(room) as reader:
        assert reader.read().value == b"before"
        record = reader.read()
        assert (record.address, len(record.value)) == (address, 3 * GIB)
        assert xxhash.xxh3_64_intdigest(record.value) == digest
        del record
        gc.collect()
        assert reader.read().value == b"behind"
        assert reader.read() is None
    for start in (address, address - 1):
        with aolog.Reader(room, start) as reader:
            batch = reader.read_batch()
            assert batch.frames[0].address + batch.frames[0].skip == address
            with pytest.raises(aolog.UsageError, match="2 GiB"):
                batch.to_arrow()
            assert batch.to_arrow(["address"]).num_rows == len(batch)
            del batch
    with aolog.Reader(room, address + 1) as reader:
        assert reader.read().value == b"behind"
    assert_clean(room)
