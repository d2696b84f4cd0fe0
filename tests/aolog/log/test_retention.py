"""Retention: what may go, goes, oldest first; what a cursor needs stays, or is told as lost."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

import aolog
from aolog.log.retention import Plan, SlabSize, plan, prune
from aolog.read.reader import pruned_from
from aolog.storage.file import File
from aolog.storage.storage import Storage
from tests.aolog.conftest import (
    Child,
    Killed,
    Operation,
    WatchedStorage,
    assert_clean,
    eventually,
    in_thread,
    raising_at,
    read_all,
    slab_files,
    values,
)

SLAB = 10_000
NEVER = {"flush_seconds": None, "sync": "never"}


def fill(writer: aolog.Writer, n: int, first: int = 0) -> None:
    """n slabs' worth of records of a quarter slab each."""
    for i in range(4 * n):
        writer.append_many([b"%010d" % (first + i) + b"x" * 440])
    writer.flush()


def written(path: str, n: int = 8) -> list[Path]:
    """A closed log of n slabs."""
    with aolog.Writer(path, slab_bytes=SLAB, **NEVER) as writer:
        fill(writer, n)
    found = slab_files(path)
    assert len(found) == n
    return found


def total(path: str) -> int:
    return sum(slab.stat().st_size for slab in slab_files(path))


def hold(path: str, n: int, name: str = "c", **options: object) -> None:
    """A cursor that has passed n records."""
    with aolog.Reader(path, cursor=name, **options) as reader:
        reader.seek("earliest")
        for _ in range(n):
            reader.read()
        reader.commit()


# --- the plan, pure ------------------------------------------------------------------------------


def sizes(*of_bytes: int, age_s: tuple[float, ...] | None = None) -> list[SlabSize]:
    ages = age_s or (0.0,) * len(of_bytes)
    return [
        SlabSize(1000 * i, 1000 * (i + 1), size, 1000.0 - age)
        for i, (size, age) in enumerate(zip(of_bytes, ages, strict=True))
    ]


PLANS = [
    # what is there, what is kept, first needed address, bytes needed -> dropped, room
    (sizes(), {"max_bytes": 1}, None, 0, Plan(0, True)),
    (sizes(10), {"max_bytes": 1}, None, 0, Plan(0, True)),  # never the last
    (sizes(10, 10, 10), {"max_bytes": 30}, None, 0, Plan(0, True)),
    (sizes(10, 10, 10), {"max_bytes": 29}, None, 0, Plan(1, True)),
    (sizes(10, 10, 10), {"max_bytes": 30}, None, 1, Plan(1, True)),
    (sizes(10, 10, 10), {"max_bytes": 1}, None, 0, Plan(2, True)),
    (sizes(10, 10, 10), {"max_slabs": 2}, None, 0, Plan(1, True)),
    (sizes(10, 10, 10), {"max_slabs": 3}, None, 1, Plan(1, True)),
    (sizes(10, 10, 10), {"max_slabs": 1}, None, 0, Plan(2, True)),
    (sizes(1, 1, 1, age_s=(9, 5, 1)), {"max_age_s": 6}, None, 0, Plan(1, True)),
    (sizes(1, 1, 1, age_s=(9, 8, 7)), {"max_age_s": 6}, None, 0, Plan(2, True)),
    (sizes(1, 1, 1, age_s=(5, 9, 9)), {"max_age_s": 6}, None, 0, Plan(0, True)),  # from the front
    # a cursor needs address 1000 and what follows: the second slab
    (sizes(10, 10, 10), {"max_slabs": 1}, 1000, 0, Plan(1, True)),
    (sizes(10, 10, 10), {"max_slabs": 1}, 999, 0, Plan(0, True)),
    (sizes(1, 1, 1, age_s=(9, 9, 9)), {"max_age_s": 6}, 1000, 0, Plan(1, True)),
    (sizes(10, 10, 10), {"max_bytes": 1}, 1000, 0, Plan(2, True)),
    (sizes(10, 10, 10), {"max_bytes": 1, "when_full": "block"}, 1000, 0, Plan(1, False)),
    (sizes(10, 10, 10), {"max_bytes": 20, "when_full": "block"}, 1000, 0, Plan(1, True)),
    (sizes(10, 10, 10), {"max_bytes": 20, "when_full": "error"}, 0, 0, Plan(0, False)),
    (sizes(10, 10, 10), {"max_bytes": 20, "when_full": "error"}, 3000, 5, Plan(2, True)),
]


