"""Small frames are read many at a time. Positions, batches and ends are still those of each frame."""

from __future__ import annotations

import random
from itertools import chain, islice
from typing import TYPE_CHECKING

import pytest

import aolog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aolog.record import Record


@pytest.fixture(params=["aolog", "queuefka"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, list[list[Record]]]:
    """A log of small frames, and the records of each."""
    path, rng = tmp_path / "log", random.Random(7)
    counts = [
        1 if request.param == "queuefka" else rng.choice([1, 1, 1, 4, 30]) for _ in range(400)
    ]
    frames, written = [], 0
    with aolog.Writer(path, format=request.param, flush_seconds=None, sync="never") as writer:
        for count in counts:
            for _ in range(count):
                written += 1
                if request.param == "queuefka":
                    writer.append(b"%d" % written)
                else:
                    key = b"k" if rng.random() < 0.3 else None
                    writer.append(b"%d" % written, key=key, topic=rng.choice([None, "t"]))
            writer.flush()
    with aolog.Reader(path) as reader:
        records = iter(list(reader))
    frames = [list(islice(records, count)) for count in counts]
    assert [r.value for r in chain(*frames)] == [b"%d" % (i + 1) for i in range(written)]
    return path, frames


def test_a_batch_of_a_byte_has_one_frame(log) -> None:
    path, frames = log
    with aolog.Reader(path) as reader:
        for frame in frames:
            batch = reader.read_batch(1)
            assert batch is not None
            assert list(batch) == frame
        assert reader.read_batch(1) is None


@pytest.mark.parametrize("max_bytes", [50, 333, 5000, 1 << 20])
def test_a_batch_has_whole_frames_up_to_its_bytes(log, max_bytes) -> None:
    path, frames = log
    begins = {frame[0].address for frame in frames}
    found = []
    with aolog.Reader(path) as reader:
        begin = frames[0][0].address
        while (batch := reader.read_batch(max_bytes)) is not None:
            records = list(batch)
            assert records[0].address in begins
            one = [frame for frame in frames if frame[0].address == begin]
            assert batch.end - begin <= max_bytes or records == one[0]
            assert reader.tell() == batch.end
            found += records
            begin = batch.end
    assert found == list(chain(*frames))


@pytest.mark.parametrize("size", [3_000, 20_000])
def test_batches_of_changing_sizes_have_all_records_of_values_in_order(tmp_path, size) -> None:
    pytest.importorskip("pyarrow")
    rng = random.Random(size)
    with aolog.Writer(tmp_path / "log", sync="never", batch_bytes=size) as writer:
        for i in range(4_000):
            writer.append(b"%d" % i * rng.randrange(200))
    with aolog.Reader(tmp_path / "log") as whole, aolog.Reader(tmp_path / "log") as reader:
        expected, found = list(whole), [next(iter(reader)) for _ in range(7)]
        sizes = iter(lambda: rng.choice([None, 1, size, 3 * size, 1 << 20]), 0)
        while (batch := reader.read_batch(next(sizes))) is not None:
            made = batch.to_arrow().to_pydict()
            records = list(batch)
            assert [(r.address, r.value) for r in records] == list(
                zip(made["address"], made["value"], strict=True)
            )
            assert batch.to_arrow(["value"]).to_pydict()["value"] == made["value"]
            found += records
        assert found == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_log_is_read_alike_whether_its_values_are_moved_or_copied(
    tmp_path, seed, monkeypatch
) -> None:
    rng, path = random.Random(seed), tmp_path / "log"
    kind = "queuefka" if seed == 0 else "aolog"
    with aolog.Writer(path, sync="never", batch_bytes=5_000 << seed, format=kind) as writer:
        for _ in range(4_000):
            writer.append(rng.randbytes(rng.choice([1, 10, 900])))
    (slab,) = path.glob("*.slab")
    contents = bytearray(slab.read_bytes())
    for _ in range(3):
        contents[rng.randrange(len(contents) // 4, len(contents))] ^= 1
    slab.write_bytes(contents)

    def read(max_bytes: int | None) -> tuple[list[Record], list[aolog.Gap], int]:
        with aolog.Reader(path) as reader:
            batches = iter(lambda: reader.read_batch(max_bytes), None)
            return list(chain.from_iterable(batches)), reader.gaps, reader.tell()

    sizes = (None, 1, 70_000)
    moved = [read(size) for size in sizes]
    monkeypatch.setattr("aolog.storage.file.File.is_plain", False)
    assert [read(size) for size in sizes] == moved
    assert moved[0] == moved[1] == moved[2]


@pytest.mark.parametrize("rows", [aolog.Reader.values, aolog.Reader.__iter__])
def test_a_small_batch_leaves_later_reads_as_large_as_they_were(tmp_path, rows) -> None:
    """A frame at a time took 60 times as long. How much is read at a time, the batch after it shows."""
    with aolog.Writer(tmp_path / "log", sync="never", flush_records=1) as writer:
        for _ in range(20_000):
            writer.append(b"v" * 100)

    def size_after(begin: Callable[[aolog.Reader], object]) -> int:
        with aolog.Reader(tmp_path / "log") as reader:
            begin(reader)
            assert len(list(islice(rows(reader), 12_000))) == 12_000
            batch = reader.read_batch()
            assert batch is not None
            return len(batch)

    assert size_after(lambda reader: reader.read_batch(1)) == size_after(aolog.Reader.read)


def test_an_iteration_up_to_an_address_ends_with_the_frame_in_which_it_is(log) -> None:
    path, frames = log
    rng = random.Random(3)
    for _ in range(30):
        end = rng.choice(rng.choice(frames)).address + rng.choice([0, 0, 1, -1])
        wanted = [frame for frame in frames if frame[0].address < end]
        with aolog.Reader(path) as reader:
            assert list(reader.up_to(end)) == list(chain(*wanted))
            assert reader.read() == (frames[len(wanted)][0] if len(wanted) < len(frames) else None)


def test_a_position_between_any_two_records_is_the_next_one_s(log) -> None:
    path, frames = log
    records = list(chain(*frames))
    rng = random.Random(5)
    for _ in range(20):
        read = rng.randrange(len(records))
        with aolog.Reader(path) as reader:
            assert list(islice(reader, read)) == records[:read]
            at, ordinal = reader.tell(), reader.ordinal
            assert at == records[read].address
            batch = reader.read_batch(1 << 20)
        assert ordinal in {read, None}
        assert batch is not None
        assert list(batch) == records[read : read + len(batch)]
        with aolog.Reader(path, at) as again:
            assert list(again) == records[read:]


def test_a_cursor_inside_small_frames_goes_on_where_it_was_committed(log) -> None:
    path, frames = log
    records = list(chain(*frames))
    found: list[bytes | None] = []
    while len(found) < len(records):
        with aolog.Reader(path, cursor="c") as reader:
            found += islice(reader.values() if len(found) % 2 else (r.value for r in reader), 151)
            reader.commit()
    assert found == [record.value for record in records]
