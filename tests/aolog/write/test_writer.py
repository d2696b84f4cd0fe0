"""Writer: takes records exactly, gives them addresses, rolls, flushes and syncs when it says."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import aolog
from aolog.format.frame import KIND_RECORDS
from aolog.format.slab import HEADER_LEN, decode_slab_header
from aolog.storage.storage import Storage
from tests.aolog.conftest import (
    NEVER,
    Child,
    Operation,
    WatchedStorage,
    assert_clean,
    frames_of,
    read_all,
    slab_files,
    values,
    wait_until,
)
from tests.stalling import StallingSystem

# --- records ---------------------------------------------------------------------------------


def test_a_record_without_a_timestamp_has_the_time_of_its_batch(log_path: str) -> None:
    before = time.time_ns() // 1000
    with aolog.Writer(log_path) as writer:
        writer.append(b"a")
        time.sleep(0.01)
        writer.append(b"b")
        writer.append(b"c", timestamp=7)
    first, second, third = read_all(log_path)
    assert before <= first.timestamp == second.timestamp <= time.time_ns() // 1000
    assert third.timestamp == 7


@pytest.mark.parametrize(
    "parts",
    [
        {"value": "text"},
        {"value": 5},
        {"value": [b"v"]},
        {"value": b"v", "key": "text"},
        {"value": b"v", "headers": 5},
        {"value": b"v", "headers": ("pair",)},
        {"value": b"v", "headers": ((b"name", b"1"),)},
        {"value": b"v", "headers": (("h", "text"),)},
        {"value": b"v", "headers": (("\ud800", b"1"),)},
        {"value": b"v", "topic": b"t"},
        {"value": b"v", "topic": ""},
        {"value": b"v", "topic": "t" * 250},
        {"value": b"v", "topic": "\ud800"},
        {"value": b"v", "timestamp": "now"},
        {"value": b"v", "timestamp": 1.5},
        {"value": b"v", "timestamp": 1 << 63},
    ],
    ids=str,
)
def test_a_record_of_the_wrong_type_is_refused_and_not_taken(
    log_path: str, parts: dict[str, object]
) -> None:
    with aolog.Writer(log_path) as writer:
        end = writer.end
        with pytest.raises(aolog.RecordRefused) as caught:
            writer.append(**parts)
        assert caught.value.code == "record_refused"
        assert writer.end == end
        writer.append(b"good")
    assert values(log_path) == [b"good"]


def test_a_record_may_be_as_large_as_its_bound_and_no_larger(log_path: str) -> None:
    with aolog.Writer(log_path, max_record_bytes=1000) as writer:
        writer.append(b"x" * 1000)
        writer.append_many([b"y" * 1000, b""])
        for too_large in (
            lambda: writer.append(b"x" * 1001),
            lambda: writer.append(b"x" * 999, key=b"kk"),
            lambda: writer.append(b"", headers=(("h", b"x" * 1000),)),
            lambda: writer.append_many([b"", b"x" * 1001]),
        ):
            with pytest.raises(aolog.RecordTooLarge, match="max_record_bytes=1000"):
                too_large()
    assert [len(value) for value in values(log_path)] == [1000, 1000, 0]


# --- frames ----------------------------------------------------------------------------------


def frame_sizes(path: str) -> list[int]:
    return [frame.records for frame in frames_of(path) if frame.kind == KIND_RECORDS]


def test_records_are_gathered_until_the_batch_is_large(log_path: str) -> None:
    with aolog.Writer(log_path, batch_bytes=104) as writer:
        for _ in range(10):
            writer.append(b"x" * 22)
    assert frame_sizes(log_path) == [4, 4, 2]


def test_of_a_subclass_of_bytes_the_log_holds_its_bytes_whatever_it_returns_as_such(
    log_path: str,
) -> None:
    """What was no plain bytes left the writer failed."""

    class Odd(bytes):
        def __bytes__(self) -> bytes:
            return self or b"other"

    headers = [("h", Odd(b"1")), ("i", Odd())]
    with aolog.Writer(log_path) as writer:
        writer.append(Odd(b"2"), key=Odd(), headers=headers)
        writer.append_many([b"3", Odd(b"4")], keys=[Odd(b"5"), b"6"], headers=[headers, ()])
    with aolog.Reader(log_path) as reader:
        assert [(r.value, r.key, r.headers) for r in reader] == [
            (b"2", b"", (("h", b"1"), ("i", b""))),
            (b"3", b"5", (("h", b"1"), ("i", b""))),
            (b"4", b"6", ()),
        ]


@pytest.mark.parametrize("batch_bytes", [0, 64 << 10])
def test_append_many_is_one_frame_whatever_its_size(log_path: str, batch_bytes: int) -> None:
    with aolog.Writer(log_path, batch_bytes=batch_bytes, slab_bytes=9000) as writer:
        writer.append(b"before")
        addresses = writer.append_many(b"%d" % i for i in range(5000))
        writer.append(b"after")
    assert addresses.dtype == np.uint64
    assert (len(addresses), set(np.diff(addresses).tolist())) == (5000, {1})
    assert frame_sizes(log_path) == [1, 5000, 1]
    assert values(log_path) == [b"before", *(b"%d" % i for i in range(5000)), b"after"]


def test_append_many_takes_none_where_one_is_refused(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        with pytest.raises(aolog.RecordRefused):
            writer.append_many([b"a", "b"])
        with pytest.raises(ZeroDivisionError):
            writer.append_many(b"%d" % (1 // i) for i in (1, 0))
        writer.append(b"c")
    assert values(log_path) == [b"c"]


# --- flush and sync --------------------------------------------------------------------------


def test_records_are_flushed_after_so_many(log_path: str) -> None:
    with aolog.Writer(log_path, flush_records=3, **NEVER) as writer:
        for shown in (0, 0, 3, 3, 3, 6):
            writer.append(b"x")
            assert len(values(log_path)) == shown
        writer.append_many([b"x"] * 3)
        assert len(values(log_path)) == 9


@pytest.mark.parametrize("sync", ["interval", "flush"])
@pytest.mark.parametrize("options", [{}, {"batch_bytes": 0}, {"format": "queuefka"}], ids=str)
def test_records_are_synced_before_the_append_returns_that_makes_so_many_without_a_sync(
    log_path: str, options: dict[str, object], sync: Literal["interval", "flush"]
) -> None:
    storage = WatchedStorage()

    def syncs() -> int:
        return sum(
            op[:2] == ("datasync", slab_files(log_path)[0].name) for op in storage.operations
        )

    hour = {"flush_seconds": 3600.0, "sync_seconds": 3600.0, "sync_records": 3}
    with aolog.Writer(log_path, storage=storage, sync=sync, **hour, **options) as writer:
        before = syncs()
        for n in range(1, 10):
            writer.append(b"x")
            assert syncs() - before == n // 3
            assert (writer.durable == writer.end) == (n % 3 == 0)
        if sync == "interval":
            for n in range(1, 4):  # a flush is no sync, and does not begin the count again
                writer.append(b"x")
                writer.flush()
                assert (writer.durable == writer.end) == (n == 3)
        writer.append(b"x")
        writer.append_many([b"x"] * 2)
        assert writer.durable == writer.end
        writer.append_many([b"x"] * 2)
        writer.sync()  # begins the count again
        for n in range(1, 4):
            writer.append(b"x")
            assert (writer.durable == writer.end) == (n == 3)


@pytest.mark.parametrize("batch_bytes", [0, 64 << 10])
def test_records_are_flushed_when_a_mebibyte_of_them_waits(log_path: str, batch_bytes: int) -> None:
    with aolog.Writer(log_path, batch_bytes=batch_bytes, **NEVER) as writer:
        while not values(log_path):
            writer.append(bytes(50_000))
        assert len(values(log_path)) in {20, 21}


def test_a_flush_because_of_bytes_leaves_no_record_a_frame_by_itself(log_path: str) -> None:
    with aolog.Writer(log_path, batch_bytes=1 << 20, **NEVER) as writer:
        for _ in range(100):
            writer.append(bytes(100_000))
    sizes = frame_sizes(log_path)
    assert sum(sizes) == 100
    assert min(sizes[:-1]) > 5


def test_a_disk_that_stalls_holds_up_no_flush(log_path: str) -> None:
    disk = StallingSystem()
    quick = {"flush_seconds": 0.01, "sync_seconds": 0.01, "storage": Storage(disk)}
    with aolog.Writer(log_path, **quick) as writer:
        first = writer.append(b"a")
        wait_until(lambda: writer.durable > first)
        with disk.stalled():
            for i in range(2, 30):
                writer.append(b"x")
                wait_until(lambda i=i: len(values(log_path)) == i)
            assert writer.durable < writer.end
        end = writer.end
        wait_until(lambda: writer.durable >= end)


def test_much_is_synced_before_the_interval_ends(log_path: str) -> None:
    """Otherwise the call that seals the slab would wait for all of it."""
    hour = {"flush_seconds": 3600.0, "sync_seconds": 3600.0}
    with aolog.Writer(log_path, **hour) as writer:
        writer.append_many([bytes(1 << 20)] * 8)
        end = writer.end
        wait_until(lambda: writer.durable >= end)


def test_what_a_call_flushed_is_synced_in_time(log_path: str) -> None:
    disk = StallingSystem()
    options = {"flush_seconds": None, "sync_seconds": 0.2, "storage": Storage(disk)}
    with aolog.Writer(log_path, **options) as writer:
        writer.append(b"a")
        with disk.stalled():
            end = writer.flush()
            assert writer.durable < end
        wait_until(lambda: writer.durable >= end)


def test_sync_at_every_flush(log_path: str) -> None:
    with aolog.Writer(log_path, sync="flush", flush_records=2, flush_seconds=1.0) as writer:
        address = writer.append(b"a")
        assert writer.durable <= address
        assert writer.flush() == writer.durable > address
        writer.append(b"b")
        address = writer.append(b"c")
        assert writer.durable > address  # flushed as there were two
        address = writer.append(b"d")
        wait_until(lambda: writer.durable > address)  # flushed as it was time


def test_never_syncs_before_a_slab_is_sealed(log_path: str) -> None:
    storage = WatchedStorage()
    writer = aolog.Writer(
        log_path, sync="never", flush_seconds=0.02, storage=storage, slab_bytes=20_000
    )
    begun = storage.count("datasync")
    for _ in range(5):
        writer.append(b"x" * 1000)
        writer.flush()
        time.sleep(0.03)
    assert storage.count("datasync") == begun
    writer.append_many([b"x" * 20_000])
    writer.append(b"y")
    assert storage.count("datasync") > begun
    writer.close()


@pytest.mark.parametrize("sync", ["interval", "flush"])
def test_an_idle_writer_marks_what_is_durable_once_and_syncs_the_mark_once(
    log_path: str, sync: Literal["interval", "flush"]
) -> None:
    storage = WatchedStorage()
    options = {"flush_seconds": 0.02, "sync_seconds": 0.05, "storage": storage}
    with aolog.Writer(log_path, sync=sync, **options) as writer:
        before = storage.count("datasync")
        address = writer.append(b"a")
        wait_until(lambda: aolog.verify(log_path).durable > address)
        wait_until(lambda: writer.durable == writer.end)
        end = writer.end
        time.sleep(0.3)
        assert writer.end == end
        assert storage.count("datasync") - before == 2  # of the record, and of the mark
        writer.append(b"b")
    assert values(log_path) == [b"a", b"b"]
    assert_clean(log_path)


# --- what sync means: the order of what is asked of the system ---------------------------------


def test_what_is_asked_of_the_storage_to_begin_sync_and_seal_a_slab(log_path: str) -> None:
    storage = WatchedStorage()
    did = storage.operations
    first = "00000000000000000000.slab"
    writer = aolog.Writer(log_path, storage=storage, flush_seconds=None, sync="never")
    assert did == [
        Operation("sync", Path(log_path).parents[1].name),  # whoever made the parent may be dead
        Operation("sync", Path(log_path).parent.name),  # the new directory's own entry
        Operation("create", first + ".tmp"),
        Operation("write", first + ".tmp"),
        Operation("datasync", first + ".tmp"),
        Operation("rename", first),
        Operation("sync", "log"),
    ]
    did.clear()
    writer.append(b"a")
    assert did == []
    writer.flush()
    assert [operation.what for operation in did] == ["write"]
    did.clear()
    writer.sync()
    assert [operation.what for operation in did] == ["datasync"]
    did.clear()
    writer.sync()
    assert did == []  # it is durable already
    writer.append(b"b")
    writer.close()  # frames are durable before the seal that says so
    assert [operation.what for operation in did] == ["write", "datasync", "write", "datasync"]


# --- rotation --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_bytes", [0, 300])
def test_a_slab_that_has_grown_is_followed_by_another(log_path: str, batch_bytes: int) -> None:
    with aolog.Writer(log_path, slab_bytes=10_000, batch_bytes=batch_bytes) as writer:
        for i in range(200):
            writer.append(b"%050d" % i)
    sizes = [slab.stat().st_size for slab in slab_files(log_path)]
    assert len(sizes) > 3
    for size in sizes[:-1]:
        assert 10_000 <= size <= 10_000 + 400 + 1000  # one frame and the seal
    assert values(log_path) == [b"%050d" % i for i in range(200)]
    assert_clean(log_path)


def test_every_slab_has_a_salt_of_its_own(log_path: str) -> None:
    with aolog.Writer(log_path, slab_bytes=1, batch_bytes=0) as writer:
        for i in range(4):
            writer.append(b"%d" % i)
    headers = [decode_slab_header(slab.read_bytes()[:HEADER_LEN]) for slab in slab_files(log_path)]
    assert len({header.salt for header in headers}) == len(headers) > 3


def test_a_slab_that_has_aged_is_sealed_though_nobody_appends(log_path: str) -> None:
    with aolog.Writer(log_path, slab_seconds=0.2, flush_seconds=0.05) as writer:
        writer.append(b"a")
        first = slab_files(log_path)[0]
        wait_until(lambda: aolog.verify(log_path).durable == first.stat().st_size > 8300)
        time.sleep(0.3)
        assert slab_files(log_path) == [first]  # and no empty one after it
        writer.append(b"b")
        assert len(slab_files(log_path)) == 2
    assert values(log_path) == [b"a", b"b"]
    assert_clean(log_path)


# --- opening again, closing --------------------------------------------------------------------


def test_a_closed_writer_refuses_and_may_be_closed_again(log_path: str) -> None:
    writer = aolog.Writer(log_path)
    writer.append(b"a")
    writer.close()
    writer.close()
    for call in (
        lambda: writer.append(b"b"),
        lambda: writer.append_many([b"b"]),
        writer.flush,
        writer.sync,
    ):
        with pytest.raises(aolog.LogClosed):
            call()
    assert values(log_path) == [b"a"]


def test_a_dropped_writer_writes_what_it_took_and_gives_the_log_free(log_path: str) -> None:
    writer = aolog.Writer(log_path, **NEVER)
    writer.append(b"a")
    del writer
    gc.collect()
    assert values(log_path) == [b"a"]
    with aolog.Writer(log_path) as writer:
        writer.append(b"b")
    assert values(log_path) == [b"a", b"b"]


@pytest.mark.parametrize(("end", "status"), [("", 0), ("raise RuntimeError", 1)])
def test_at_an_exit_what_was_not_closed_is_written(log_path: str, end: str, status: int) -> None:
    code = f"""
