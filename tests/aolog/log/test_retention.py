"""Retention: what may go, goes, oldest first; what a cursor needs stays, or is told as lost."""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog.log.retention import Plan, SlabSize, plan, prune
from aolog.read.reader import view_of
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage
from aolog.storage.system import System
from aolog.testing import Killed
from tests.aolog.conftest import (
    NEVER,
    Operation,
    WatchedStorage,
    assert_clean,
    in_thread,
    raising_at,
    slab_files,
    values,
    wait_until,
)

SLAB = 10_000
BOUNDED = {
    "slab_bytes": SLAB,
    "retention": aolog.Retention(max_bytes=40_000, when_full="prune"),
    **NEVER,
}


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


def test_a_bounded_log_has_slabs_of_an_eighth_of_its_bound_unless_told_otherwise(
    log_path: str,
) -> None:
    keep = aolog.Retention(max_bytes=200_000)
    with aolog.Writer(log_path, retention=keep, batch_bytes=0, **NEVER) as writer:
        for _ in range(400):
            writer.append(bytes(1000))
    sizes = [slab.stat().st_size for slab in slab_files(log_path)[:-1]]
    assert 5 <= len(sizes) <= 7
    assert all(25_000 <= size < 27_000 for size in sizes)


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
    (sizes(1, 1, 1, age_s=(5, 4, 9)), {"max_age_s": 6}, None, 0, Plan(0, True)),  # from the front
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


WRONG_CLOCKS = [
    # ages of the slabs; those older than 6 s go -> how many go, and which of these by later slabs
    ((-1e9, 9, 1), 2, [0]),  # ahead by years
    ((9, -1e9, 8, 1), 3, [1]),
    ((-5, -4, 9, 1), 3, [0, 1]),
    ((9, -1e9, 2, 1), 1, []),  # no later slab is too old
    ((-1e9, -1e9), 0, []),
    ((5, 9, 9), 2, [0]),  # ahead by seconds
    ((5, 4, 9, 8, 7, 1), 5, [0, 1]),
    ((5, 4, 1e9, 1), 0, []),  # began at 1970
    ((9, 5, 1e9, 4, 1e9, 1), 1, []),
    ((1e9, 5, 4), 1, []),
]


@pytest.mark.parametrize(("ages_s", "drop", "misdated"), WRONG_CLOCKS)
def test_where_times_contradict_the_order_of_slabs_most_of_them_decide(
    ages_s: tuple[float, ...], drop: int, misdated: list[int]
) -> None:
    slabs = sizes(*(1,) * len(ages_s), age_s=ages_s)
    found = plan(slabs, aolog.Retention(max_age_s=6), protected_from=None, now_s=1000.0)
    assert found == Plan(drop, True, tuple(slabs[i] for i in misdated))


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


def test_old_slabs_go_though_no_one_appends(log_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aolog.write.schedule.PRUNE_S", 0.1)
    keep = aolog.Retention(max_age_s=100.0)
    slabs = written(log_path, 6)
    for i, slab in enumerate(slabs):
        os.utime(slab, (time.time() - 200 + 30 * i,) * 2)  # 200 s to 50 s ago
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep):
        wait_until(lambda: slab_files(log_path) == slabs[4:])
    assert_clean(log_path)


def test_a_clock_that_was_ahead_keeps_no_slab_and_the_writer_names_it_once(
    log_path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aolog.write.schedule.PRUNE_S", 0.1)
    slabs = written(log_path, 6)
    for i, slab in enumerate(slabs):
        os.utime(slab, (time.time() - 200 + 30 * i,) * 2)  # 200 s to 50 s ago
    os.utime(slabs[1], (4_000_000_000,) * 2)
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=aolog.Retention(max_age_s=100.0)):
        wait_until(lambda: slab_files(log_path) == slabs[4:])
        wait_until(lambda: "2096-10-02T07:06:40Z" in caplog.text)
    (told,) = (r.getMessage() for r in caplog.records if "clock" in r.getMessage())
    assert told.startswith(f"{log_path}: slab {int(slabs[1].stem)} was removed for its age")
    assert_clean(log_path)


def test_a_time_that_no_calendar_has_stops_no_pruning(log_path: str) -> None:
    slabs = written(log_path, 3)
    for slab in slabs:
        os.utime(slab, (time.time() - 200,) * 2)
    begin, end = (int(slab.stem) for slab in slabs[:2])
    known = {begin: SlabSize(begin, end, slabs[0].stat().st_size, changed_s=2.0**62)}
    pruned = prune(log_path, Storage(), aolog.Retention(max_age_s=100.0), known=known)
    assert pruned.slabs == 2


