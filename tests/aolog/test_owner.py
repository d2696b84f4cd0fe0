"""Whose it is what root makes in a log that is another's, and what root is not led to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aolog
from aolog.storage import Storage
from aolog.system import REAL
from tests.aolog.commands import damage, fill, well
from tests.aolog.conftest import slab_files

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what is another's")

SERVICE = (12345, 54321)  # nobody's but a log's


def owners(path: Path) -> dict[str, tuple[int, int]]:
    """Of the directory and all in it, that are not the service's."""
    found = {each: each.lstat() for each in [path, *path.rglob("*")]}
    whose = {str(each): (stat.st_uid, stat.st_gid) for each, stat in found.items()}
    return {name: owner for name, owner in whose.items() if owner != SERVICE}


@pytest.fixture
def log(log_path: str) -> str:
    """A log of many slabs, all of it the service's."""
    fill(log_path, (b"v%d" % i for i in range(100)), slab_bytes=200, batch_bytes=0)
    for each in [Path(log_path), *Path(log_path).rglob("*")]:
        os.chown(each, *SERVICE)
    assert owners(Path(log_path)) == {}
    return log_path


@pytest.mark.parametrize(
    "command",
    [
        ("prune", "LOG", "--max-slabs", 3),
        ("cursor", "set", "LOG", "c", "earliest"),
        ("read", "LOG", "--cursor", "c", "--commit"),
        ("append", "LOG", "--retention-max-slabs", 3),
        ("repair", "LOG"),
    ],
    ids=lambda command: " ".join(map(str, command[:2])).removesuffix(" LOG"),
)
def test_what_root_makes_in_a_log_belongs_to_its_owner(log: str, command: tuple[object]) -> None:
    if command[0] == "repair":
        damage(log, b"v50")
    before = {str(each) for each in Path(log).rglob("*")}
    given = "more\n" if command[0] == "append" else None
    well(*(log if part == "LOG" else part for part in command), given=given)
    assert {str(each) for each in Path(log).rglob("*")} - before
    assert owners(Path(log)) == {}


def test_a_torn_end_that_root_sets_aside_belongs_to_the_log_s_owner(log: str) -> None:
    with slab_files(log)[-1].open("ab") as slab:
        slab.write(b"torn")
    with aolog.Writer(log) as writer:
        assert writer.opening.aside_path is not None
    assert (Path(log) / "aside").is_dir()
    assert owners(Path(log)) == {}


def test_a_new_log_belongs_to_whoever_the_directory_is_that_it_is_made_in(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, *SERVICE)
    fill(str(home / "logs" / "new"), [b"x"])
    assert (home / "logs" / "new").is_dir()
    assert owners(home) == {}
    fill(str(tmp_path / "root's"), [b"x"])
    assert set(owners(tmp_path / "root's").values()) == {(0, 0)}


def test_root_follows_no_link_that_stands_where_it_makes_a_file(log: str, tmp_path: Path) -> None:
    secret, nothing = tmp_path / "secret", tmp_path / "nothing"
    secret.write_bytes(b"root's")
    cursors = Path(log, "cursors")
    cursors.mkdir()
    os.chown(cursors, *SERVICE)
    for target in (secret, nothing):
        for link in (cursors / "c.cursor.tmp", Path(log, "retention.lock")):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        with pytest.raises(aolog.StorageError):
            fill_cursor(log)
        with pytest.raises(aolog.StorageError):
            Storage().open_lock(f"{log}/retention.lock")
        with pytest.raises(FileExistsError):
            REAL.open(f"{log}/retention.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    assert secret.read_bytes() == b"root's"
    assert (secret.stat().st_uid, nothing.exists()) == (0, False)


def fill_cursor(log: str) -> None:
    with aolog.Reader(log, cursor="c") as reader:
        reader.commit()


def test_what_is_there_keeps_its_owner_and_what_cannot_be_given_stays_root_s(
    log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Path(log, "retention.lock")
    lock.write_bytes(b"")
    Storage().open_lock(str(lock)).close()
    assert lock.stat().st_uid == 0
    lock.unlink()

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    Storage().open_lock(str(lock)).close()
    Storage().make_directory(f"{log}/cursors")
    assert set(owners(Path(log))) == {str(lock), f"{log}/cursors"}


def test_a_file_that_is_removed_while_it_is_opened_is_made(
    log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = Path(log, "retention.lock"), os.open
    path.write_bytes(b"")

    def opens(name: str, flags: int, *args: int, **options: int) -> int:
        try:
            return real(name, flags, *args, **options)
        except FileExistsError:
            path.unlink()
            raise

    monkeypatch.setattr(os, "open", opens)
    Storage().open_lock(str(path)).close()
    assert owners(Path(log)) == {}


def test_a_directory_that_its_owner_puts_in_the_place_of_a_new_one_is_not_given_away(
    log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = Path(log, "cursors"), os.mkdir

    def swapped(name: str, **options: int) -> None:
        real(name, **options)
        (path / "root's").write_bytes(b"")

    monkeypatch.setattr(os, "mkdir", swapped)
    REAL.mkdir(str(path))
    assert path.stat().st_uid == 0


def test_errors_are_those_of_the_system(log: str) -> None:
    with pytest.raises(FileExistsError):
        REAL.mkdir(f"{log}/../{Path(log).name}")
    Path(log, "cursors").mkdir()
    with pytest.raises(FileExistsError):
        REAL.mkdir(f"{log}/cursors")
    with pytest.raises(IsADirectoryError):
        REAL.open(f"{log}/cursors", os.O_RDWR | os.O_CREAT)
    with pytest.raises(FileNotFoundError):
        REAL.open(f"{log}/missing/a", os.O_RDWR | os.O_CREAT)
    with pytest.raises(FileNotFoundError):
        REAL.mkdir(f"{log}/missing/a")
    with pytest.raises(NotADirectoryError):
        REAL.mkdir(f"{slab_files(log)[0]}/a")
