"""What an attack and a review found once, each as a claim that holds since."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

import aolog
from aolog.errors import (
    AddressBeyondEnd,
    CursorLocked,
    NoSuchCursor,
    SyncFailed,
)
from aolog.format.frame import FRAME_HEADER_LEN, KIND_MARK
from aolog.log.cursor_file import CursorFile, Position, read_position
from aolog.log.retention import Retention, prune
from aolog.maintenance import verify
from aolog.read.reader import return_to
from aolog.storage.file import File
from aolog.storage.storage import Storage
from tests.aolog.commands import answer, fill, well
from tests.aolog.conftest import eventually, frames_of, kill, slab_files, values


def test_losses_before_and_behind_a_mark_are_each_counted_once(log_path: str) -> None:
    with aolog.Writer(log_path, flush_seconds=0.01, sync_seconds=0.01) as writer:
        first = [int(writer.append_many([b"%d" % i * 20] * 5)[0]) for i in range(2)]
        eventually(lambda: any(frame.kind == KIND_MARK for frame in frames_of(log_path)))
        first += [int(writer.append_many([b"%d" % i * 20] * 5)[0]) for i in range(2, 4)]
    (slab,) = slab_files(log_path)
    with Path(slab).open("r+b") as file:
        for address in (first[1], first[2]):
            file.seek(address + 60)
            file.write(b"\xff")
    assert [gap.records_lost for gap in aolog.verify(log_path).gaps] == [5, 5]


def test_two_copies_of_a_log_do_not_give_out_the_same_addresses(
    log_path: str, tmp_path: Path
) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append(b"before")
    lives = []
    for name in ("a", "b"):
        copy = str(tmp_path / name)
        shutil.copytree(log_path, copy)
        with aolog.Writer(copy) as writer:
            assert "copied" in writer.opening.case
            lives.append(writer.append(name.encode()))
        with aolog.Reader(copy) as reader:
            assert [record.value for record in reader] == [b"before", name.encode()]
            assert reader.gaps == []
    assert lives[0] != lives[1]


class _FailsOnce(Storage):
    """fdatasync fails once and succeeds ever after, as a kernel's does."""

    def __init__(self) -> None:
        self.armed = False

    def create(self, path: str) -> File:
        storage, file = self, super().create(path)

        class Failing(File):
            def datasync(self) -> None:
                if storage.armed:
                    storage.armed = False
                    raise SyncFailed("fdatasync: injected", path=self.path)
                super().datasync()

        failing = Failing(path, os.dup(file.fd))
        file.close()
        return failing


def test_a_sync_that_succeeds_after_one_that_failed_is_not_believed(log_path: str) -> None:
    storage = _FailsOnce()
    writer = aolog.Writer(log_path, storage=storage, slab_bytes=9000, sync="never")
    durable = writer.durable
    writer.append(b"x" * 2000)
    storage.armed = True
    with pytest.raises(SyncFailed):
        writer.sync()
    writer._trouble = None  # as if a retried write had cleared it between two threads
    with pytest.raises(SyncFailed):
        for _ in range(10):
            writer.append(b"x" * 2000)  # needs another slab, and with it a sync
    assert writer.durable == durable
    with pytest.raises(SyncFailed):
        writer.close()


