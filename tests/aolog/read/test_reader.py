"""Reader: the same records in every way of reading, from where it stands, and no disturbance."""

from __future__ import annotations

import errno
import gc
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import aolog
from aolog.format.slab import NO_TIMESTAMP
from aolog.storage.storage import Storage
from aolog.testing import Fault, SimulatedSystem
from aolog.testing.faults import FaultPlan
from tests.aolog.conftest import (
    WAYS,
    WatchedStorage,
    Way,
    by_iteration,
    fill,
    frames_of,
    in_thread,
    open_below,
    overwrite,
    slab_files,
    unchanged,
)


def written(path: str, n: int = 200, **options: object) -> list[int]:
    """A log of many frames and slabs with all kinds of records; the addresses."""
    options = {"slab_bytes": 10_000, "batch_bytes": 300, **options}
    given = []
    with aolog.Writer(path, **options) as writer:
        for i in range(n):
            kind = i % 7
            if options.get("format") == "queuefka":
                given.append(writer.append(b"%030d" % i))
            elif kind == 0:
                given.append(writer.append(None, key=b"%d" % i))
            elif kind == 1:
                given.append(writer.append(b"", headers=(("h", b"%d" % i), ("n", None))))
            elif kind == 2:
                given.append(writer.append(b"%d" % i, topic="t", timestamp=i))
            elif kind == 3:
                given += writer.append_many([b"%d" % i, None, b"x" * i]).tolist()
            else:
                given.append(writer.append(b"%030d" % i))
            if i % 31 == 0:
                writer.flush()
    return given


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[int], Way]:
    path = str(tmp_path_factory.mktemp("mixed") / "log")
    given = written(path)
    return path, given, by_iteration(path)


# --- ways to read ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_every_way_reads_the_same_records(mixed: tuple[str, list[int], Way], way) -> None:
    path, given, expected = mixed
    assert [record.address for record in expected.records] == given
    assert way(path) == expected
    assert expected.gaps == []


def test_read_returns_none_at_the_end_and_continues_when_there_is_more(log_path: str) -> None:
    with aolog.Writer(log_path, slab_bytes=9000) as writer, aolog.Reader(log_path) as reader:
        for i in range(20):
            assert reader.read() is None
            assert list(reader) == []
            assert reader.read_batch() is None
            address = writer.append(b"x" * 200)
            assert reader.read() is None  # it is in memory
            writer.flush()
            got = [reader.read, lambda: next(iter(reader)), lambda: next(iter(reader.read_batch()))]
            record = got[i % 3]()
            assert record.address == address
    assert len(slab_files(log_path)) > 2


def test_a_batch_puts_small_frames_together_up_to_its_size(log_path: str) -> None:
    fill(log_path, (b"x" * 100 for _ in range(10)), batch_bytes=0)
    sizes = []
    with aolog.Reader(log_path) as reader:
        while (batch := reader.read_batch(max_bytes=3 * 144)) is not None:
            sizes.append(len(batch))
    assert sizes == [3, 3, 3, 1]


def test_a_batch_waits_for_its_timeout_and_no_longer(log_path: str) -> None:
    with aolog.Writer(log_path) as writer, aolog.Reader(log_path) as reader:
        begun = time.monotonic()
        assert reader.read_batch(timeout=0.2) is None
        assert 0.2 <= time.monotonic() - begun < 10.0
        waiting = in_thread(lambda: reader.read_batch(timeout=20.0))
        assert waiting.waits()
        writer.append(b"a")
        writer.flush()
        assert [record.value for record in waiting.result()] == [b"a"]


