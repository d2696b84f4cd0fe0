"""A signal whose handler raises (KeyboardInterrupt) may end any call of a writer's, anywhere.

What was taken before is neither lost nor changed, and the writer can be closed. Signals are
handled where a function begins and behind calls of C's: there a profiler is told too, and may
raise in their stead, so that every such place is tried in turn.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog.storage.storage import Storage
from tests.aolog.conftest import AtPlace, eventually, in_thread, values

RECORDS = 12


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt."""


def interrupt() -> None:
    raise Interrupted


def append(writer: aolog.Writer, taken: dict[int, tuple[bytes, bytes | None]]) -> None:
    for i in range(RECORDS):
        value = b"value %d" % i
        key = value if i % 3 == 2 else None
        taken[writer.append(value, key=key)] = (value, key)


class InterruptedStorage(Storage):
    """Whose next sync of a directory is interrupted, behind a look of somebody else's."""

    look: Callable[[], object] | None = None

    def sync_directory(self, path: str) -> None:
        look, self.look = self.look, None
        if look is not None:
            look()
            raise Interrupted
        super().sync_directory(path)


def test_a_slab_that_a_follower_has_open_is_not_made_anew(log_path: str) -> None:
    """It has its name before the name is durable, and readers go by names."""
    storage = InterruptedStorage()
    options = {"slab_bytes": 8300, "flush_seconds": None, "storage": storage}
    with aolog.Writer(log_path, **options) as writer:
        writer.append_many([b"x" * 1000])
        writer.flush()
        with aolog.Reader(log_path) as reader:
            followed = list(reader)
            storage.look = lambda: followed.extend(reader)
            with pytest.raises(Interrupted):
                writer.append(b"interrupted")
            writer.append(b"second")
            writer.flush()
            followed += reader
            assert [record.value for record in followed] == [b"x" * 1000, b"second"]
            assert reader.gaps == []


@pytest.mark.parametrize(("format_", "begin"), [("aolog", 1), ("queuefka", 9)])
def test_room_was_made_for_a_slab_that_has_its_name_already(
    log_path: str, format_: str, begin: int
) -> None:
    """Else the one before it, which was the last, goes: no reader has had its records."""
    storage = InterruptedStorage()
    options: dict[str, Any] = {"slab_bytes": 9000, "flush_seconds": None, "format": format_}
    taken = [b"x" * 1000] * begin
    with aolog.Writer(
        log_path, retention=aolog.Retention(max_bytes=18_000), storage=storage, **options
    ) as writer:
        for value in taken[:-1]:
            writer.append(value)
        storage.look = (lambda: None) if format_ == "queuefka" else None
        with suppress(Interrupted):  # format 1 begins its next slab at once
            writer.append(taken[-1])
        writer.sync()
        with aolog.Reader(log_path, cursor="c") as reader:
            reader.commit()
            if format_ == "aolog":
                storage.look = lambda: None
                with pytest.raises(Interrupted):
                    writer.append(b"interrupted")
            writer.append(b"second")
            writer.flush()
        with aolog.Reader(log_path, cursor="c") as reader:  # anew: one that is open has the slab
            assert [record.value for record in reader] == [*taken, b"second"]
            assert reader.gaps == []


def test_a_slab_that_somebody_removed_before_it_had_a_name_is_made_anew(log_path: str) -> None:
    class Refuses(Storage):
        refuses = False

        def rename(self, old: str, new: str) -> None:
            if self.refuses:
                raise aolog.StorageFailed("rename: no", path=new)
            super().rename(old, new)

    storage = Refuses()
    with aolog.Writer(log_path, slab_bytes=8300, flush_seconds=None, storage=storage) as writer:
        writer.append_many([b"x" * 1000])
        storage.refuses = True
        with pytest.raises(aolog.StorageFailed):
            writer.append(b"refused")
        for temporary in Path(log_path).glob("*.tmp"):
            temporary.unlink()
        storage.refuses = False
        writer.append(b"second")
    with aolog.Reader(log_path) as reader:
        assert [record.value for record in reader] == [b"x" * 1000, b"second"]


# In a finalizer Python tells and forgets it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("options", [{}, {"sync": "flush"}, {"format": "queuefka"}])
def test_a_close_that_is_interrupted_at_any_place_leaves_a_writer_open_or_closed(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """Open: with its lock and its threads. Closed: it takes nothing. Three seconds each."""
    n, came = 0, True
    as_it_is = {key: value for key, value in options.items() if key == "format"}
    while came:
        log, kept = str(tmp_path / str(n)), [b"a", b"b"]
        writer = aolog.Writer(log, flush_seconds=0.02, sync_seconds=0.02, **options)
        for value in kept:
            writer.append(value)
        place = AtPlace(n, interrupt)
        sys.setprofile(place)
        with suppress(Interrupted):
            writer.close()
        sys.setprofile(None)
        try:
            writer.append(b"c")
        except aolog.LogClosed:
            pass
        else:
            kept.append(b"c")
            with pytest.raises(aolog.LogLocked):
                aolog.Writer(log, **as_it_is)
            eventually(lambda: values(log) == kept)  # noqa: B023 -- called in this turn only
            eventually(lambda: writer.durable == writer.end)  # noqa: B023 -- the same
        in_thread(writer.close).result()
        aolog.Writer(log, **as_it_is).close()
        assert values(log) == kept, n
        names = {f"aolog-writer {writer.path}", f"aolog-sync {writer.path}"}
        eventually(lambda: not names & {thread.name for thread in threading.enumerate()})  # noqa: B023 -- the same
        came = place.came
        n += 1
    assert n > 50


# In a finalizer Python tells and forgets it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("slab_bytes", [64 << 20, 8400])
def test_an_interrupt_at_any_place_of_append_costs_and_changes_nothing_taken_before(
    tmp_path: Path, slab_bytes: int
) -> None:
    """Four seconds, and six where slabs are sealed too."""
    n, came = 0, True
    while came:
        log = tmp_path / str(n)
        taken: dict[int, tuple[bytes, bytes | None]] = {}
        writer = aolog.Writer(
            log, batch_bytes=60, flush_seconds=None, sync="never", slab_bytes=slab_bytes
        )
        writer.append(b"first")
        place = AtPlace(n, interrupt)
        follower = aolog.Reader(log)
        followed = []
        sys.setprofile(place)
        try:
            append(writer, taken)
        except Interrupted:
            pass
        finally:
            sys.setprofile(None)
        followed += follower
        came = place.came
        last = writer.append(b"last")
        in_thread(writer.close).result()  # in another, which would wait for a lock that is kept
        followed += follower
        assert follower.gaps == [], n
        assert followed[-1].address == last, n
        follower.close()
        with aolog.Reader(log) as reader:
            found = {record.address: (record.value, record.key) for record in reader}
        assert {address: found.get(address) for address in taken} == taken, n
        assert found.keys() == {record.address for record in followed}, n
        assert len(found) <= len(taken) + 3, n  # the first, the last, and the interrupted one
        assert aolog.verify(log).ok, n
        n += 1
    assert n > 100
    assert len(taken) == RECORDS
