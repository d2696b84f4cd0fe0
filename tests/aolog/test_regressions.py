"""What an attack and a review found once, each as a claim that holds since."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

import aolog
from aolog.errors import (
    AddressBeyondEnd,
    CursorLocked,
    NoSuchCursor,
)
from aolog.format.cursor_copy import CursorPosition
from aolog.format.frame import FRAME_HEADER_LEN
from aolog.log.cursor_file import CursorFile, read_position
from aolog.log.retention import Retention, prune
from aolog.maintenance import verify
from aolog.read.reader import view_of
from aolog.record import Position
from aolog.storage.storage import Storage
from tests.aolog.commands import answer, well
from tests.aolog.conftest import fill, frames_of, in_thread, kill, overwrite, slab_files, values


def test_two_copies_of_a_log_do_not_give_out_the_same_addresses(
    log_path: str, tmp_path: Path
) -> None:
    fill(log_path, [b"before"])
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


def test_two_readers_that_create_one_cursor_at_once_do_not_both_hold_it(log_path: str) -> None:
    fill(log_path, [b"a"])
    for attempt in range(10):
        name = f"c{attempt}"
        files = [CursorFile(log_path, name, Storage()) for _ in range(2)]
        outcomes: list[str] = []

        def commit(file: CursorFile, outcomes: list[str] = outcomes) -> None:
            try:
                file.commit(CursorPosition(1, 0, bytes(16), 1, protects=True))
                outcomes.append("held")
            except CursorLocked:
                outcomes.append("locked")

        for call in [in_thread(partial(commit, file)) for file in files]:
            call.result()
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
        view_of(reader).return_to(Position(ahead, None))
        assert reader.read() is None
        assert reader.tell() == ahead
    kill(writer)


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


def test_what_is_pruned_while_it_is_verified_is_no_damage(log_path: str) -> None:
    fill(log_path, [b"x" * 200] * 2000, slab_bytes=1 << 16, batch_bytes=1000)
    pruned: list[int] = []

    def progress(done: int, _: int) -> None:
        if done >= 10_000 and not pruned:
            pruned.append(prune(log_path, Storage(), Retention(max_slabs=3)).slabs)

    report = aolog.verify(log_path, progress=progress)
    assert pruned > [0]
    assert report.ok
    assert report.gaps == []


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
        for frame in frames[-broken:]:
            body = frame.begin + FRAME_HEADER_LEN
            overwrite(slab, body, bytes(frame.end - body))
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

    def read(path: str, name: str, storage: Storage) -> CursorPosition:
        if name == "b":
            raise NoSuchCursor("deleted")
        return read_position(path, name, storage)

    monkeypatch.setattr(verify, "read_position", read)
    assert [cursor.name for cursor in aolog.cursors(log_path)] == ["a", "c"]
