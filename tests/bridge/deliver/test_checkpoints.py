"""Checkpoints are loaded as they were saved, or known to be lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aolog.errors import StorageFull
from aolog.storage.storage import Storage
from bridge.deliver.checkpoints import FROM_END, Checkpoint, Checkpoints
from tests.bridge.logs import FullStorage

UUID = bytes(range(16))
OTHER = bytes(16)


def load(log: Path, uuid: bytes | None = UUID, *, begun: bool = True) -> Checkpoints:
    return Checkpoints.load(str(log), "bridge", Storage(), topic_uuid=uuid, begun=begun)


def saved(log: Path) -> Checkpoints:
    checkpoints = load(log, begun=False)
    checkpoints.lanes = {
        ("t", 0): Checkpoint(5, 70),
        ("t", 11): Checkpoint(9),
        ("ü.x", 2): Checkpoint(0, 0),
    }
    checkpoints.clean = False
    checkpoints.save()
    return checkpoints


def test_checkpoints_are_loaded_as_they_were_saved(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    again = load(tmp_path)
    assert again.lanes == checkpoints.lanes
    assert again.lanes["t", 11] == Checkpoint(9, -1)
    assert (again.source, again.clean, again.lost) == (UUID, False, False)
    assert again.cluster.path == f"{tmp_path}/cursors/bridge.lanes"


def test_missing_checkpoints_of_an_existing_cursor_are_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = load(tmp_path)
    assert checkpoints.lost
    assert "no bridge has used this cursor yet" in caplog.text
    assert "or the file was lost" in caplog.text


GOOD = {"version": 1, "source": UUID.hex(), "clean": True, "lost": False, "lanes": []}
LANE = {"topic": "t", "partition": 0, "offset": "x", "address": 2}


@pytest.mark.parametrize(
    "text",
    [
        "", json.dumps(GOOD)[:30], "\xff\0", "[]", "[" * 100_000,
        json.dumps({**GOOD, "lanes": 3}),
        json.dumps({**GOOD, "lanes": [LANE]}),
        json.dumps({**GOOD, "version": 2}),
        json.dumps({**GOOD, "source": OTHER.hex()}),
    ],
    ids=["empty", "half", "binary", "list", "deep", "lanes", "offset", "version", "other"],
)  # fmt: skip  # a list
def test_damaged_or_foreign_checkpoints_are_lost_as_a_whole(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cursors").mkdir()
    (tmp_path / "cursors/bridge.lanes").write_text(text, encoding="latin-1")
    checkpoints = load(tmp_path)
    assert checkpoints.lost
    assert checkpoints.lanes == {}
    assert checkpoints.source == UUID
    assert "is unreadable" in caplog.text


def test_saving_keeps_the_mark_that_checkpoints_were_lost(tmp_path: Path) -> None:
    load(tmp_path).save()
    assert load(tmp_path).lost


def test_a_log_without_a_uuid_keeps_the_one_in_its_checkpoints(tmp_path: Path) -> None:
    first = load(tmp_path, None, begun=False)
    assert len(first.source) == 16
    first.save()
    assert load(tmp_path, None).source == first.source
    (tmp_path / "cursors/bridge.lanes").unlink()
    assert load(tmp_path, None).source != first.source


def test_on_a_full_disk_larger_checkpoints_name_the_room_they_need_and_the_old_ones_stay(
    tmp_path: Path,
) -> None:
    saved(tmp_path)
    checkpoints = Checkpoints.load(
        str(tmp_path), "bridge", FullStorage(), topic_uuid=UUID, begun=True
    )
    checkpoints.save()  # takes no room
    checkpoints.lanes |= {("t", partition): Checkpoint(1) for partition in range(1000)}
    with pytest.raises(StorageFull, match=r"free [0-9]+ KiB"):
        checkpoints.save()
    assert len(load(tmp_path).lanes) == 3
    grown = Checkpoints.load(str(tmp_path), "bridge", Storage(), topic_uuid=UUID, begun=True)
    grown.lanes |= checkpoints.lanes
    grown.save()
    assert load(tmp_path).lanes == grown.lanes


@pytest.mark.parametrize("cut", [0, 8, 30, 100])
def test_a_save_that_is_cut_off_leaves_the_checkpoints_before_it(tmp_path: Path, cut: int) -> None:
    """Whatever part of a slot is damaged, the other one counts."""
    checkpoints = saved(tmp_path)
    path = tmp_path / "cursors/bridge.lanes"
    half = path.stat().st_size // 2
    for offset, slot in ((6, half), (7, 0), (8, half)):
        before = checkpoints.lanes["t", 0].offset
        checkpoints.lanes["t", 0].offset = offset
        checkpoints.save()
        whole = path.read_bytes()
        path.write_bytes(whole[: slot + cut] + b"\xff" * 50 + whole[slot + cut + 50 :])
        assert load(tmp_path).lanes["t", 0].offset == before
        path.write_bytes(whole)
        assert load(tmp_path).lanes["t", 0].offset == offset


def test_checkpoints_of_the_first_release_are_read_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "cursors").mkdir()
    lane = {**LANE, "offset": 1}
    lanes = [lane, {**lane, "partition": 1, "distrusted": True}]
    (tmp_path / "cursors/bridge.lanes").write_text(json.dumps({**GOOD, "lanes": lanes}))
    checkpoints = load(tmp_path)
    assert checkpoints.lanes == {("t", 0): Checkpoint(1, 2), ("t", 1): Checkpoint(FROM_END, 2)}
    checkpoints.save()
    assert load(tmp_path).lanes == checkpoints.lanes
