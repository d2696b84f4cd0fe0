"""Root in another user's log: it reads, and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aolog
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage
from tests.aolog.commands import failure, run
from tests.aolog.conftest import commit, damage, fill, snapshot, unchanged

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a log away")

NOBODY = 65534


def give_away(path: Path | str, uid: int = NOBODY) -> None:
    for each in [Path(path), *Path(path).rglob("*")]:
        os.chown(each, uid, uid)


@pytest.fixture
def log(log_path: str) -> str:
    """Nobody's, of many slabs, with a cursor and a damaged frame."""
    fill(log_path, (b"v%d" % i for i in range(50)), slab_bytes=200, batch_bytes=0)
    commit(log_path, 0)
    damage(log_path, b"v25")
    give_away(log_path)
    return log_path


@pytest.mark.parametrize(
    "command",
    [
        ("append", "LOG"),
        ("prune", "LOG", "--max-slabs", "1"),
        ("cursor", "delete", "LOG", "c", "--yes"),
        ("read", "LOG", "--cursor", "new", "--commit"),
    ],
    ids=" ".join,
)
def test_what_changes_a_log_is_refused_with_the_command_to_use(
    log: str, command: tuple[str, ...]
) -> None:
    before, owners = snapshot(log), {p.name: p.stat().st_uid for p in Path(log).rglob("*")}
    error = failure(*(part.replace("LOG", log) for part in command), given="more\n")
    assert error["code"] == "permission_denied"
    assert "sudo -u nobody" in str(error["hint"])
    assert "User=nobody" in str(error["hint"])
    assert error["owner"] == NOBODY
    assert snapshot(log) == before
    assert {p.name: p.stat().st_uid for p in Path(log).rglob("*")} == owners


@pytest.mark.parametrize(
    "command",
    [
        ("read", "LOG"),
        ("read", "LOG", "--cursor", "c"),
        ("prune", "LOG", "--max-slabs", "1", "--dry-run"),
        ("repair", "LOG", "--into", "NEW"),
    ],
    ids=" ".join,
)
def test_what_reads_a_log_is_not(log: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    with unchanged(log):
        names = {"LOG": log, "NEW": str(tmp_path / "new")}
        result = run(*(names.get(part, part) for part in command))
        assert result.exit_code in {0, aolog.CorruptionError.exit_status}, result.output
        assert "another user" not in result.output


def test_whatever_is_made_or_removed_inside_is_refused_by_storage_itself(log: str) -> None:
    """A call that nobody thought of is refused too."""
    storage, before = Storage(), snapshot(log)
    here = storage.open_directory(log)
    for base in (log, here):
        slab = Inside(base, "00000000000000000000.slab")
        for change in (
            lambda base=base: storage.create(Inside(base, "new")),
            lambda base=base: storage.open_lock(Inside(base, "retention.lock")),
            lambda slab=slab: storage.open_write(slab),
            lambda slab=slab: storage.unlink(slab),
            lambda slab=slab: storage.rename(slab, slab + ".old"),
            lambda slab=slab: storage.write_file(slab, [b"x"]),
            lambda base=base: storage.make_directory(Inside(base, "aside")),
            lambda base=base: storage.remove_directory(Inside(base, "cursors")),
            lambda base=base: storage.write_file(Inside(base, "cursors", "d.cursor"), [b"x"]),
        ):
            with pytest.raises(aolog.PermissionDenied):
                change()
    here.close()
    assert snapshot(log) == before