@pytest.mark.parametrize(("slabs", "keep", "protected", "needed", "expected"), PLANS)
def test_what_goes(
    slabs: list[SlabSize], keep: dict[str, object], protected: int | None, needed: int,
    expected: Plan,
) -> None:  # fmt: skip
    retention = aolog.Retention(**keep)
    found = plan(slabs, retention, protected_from=protected, now_s=1000.0, needed=needed)
    assert found == expected


@pytest.mark.parametrize(
    "bounds",
    [
        {"max_bytes": 0},
        {"max_bytes": "many"},
        {"max_bytes": "0k"},
        {"max_bytes": 1e9},
        {"max_bytes": [1]},
        {"max_age_s": -1},
        {"max_age_s": "7d"},
        {"max_slabs": 0},
        {"max_slabs": "3"},
        {"max_slabs": 1.5},
        {"when_full": "panic"},
        {"when_full": ["prune"]},
    ],
    ids=str,
)
def test_an_impossible_bound_is_refused_by_name(bounds: dict[str, object]) -> None:
    with pytest.raises(aolog.UsageError, match=next(iter(bounds))):
        aolog.Retention(**bounds)


def test_a_total_may_be_text() -> None:
    assert aolog.Retention(max_bytes="1GB").max_bytes == 10**9
    assert aolog.Retention("64M", max_slabs=3) == aolog.Retention(64 << 20, max_slabs=3)


# --- by a writer -----------------------------------------------------------------------------


def test_nothing_goes_unless_it_is_asked(log_path: str) -> None:
    written(log_path)
    assert len(values(log_path)) == 32


def test_the_total_is_never_passed(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=40_000)
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        for i in range(60):
            writer.append_many([b"%010d" % i + b"x" * 440])
            writer.flush()
            assert total(log_path) <= 40_000 + 500 + 700  # a frame and a seal
    kept = values(log_path)
    assert kept == [b"%010d" % i + b"x" * 440 for i in range(60 - len(kept), 60)]
    assert len(kept) >= 8
    assert_clean(log_path)


def test_the_count_of_slabs_includes_the_open_one(log_path: str) -> None:
    keep = aolog.Retention(max_slabs=3)
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        for i in range(40):
            writer.append_many([b"%010d" % i + b"x" * 440])
            assert len(slab_files(log_path)) <= 3
    assert len(slab_files(log_path)) == 3
    assert_clean(log_path)


def test_old_slabs_go_though_nobody_appends(log_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aolog.write.background._AGE_CHECK_S", 0.1)
    keep = aolog.Retention(max_age_s=100.0)
    slabs = written(log_path, 6)
    for i, slab in enumerate(slabs):
        os.utime(slab, (time.time() - 200 + 30 * i,) * 2)  # 200 s to 50 s ago
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep):
        eventually(lambda: slab_files(log_path) == slabs[4:])
    assert_clean(log_path)


def test_a_writer_that_opens_a_log_that_is_too_large_prunes_when_it_rolls(log_path: str) -> None:
    written(log_path, 8)
    keep = aolog.Retention(max_slabs=2)
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        writer.append(b"a")
    assert len(slab_files(log_path)) == 2
    assert values(log_path)[-1] == b"a"


def test_format_1_is_pruned_too(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=2000)
    with aolog.Writer(log_path, format="queuefka", slab_bytes=500, retention=keep) as writer:
        for i in range(100):
            writer.append(b"%0100d" % i)
        assert total(log_path) <= 2000 + 108
    found = values(log_path)
    assert found == [b"%0100d" % i for i in range(100 - len(found), 100)]