import sys, aolog
writer = aolog.Writer(sys.argv[1], flush_seconds=None, sync="never")
writer.append(b"a")
{end}
"""
    with Child(code, log_path) as child:
        out, errors = child.process.communicate(timeout=60)
        assert (child.process.returncode, out) == (status, b"")
        assert (b"RuntimeError" in errors) is bool(errors) is bool(status)
    assert values(log_path) == [b"a"]
    assert_clean(log_path)


def test_a_relative_path_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    with aolog.Writer("log", slab_bytes=9000, batch_bytes=0) as writer:
        writer.append(b"x" * 500)
        writer.flush()
        with aolog.Reader("log", cursor="c") as reader:
            reader.read()
            monkeypatch.chdir("there")
            for _ in range(9):
                writer.append(b"x" * 500)
            writer.flush()
            assert len(list(reader)) == 9
            reader.commit()
    assert os.listdir(tmp_path / "there") == []
    assert len(slab_files(str(tmp_path / "log"))) > 3


# --- options and topic -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"slab_bytes": 0},
        {"slab_bytes": 1 << 61},
        {"batch_bytes": -1},
        {"batch_bytes": 1e5},
        {"flush_records": 0},
        {"flush_seconds": 0},
        {"flush_seconds": float("nan")},
        {"sync": "always"},
        {"sync_seconds": -1},
        {"sync_seconds": None},
        {"sync_records": 0},
        {"sync_records": 5, "sync": "never"},
        {"compression_level": 30, "compression": "zstd"},
        {"format": "avro"},
        {"max_record_bytes": 0},
        {"max_record_bytes": 1 << 33},
        {"retention": aolog.Retention(max_bytes=100_000), "slab_bytes": 60_000},
        {"format": "queuefka", "topic": "t"},
        {"format": "queuefka", "compression": "lz4"},
        {"compression": "gzip"},
        {"compression_level": 3},
        {"topic": ""},
        {"flush_seconds": "1s"},
        {"retention": 10**9},
    ],
    ids=str,
)
def test_an_impossible_option_is_refused_by_name_before_anything_is_made(
    log_path: str, options: dict[str, object]
) -> None:
    with pytest.raises(aolog.UsageError) as caught:
        aolog.Writer(log_path, **options)
    assert caught.value.exit_status == 2
    assert any(name in str(caught.value) for name in (*options, "Retention", "format 1"))
    assert not Path(log_path).exists()


@pytest.mark.parametrize(
    ("use", "url"),
    [
        (aolog.Writer, "s3://b/x"),
        (aolog.Writer, "file:///tmp/x"),
        (aolog.Writer, Path("s3://b/x")),
        (aolog.Reader, Path("s3://b/x")),  # as text it is an archive's
    ],
    ids=repr,
)
def test_a_url_is_refused_by_name_and_makes_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: type, url: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(aolog.UsageError, match=rf"{url}: .*URL"):
        use(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_value_of_a_batchs_size_is_a_frame_of_its_own_in_its_place(
    log_path: str, compression: Literal["none", "zstd"]
) -> None:
    large = b"l" * 1000
    given = [
        {"value": b"a"},
        {"value": large},
        {"value": large, "key": b""},
        {"value": b"b"},
        {"value": b"c"},
        {"value": large},
        {"value": large},
    ]
    with aolog.Writer(log_path, batch_bytes=1000, compression=compression) as writer:
        addresses = [writer.append(**record) for record in given]
        assert writer.end > addresses[-1]
    assert [r.value for r in read_all(log_path)] == [record["value"] for record in given]
    assert [r.address for r in read_all(log_path)] == addresses
    counts = [frame.records for frame in frames_of(log_path) if frame.kind == KIND_RECORDS]
    assert counts == [1, 1, 1, 2, 1, 1]


def test_the_default_topic_is_kept_with_the_log(log_path: str) -> None:
    with aolog.Writer(log_path, topic="orders") as writer:
        assert writer.topic == "orders"
        writer.append(b"a")
        writer.append(b"b", topic="other")
    assert [record.topic for record in read_all(log_path)] == [None, "other"]
    with aolog.Writer(log_path) as writer:
        assert writer.topic == "orders"
    with aolog.Writer(log_path, topic="orders", slab_bytes=9000) as writer:
        writer.append_many([b"x" * 2000])
        writer.append_many([b"y" * 2000])
    with aolog.Reader(log_path) as reader:
        assert reader.topic == "orders"


# --- format 1 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"value": None}, "null value"),
        ({"value": b""}, "empty value"),
        ({"value": b"v", "key": b"k"}, "key"),
        ({"value": b"v", "key": b""}, "key"),
        ({"value": b"v", "headers": (("h", b""),)}, "headers"),
        ({"value": b"v", "timestamp": 0}, "timestamp"),
        ({"value": b"v", "topic": "t"}, "topic"),
    ],
    ids=str,
)
def test_format_1_refuses_and_names_what_it_has_no_place_for(
    log_path: str, parts: dict[str, object], what: str
) -> None:
    with aolog.Writer(log_path, format="queuefka") as writer:
        with pytest.raises(aolog.RecordRefused, match="format 1") as caught:
            writer.append(**parts)
        assert what in str(caught.value)
        with pytest.raises(aolog.RecordRefused):
            writer.append_many([b"a", parts["value"] if len(parts) == 1 else ""])
        writer.append(b"good")
    assert values(log_path) == [b"good"]
