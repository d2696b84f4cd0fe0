"""Seeking: any address, ordinal or time finds the record that it names, in logs of every shape."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

import aolog
from tests.aolog.conftest import frames_of, kill, read_all, slab_files

if TYPE_CHECKING:
    from aolog.record import Record

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


class Shape:
    """A log, closed or abandoned, and its records."""

    def __init__(self, path: str, *, closed: bool, preallocate: bool = False) -> None:
        self.path = path
        writer = aolog.Writer(
            path, slab_bytes=20_000, batch_bytes=500, preallocate=preallocate, flush_seconds=None
        )
        for i in range(600):
            if i % 50 == 49:
                writer.append_many([b"many", None, b""])
            writer.append(b"%060d" % i, timestamp=1000 * i)
        writer.flush()
        writer.close() if closed else kill(writer)
        self.records = read_all(path)
        self.frames = frames_of(path)


@pytest.fixture(scope="module", params=["closed", "open", "preallocated"])
def shape(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shape:
    path = str(tmp_path_factory.mktemp("seek") / "log")
    closed = request.param == "closed"
    return Shape(path, closed=closed, preallocate=request.param == "preallocated")


def next_of(reader: aolog.Reader) -> Record | None:
    return reader.read()


# --- addresses -------------------------------------------------------------------------------


def test_every_address_of_a_frame_finds_its_record_or_the_next_frame(shape: Shape) -> None:
    addresses = [record.address for record in shape.records]
    by_address = {record.address: record for record in shape.records}
    with aolog.Reader(shape.path) as reader:
        for frame in shape.frames[::3]:
            for offset in range(0, frame.end - frame.begin, 7):
                address = frame.address + offset
                assert reader.seek(address) >= address
                i = bisect_left(addresses, address)
                expected = by_address[addresses[i]] if i < len(addresses) else None
                assert next_of(reader) == expected
                assert reader.gaps == []


@pytest.mark.parametrize("beyond", [1, 8, 1 << 20, 1 << 62])
def test_an_address_beyond_the_end_is_refused_and_the_position_kept(
    shape: Shape, beyond: int
) -> None:
    end = aolog.verify(shape.path).end
    with pytest.raises(aolog.AddressBeyondEnd):
        aolog.Reader(shape.path, end + beyond)
    with aolog.Reader(shape.path, shape.records[7].address) as reader:
        with pytest.raises(aolog.AddressBeyondEnd) as caught:
            reader.seek(end + beyond)
        assert caught.value.details["end"] == end
        assert caught.value.exit_status == 2
        assert reader.read() == shape.records[7]


def test_an_address_before_the_first_slab_is_pruned(log_path: str) -> None:
    shape = Shape(log_path, closed=True)
    slab_files(log_path)[0].unlink()
    first = int(slab_files(log_path)[0].stem)
    left = [record for record in shape.records if record.address >= first]
    for address in (0, 8192, first - 1):
        with pytest.raises(aolog.AddressPruned) as caught:
            aolog.Reader(log_path, address)
        assert caught.value.details["first"] == first
    with aolog.Reader(log_path) as reader:
        with pytest.raises(aolog.AddressPruned):
            reader.seek(ordinal=0)
        assert list(reader) == left
        assert reader.gaps == []
        reader.seek(first)
        assert reader.read() == left[0]
        ordinal = len(shape.records) - len(left)
        reader.seek(ordinal=ordinal)
        assert reader.read() == left[0]
        with pytest.raises(aolog.AddressPruned):
            reader.seek(ordinal=ordinal - 1)


# --- ordinals --------------------------------------------------------------------------------


def test_every_ordinal_finds_its_record(shape: Shape) -> None:
    with aolog.Reader(shape.path) as reader:
        for i in (*range(0, len(shape.records), 13), len(shape.records) - 1):
            assert reader.seek(ordinal=i) == shape.records[i].address
            assert reader.ordinal == i
            assert reader.read() == shape.records[i]


# --- times -----------------------------------------------------------------------------------


def test_every_time_finds_the_first_record_that_is_as_late(shape: Shape) -> None:
    timed = [record for record in shape.records if record.value and record.value[:1] == b"0"]
    with aolog.Reader(shape.path) as reader:
        for record in timed[::17]:
            for early in (0, 1, 999):
                reader.seek(at(record.timestamp - early))
                found = reader.read()
                expected = next(r for r in shape.records if r.timestamp >= record.timestamp - early)
                assert found == expected


def test_times_that_do_not_increase_are_found_in_the_order_of_the_log(log_path: str) -> None:
    stamps = [50, 10, 90, 20, 20, 60, 5, 120, 119, 7] * 30
    with aolog.Writer(log_path, slab_bytes=9000, batch_bytes=200) as writer:
        for i, stamp in enumerate(stamps):
            writer.append(b"%030d" % i, timestamp=stamp)
    records = read_all(log_path)
    for wanted in (4, 5, 6, 20, 51, 90, 100, 119, 120, 121):
        expected = next((r for r in records if r.timestamp >= wanted), None)
        with aolog.Reader(log_path, at(wanted)) as reader:
            assert reader.read() == expected


def test_times_are_exact_to_the_microsecond_in_any_zone_and_century(log_path: str) -> None:
    moments = [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2024, 1, 1, 12, 0, 0, 1, timezone(timedelta(hours=5, minutes=30))),
        datetime(2024, 1, 1, 12, 0, 0, 999_999, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ]
    with aolog.Writer(log_path) as writer:
        for moment in moments:
            writer.append(b"x", timestamp=(moment - EPOCH) // timedelta(microseconds=1))
    records = read_all(log_path)
    for moment, record in zip(moments, records, strict=True):
        with aolog.Reader(log_path, moment) as reader:
            assert reader.read() == record


# --- what cannot be sought ---------------------------------------------------------------------


@pytest.mark.parametrize("start", ["first", "", None, 1.5, True, b"earliest", [5]])
def test_a_place_of_the_wrong_kind_is_refused(log_path: str, start: object) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append(b"a")
    with pytest.raises(aolog.UsageError):
        aolog.Reader(log_path, start)


# --- format 1 --------------------------------------------------------------------------------


def test_format_1_seeks_by_address_and_by_nothing_else(log_path: str) -> None:
    with aolog.Writer(log_path, format="queuefka", slab_bytes=300) as writer:
        given = [writer.append(b"%010d" % i) for i in range(60)]
    assert len(slab_files(log_path)) > 3
    with aolog.Reader(log_path) as reader:
        for address in range(given[-1] + 1):
            reader.seek(address)
            assert reader.read().address == given[bisect_left(given, address)]
        with pytest.raises(aolog.AddressBeyondEnd):
            reader.seek(given[-1] + 1000)
        for call in (lambda: reader.seek(ordinal=3), lambda: reader.seek(at(5))):
            with pytest.raises(aolog.UsageError, match="format 1"):
                call()
        reader.seek("latest")
        assert reader.read() is None
        assert reader.tell() == given[-1] + 18