# --- what it costs -------------------------------------------------------------------------------


class CountingStorage(Storage):
    """Counts how often a slab is opened to be read."""

    looks = 0

    def open_read(self, path: str) -> File:
        self.looks += path.endswith(".slab")
        return super().open_read(path)


def test_a_bounded_log_looks_at_each_slab_once_however_often_it_rolls(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=400_000)
    storage = CountingStorage()
    looks = []
    with aolog.Writer(
        log_path, slab_bytes=SLAB, retention=keep, storage=storage, **NEVER
    ) as writer:
        for i in range(80):
            storage.looks = 0
            writer.append_many([b"%010d" % i + b"x" * 2 * SLAB])  # a slab of its own
            looks.append(storage.looks)
            assert total(log_path) <= 400_000
    assert len(slab_files(log_path)) > 10
    assert max(looks[40:]) <= 2  # the one that was the last, and the one that is
    assert len(values(log_path)) == len(slab_files(log_path))


def test_slabs_that_others_prune_are_forgotten(log_path: str) -> None:
    known: dict[int, SlabSize] = {}
    slabs = written(log_path)
    keep = aolog.Retention(max_bytes=1 << 30)
    prune(log_path, Storage(), keep, known=known)
    assert len(known) == 7  # the last has no successor
    prune(log_path, Storage(), aolog.Retention(max_slabs=3))
    assert prune(log_path, Storage(), keep, known=known).slabs == 0
    assert list(known) == [int(slab.stem) for slab in slabs[5:7]]


def test_without_a_total_only_what_may_go_is_looked_at(log_path: str) -> None:
    """As the bridge does at each commit."""
    written(log_path, 20)
    hold(log_path, 9)  # in the third slab
    storage = CountingStorage()
    assert prune(log_path, storage, aolog.Retention(max_slabs=1)).slabs == 2
    assert storage.looks <= 3
    storage.looks = 0
    assert prune(log_path, storage, aolog.Retention(max_slabs=1)).slabs == 0
    assert storage.looks == 1


# --- what cursors need ---------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [{"max_slabs": 1}, {"max_age_s": 1e-6}], ids=str)
def test_age_and_count_take_nothing_that_a_cursor_needs(
    log_path: str, keep: dict[str, object]
) -> None:
    slabs = written(log_path)
    hold(log_path, 13)  # in the fourth slab
    hold(log_path, 20, "other")
    pruned = prune(log_path, Storage(), aolog.Retention(**keep))
    assert pruned.slabs == 3
    assert pruned.room
    assert pruned.end == int(slabs[3].stem)
    assert slab_files(log_path) == slabs[3:]
    with aolog.Reader(log_path, cursor="c") as reader:
        assert len(list(reader)) == 32 - 13
        assert reader.gaps == []


def test_a_cursor_that_does_not_protect_holds_nothing(log_path: str) -> None:
    slabs = written(log_path)
    hold(log_path, 13, protect=False)
    prune(log_path, Storage(), aolog.Retention(max_slabs=1))
    assert slab_files(log_path) == slabs[-1:]
    with aolog.Reader(log_path, cursor="c", protect=False) as reader:
        assert len(list(reader)) == 4
        assert [(gap.reason, gap.records_lost) for gap in reader.gaps] == [("pruned", 15)]


def test_when_full_prune_lets_the_oldest_go_and_readers_are_told_exactly(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="prune")
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        fill(writer, 2)
        hold(log_path, 3)
        fill(writer, 8, first=8)
        first = int(slab_files(log_path)[0].stem)
        with aolog.Reader(log_path, cursor="c") as reader:
            stands = reader.tell()
            kept = list(reader)
            lost = 40 - 3 - len(kept)
            assert lost > 10
            assert reader.gaps == [(stands, first, "pruned", lost)]
            assert reader.ordinal == 40