# --- what it costs -------------------------------------------------------------------------------


def test_a_bounded_log_looks_at_each_slab_once_however_often_it_rolls(log_path: str) -> None:
    keep = aolog.Retention(max_bytes=400_000)
    storage = WatchedStorage()
    looks = []
    with aolog.Writer(
        log_path, slab_bytes=SLAB, retention=keep, storage=storage, **NEVER
    ) as writer:
        for i in range(80):
            storage.opened.clear()
            writer.append_many([b"%010d" % i + b"x" * 2 * SLAB])  # a slab of its own
            looks.append(sum(path.endswith(".slab") for path in storage.opened))
            assert total(log_path) <= 400_000
    assert len(slab_files(log_path)) > 10
    assert max(looks[40:]) <= 2  # the one that was the last, and the one that is
    assert len(values(log_path)) == len(slab_files(log_path))


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
    assert pruned.holder is None
    assert pruned.end == int(slabs[3].stem)
    assert slab_files(log_path) == slabs[3:]
    with aolog.Reader(log_path, cursor="c") as reader:
        assert len(list(reader)) == 32 - 13
        assert reader.gaps == []


def test_when_full_prune_lets_the_oldest_go_and_readers_are_told_exactly(log_path: str) -> None:
    with aolog.Writer(log_path, **BOUNDED) as writer:
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
            until = time.monotonic() + 60
            while len(seen) < 39 and time.monotonic() < until:
                seen += [record.value for record in reader]
                reader.commit()
        appending.result()
        assert seen == [b"%010d" % i + b"x" * 440 for i in range(1, 40)]
    assert_clean(log_path)


class AfterPrune(System):
    """Lists no cursor after each prune: as if each were deleted right then."""

    lock: int | None = None

    def open(self, path: str, *more: Any, **options: Any) -> int:  # type: ignore[override]  # a function there
        fd = os.open(path, *more, **options)
        self.lock = fd if path == "retention.lock" else self.lock
        return fd

    def close(self, fd: int) -> None:  # type: ignore[override]  # a function there
        self.lock = None if fd == self.lock else self.lock
        os.close(fd)

    def listdir(self, path: str | int, /) -> list[str]:
        hidden = ".cursor" if self.lock is None else "hidden"
        return [name for name in super().listdir(path) if not name.endswith(hidden)]


def test_the_warning_names_the_cursor_that_was_in_the_way_also_if_it_is_gone_since(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full="error")
    options: dict[str, Any] = {"slab_bytes": SLAB, "retention": keep, **NEVER}
    with aolog.Writer(log_path, storage=Storage(AfterPrune()), **options) as writer:
        fill(writer, 1)
        hold(log_path, 1)
        until = time.monotonic() + 60
        while "appends wait" not in caplog.text and time.monotonic() < until:
            with contextlib.suppress(aolog.RetentionFull):
                writer.append(b"x" * 440)
    assert "and cursor 'c' needs the oldest slab" in caplog.text


# --- a cursor that cannot be read -----------------------------------------------------------


def damage_cursor(path: str, how: str) -> Path:
    """A cursor of somebody else, which no reader can use."""
    cursor = Path(path) / "cursors" / "c.cursor"
    cursor.parent.mkdir(exist_ok=True)
    cursor.unlink(missing_ok=True)
    if how == "a directory":
        cursor.mkdir()
    elif how == "a link":
        cursor.symlink_to("elsewhere")
    else:
        cursor.write_bytes(bytes(8192 if how == "zeros" else 0))
    return cursor


UNREADABLE = pytest.mark.parametrize("how", ["empty", "zeros", "a directory", "a link"])


def told_of_cursor(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "cursor 'c' cannot be read" in text]


@UNREADABLE
@pytest.mark.parametrize("keep", [{"max_slabs": 1}, {"max_age_s": 1e-6}], ids=str)
def test_a_cursor_that_cannot_be_read_frees_nothing_and_is_named_once(
    log_path: str, caplog: pytest.LogCaptureFixture, keep: dict[str, Any], how: str
) -> None:
    slabs = written(log_path)
    hold(log_path, 20, "other")
    damage_cursor(log_path, how)
    for _ in range(3):
        pruned = prune(log_path, Storage(), aolog.Retention(**keep))
        assert (pruned.slabs, pruned.unreadable) == (0, ("c",))
    assert slab_files(log_path) == slabs
    (told,) = told_of_cursor(caplog)
    assert told.startswith(f"{log_path}: cursor 'c' cannot be read, and counts for retention as")