# --- position --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"compression": "lz4"}, {"format": "queuefka"}, {"batch_bytes": 0}], ids=str
)
def test_values_and_records_may_be_asked_for_in_turn(
    log_path: str, options: dict[str, object]
) -> None:
    """From the one position: after each step, it and the ordinal are where a read leaves them."""
    if "compression" in options:
        pytest.importorskip("lz4.block", reason="the compression extra is not installed")
    given = written(log_path, **options)
    expected = [record.value for record in by_iteration(log_path).records]
    with aolog.Reader(log_path) as plain:
        places = [(plain.tell(), plain.ordinal) for _ in plain]
    with aolog.Reader(log_path, cursor="c") as reader:
        records, found = iter(reader), reader.values()
        steps = (
            lambda: next(found),
            lambda: next(found),
            lambda: next(records).value,
            lambda: reader.read().value,
            lambda: next(reader.values()),
            lambda: next(iter(reader)).value,
        )
        for i, (value, place) in enumerate(zip(expected, places, strict=True)):
            assert steps[i % 6]() == value
            assert (reader.tell(), reader.ordinal) == place
            if i == len(given) // 2:
                reader.commit()
        assert next(found, "end") == next(records, "end") == "end"
        assert reader.read() is None
    with aolog.Reader(log_path, cursor="c") as again:
        left = next(again.values()), list(again.read_batch(1)), list(again.values())
    values_left = [left[0], *(record.value for record in left[1]), *left[2]]
    assert values_left == expected[len(given) // 2 + 1 :]


@pytest.mark.parametrize("kind", ["aolog", "queuefka"])
def test_up_to_an_end_returns_nothing_after_it_and_reading_continues_there(
    log_path: str, kind: str
) -> None:
    given = written(log_path, format=kind)
    with aolog.Reader(log_path) as reader:
        ends = [0, *(frame.base + frame.end for frame in frames_of(log_path))]
        for end in ends[:: len(ends) // 7]:
            reader.seek("earliest")
            first = [reader.read() for _ in range(2)]  # of a frame that is half read
            before = [r.address for r in [*first, *reader.up_to(end)] if r is not None]
            assert before == given[: max(2, sum(address < end for address in given))]
            assert list(reader.up_to(end)) == []
            assert [r.address for r in reader] == given[len(before) :]
            reader.seek("earliest")
            assert [r.address for r in reader.up_to(end)] == [a for a in given if a < end]
            behind = [a for a in given if a >= end]
            assert [record.address for record in reader.read_batch() or ()][:1] == behind[:1]


# --- lag -------------------------------------------------------------------------------------


def test_lag_knows_the_age_of_the_oldest_unread_record(log_path: str) -> None:
    now = time.time()
    with aolog.Writer(log_path) as writer:
        writer.append(b"a", timestamp=int((now - 100) * 1e6))
        writer.append(b"b", timestamp=int((now - 10) * 1e6))
        writer.append(b"c")
    with aolog.Reader(log_path) as reader:
        for age in (100, 10, 0):
            assert age - 0.1 <= reader.lag().seconds <= age + 5
            reader.read()
        assert reader.lag() == aolog.Lag(0, 0, 0.0)


def test_a_record_with_the_least_timestamp_has_none_and_no_time_finds_it(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"a", b"b"], timestamps=[NO_TIMESTAMP, NO_TIMESTAMP + 1])
        writer.append_many([b"c"], timestamps=[NO_TIMESTAMP])
        writer.append_many([b"d"], timestamps=[1_000_000])
    with aolog.Reader(log_path) as reader:
        assert reader.lag().seconds is None
        assert [r.timestamp for r in reader] == [None, NO_TIMESTAMP + 1, None, 1_000_000]
        reader.seek(datetime(1, 1, 1, tzinfo=UTC))
        assert [r.value for r in reader] == [b"d"]


# --- gaps are told -----------------------------------------------------------------------------


def with_a_hole(path: str) -> list[bytes]:
    """A log whose middle frame is damaged; what is left."""
    with aolog.Writer(path) as writer:
        writer.append_many([b"a", b"b"])
        writer.append_many([b"c", b"d", b"e"])
        writer.append_many([b"f"])
    frame = frames_of(path)[1]
    overwrite(frame.slab, frame.begin + 50, b"\xff\xff")
    return [b"a", b"b", b"f"]


def test_durable_follows_what_the_writer_synced_and_is_what_verify_finds(log_path: str) -> None:
    with aolog.Writer(log_path, sync="never", slab_bytes=1 << 20) as writer:
        writer.append(b"first")
        writer.flush()
        reader = aolog.Reader(log_path)
        before = reader.durable()
        synced = writer.sync()
        for _ in range(2):
            writer.append(b"later")
            writer.flush()
        assert before is not None
        assert before < synced == reader.durable() == aolog.verify(log_path).durable < reader.end()
        for _ in range(30):
            writer.append_many([bytes(1000)] * 100)  # slabs end, and are synced then
        writer.flush()
        assert synced < reader.durable() == aolog.verify(log_path).durable
    reader.close()


@pytest.mark.parametrize("how", ["read", "iterate", "values", "batch", "follow"])
def test_a_strict_reader_stops_at_a_gap_and_may_continue(log_path: str, how: str) -> None:
    left = with_a_hole(log_path)
    seen: list[bytes] = []

    def on() -> None:
        if how == "read":
            while (record := reader.read()) is not None:
                seen.append(record.value)
        elif how == "iterate":
            seen.extend(record.value for record in reader)
        elif how == "values":
            seen.extend(reader.values())
        elif how == "follow":
            seen.extend(record.value for record in reader.follow(timeout=0.0))
        else:
            while (batch := reader.read_batch()) is not None:
                seen.extend(record.value for record in batch)

    with aolog.Reader(log_path, strict=True) as reader:
        with pytest.raises(aolog.GapFound) as caught:
            on()
        assert seen == left[:2]
        gap = caught.value.details["gap"]
        assert reader.gaps == [gap]
        assert reader.tell() == gap.end
        assert caught.value.exit_status == 3
        on()
    assert seen == left


def test_a_reader_with_neither_on_gap_nor_strict_logs_each_gap_once(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    left = with_a_hole(log_path)
    with aolog.Reader(log_path) as reader:
        assert [record.value for record in reader] == left
        assert list(reader) == []
        gap = reader.gaps[0]
    assert [entry.getMessage() for entry in caplog.records if entry.name == "aolog"] == [
        f"{log_path}: addresses {gap.begin} to {gap.end} cannot be read (corrupt), 3 records lost"
    ]
    caplog.clear()
    with aolog.Reader(log_path, on_gap=lambda _: None) as reader:
        assert list(reader.values()) == left
    assert not caplog.records


# --- closing and dropping ----------------------------------------------------------------------


def test_a_closed_reader_refuses_and_may_be_closed_again(log_path: str) -> None:
    written(log_path, 50)
    reader = aolog.Reader(log_path, cursor="c")
    iteration = iter(reader)
    assert next(iteration) is not None
    assert reader.read() is not None
    reader.close()
    reader.close()
    for call in (
        reader.read,
        reader.read_batch,
        reader.lag,
        reader.commit,
        lambda: next(iteration),
        lambda: list(reader),
        lambda: list(reader.follow(0.0)),
        lambda: reader.seek("latest"),
    ):
        with pytest.raises(aolog.LogClosed):
            call()


def test_a_reader_that_seeks_back_and_forth_opens_a_slab_once(log_path: str) -> None:
    """What a seek leaves is kept, with its index: opening cost as much as the seek. A slab that
    was pruned meanwhile is not, and one that has a successor now ends where that begins."""

    storage = WatchedStorage()
    given = written(log_path, 60, batch_bytes=0, slab_bytes=9000)
    names = slab_files(log_path)
    assert 3 < len(names) <= 12
    with aolog.Reader(log_path, storage=storage) as reader:
        storage.opened.clear()  # whose log it is was read from headers
        for _ in range(5):
            for at in (0, -1, 20, 40, -1):
                reader.seek(given[at])
                assert reader.read().address == given[at]
        assert len(storage.opened) == len(set(storage.opened)) <= len(names)
        with aolog.Writer(log_path) as writer:
            given.append(writer.append(b"more"))
        Path(names[0]).unlink()
        assert [record.address for record in reader] == given[-1:]  # behind the one read last
        with pytest.raises(aolog.AddressPruned):
            reader.seek(given[0])
        reader.seek(given[40])
        assert [record.address for record in reader] == given[40:]


def test_reading_changes_nothing_on_disk(log_path: str) -> None:
    written(log_path)
    with unchanged(log_path):
        storage = WatchedStorage()
        for way in WAYS:
            way(log_path, storage=storage)
        aolog.verify(log_path, storage=storage)
        assert storage.operations == []


# --- a disk that fails once -----------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [1, 64 << 10])
def test_a_read_that_fails_loses_no_record(max_bytes: int) -> None:
    """Whichever read it is: what was read before it is returned, and the next call goes on."""
    system = SimulatedSystem()
    storage = Storage(system)
    written("/log", storage=storage)
    with aolog.Reader("/log", storage=storage) as reader:
        expected = list(reader)
    failed = 0
    for nth in range(1, 60):
        reader = aolog.Reader("/log", storage=storage)
        system.faults = FaultPlan([Fault("pread", nth=nth, errno=errno.EIO)])
        found: list[aolog.Record] = []
        for _ in range(2):
            try:
                while (batch := reader.read_batch(max_bytes)) is not None:
                    found += batch
            except aolog.StorageFailed:
                failed += 1
        system.faults = FaultPlan([])
        reader.close()
        assert found == expected, nth
        assert reader.gaps == []
    assert failed > 2  # the others were met behind what had been read, and tried again


@pytest.mark.parametrize("start", ["earliest", "latest", "address", "cursor"])
def test_the_directory_is_listed_once_before_the_first_record(log_path, start):
    """Though the log has just changed: a listing so soon after may have missed another change, which
    the reader looks for later."""
    given = written(log_path)
    expected = {"earliest": given[0]}.get(start, given[-9])
    if start == "cursor":
        with aolog.Reader(log_path, given[-9], cursor="c") as reader:
            reader.commit()
    where = {"address": expected, "latest": "latest"}.get(start, "earliest")
    storage = WatchedStorage()
    cursor = "c" if start == "cursor" else None
    with aolog.Writer(log_path) as writer:
        writer.append(b"begins the last slab")
        writer.flush()
        with aolog.Reader(log_path, where, cursor=cursor, storage=storage) as reader:
            if start == "latest":
                expected = writer.append(b"last")
                writer.flush()
            record = reader.read()
    assert record is not None
    assert record.address == expected
    assert storage.lists == 1


def test_the_directory_of_a_new_log_is_listed_once(log_path):
    storage = WatchedStorage()
    with aolog.Writer(log_path, storage=storage) as writer:
        writer.append(b"first")
        writer.sync()
    assert storage.lists == 1


def test_a_dropped_reader_leaves_no_descriptor_and_no_lock(log_path: str) -> None:
    written(log_path, 20)
    for _ in range(10):
        reader = aolog.Reader(log_path, cursor="c")
        for _ in reader:
            break
        reader.commit()
        del reader
    gc.collect()
    assert open_below(log_path) == []
