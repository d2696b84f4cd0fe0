"""What a command needs of its working directory: nothing, where it is given absolute paths."""

from __future__ import annotations

from pathlib import Path

import pytest

import aolog
from aolog.storage.storage import absolute
from tests.aolog.commands import ended, started
from tests.aolog.conftest import fill


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is removed."""
    directory = tmp_path / "gone"
    directory.mkdir()
    monkeypatch.chdir(directory)
    directory.rmdir()


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize(
    "command",
    [
        ("append", "LOG"),
        ("info", "LOG"),
        ("repair", "LOG", "--into", "LOG.new"),
        ("cursor", "set", "LOG", "c", "earliest"),
    ],
    ids=" ".join,
)
def test_a_command_with_absolute_paths_works_in_a_removed_directory(
    command: tuple[str, ...], log_path: str
) -> None:
    fill(log_path, [b"x"])
    with started(*(part.replace("LOG", log_path) for part in command)) as child:
        assert child.stdin is not None
        child.stdin.write(b"more\n")
        status, _, told = ended(child)
    assert (status, told.count("storage_failed")) == (0, 0), told
    if command[0] == "append":
        assert [record.value for record in aolog.Reader(log_path)] == [b"x", b"more"]


@pytest.mark.usefixtures("gone")
def test_a_relative_path_in_a_removed_directory_is_refused_by_its_reason() -> None:
    with pytest.raises(aolog.UsageError, match=r"working directory was removed.*absolute path"):
        aolog.Writer("log")
    with started("append", "log") as child:
        status, _, told = ended(child)
    assert status == aolog.UsageError.exit_status
    assert "working directory was removed" in told


def test_an_absolute_path_keeps_its_dots_that_links_may_give_a_meaning() -> None:
    assert absolute("//a/./b//../c/") == "/a/b/../c"