@pytest.mark.parametrize("stays_in", ["the open slab", "a sealed slab"])
def test_a_reader_that_is_left_behind_is_told_what_was_pruned(log_path: str, stays_in: str) -> None:
    """Its slab was unlinked under it: it reads that to its end, then hears of the rest."""
    keep = aolog.Retention(max_slabs=2)
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        fill(writer, 1 if stays_in == "a sealed slab" else 0)
        writer.append(b"first")
        writer.flush()
        with aolog.Reader(log_path) as reader:
            seen = 0
            if stays_in == "the open slab":
                while reader.read() is not None:
                    seen += 1
            else:
                assert reader.read() is not None
                seen = 1
            fill(writer, 9)
            found = list(reader)
            told = sum(gap.records_lost for gap in reader.gaps)
            assert {gap.reason for gap in reader.gaps} == {"pruned"}
            assert len(reader.gaps) == 1
            total_records = 36 + 1 + (4 if stays_in == "a sealed slab" else 0)
            assert seen + told + len(found) == total_records
            before = [record.address for record in found if record.address < reader.gaps[0].begin]
            behind = [record.address for record in found if record.address >= reader.gaps[0].end]
            assert len(before) + len(behind) == len(found)
            assert behind == [record.address for record in read_all(log_path)]


def test_a_follower_beside_a_pruning_writer_counts_every_record(log_path: str) -> None:
    code = """
import sys, aolog
keep = aolog.Retention(max_slabs=2)
with aolog.Writer(sys.argv[1], slab_bytes=10_000, retention=keep) as w:
    print("open", flush=True)
    for i in range(20_000):
        w.append(b"%d" % i, timestamp=i)
        if i % 50 == 0:
            w.flush()
"""
    with Child(code, log_path) as child:
        assert child.line() == "open"
        told = read = 0
        last = -1
        with aolog.Reader(log_path) as reader:
            for record in reader.follow(timeout=3.0):
                read += 1
                assert record.timestamp > last
                last = record.timestamp
                if read % 500 == 0:
                    reader.lag()
                    time.sleep(0.002)
                if last == 19_999:
                    break
            told = sum(gap.records_lost for gap in reader.gaps)
            assert {gap.reason for gap in reader.gaps} <= {"pruned"}
        child.wait()
    assert read + told == 20_000


def test_error_refuses_the_append_and_takes_it_when_there_is_room(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="error")
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        fill(writer, 1)
        hold(log_path, 1)
        with pytest.raises(aolog.RetentionFull) as caught:
            fill(writer, 9, first=4)
        assert isinstance(caught.value, aolog.StorageFull)
        assert caught.value.code == "retention_full"
        before = values(log_path)
        assert before == [b"%010d" % i + b"x" * 440 for i in range(len(before))]
        for _ in range(2):
            with pytest.raises(aolog.RetentionFull):
                writer.append(b"no")
            with pytest.raises(aolog.RetentionFull):
                writer.append_many([b"no"])
        assert total(log_path) <= 40_000
        writer.flush()
        writer.sync()
        assert values(log_path) == before
        hold(log_path, len(before))
        writer.append(b"yes")
        writer.flush()
        assert values(log_path)[-1] == b"yes"
    assert_clean(log_path)


def test_a_log_that_is_full_may_be_closed_and_opened(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="error")
    writer = aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER)
    fill(writer, 1)
    hold(log_path, 1)
    with pytest.raises(aolog.RetentionFull):
        fill(writer, 9)
    writer.close()
    n = len(values(log_path))
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        with pytest.raises(aolog.RetentionFull):
            writer.append(b"no")
        hold(log_path, n)
        writer.append(b"yes")
    assert values(log_path)[-1] == b"yes"


def test_block_waits_until_a_cursor_commits(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="block")
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        fill(writer, 1)
        hold(log_path, 1)
        appending = in_thread(lambda: fill(writer, 9, first=4))
        assert appending.waits(0.3)
        assert total(log_path) <= 40_000
        n = writer.end
        assert writer.flush() == n  # other calls are not blocked
        with aolog.Reader(log_path, cursor="c") as reader:
            seen = [record.value for record in reader]
            reader.commit()
            until = time.monotonic() + 20
            while len(seen) < 39 and time.monotonic() < until:
                seen += [record.value for record in reader]
                reader.commit()
        appending.result()
        assert seen == [b"%010d" % i + b"x" * 440 for i in range(1, 40)]
    assert_clean(log_path)


