"""Following: records come as they are flushed, soon, in order, and nobody looks in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import inotify_simple
import pytest

import aolog
from tests.aolog.conftest import NEVER, SOON_S, WatchedStorage, fill, in_thread, slab_files


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


# --- where notifications do not come --------------------------------------------------------------


class Deaf(inotify_simple.INotify):
    """Reports nothing, as for what another machine, the host or an overlay's lower layer writes."""

    def add_watch(self, path: object, mask: int) -> int:
        return 0


def follow_one(reader: aolog.Reader) -> bytes | None:
    return next(reader.follow()).value


def read_one_batch(reader: aolog.Reader) -> bytes | None:
    batch = reader.read_batch(timeout=SOON_S)
    return None if batch is None else next(iter(batch)).value


@pytest.mark.parametrize("read", [follow_one, read_one_batch])
def test_a_record_that_no_notification_reports_comes_within_about_a_second(
    log_path: str, read: Callable[[aolog.Reader], bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inotify_simple.INotify", Deaf)
    with aolog.Writer(log_path, **NEVER) as writer, aolog.Reader(log_path) as reader:
        waiting = in_thread(lambda: read(reader))
        assert waiting.waits(1.5)
        writer.append(b"in the same slab")
        writer.flush()
        assert waiting.result(SOON_S / 4) == b"in the same slab"
        waiting = in_thread(lambda: read(reader))
        assert waiting.waits(1.5)
        writer.close()
        fill(log_path, [b"in the next slab"])
        assert waiting.result(SOON_S / 4) == b"in the next slab"


def test_what_is_written_to_the_lower_layer_of_an_overlay_is_followed(
    mount: Callable[..., Path], tmp_path: Path
) -> None:
    layers = {
        "lowerdir": tmp_path / "lower",
        "upperdir": tmp_path / "upper",
        "workdir": tmp_path / "w",
    }
    for directory in layers.values():
        directory.mkdir()
    lower = str(layers["lowerdir"] / "log")
    fill(lower, [b"before"])
    options = ",".join(f"{name}={path}" for name, path in layers.items())
    merged = mount("-t", "overlay", "-o", options, "overlay")
    with aolog.Reader(merged / "log") as reader:
        assert [record.value for record in reader] == [b"before"]
        waiting = in_thread(lambda: follow_one(reader))
        assert waiting.waits()
        fill(lower, [b"below"])
        assert waiting.result(SOON_S / 4) == b"below"
        assert reader.lag().records == 0
