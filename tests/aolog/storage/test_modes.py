"""Who may read a log: its owner, unless told otherwise. Files have their directory's bits."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from aolog.log.retention import prune
from aolog.storage.storage import Storage
from tests.aolog.commands import well
from tests.aolog.conftest import commit, fill, slab_files


@pytest.fixture(params=[0o022, 0o000, 0o077], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path | str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def modes(log: Path | str) -> dict[str, int]:
    """Of the log's directory, of those in it, and of all files in it."""
    found: dict[str, int] = {}
    for path in [Path(log), *Path(log).rglob("*")]:
        kind = "directories" if path.is_dir() else "files"
        assert found.setdefault(kind, mode(path)) == mode(path), path
    return found


def used(path: str, **options: object) -> None:
    """A log with all that may be in one: slabs, cursors, a lock, what was cut."""
    fill(path, (b"v%d" % i for i in range(50)), slab_bytes=200, batch_bytes=0, **options)
    commit(path, 0)
    prune(path, Storage(), aolog.Retention(max_slabs=1000))
    with slab_files(path)[-1].open("ab") as slab:
        slab.write(b"torn")
    fill(path, [b"more"])
    names = {each.name for each in Path(path).iterdir()}
    assert {"aside", "cursors", "retention.lock"} <= names


@pytest.mark.usefixtures("umask")
def test_a_log_is_its_owner_s_alone_whatever_the_umask(log_path: str) -> None:
    used(log_path)
    assert modes(log_path) == {"directories": 0o700, "files": 0o600}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("given", "files"), [(0o750, 0o640), (0o770, 0o660), (0o755, 0o644), (0o711, 0o600)]
)
def test_a_mode_is_the_directory_s_and_its_bits_are_the_files(
    log_path: str, given: int, files: int
) -> None:
    used(log_path, mode=given)
    assert modes(log_path) == {"directories": given, "files": files}


@pytest.mark.parametrize(("there", "files"), [(0o775, 0o664), (0o2770, 0o660)])
def test_a_directory_that_is_there_keeps_its_mode_and_group_and_gives_its_bits(
    log_path: str, there: int, files: int
) -> None:
    Path(log_path).mkdir()
    Path(log_path).chmod(there)
    used(log_path, mode=0o700)
    assert modes(log_path) == {"directories": there, "files": files}


@pytest.mark.parametrize("wrong", [0, 0o600, 0o1777, 750, -1, "750", None])
def test_a_mode_that_is_invalid_is_refused_before_anything_is_made(
    log_path: str, wrong: object
) -> None:
    with pytest.raises(aolog.UsageError, match="mode="):
        aolog.Writer(log_path, mode=wrong)  # type: ignore[arg-type]  # the test's point
    assert not Path(log_path).exists()


@pytest.mark.parametrize(("text", "expected"), [("750", 0o750), ("0770", 0o770), (None, 0o700)])
def test_append_takes_a_mode_as_chmod_does(log_path: str, text: str | None, expected: int) -> None:
    well("append", log_path, *([] if text is None else ["--mode", text]), given="x\n")
    assert modes(log_path) == {"directories": expected, "files": expected & 0o666}