@pytest.mark.parametrize("call", ["append", "append_many", "mixed"])
def test_two_blocked_threads_go_on_and_nothing_is_lost_or_swapped(log_path: str, call: str) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="block")
    with aolog.Writer(
        log_path, slab_bytes=SLAB, retention=keep, batch_bytes=1000, flush_seconds=0.02
    ) as writer:
        writer.append(b"first")
        writer.flush()
        hold(log_path, 0)

        def append(which: int) -> None:
            for i in range(200):
                value = b"%d %d" % (which, i) + b" " * 300
                if call == "append" or (call == "mixed" and which):
                    writer.append(value)
                else:
                    writer.append_many([value])

        threads = [in_thread(lambda which=which: append(which)) for which in range(3)]
        assert threads[0].waits(0.3)
        seen: list[bytes] = []
        with aolog.Reader(log_path, cursor="c") as reader:
            until = time.monotonic() + 30
            while len(seen) < 601 and time.monotonic() < until:
                batch = reader.read_batch(timeout=0.1)
                if batch is not None:
                    seen += [record.value for record in batch]
                    reader.commit()
            assert reader.gaps == []
        for thread in threads:
            thread.result()
    assert len(seen) == 601
    for which in range(3):
        mine = [int(value.split()[1]) for value in seen[1:] if value.startswith(b"%d " % which)]
        assert mine == list(range(200))
    assert_clean(log_path)


def test_closing_ends_a_blocked_append(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="block")
    writer = aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER)
    fill(writer, 1)
    hold(log_path, 1)
    appending = in_thread(lambda: fill(writer, 9))
    assert appending.waits()
    writer.close()
    with pytest.raises(aolog.LogClosed):
        appending.result()
    assert_clean(log_path)


def test_deleting_the_cursor_ends_a_blocked_append(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="block")
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        fill(writer, 1)
        hold(log_path, 1)
        appending = in_thread(lambda: fill(writer, 9))
        assert appending.waits()
        (Path(log_path) / "cursors" / "c.cursor").unlink()
        appending.result()


def test_a_damaged_cursor_frees_nothing(log_path: str) -> None:
    slabs = written(log_path)
    hold(log_path, 20)
    cursor = Path(log_path) / "cursors" / "c.cursor"
    cursor.write_bytes(bytes(8192))
    with pytest.raises(aolog.CursorCorrupt):
        prune(log_path, Storage(), aolog.Retention(max_slabs=1))
    assert slab_files(log_path) == slabs


