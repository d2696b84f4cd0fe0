"""The bridge in a log that it should not trust: a link in it, or another owner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import aolog
from aolog.storage.storage import Storage
from bridge.cli import main
from bridge.config.names import dead_letter_path
from bridge.deliver.checkpoints import Checkpoints
from bridge.deliver.dead_letter import DeadLetterLog, first_dead_letter
from tests.aolog.conftest import unchanged


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"x")
    return tmp_path / "log"


def test_dead_letters_are_read_and_written_through_no_link(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with aolog.Writer(other) as writer:
        writer.append(b"y")
    with unchanged(other):
        (log / "dead-letter").symlink_to(other)
        path = dead_letter_path(str(log), "bridge")
        with pytest.raises(aolog.StorageFailed, match="dead-letter: is a symbolic link"):
            DeadLetterLog(path, Storage()).open()
        with pytest.raises(aolog.StorageFailed, match="dead-letter: is a symbolic link"):
            first_dead_letter(path, Storage())


@pytest.mark.parametrize("whole", [True, False], ids=["cursors", "the notes"])
def test_checkpoints_are_read_and_written_through_no_link(
    log: Path, tmp_path: Path, whole: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    notes = Checkpoints.load(str(log), "c", Storage(), topic_uuid=None, begun=False)
    if whole:
        (log / "cursors").symlink_to(outside)
    else:
        (log / "cursors").mkdir()
        (log / "cursors/c.lanes").symlink_to(outside / "c.lanes")
        (log / "cursors/c.lanes.tmp").symlink_to(outside / "c.lanes")
    with pytest.raises(aolog.StorageFailed, match="is a symbolic link"):
        notes.save()
    with pytest.raises(aolog.StorageFailed, match="is a symbolic link"):
        Checkpoints.load(str(log), "c", Storage(), topic_uuid=None, begun=False)
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a log away")
def test_root_s_bridge_is_refused_in_another_user_s_log_before_it_sends(log: Path) -> None:
    for path in [log, *log.rglob("*")]:
        os.chown(path, 65534, 65534)
    with unchanged(log):
        where = ["--log", str(log), "--bootstrap-servers", "127.0.0.1:1"]
        ended = CliRunner().invoke(main, ["run", *where, "--topic", "t", "--drain"])
        assert ended.exit_code == aolog.StorageError.exit_status
        assert "permission_denied" in ended.stderr
        assert "sudo -u nobody" in ended.stderr
