"""The modes of logs that the bridge creates: only the owner reads them, unless others may read the log that they
belong to, or an option says so."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import aolog
from bridge import Buffer
from bridge.client.buffer.file_provider import FileProvider
from tests.bridge.logs import with_large
from tests.bridge.processes import Start

LARGE = ["--drain", "--poison", "dead-letter"]


def modes(log: Path) -> set[tuple[bool, int]]:
    """Of the directory and of all in it: whether it is a directory, and its permissions."""
    found = [log, *log.rglob("*")]
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in found}


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_a_dead_letter_log_has_the_mode_of_its_log(run: Start, log: Path, mode: int) -> None:
    log.mkdir(0o700, parents=True)
    log.chmod(mode)
    with_large(log)
    assert run(*LARGE).end(60) == 0
    assert modes(log / "dead-letter") == {(True, mode), (False, mode & 0o666)}


def test_the_bridges_files_in_a_log_have_the_logs_modes(run: Start, log: Path) -> None:
    for given in (0o750, 0o700):
        path = log / f"{given:o}"
        with aolog.Writer(path, mode=given) as writer:
            writer.append(b"x")
        assert run("--drain", path=path).end(60) == 0
        assert {each.name for each in (path / "cursors").iterdir()} == {
            "bridge.cursor",
            "bridge.lanes",
        }
        assert modes(path) == {(True, given), (False, given & 0o666)}


@pytest.mark.parametrize(("options", "expected"), [({}, 0o700), ({"log_mode": 0o770}, 0o770)])
def test_a_buffer_s_logs_have_its_mode(
    tmp_path: Path, options: dict[str, int], expected: int
) -> None:
    log, letters = tmp_path / "log", tmp_path / "letters"
    destination = FileProvider(tmp_path / "out.jsonl")
    with Buffer(destination, log, mode="always", dead_letters=letters, **options) as buffer:
        buffer.send("t", b"x")
        buffer.flush()
    for path in (log, letters):
        assert modes(path) == {(True, expected), (False, expected & 0o666)}