def test_a_damaged_cursor_stops_no_flush(log_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aolog.write.background._AGE_CHECK_S", 0.05)
    keep = aolog.Retention(max_age_s=100.0)
    with aolog.Writer(log_path, retention=keep, flush_seconds=0.05) as writer:
        writer.append(b"a")
        writer.flush()
        hold(log_path, 1)
        (Path(log_path) / "cursors" / "c.cursor").write_bytes(bytes(8192))
        time.sleep(0.2)
        writer.append(b"b")
        eventually(lambda: values(log_path) == [b"a", b"b"])


# --- what is lost cannot be missed ------------------------------------------------------------------

BOUNDED = {
    "slab_bytes": SLAB,
    "retention": aolog.Retention(max_bytes=40_000, when_full="prune"),
    **NEVER,
}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of the log's about records that were lost to a cursor."""
    told = [record for record in caplog.records if "had not read" in record.getMessage()]
    assert all((r.name, r.levelname) == ("aolog", "WARNING") for r in told)
    return [record.getMessage() for record in told]


def counts(messages: list[str], cursor: str = "c") -> int:
    """Records lost to a cursor, summed over the warnings."""
    found = [m for m in messages if f"cursor {cursor!r}" in m]
    return sum(int(re.search(r"removed ([0-9]+) record", m)[1]) for m in found)


def test_the_writer_warns_of_each_unread_record_that_it_prunes(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with aolog.Writer(log_path, **BOUNDED) as writer:
        fill(writer, 2)
        hold(log_path, 3)
        with aolog.Reader(log_path, cursor="c") as reader:
            stands = reader.tell()
        assert said(caplog) == []
        fill(writer, 8, first=8)
        first = int(slab_files(log_path)[0].stem)
        lost = 40 - 3 - len(values(log_path))
        assert dict(writer.pruned_unread) == {"c": aolog.Gap(stands, first, "pruned", lost)}
    messages = said(caplog)
    assert counts(messages) == lost
    assert messages[0].startswith(f"{log_path}: retention removed 1 record that cursor 'c' had ")
    assert f"addresses {stands} to " in messages[0]
    assert messages[-1].split(";")[0].endswith(f" to {first}")


def test_a_writer_that_prunes_often_warns_at_once_and_then_once_a_minute_with_the_sum(
    log_path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aolog.log.pruned_records.WARN_EVERY_S", 1.0)
    with aolog.Writer(log_path, **BOUNDED) as writer:
        fill(writer, 1)
        hold(log_path, 0)
        begun = time.monotonic()
        while not said(caplog):
            fill(writer, 1)
        for _ in range(20):
            fill(writer, 1)
        assert len(said(caplog)) == 1 or time.monotonic() - begun > 1.0
        lost = writer.pruned_unread["c"].records_lost
        assert lost is not None
        assert lost >= 80
        eventually(lambda: counts(said(caplog)) == lost)  # though nobody calls the writer
        assert len(said(caplog)) <= 2 + int(time.monotonic() - begun)
    assert counts(said(caplog)) == lost


def test_a_closing_writer_says_what_it_has_not_warned_of_yet(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with aolog.Writer(log_path, **BOUNDED) as writer:
        fill(writer, 1)
        hold(log_path, 0)
        fill(writer, 20)
        lost = writer.pruned_unread["c"].records_lost
        assert len(said(caplog)) == 1
    assert len(said(caplog)) == 2
    assert counts(said(caplog)) == lost == 84 - len(values(log_path))


def test_each_cursor_that_loses_records_is_named_and_others_are_not(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with aolog.Writer(log_path, **BOUNDED) as writer:
        fill(writer, 3)
        hold(log_path, 2, "slow")
        hold(log_path, 9, "slower")
        hold(log_path, 1, "free", protect=False)
        fill(writer, 2, first=12)
        hold(log_path, 20, "fast")
        fill(writer, 1, first=20)
        left = len(values(log_path))
        gone = 24 - left
        assert gone > 9
        lost = {name: gap.records_lost for name, gap in writer.pruned_unread.items()}
        assert lost == {"slow": gone - 2, "slower": gone - 9}
    for name, count in lost.items():
        assert counts(said(caplog), name) == count
    assert not any("'fast'" in m or "'free'" in m for m in said(caplog))


def test_where_nothing_unread_goes_nothing_is_said(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where a cursor is at the very end of a slab that goes, before its seal."""
    with aolog.Writer(log_path, **BOUNDED) as writer:
        for i in range(20):
            fill(writer, 1, first=4 * i)
            with aolog.Reader(log_path, cursor="c") as reader:
                list(reader)
                reader.commit()
        assert writer.pruned_unread == {}
        with aolog.Reader(log_path, cursor="c") as reader:
            assert reader.pruned() is None
    assert said(caplog) == []


def test_format_1_says_that_the_number_is_unknown(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    keep = aolog.Retention(max_bytes=2000)
    with aolog.Writer(log_path, format="queuefka", slab_bytes=500, retention=keep) as writer:
        writer.append(b"%0100d" % 0)
        writer.flush()
        hold(log_path, 0)
        for i in range(100):
            writer.append(b"%0100d" % i)
        assert writer.pruned_unread["c"].records_lost is None
    assert "an unknown number of records that cursor 'c'" in said(caplog)[0]


@pytest.mark.parametrize("format_", ["aolog", "queuefka"])
def test_a_writer_that_is_opened_again_counts_only_what_it_prunes_itself(
    log_path: str, format_: str
) -> None:
    options = {**BOUNDED, "format": format_}
    records = 0

    def fill_one() -> None:
        nonlocal records
        for _ in range(4):
            writer.append(b"x" * 2400)
            records += 1

    with aolog.Writer(log_path, **options) as writer:
        fill_one()
        writer.flush()
        hold(log_path, 0)
        for _ in range(7):
            fill_one()
        first = writer.pruned_unread["c"]
    with aolog.Writer(log_path, **options) as writer:
        assert writer.pruned_unread == {}
        for _ in range(3):
            fill_one()
        second = writer.pruned_unread["c"]
    (cursor,) = aolog.cursors(log_path)
    assert cursor.pruned is not None
    assert (first.begin, second.end) == (cursor.pruned.begin, cursor.pruned.end)
    assert first.end == second.begin
    if format_ == "aolog":
        lost = records - len(values(log_path))
        assert first.records_lost + second.records_lost == cursor.pruned.records_lost == lost


def test_lag_and_the_list_of_cursors_tell_what_is_left_from_what_is_gone(log_path: str) -> None:
    with aolog.Writer(log_path, **BOUNDED) as writer:
        fill(writer, 2)
        hold(log_path, 3)
        fill(writer, 8, first=8)
    left, first = len(values(log_path)), slab_files(log_path)[0]
    with aolog.Reader(log_path) as reader:
        whole = reader.lag()
    (cursor,) = aolog.cursors(log_path)
    assert cursor.lag[:2] == whole[:2]
    assert cursor.lag.records == left
    assert cursor.pruned == (cursor.address, int(first.stem), "pruned", 40 - 3 - left)
    with aolog.Reader(log_path, cursor="c") as reader:
        assert reader.lag().records == left
        assert reader.pruned() == cursor.pruned
        assert reader.read() is not None
        assert reader.gaps == [cursor.pruned]
        assert reader.pruned() is None
        reader.commit()
    (cursor,) = aolog.cursors(log_path)
    assert (cursor.pruned, cursor.lag.records) == (None, left - 1)


def test_a_follower_knows_what_it_will_lose_before_it_meets_the_gap(log_path: str) -> None:
    """The slab that it reads counts as there until it is read to its end."""
    keep = aolog.Retention(max_slabs=2)
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        fill(writer, 1)
        with aolog.Reader(log_path) as reader:
            assert reader.read() is not None
            assert reader.pruned() is None
            fill(writer, 1, first=4)
            assert reader.pruned() is None
            fill(writer, 4, first=8)
            expected = reader.pruned()
            assert expected is not None
            found = list(reader)
            assert reader.gaps == [expected]
            assert 1 + len(found) + expected.records_lost == 24
            assert reader.pruned() is None


def test_a_log_that_begins_at_a_later_address_has_lost_nothing(log_path: str) -> None:
    with aolog.Writer(log_path, first_address=8192) as writer:
        writer.append(b"a")
    with aolog.Reader(log_path, 0) as reader:
        assert pruned_from(reader, 0, 0) == []
        assert reader.lag().records == 1


def test_a_dry_run_says_what_it_would_cost_and_costs_nothing(log_path: str) -> None:
    written(log_path)
    hold(log_path, 13)
    keep = aolog.Retention(max_bytes=25_000, when_full="prune")
    would = prune(log_path, Storage(), keep, dry_run=True)
    assert would.unread["c"].records_lost == 4 * would.slabs - 13
    assert aolog.cursors(log_path)[0].pruned is None
    assert prune(log_path, Storage(), keep) == would
    assert aolog.cursors(log_path)[0].pruned == would.unread["c"]
    more = prune(log_path, Storage(), aolog.Retention(max_bytes=1))
    lost = aolog.cursors(log_path)[0].pruned
    assert lost.records_lost == would.unread["c"].records_lost + more.unread["c"].records_lost
    assert lost.records_lost == 32 - 13 - 4


# --- by anybody ------------------------------------------------------------------------------


def test_a_dry_run_beside_a_pruner_looks_again(log_path: str) -> None:
    written(log_path)

    class Racing(Storage):
        raced = False

        def open_read(self, path: str) -> File:
            if not self.raced:
                self.raced = True
                prune(log_path, Storage(), aolog.Retention(max_slabs=2))
            return super().open_read(path)

    would = prune(log_path, Racing(), aolog.Retention(max_slabs=1), dry_run=True)
    assert would.slabs == 1


def test_a_dry_run_removes_nothing_and_says_what_would_go(log_path: str) -> None:
    slabs = written(log_path)
    sizes_of = [slab.stat().st_size for slab in slabs]
    expected = prune(log_path, Storage(), aolog.Retention(max_slabs=3), dry_run=True)
    assert slab_files(log_path) == slabs
    assert prune(log_path, Storage(), aolog.Retention(max_slabs=3)) == expected
    assert expected.slabs == 5
    assert expected.bytes == sum(sizes_of[:5])
    assert slab_files(log_path) == slabs[5:]


def test_the_last_slab_stays_beside_a_live_writer(log_path: str) -> None:
    with aolog.Writer(log_path, slab_bytes=SLAB, **NEVER) as writer:
        fill(writer, 4)
        writer.append(b"a")
        pruned = prune(log_path, Storage(), aolog.Retention(max_bytes=1))
        assert pruned.slabs == 4
        assert len(slab_files(log_path)) == 1
        writer.append(b"b")
    assert values(log_path) == [b"a", b"b"]
    assert_clean(log_path)


def test_a_cursor_is_durable_before_the_slab_that_it_frees_goes(log_path: str) -> None:
    slabs = written(log_path, 4)
    hold(log_path, 13)
    hold(log_path, 16, "other")
    storage = WatchedStorage()
    prune(log_path, storage, aolog.Retention(max_slabs=1))
    assert sorted(storage.operations[:2]) == [
        Operation("datasync", "c.cursor"),
        Operation("datasync", "other.cursor"),
    ]
    assert storage.operations[2] == Operation("sync", "log")  # an unlink of one who was killed
    assert (
        storage.operations[3:]
        == [  # and each unlink before the next: there is never a hole
            step
            for slab in slabs[:3]
            for step in (Operation("unlink", slab.name), Operation("sync", "log"))
        ]
    )


@pytest.mark.parametrize("n", range(8))
def test_pruning_that_dies_anywhere_leaves_no_hole(log_path: str, n: int) -> None:
    slabs = written(log_path, 5)
    hold(log_path, 17)
    with pytest.raises(Killed):
        prune(log_path, WatchedStorage(raising_at(n, Killed)), aolog.Retention(max_slabs=1))
    left = slab_files(log_path)
    assert left == slabs[len(slabs) - len(left) :]
    assert_clean(log_path)
    prune(log_path, Storage(), aolog.Retention(max_slabs=1))
    assert slab_files(log_path) == slabs[4:]


def test_who_prunes_waits_for_who_prunes(log_path: str) -> None:
    slabs = written(log_path)
    storage = Storage()
    lock = storage.open_lock(f"{log_path}/retention.lock")
    lock.lock()
    pruning = in_thread(lambda: prune(log_path, Storage(), aolog.Retention(max_slabs=1)))
    assert pruning.waits()
    assert slab_files(log_path) == slabs
    lock.close()
    assert pruning.result().slabs == 7


def test_pruning_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(aolog.AologError):
        prune(str(tmp_path / "missing"), Storage(), aolog.Retention(max_slabs=1))
    assert os.listdir(tmp_path) == []


def test_damage_does_not_hinder_pruning(log_path: str) -> None:
    slabs = written(log_path)
    for slab in slabs[:3]:
        with slab.open("r+b") as file:
            file.write(bytes(9000))
    prune(log_path, Storage(), aolog.Retention(max_slabs=4))
    assert slab_files(log_path) == slabs[4:]
    assert_clean(log_path)
