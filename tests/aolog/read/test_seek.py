"""Seeking: any address, ordinal or time finds the record that it names, in logs of every shape."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta, timezone

import pytest

import aolog
from aolog.record import Record
from tests.aolog.conftest import fill, read_all, slab_files

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def written(path: str) -> list[Record]:
    """Records of a closed log of several slabs, in frames of a few records each."""
    with aolog.Writer(path, slab_bytes=20_000, batch_bytes=500, flush_seconds=None) as writer:
        for i in range(600):
            if i % 50 == 49:
                writer.append_many([b"many", None, b""], timestamps=[1000 * i] * 3)
            writer.append(b"%060d" % i, timestamp=1000 * i)
    return read_all(path)


def test_every_address_ordinal_and_time_finds_its_record_or_the_next(log_path: str) -> None:
    """In slabs that have an index. In all other shapes of logs, test_model.py seeks."""
    records = written(log_path)
    addresses = [record.address for record in records]
    with aolog.Reader(log_path) as reader:
        for address in range(addresses[0], addresses[-1] + 1, 97):
            expected = records[bisect_left(addresses, address)]
            assert reader.seek(address) >= address
            assert reader.read() == expected
        for i, record in [*enumerate(records)][::13]:
            assert reader.seek(ordinal=i) == record.address
            assert (reader.ordinal, reader.read()) == (i, record)
            for early in (0, 1, 999):
                reader.seek(at(record.timestamp - early))
                assert reader.read() == next(r for r in records if r.timestamp == record.timestamp)
        assert reader.gaps == []


@pytest.mark.parametrize("beyond", [1, 8, 1 << 20, 1 << 62])
def test_an_address_beyond_the_end_is_refused_and_the_position_kept(
    log_path: str, beyond: int
) -> None:
    records = written(log_path)
    end = aolog.verify(log_path).end
    with pytest.raises(aolog.AddressBeyondEnd):
        aolog.Reader(log_path, end + beyond)
    with aolog.Reader(log_path, records[7].address) as reader:
        with pytest.raises(aolog.AddressBeyondEnd) as caught:
            reader.seek(end + beyond)
        assert caught.value.details["end"] == end
        assert caught.value.exit_status == 2
        assert reader.read() == records[7]


def test_an_address_before_the_first_slab_is_pruned(log_path: str) -> None:
    records = written(log_path)
    slab_files(log_path)[0].unlink()
    first = int(slab_files(log_path)[0].stem)
    left = [record for record in records if record.address >= first]
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
        ordinal = len(records) - len(left)
        reader.seek(ordinal=ordinal)
        assert reader.read() == left[0]
        with pytest.raises(aolog.AddressPruned):
            reader.seek(ordinal=ordinal - 1)


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
    fill(log_path, [b"a"])
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
