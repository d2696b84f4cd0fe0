"""A backup is a log: consistent beside a writer, restorable, and free where it can link."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import aolog
from aolog.log.retention import prune
from aolog.maintenance.repair import Repaired
from aolog.storage.storage import Storage
from aolog.testing import Call, SimulatedSystem
from tests.aolog.commands import failure, well
from tests.aolog.conftest import (
    commit,
    fill,
    overwrite,
    read_all,
    slab_files,
    unchanged,
    values,
)


@pytest.fixture
def log(log_path: str) -> str:
    """Four slabs, a cursor in the middle."""
    with aolog.Writer(log_path, slab_bytes=64 << 10) as writer:
        for i in range(40):
            writer.append_many([b"%d" % i * 100] * 20)
    commit(log_path, 300, "billing")
    return log_path


def is_linked(slab: Path, original: str) -> bool:
    return slab.samefile(Path(original) / slab.name)


def test_a_backup_is_read_like_the_log_and_its_sealed_slabs_are_links(
    log: str, tmp_path: Path
) -> None:
    done = aolog.backup(log, tmp_path / "copy")
    copy = str(tmp_path / "copy")
    assert read_all(copy) == read_all(log)
    assert done.cursors == ["billing"]
    linked = [is_linked(slab, log) for slab in slab_files(copy)]
    assert len(linked) > 2
    assert linked == [True] * (len(linked) - 1) + [False]
    with (
        aolog.Reader(copy, cursor="billing") as ours,
        aolog.Reader(log, cursor="billing") as theirs,
    ):
        assert ours.tell() == theirs.tell()


def test_a_restored_log_goes_on_and_the_backup_stays_as_it_was(log: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    aolog.backup(log, copy)
    before = values(log)
    shutil.rmtree(log)
    aolog.backup(copy, log)  # restores and keeps the backup
    with unchanged(copy):
        with aolog.Writer(
            log, slab_bytes=64 << 10, retention=aolog.Retention(max_slabs=2)
        ) as writer:
            writer.append_many([b"after"] * 2000)
        assert values(copy) == before
    assert values(log)[-1] == b"after"
    with aolog.Reader(log, cursor="billing") as reader:
        assert reader.read() is not None


@pytest.mark.parametrize("copy_of", [aolog.backup, aolog.repair])
@pytest.mark.parametrize("place", range(10, 410, 50))
def test_no_cursor_of_a_copy_is_below_it_if_slabs_are_pruned_after_a_commit_meanwhile(
    copy_of: Callable[..., Repaired], place: int
) -> None:
    """place: number of the system call of the copy at which the reader commits."""
    system = SimulatedSystem()
    mine, other = Storage(system), Storage(system.process())
    with aolog.Writer("/log", slab_bytes=8192, storage=mine) as writer:
        for i in range(12):
            writer.append_many([b"%d" % i * 500] * 8)

    def read_and_commit(records: int) -> None:
        with aolog.Reader("/log", cursor="c", storage=other) as reader:
            for _ in range(records):
                reader.read()
            reader.commit()

    def meanwhile(call: Call) -> None:
        if call.number >= begun + place:
            system.before = None
            read_and_commit(40)
            prune("/log", other, aolog.Retention(max_slabs=1))

    read_and_commit(3)
    begun, slabs = system.calls, len([path for path in system.files() if path.startswith("/log/")])
    system.before = meanwhile
    copy_of("/log", "/copy", storage=mine)
    assert len([path for path in system.files() if path.startswith("/log/")]) < slabs
    with aolog.Reader("/copy", cursor="c", storage=mine) as reader:
        list(reader)
        assert reader.gaps == []


def test_a_damaged_slab_is_copied_and_not_linked(log: str, tmp_path: Path) -> None:
    first = slab_files(log)[0]
    overwrite(first, 9_000, b"wrong")
    done = aolog.backup(log, tmp_path / "copy")
    assert [gap.reason for gap in done.gaps] == ["corrupt"]
    assert not is_linked(slab_files(str(tmp_path / "copy"))[0], log)
    assert read_all(str(tmp_path / "copy")) == read_all(log)


def test_a_clone_is_another_log_and_shares_no_file(log: str, tmp_path: Path) -> None:
    done = aolog.backup(log, tmp_path / "clone", new_uuid=True)
    clone = str(tmp_path / "clone")
    with aolog.Reader(log) as reader, aolog.Reader(clone) as other:
        assert reader.topic_uuid != other.topic_uuid
        assert other.topic_uuid is not None
        assert done.topic_uuid == other.topic_uuid.hex()
    assert not any(is_linked(slab, log) for slab in slab_files(clone))
    assert values(clone) == values(log)


def test_without_hard_links_everything_is_copied() -> None:
    system = SimulatedSystem()
    with aolog.Writer("/log", storage=Storage(system), slab_bytes=16 << 10) as writer:
        for i in range(30):
            writer.append_many([b"%d" % i * 100] * 20)
    aolog.backup("/log", "/copy", storage=Storage(system))
    assert read_all("/copy", storage=Storage(system)) == read_all("/log", storage=Storage(system))


def test_the_command_makes_a_backup_and_refuses_a_directory_that_exists(
    log_path: str, tmp_path: Path
) -> None:
    fill(log_path, [b"one", b"two"])
    copy = str(tmp_path / "copy")
    assert (
        well("backup", log_path, copy).stdout
        == f"{log_path}: 2 records and 0 cursors are in {copy}\n"
    )
    assert failure("backup", log_path, copy)["code"] == "usage"
    assert values(copy) == [b"one", b"two"]
    assert os.listdir(tmp_path / "copy")
