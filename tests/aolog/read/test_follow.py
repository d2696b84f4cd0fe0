"""Following: records come as they are flushed, soon, in order, and nobody looks in between."""

from __future__ import annotations

import time

import pytest

import aolog
from tests.aolog.conftest import WatchedStorage, in_thread, slab_files


def following(path: str, n: int, **options: object) -> list[bytes]:
    """The first n values that come."""
    with aolog.Reader(path, **options) as reader:
        found = []
        for record in reader.follow(timeout=20.0):
            found.append(record.value)
            if len(found) == n:
                break
        return found


@pytest.mark.parametrize("kind", ["aolog", "queuefka"])
@pytest.mark.parametrize("notified", [True, False])
def test_records_come_in_order_over_many_slabs(
    log_path: str, kind: str, notified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not notified:
        monkeypatch.setattr("inotify_simple.INotify", _no_inotify)
    with aolog.Writer(log_path, slab_bytes=10_000, batch_bytes=0, format=kind) as writer:
        waiting = in_thread(lambda: following(log_path, 300))
        for i in range(300):
            writer.append(b"%0100d" % i)
            if i % 7 == 0:
                writer.flush()
            if i % 50 == 0:
                time.sleep(0.02)
        writer.flush()
        assert waiting.result() == [b"%0100d" % i for i in range(300)]
    assert len(slab_files(log_path)) > 3


def _no_inotify(*, nonblocking: bool) -> object:
    raise OSError(28, "no inotify")


def test_a_follower_is_woken_and_does_not_look_before(log_path: str) -> None:
    storage = WatchedStorage()
    with aolog.Writer(log_path, flush_seconds=None, sync="never") as writer:
        pytest.importorskip("inotify_simple")
        reader = aolog.Reader(log_path, storage=storage)
        waiting = in_thread(lambda: next(reader.follow()))
        looks = -1
        for _ in range(10):  # it takes a while to begin
            looks = storage.lists
            assert waiting.waits(0.5)
            if storage.lists == looks:
                break
        assert waiting.waits(1.0)
        assert storage.lists == looks
        begun = time.monotonic()
        writer.append(b"a")
        writer.flush()
        assert waiting.result().value == b"a"
        assert time.monotonic() - begun < 5.0  # not by the time-out
        reader.close()