def test_a_cursor_that_was_mended_counts_again_and_is_named_again_when_it_is_damaged(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    slabs = written(log_path)
    for _ in range(2):
        cursor = damage_cursor(log_path, "empty")
        assert prune(log_path, Storage(), aolog.Retention(max_slabs=1)).slabs == 0
        cursor.unlink()
        hold(log_path, 9)  # of four a slab
        assert prune(log_path, Storage(), aolog.Retention(max_slabs=1)).slabs == 2
    assert slab_files(log_path) == slabs[4:]
    assert len(told_of_cursor(caplog)) == 2


@UNREADABLE
def test_a_program_does_not_stop_for_a_cursor_that_cannot_be_read(
    log_path: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    with aolog.Writer(log_path, **BOUNDED) as writer:
        fill(writer, 1)
        damage_cursor(log_path, how)
        fill(writer, 9, first=4)
        assert total(log_path) <= 40_000
        first = int(slab_files(log_path)[0].stem)
        # What it had read is unknown, so what it lost is too.
        assert dict(writer.pruned_unread) == {"c": aolog.Gap(0, first, "pruned", None)}
    assert len(told_of_cursor(caplog)) == 1
    assert said(caplog)[0].startswith(
        f"{log_path}: retention removed an unknown number of records that cursor 'c' had not read"
    )
    assert values(log_path)[-1] == b"%010d" % 39 + b"x" * 440


@pytest.mark.parametrize("when_full", ["block", "error"])
def test_where_cursors_win_a_cursor_that_cannot_be_read_wins_and_is_named(
    log_path: str, caplog: pytest.LogCaptureFixture, when_full: Any
) -> None:
    keep = aolog.Retention(max_bytes=40_000, when_full=when_full)
    with aolog.Writer(log_path, slab_bytes=SLAB, retention=keep, **NEVER) as writer:
        fill(writer, 1)
        cursor = damage_cursor(log_path, "empty")
        if when_full == "error":
            with pytest.raises(aolog.RetentionFull):
                fill(writer, 9, first=4)
            cursor.unlink()
        else:
            appending = in_thread(lambda: fill(writer, 9, first=4))
            wait_until(lambda: "and cursor 'c' needs the oldest slab" in caplog.text)
            assert appending.waits()
            cursor.unlink()
            appending.result()
        assert writer.pruned_unread == {}
        assert len(told_of_cursor(caplog)) == 1
        writer.append(b"last")
        writer.flush()
    assert values(log_path)[-1] == b"last"
    assert_clean(log_path)


# --- what is lost cannot be missed ------------------------------------------------------------------


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


def test_a_loss_after_a_frame_that_is_being_read_counts_from_the_frames_end(log_path: str) -> None:
    """Although the gap was found before the frame was read record by record."""
    refuse = partial(aolog.Batch.to_arrow, columns=["no such"])
    with aolog.Writer(log_path, slab_bytes=SLAB, **NEVER) as writer:
        for n in range(4):
            writer.append_many([b"x" * 1000] * 8)
            fill(writer, n)
    with aolog.Reader(log_path) as reader:
        view = view_of(reader)
        assert view.end()  # it has the first slab open
        assert reader.read() is not None
        prune(log_path, Storage(), aolog.Retention(max_slabs=1))
        with pytest.raises(aolog.UsageError, match="no such"):
            view.take(1 << 20, refuse)
        assert reader.read() is not None
        ((gap, before),) = view.pruned()
        assert (before, gap.reason) == (8, "pruned")


def test_a_dry_run_reports_the_loss_and_removes_nothing(log_path: str) -> None:
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


def test_two_prunings_wait_for_each_other(log_path: str) -> None:
    slabs = written(log_path)
    storage = Storage()
    lock = storage.open_lock(Inside(log_path, "retention.lock"))
    lock.lock()
    pruning = in_thread(lambda: prune(log_path, Storage(), aolog.Retention(max_slabs=1)))
    assert pruning.waits()
    assert slab_files(log_path) == slabs
    lock.close()
    assert pruning.result().slabs == 7
