"""Links inside a log: nothing is opened, made or removed through one. The log's own path may be one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import aolog
from aolog.publish.publication import publish
from tests.aolog.commands import run, well
from tests.aolog.conftest import commit, fill, slab_files
from tests.publish.job import JOB, task

SECRET = b"a file of somebody else's\n" * 10


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the log, with a file: neither may change."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_bytes(SECRET)
    return directory


def untouched(outside: Path) -> bool:
    names = [path.name for path in outside.iterdir()]
    return names == ["secret"] and (outside / "secret").read_bytes() == SECRET


def refused(*command: object, given: str | None = None, at: Path | str) -> None:
    """The command ends with an error of storage that names the link."""
    result = run(*command, given=given)
    assert result.exit_code == aolog.StorageError.exit_status, result.output
    assert f"{at}: is a symbolic link" in result.stderr
    assert SECRET.decode() not in result.output


def logged(path: str) -> str:
    """A log of many slabs, with a cursor."""
    fill(path, (b"v%d" % i for i in range(50)), slab_bytes=200, batch_bytes=0)
    commit(path)
    return path


def test_append_to_a_log_whose_last_slab_is_a_link_changes_nothing(
    log_path: str, outside: Path
) -> None:
    logged(log_path)
    slab = slab_files(log_path)[-1]
    slab.unlink()
    slab.symlink_to(outside / "secret")
    before = sorted(os.listdir(log_path))
    refused("append", log_path, given="hello\n", at=slab)
    assert sorted(os.listdir(log_path)) == before
    assert untouched(outside)


@pytest.mark.parametrize(
    "command",
    [("read", "LOG"), ("verify", "LOG"), ("salvage", "LOG"), ("repair", "LOG", "--into", "OUT")],
    ids=" ".join,
)  # fmt: skip  # a table
def test_what_reads_a_log_reads_no_slab_through_a_link(
    log_path: str, outside: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    logged(log_path)
    slab = slab_files(log_path)[3]
    slab.replace(outside / "secret")
    slab.symlink_to(outside / "secret")
    content = (outside / "secret").read_bytes()
    parts = [p.replace("LOG", log_path).replace("OUT", str(tmp_path / "out")) for p in command]
    refused(*parts, at=slab)
    assert (outside / "secret").read_bytes() == content


def test_recovery_keeps_nothing_aside_through_a_link(log_path: str, outside: Path) -> None:
    logged(log_path)
    with slab_files(log_path)[-1].open("ab") as slab:
        slab.write(b"torn")
    before = slab_files(log_path)[-1].read_bytes()
    aside = Path(log_path, "aside")
    aside.symlink_to(outside)
    refused("append", log_path, given="hello\n", at=aside)
    assert untouched(outside)
    assert slab_files(log_path)[-1].read_bytes() == before, "cut before it was kept"
    aside.unlink()
    well("append", log_path, given="hello\n")


@pytest.mark.parametrize(
    "command",
    [("cursor", "set", "LOG", "c", "earliest"), ("cursor", "delete", "LOG", "c", "--yes"),
     ("cursor", "list", "LOG"), ("read", "LOG", "--cursor", "c", "--commit"),
     ("prune", "LOG", "--max-slabs", "1"), ("append", "LOG"), ("verify", "LOG")],
    ids=" ".join,
)  # fmt: skip  # a table
@pytest.mark.parametrize("whole", [True, False], ids=["cursors", "a cursor"])
def test_no_cursor_is_read_written_or_deleted_through_a_link(
    log_path: str, outside: Path, command: tuple[str, ...], whole: bool
) -> None:
    logged(log_path)
    cursors = Path(log_path, "cursors")
    (cursors / "c.cursor").replace(outside / "secret")
    content = (outside / "secret").read_bytes()
    if whole:
        link = cursors
        cursors.rmdir()
        cursors.symlink_to(outside)
    else:
        link = cursors / "c.cursor"
        link.symlink_to(outside / "secret")
    parts = [part.replace("LOG", log_path) for part in command]
    result = run(*parts, given="hello\n" if command[0] == "append" else None)
    if whole or command[0] != "append":  # a writer passes over a cursor that cannot be read
        named = "storage_failed" if command[1] == "list" and not whole else "symbolic link"
        assert named in result.output
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == content


@pytest.mark.parametrize("target", ["secret", "nothing"])
def test_prune_makes_no_lock_through_a_link(log_path: str, outside: Path, target: str) -> None:
    logged(log_path)
    lock = Path(log_path, "retention.lock")
    lock.unlink(missing_ok=True)
    lock.symlink_to(outside / target)
    slabs = slab_files(log_path)
    refused("prune", log_path, "--max-slabs", 1, at=lock)
    assert untouched(outside)
    assert slab_files(log_path) == slabs


@pytest.mark.parametrize("name", ["published.jsonl", "published.jsonl.tmp"])
def test_a_manifest_is_read_and_written_through_no_link(
    tmp_path: Path, outside: Path, name: str
) -> None:
    root = tmp_path / "root"
    slabs = task(root, "a", "x")
    (root / name).symlink_to(outside / "secret")
    with pytest.raises(aolog.StorageFailed, match=f"{name}: is a symbolic link"):
        publish(root, JOB, slabs)
    assert untouched(outside)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
@pytest.mark.parametrize("name", ["00000000000000000000.slab", "retention.lock"])
def test_only_a_regular_file_is_opened(
    log_path: str, make: Callable[[str], None], name: str
) -> None:
    fill(log_path, [b"x"])
    path = f"{log_path}/{name}"
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    make(path)
    command = ("prune", log_path, "--max-slabs", 1) if "lock" in name else ("read", log_path)
    result = run(*command)
    assert result.exit_code == aolog.StorageError.exit_status
    assert path in result.stderr


def test_a_log_s_own_path_may_lead_through_links(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to("disk")
    logged(str(tmp_path / "disk/log"))
    (tmp_path / "link").symlink_to("logs/log")
    for path in (tmp_path / "link", tmp_path / "logs/log"):
        well("append", path, given="more\n")
        well("verify", path)
        well("cursor", "set", path, "d", "earliest")
        well("prune", path, "--max-slabs", 5)
        commit(str(path))


def test_a_writer_continues_in_the_directory_that_it_opened(tmp_path: Path) -> None:
    """Whatever its path leads to by now: another log there has another writer."""
    path = tmp_path / "log"
    with aolog.Writer(path, slab_bytes=200, batch_bytes=0) as writer:
        writer.append(b"before")
        writer.flush()
        path.rename(tmp_path / "moved")
        fill(str(path), [b"another"])
        for _ in range(10):
            writer.append(b"x" * 100)
    assert [record.value for record in aolog.Reader(path)] == [b"another"]
    values = [record.value for record in aolog.Reader(tmp_path / "moved", strict=True)]
    assert values == [b"before", *[b"x" * 100] * 10]


def test_a_reader_reads_no_other_log_that_takes_the_place_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = aolog.Writer(path, slab_bytes=200, batch_bytes=0)
    writer.append(b"before")
    writer.flush()
    with aolog.Reader(path) as reader:
        assert [record.value for record in reader] == [b"before"]
        path.rename(tmp_path / "moved")
        for _ in range(10):
            writer.append(b"x" * 100)
        writer.close()
        with pytest.raises(aolog.NotALog, match="it was moved"):
            list(reader)
        fill(str(path), [b"another"])
        assert [record.value for record in reader] == [b"x" * 100] * 10
