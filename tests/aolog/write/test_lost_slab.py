"""The file of the slab that grows is removed, replaced or cut while a writer has it open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from tests.aolog.conftest import NEVER, fill, slab_files, values, wait_until


def last_slab(path: str) -> Path:
    return slab_files(path)[-1]


def remove_slab(path: str) -> None:
    last_slab(path).unlink()


def remove_and_begin_anew(path: str) -> None:
    shutil.rmtree(path)
    fill(path, [b"another log's"])


def replace_by_a_copy(path: str) -> None:
    slab = last_slab(path)
    copy = shutil.copy(slab, slab.with_suffix(".copy"))
    Path(copy).rename(slab)


def move_out(path: str) -> None:
    last_slab(path).rename(f"{path}.slab")


def cut(path: str) -> None:
    os.truncate(last_slab(path), 0)


LOSSES = (
    (remove_slab, "was removed:"),
    (shutil.rmtree, "was removed with its directory"),
    (remove_and_begin_anew, "was removed with its directory"),
    (replace_by_a_copy, "was replaced by another file"),
    (move_out, "was removed:"),
    (cut, "was cut to 0 bytes"),
)
ways = pytest.mark.parametrize(("lose", "text"), LOSSES, ids=[way.__name__ for way, _ in LOSSES])


@ways
@pytest.mark.parametrize(
    ("options", "syncs"),
    [({}, 1), ({"format": "queuefka"}, 1), ({}, 8)],
    ids=["aolog", "queuefka", "zeros ahead"],
)
def test_a_sync_into_a_file_that_left_the_log_is_refused_and_says_what_happened(
    log_path: str, lose: Callable[[str], None], text: str, options: dict[str, object], syncs: int
) -> None:
    fill(log_path, [b"sealed"], **options)
    writer = aolog.Writer(log_path, **NEVER, **options)
    first = writer.append(b"synced")
    durable = writer.sync()
    for _ in range(1, syncs):
        writer.append(b"synced")
        durable = writer.sync()
    writer.append(b"doubtful")
    lose(log_path)
    with pytest.raises(aolog.SlabLost, match=text) as caught:
        writer.sync()
    error = caught.value
    assert isinstance(error, aolog.SyncFailed)  # it has the same consequences
    assert (error.code, error.exit_status) == ("slab_lost", 4)
    assert error.details["durable"] == writer.durable == durable
    lost_from = error.details["lost_from"]
    assert isinstance(lost_from, int)
    assert 0 <= lost_from <= first
    assert str(durable) in str(error)
    assert str(lost_from) in str(error)
    for call in (partial(writer.append, b"no"), partial(writer.append_many, [b"no"]),
                 writer.flush, writer.sync, writer.close):  # fmt: skip
        with pytest.raises(aolog.SlabLost):
            call()
    writer.close()
    assert writer.give_up() == lost_from  # records before it are in the log


@ways
def test_a_sync_that_has_nothing_to_sync_notices_it_too(
    log_path: str, lose: Callable[[str], None], text: str
) -> None:
    with pytest.raises(aolog.SlabLost, match=text), aolog.Writer(log_path, **NEVER) as writer:
        writer.append(b"a")
        writer.sync()
        lose(log_path)
        with pytest.raises(aolog.SlabLost):
            writer.sync()
        writer.append(b"b")


@ways
def test_a_slab_that_left_the_log_is_not_sealed(
    log_path: str, lose: Callable[[str], None], text: str
) -> None:
    writer = aolog.Writer(log_path, slab_bytes=8193, **NEVER)
    writer.append_many([b"fills the slab"])
    lose(log_path)
    with pytest.raises(aolog.SlabLost, match=text):
        writer.append(b"of the next slab")
    with pytest.raises(aolog.SlabLost):
        writer.close()


def test_a_file_that_was_cut_and_has_grown_again_is_noticed(log_path: str) -> None:
    writer = aolog.Writer(log_path, **NEVER)
    writer.append(b"a")
    writer.flush()
    cut(log_path)
    writer.append(b"b")
    with pytest.raises(aolog.SlabLost, match="was cut"):
        writer.flush()  # looks once a second
        assert last_slab(log_path).stat().st_size > 8192
        writer.close()


@pytest.mark.parametrize("policy", ["interval", "never"])
def test_flushes_and_syncs_in_the_background_notice_it_and_log_it(
    log_path: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = aolog.Writer(log_path, flush_seconds=0.02, sync=policy, sync_seconds=0.02)
    writer.append(b"a")
    remove_slab(log_path)

    def refused() -> bool:
        try:
            writer.append(b"b")
        except aolog.SlabLost:
            return True
        return False

    wait_until(refused)
    wait_until(lambda: "was removed" in caplog.text)  # its thread logs it a moment later
    with pytest.raises(aolog.SlabLost):
        writer.close()


def test_a_lost_slab_is_not_taken_for_another_one_when_a_writer_gives_up(log_path: str) -> None:
    fill(log_path, [b"a"])
    writer = aolog.Writer(log_path, **NEVER)
    address = writer.append(b"b")
    writer.flush()
    remove_slab(log_path)
    assert writer.give_up() <= address


def test_after_it_the_log_is_opened_again_with_what_is_left(log_path: str) -> None:
    fill(log_path, [b"left"])
    writer = aolog.Writer(log_path, **NEVER)
    writer.append(b"lost")
    writer.sync()
    remove_slab(log_path)
    with pytest.raises(aolog.SlabLost):
        writer.close()
    fill(log_path, [b"again"])
    assert values(log_path) == [b"left", b"again"]


def test_a_log_that_is_moved_keeps_its_writer(log_path: str, tmp_path: Path) -> None:
    writer = aolog.Writer(
        log_path, slab_bytes=8193, retention=aolog.Retention(max_slabs=2), **NEVER
    )
    writer.append(b"0")
    moved = str(Path(log_path).rename(tmp_path / "moved"))
    for i in range(1, 5):
        writer.append(b"%d" % i)
        writer.sync()
    writer.close()
    assert values(moved) == [b"3", b"4"]
    assert not Path(log_path).exists()


def test_a_writer_warns_once_of_another_log_in_the_place_of_its_own(
    log_path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restore beside a writer moves its log away. The writer does not touch the other one."""
    keeps = aolog.Retention(max_slabs=2)
    writer = aolog.Writer(log_path, slab_bytes=8193, retention=keeps, **NEVER)
    writer.append(b"0")
    writer.sync()
    shutil.copytree(log_path, tmp_path / "copy")
    moved = str(Path(log_path).rename(tmp_path / "moved"))
    (tmp_path / "copy").rename(log_path)
    for i in range(1, 5):
        writer.append(b"%d" % i)
        writer.sync()
    writer.close()
    assert caplog.text.count("the log was moved, and another directory is in its place") == 1
    assert values(log_path) == [b"0"]
    assert values(moved) == [b"3", b"4"]


def test_a_writer_behind_a_link_to_its_directory_goes_on(log_path: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(log_path)
    Path(log_path).mkdir()
    with aolog.Writer(link, **NEVER) as writer:
        writer.append(b"a")
        writer.sync()
    assert values(log_path) == [b"a"]


def test_the_simulated_system_shows_it_too() -> None:
    system = SimulatedSystem()
    writer = aolog.Writer("/log", storage=Storage(system), **NEVER)
    writer.append(b"a")
    writer.sync()
    [slab] = [path for path in system.files() if path.endswith(".slab")]
    system.unlink(slab)
    writer.append(b"b")
    with pytest.raises(aolog.SlabLost):
        writer.sync()