def test_two_readers_that_create_one_cursor_at_once_do_not_both_hold_it(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append(b"a")
    for attempt in range(10):
        name = f"c{attempt}"
        files = [CursorFile(log_path, name, Storage()) for _ in range(2)]
        outcomes: list[str] = []

        def commit(file: CursorFile, outcomes: list[str] = outcomes) -> None:
            try:
                file.commit(Position(1, 0, bytes(16), 1, protects=True))
                outcomes.append("held")
            except CursorLocked:
                outcomes.append("locked")

        threads = [threading.Thread(target=commit, args=(file,)) for file in files]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for file in files:
            file.close()
        assert sorted(outcomes) == ["held", "locked"]


def test_a_position_ahead_of_the_log_is_gone_back_to(log_path: str) -> None:
    writer = aolog.Writer(log_path, sync="never")
    writer.append(b"a")
    writer.flush()
    with aolog.Reader(log_path) as reader:
        list(reader)
        ahead = reader.tell() + 1000  # what power loss makes of a cursor on unsynced records
        return_to(reader, ahead, None)
        assert reader.read() is None
        assert reader.tell() == ahead
    kill(writer)


def many_small_slabs(path: str) -> list[Path]:
    """Four slabs of one frame of three records each, closed."""
    with aolog.Writer(path, slab_bytes=8200, flush_seconds=None, sync="never") as writer:
        for i in range(4):
            writer.append_many([b"%d.%d" % (i, j) for j in range(3)])
    return slab_files(path)


def lose_header(slab: Path) -> None:
    data = bytearray(slab.read_bytes())
    data[:512] = data[4096:4608] = bytes(512)
    data[-24:] = bytes(24)
    slab.write_bytes(data)


def test_a_loss_that_nobody_counted_is_unknown(log_path: str) -> None:
    """The last slab is lost whole: who writes on knows only what came before it."""
    slabs = many_small_slabs(log_path)
    lose_header(slabs[3])
    with aolog.Writer(log_path) as writer:
        writer.append(b"new")
    with aolog.Reader(log_path) as reader:
        assert [record.value for record in reader][-2:] == [b"2.2", b"new"]
        assert [gap.records_lost for gap in reader.gaps] == [None]


def test_a_slab_that_was_sealed_is_not_torn_though_its_seal_is_damaged(log_path: str) -> None:
    """Nor is there a mark: that its successor is of the same epoch says that it was durable."""
    with aolog.Writer(log_path, slab_bytes=8400, flush_seconds=None, sync="never") as writer:
        first = [int(writer.append_many([b"%d" % i * 20] * 5)[0]) for i in range(4)]
    slab = slab_files(log_path)[0]
    data = bytearray(slab.read_bytes())
    seal = first[1] + (first[1] - first[0])
    for at in (first[0] + 60, seal + 8, seal + 100):
        data[at] ^= 1
    slab.write_bytes(data)
    with aolog.Reader(log_path) as reader:
        assert len(list(reader)) == 15
        told = [(gap.reason, gap.records_lost) for gap in reader.gaps]
        assert told == [("corrupt", 5), ("corrupt", 0)]


def test_what_was_kept_aside_is_not_overwritten_by_what_is_cut_at_the_same_place(
    log_path: str,
) -> None:
    """The slab that recovery began is lost, and the one before has another torn end."""
    cut = []
    for torn in (b"first", b"second end"):
        writer = aolog.Writer(log_path, flush_seconds=None, sync="never")
        cut.append(writer.opening.cut_bytes)
        writer.append(b"value")
        writer.flush()
        kill(writer)
        for later in slab_files(log_path)[1:]:
            later.unlink()
        with slab_files(log_path)[0].open("ab") as file:
            file.write(torn)
    with aolog.Writer(log_path) as writer:
        cut.append(writer.opening.cut_bytes)
    assert cut == [0, 5, 10]
    kept = sorted((Path(log_path) / "aside").iterdir())
    assert [at.read_bytes() for at in kept] == [b"second end", b"first"]
    assert [at.name.split(".", 1)[1] for at in kept] == ["2.torn", "torn"]


def pruning(log_path: str, *, at: int) -> object:
    """What reports progress, and prunes once so many bytes are read."""
    pruned: list[int] = []

    def progress(done: int, _: int) -> None:
        if done >= at and not pruned:
            pruned.append(prune(log_path, Storage(), Retention(max_slabs=3)).slabs)
            assert pruned != [0]

    return progress


def test_what_is_pruned_while_it_is_verified_is_no_damage(log_path: str) -> None:
    fill(log_path, [b"x" * 200] * 2000, slab_bytes=1 << 16, batch_bytes=1000)
    report = aolog.verify(log_path, progress=pruning(log_path, at=10_000))
    assert report.ok
    assert report.gaps == []


def test_what_is_pruned_while_it_is_repaired_stops_no_repair(log_path: str, tmp_path: Path) -> None:
    fill(log_path, [b"x" * 200] * 2000, slab_bytes=1 << 16, batch_bytes=1000)
    with slab_files(log_path)[-2].open("r+b") as file:
        file.seek(20_000)
        file.write(b"junk" * 10)
    into = tmp_path / "new"
    done = aolog.repair(log_path, into, progress=pruning(log_path, at=10_000))
    assert len(done.gaps) == 1
    assert slab_files(log_path)[0].name != f"{0:020}.slab"
    assert aolog.verify(into).gaps == aolog.verify(log_path).gaps == done.gaps


def test_the_end_is_after_the_last_body_and_not_the_last_header(log_path: str) -> None:
    """After a power cut a header may be on the device without its body."""
    writer = aolog.Writer(log_path, flush_seconds=None)
    for _ in range(40):
        writer.append_many([b"a" * 100] * 10)
        writer.flush()
    kill(writer)
    frames = frames_of(log_path)
    (slab,) = slab_files(log_path)
    for broken in (1, 5, 30):
        with slab.open("r+b") as file:
            for frame in frames[-broken:]:
                file.seek(frame.begin + FRAME_HEADER_LEN)
                file.write(bytes(frame.end - file.tell()))
        left = (len(frames) - broken) * 10
        assert values(log_path) == [b"a" * 100] * left
        with aolog.Reader(log_path) as reader:
            assert reader.lag().records == left
            for _ in reader:
                pass
            assert reader.lag()[:2] == (0, 0)
            assert reader.tell() == aolog.verify(log_path).end == frames[-broken].address
        with aolog.Reader(log_path, "latest") as reader:
            assert (reader.tell(), reader.ordinal) == (frames[-broken].address, left)
            with pytest.raises(AddressBeyondEnd):
                reader.seek(ordinal=left + 1)
        assert well("tail", log_path, "-n", "3").stdout.splitlines() == ["a" * 100] * 3
        assert answer("info", log_path)["records"] == left


def test_cursors_are_listed_while_one_is_deleted(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log_path, [b"x"])
    for name in ("a", "b", "c"):
        well("cursor", "set", log_path, name, "earliest")

    def read(path: str, name: str, storage: Storage) -> Position:
        if name == "b":
            raise NoSuchCursor("deleted")
        return read_position(path, name, storage)

    monkeypatch.setattr(verify, "read_position", read)
    assert [cursor.name for cursor in aolog.cursors(log_path)] == ["a", "c"]
