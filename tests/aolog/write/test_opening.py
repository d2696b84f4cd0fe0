"""Opening: what a crash left is found, copied aside and cut, whatever it is and wherever it dies
again; what cannot be opened is refused with nothing changed."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

import aolog
from aolog.format.frame import KIND_RECORDS
from aolog.format.slab import (
    DATA_BEGIN,
    HEADER_COPIES,
    HEADER_LEN,
    VERSION,
    SlabHeader,
    decode_slab_header,
)
from aolog.storage.storage import Storage
from aolog.storage.system import System
from aolog.testing import Killed
from tests.aolog.conftest import (
    NEVER,
    ROOT,
    Child,
    WatchedStorage,
    assert_clean,
    by_iteration,
    commit,
    fill,
    frames_of,
    kill,
    overwrite,
    raising_at,
    read_all,
    slab_files,
    snapshot,
    unchanged,
    values,
)


def abandoned(path: str, n: int = 5, **options: object) -> list[int]:
    """A log as a killed process leaves it: flushed, not closed. The addresses."""
    writer = aolog.Writer(path, **{**NEVER, **options})
    addresses = [writer.append(b"%020d" % i) for i in range(n)]
    writer.flush()
    kill(writer)
    return addresses


def aside(path: str) -> list[Path]:
    return sorted((Path(path) / "aside").glob("*"))


# --- rows, on disk -----------------------------------------------------------------------------


def test_a_closed_log_is_sealed_and_keeps_its_epoch(log_path: str) -> None:
    fill(log_path, [b"a"])
    for _ in range(3):
        with aolog.Writer(log_path) as writer:
            assert writer.opening.case == "sealed"
            assert writer.opening.epoch == 1
            assert writer.opening.cut_bytes == 0


@pytest.mark.parametrize("junk", [b"junk after the seal", bytes(500)], ids=["junk", "zeros"])
def test_bytes_after_a_seal_are_sealed_tail_and_no_gap(log_path: str, junk: bytes) -> None:
    fill(log_path, [b"a"])
    (slab,) = slab_files(log_path)
    sealed = slab.read_bytes()
    slab.write_bytes(sealed + junk)
    with aolog.Writer(log_path) as writer:
        assert writer.opening.case == "sealed_tail"
        assert writer.opening.epoch == 1
        writer.append(b"b")
    assert slab.read_bytes() == sealed
    assert [found.read_bytes() for found in aside(log_path)] == ([junk] if any(junk) else [])
    records, gaps = by_iteration(log_path)
    assert [record.value for record in records] == [b"a", b"b"]
    assert gaps == []


def test_a_flushed_log_that_was_not_closed_is_unsealed(log_path: str) -> None:
    addresses = abandoned(log_path)
    before = slab_files(log_path)[0].read_bytes()
    with aolog.Writer(log_path) as writer:
        assert writer.opening.case == "unsealed"
        assert writer.opening.epoch == 2
        assert writer.append(b"next") > addresses[-1]
    assert slab_files(log_path)[0].read_bytes() == before
    records, gaps = by_iteration(log_path)
    assert [record.address for record in records[:-1]] == addresses
    assert gaps == []
    assert aside(log_path) == []


def test_a_new_epoch_is_told_in_a_warning(log_path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "aolog")
    aolog.Writer(log_path).close()
    aolog.Writer(log_path).close()
    assert caplog.messages == []
    abandoned(log_path)
    with aolog.Writer(log_path) as writer:
        (told,) = caplog.messages
        assert f"addresses go on at {writer.opening.next_base}, in epoch 2" in told


def test_a_torn_frame_is_unsealed_torn_cut_copied_and_told(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    abandoned(log_path, batch_bytes=0)
    slab = slab_files(log_path)[0]
    last = frames_of(log_path)[-1]
    torn = slab.read_bytes()[last.begin : last.end - 8]
    os.truncate(slab, last.end - 8)
    with aolog.Writer(log_path) as writer:
        opening = writer.opening
        assert opening.case == "unsealed_torn"
        assert opening.cut_bytes == len(torn)
        assert opening.aside_path == f"{log_path}/aside/{last.address:020d}.torn"
        assert caplog.messages[-1] == (
            f"{log_path}: its last writer did not close it, and the last write was torn: addresses "
            f"go on at {opening.next_base}, in epoch 2; {len(torn)} bytes were cut, kept in "
            f"{opening.aside_path} [unsealed_torn]"
        )
        address = writer.append(b"next")
        assert address >= last.address + len(torn)
    assert Path(opening.aside_path).read_bytes() == torn
    assert slab.stat().st_size == last.begin
    records, gaps = by_iteration(log_path)
    assert [record.value for record in records] == [b"%020d" % i for i in range(4)] + [b"next"]
    assert gaps == [(last.address, last.address + len(torn), "torn", None)]


def test_a_last_slab_without_header_is_header_lost_and_kept_whole(log_path: str) -> None:
    fill(log_path, [b"a"])
    abandoned(log_path)
    slab = slab_files(log_path)[-1]
    overwrite(slab, 0, bytes(DATA_BEGIN))
    before = slab.read_bytes()
    with aolog.Writer(log_path) as writer:
        assert writer.opening.case == "header_lost"
        writer.append(b"b")
    assert slab.read_bytes() == before
    records, (gap,) = by_iteration(log_path)
    assert [record.value for record in records] == [b"a", b"b"]
    base = int(slab.stem)
    assert gap == (base, base + len(before), "corrupt", None)


def test_an_only_slab_without_header_is_only_lost_and_refused(log_path: str) -> None:
    abandoned(log_path)
    overwrite(slab_files(log_path)[0], 0, bytes(DATA_BEGIN))
    with unchanged(log_path):
        with pytest.raises(aolog.HeaderLost) as caught:
            aolog.Writer(log_path)
        assert caught.value.exit_status == 3


def test_a_copied_log_is_copied_and_never_gives_an_address_twice(
    log_path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log_path, [b"a"])
    copied = str(tmp_path / "copy")
    shutil.copytree(log_path, copied)
    with aolog.Writer(log_path) as original:
        theirs = [original.append(b"original") for _ in range(100)]
    with aolog.Writer(copied) as writer:
        assert writer.opening.case == "copied"
        assert writer.opening.epoch == 2
        (told,) = caplog.messages
        assert told == (
            f"{copied}: is a copy or was restored: addresses go on at {writer.opening.next_base}, "
            "in epoch 2; nothing was cut [copied]"
        )
        assert writer.append(b"copy") > theirs[-1]
    assert values(copied) == [b"a", b"copy"]
    assert_clean(copied)


@pytest.mark.parametrize(("with_cursors", "case"), [(False, "copied"), (True, "sealed")])
def test_a_restore_in_place_is_recognised_by_a_cursor_past_the_end_and_by_nothing_else(
    log_path: str, with_cursors: bool, case: str
) -> None:
    """As `rsync --delete` does it: the files that did not change stay as they are."""
    fill(log_path, [b"a"])
    backup = {path.name for path in Path(log_path).iterdir()}
    fill(log_path, [b"b"])
    passed = commit(log_path, 2)
    for path in Path(log_path).iterdir():
        if path.name not in backup and (with_cursors or path.name != "cursors"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with aolog.Writer(log_path) as writer:
        assert writer.opening.case == case
        assert (writer.append(b"other") >= passed) == (case == "copied")
    assert values(log_path) == [b"a", b"other"]


def test_an_inode_of_another_generation_is_another_file(log_path: str) -> None:
    class Again(System):
        def generation(self, fd: int) -> int:
            return super().generation(fd) ^ 1

    fill(log_path, [b"a"])
    with aolog.Writer(log_path, storage=Storage(Again())) as writer:
        assert writer.opening is not None
        assert (writer.opening.case, writer.opening.epoch) == ("copied", 2)
    with aolog.Writer(log_path, storage=Storage(Again())) as writer:
        assert writer.opening is not None
        assert (writer.opening.case, writer.opening.epoch) == ("sealed", 2)


@pytest.mark.parametrize("short", [1, 20, 27])
def test_format_1_with_an_unfinished_frame_is_queuefka_torn(log_path: str, short: int) -> None:
    addresses = abandoned(log_path, format="queuefka")
    (slab,) = slab_files(log_path)
    torn = slab.read_bytes()[addresses[-1] : addresses[-1] + 28 - short]
    os.truncate(slab, addresses[-1] + 28 - short)
    with aolog.Writer(log_path, format="queuefka") as writer:
        assert writer.opening.case == "queuefka_torn"
        assert writer.append(b"next") == addresses[-1]
    assert [found.read_bytes() for found in aside(log_path)] == [torn]
    records, gaps = by_iteration(log_path)
    assert [record.value for record in records] == [b"%020d" % i for i in range(4)] + [b"next"]
    assert gaps == []


def test_format_1_with_a_broken_chain_is_queuefka_bad_and_keeps_its_bytes(log_path: str) -> None:
    addresses = abandoned(log_path, format="queuefka")
    (slab,) = slab_files(log_path)
    overwrite(slab, addresses[2], b"\x01")
    before = slab.read_bytes()
    with aolog.Writer(log_path, format="queuefka") as writer:
        assert writer.opening.case == "queuefka_bad"
        assert writer.append(b"next") == len(before)
    assert slab.read_bytes() == before
    records, gaps = by_iteration(log_path)
    assert [record.value for record in records] == [b"%020d" % i for i in range(2)] + [b"next"]
    assert gaps == [(addresses[2], len(before), "torn_or_corrupt", None)]


# --- torn tails --------------------------------------------------------------------------------


def test_a_hole_before_the_last_intact_frame_is_kept(log_path: str) -> None:
    """Pages of one write came to the device out of order."""
    abandoned(log_path, batch_bytes=0)
    frames = frames_of(log_path)
    slab = slab_files(log_path)[0]
    overwrite(slab, frames[2].begin, bytes(frames[2].end - frames[2].begin))
    before = slab.read_bytes()
    with aolog.Writer(log_path) as writer:
        assert writer.opening.case == "unsealed"
        writer.append(b"next")
    assert slab.read_bytes() == before
    records, gaps = by_iteration(log_path)
    assert len(records) == 5
    assert gaps == [(frames[2].address, frames[3].address, "torn_or_corrupt", 1)]


# --- death in the middle of recovery -------------------------------------------------------------


def torn_log(path: str) -> None:
    fill(path, [b"sealed"], batch_bytes=0)
    abandoned(path, batch_bytes=0, slab_bytes=100_000)
    slab = slab_files(path)[-1]
    os.truncate(slab, 100_000)  # zeros, as ahead of frames that were synced often
    last = [frame for frame in frames_of(path) if frame.kind == KIND_RECORDS][-1]
    overwrite(slab, last.end - 16, b"torn torn torn t")


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, list[object]]:
    """A torn log; how many operations its recovery takes, and what is then read."""
    where = tmp_path_factory.mktemp("torn")
    torn_log(str(where / "torn"))
    shutil.copytree(where / "torn", where / "once")
    storage = WatchedStorage()
    with aolog.Writer(where / "once", storage=storage):
        operations = len(storage.operations)
    records, gaps = by_iteration(str(where / "once"))
    assert len(records) == 5
    assert [gap.reason for gap in gaps] == ["torn"]
    return str(where / "torn"), operations, [records, gaps]


def test_recovery_takes_the_steps_that_it_says(recovered: tuple[str, int, list[object]],
                                               tmp_path: Path) -> None:  # fmt: skip
    shutil.copytree(recovered[0], tmp_path / "log")
    storage = WatchedStorage()
    with aolog.Writer(tmp_path / "log", storage=storage):
        steps = [operation.what for operation in storage.operations]
    assert steps == [
        "sync",  # the log's own entry
        "datasync",  # what is there
        *("write", "datasync"),  # what no mark says is durable, once more
        "sync",  # the directory for what is cut
        *("create", "write", "datasync", "rename", "sync"),  # the copy
        *("truncate", "datasync"),  # the cut
        *("create", "write", "datasync", "rename", "sync"),  # the next slab
    ]


@pytest.mark.parametrize("error", [Killed, None], ids=["killed", "failed"])
@pytest.mark.parametrize("n", range(17))
def test_recovery_that_dies_anywhere_is_repeated_with_the_same_outcome(
    recovered: tuple[str, int, list[object]],
    tmp_path: Path,
    n: int,
    error: type[BaseException] | None,
) -> None:
    torn, operations, outcome = recovered
    assert operations == 17
    path = str(tmp_path / "log")
    shutil.copytree(torn, path)
    fail = error or (lambda: aolog.StorageFailed("no", path=path))
    storage = WatchedStorage(raising_at(n, fail))
    with pytest.raises((Killed, aolog.StorageFailed)):
        aolog.Writer(path, storage=storage)
    assert read_all(path) == outcome[0]  # readers are not disturbed
    for _ in range(2):
        with aolog.Writer(path):
            pass
    records, gaps = by_iteration(path)
    assert [records, gaps] == outcome
    assert {found.read_bytes() for found in aside(path)} == {aside(path)[0].read_bytes()}
    assert not list(Path(path).rglob("*.tmp"))
    fill(path, [b"next"])
    assert values(path) == [*(record.value for record in records), b"next"]


# --- what cannot be opened -----------------------------------------------------------------------


def refused(
    path: str | Path, error: type[aolog.AologError], open_: Callable[..., object] = aolog.Writer,
    **options: object,
) -> aolog.AologError:  # fmt: skip
    """The error; and nothing on disk changed."""
    parent = str(Path(path).parent)
    with unchanged(parent):
        with pytest.raises(error) as caught:
            open_(path, **options)
        assert type(caught.value) is error
    return caught.value


def test_a_file_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for name in ("file", "file/below", "file/far/below"):
        for open_ in (aolog.Writer, aolog.Reader):
            assert str(tmp_path / "file") in str(refused(tmp_path / name, aolog.NotALog, open_))


@pytest.mark.parametrize("name", ["notes.txt", "0.slab", "00000000000000000000.slab.bak"])
def test_a_directory_of_other_things_is_no_log(tmp_path: Path, name: str) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / name).write_bytes(b"x")
    (tmp_path / "log" / "00000000000000000000.slab.tmp").write_bytes(b"x")
    for open_ in (aolog.Writer, aolog.Reader):
        refused(tmp_path / "log", aolog.NotALog, open_)


def newer(path: str, copies: tuple[int, ...] = (0, 4096)) -> None:
    """The last slab says that it is of a version to come."""
    slab = slab_files(path)[-1]
    header = bytearray(slab.read_bytes()[:HEADER_LEN])
    struct.pack_into("<H", header, 8, VERSION + 1)
    struct.pack_into("<I", header, HEADER_LEN - 4, xxhash.xxh32_intdigest(bytes(header[:-4])) ^ 1)
    for at in copies:
        overwrite(slab, at, bytes(header))


def test_a_newer_format_is_refused_and_not_repaired(log_path: str) -> None:
    abandoned(log_path)
    newer(log_path)
    os.truncate(slab_files(log_path)[0], slab_files(log_path)[0].stat().st_size - 8)
    (Path(log_path) / f"{12345:020d}.slab.tmp").write_bytes(b"x")
    for open_ in (aolog.Writer, aolog.Reader, aolog.verify):
        error = refused(log_path, aolog.NewerFormat, open_)
        assert "upgrade" in str(error)
        assert error.code == "newer_format"


@pytest.mark.parametrize("fields", [{"base_ordinal": 2**63 - 1}, {"epoch": 2**32 - 1}])
def test_a_writer_reports_that_no_header_can_follow(log_path: str, fields: dict[str, int]) -> None:
    """After a header whose fields no writer wrote. No slab that no reader believes is begun."""
    fill(log_path, [b"old"])
    (slab,) = slab_files(log_path)
    octets = bytearray(slab.read_bytes()[:-8])  # not closed: another epoch
    header = decode_slab_header(bytes(octets[:HEADER_LEN]))
    assert isinstance(header, SlabHeader)
    for at in HEADER_COPIES:
        octets[at : at + HEADER_LEN] = header._replace(**fields).encode()
    slab.write_bytes(octets)
    with pytest.raises(aolog.UsageError, match="no slab can follow"):
        fill(log_path, [b"new"])
    assert slab_files(log_path) == [slab]
    assert values(log_path) == [b"old"]


def test_another_topic_or_format_is_refused_before_anything_is_mended(log_path: str) -> None:
    abandoned(log_path, topic="orders")
    slab = slab_files(log_path)[0]
    os.truncate(slab, slab.stat().st_size - 8)
    error = refused(log_path, aolog.TopicMismatch, topic="others")
    assert "'orders'" in str(error)
    refused(log_path, aolog.UsageError, format="queuefka")
    with aolog.Writer(log_path, topic="orders") as writer:
        assert writer.opening.case == "unsealed_torn"


def test_a_log_that_was_created_without_a_topic_does_not_get_one_later(log_path: str) -> None:
    abandoned(log_path)
    error = refused(log_path, aolog.TopicMismatch, topic="orders")
    assert "created without a topic, and cannot get 'orders' now" in str(error)


def test_a_second_writer_is_refused_in_the_same_process(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append(b"a")
        for _ in range(3):
            error = refused(log_path, aolog.LogLocked)
            assert error.exit_status == 5
        writer.append(b"b")
    assert values(log_path) == [b"a", b"b"]


def test_a_second_writer_is_refused_in_another_process(log_path: str) -> None:
    code = """
import sys, aolog
w = aolog.Writer(sys.argv[1])
w.append(b"theirs")
w.flush()
print("open", flush=True)
sys.stdin.readline()
w.close()
"""
    with Child(code, log_path) as child:
        assert child.line() == "open"
        refused(log_path, aolog.LogLocked)
        child.say("close")
        child.wait()
    fill(log_path, [b"ours"])
    assert values(log_path) == [b"theirs", b"ours"]


AS_NOBODY = """
import os, sys, encodings.ascii, aolog
from aolog import *  # nobody may not read the library when it needs it
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for call in sys.argv[2:]:
    try:
        eval(call, {"aolog": aolog, "path": sys.argv[1]})
        print("nothing")
    except aolog.AologError as error:
        print(type(error).__name__, error.code, error.exit_status)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become nobody")
def test_without_permission_is_an_error_of_its_own() -> None:
    where = Path(tempfile.mkdtemp(prefix="aolog-permission-"))
    where.chmod(0o755)
    try:
        path = where / "log"
        abandoned(str(path), batch_bytes=0)
        slab = slab_files(str(path))[0]
        os.truncate(slab, slab.stat().st_size - 8)
        before = snapshot(str(where))

        def asked(*calls: str, at: Path = path) -> list[str]:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            ran = subprocess.run(
                [sys.executable, "-c", AS_NOBODY, str(at), *calls],
                env=environment,
                cwd="/",
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr
            assert snapshot(str(where)) == before
            return ran.stdout.splitlines()

        denied = "PermissionDenied permission_denied 4"
        assert asked("aolog.Writer(path)", "aolog.Reader(path)") == [denied] * 2
        path.chmod(0o755)
        slab.chmod(0o644)
        assert asked("aolog.Writer(path)", "len(list(aolog.Reader(path)))") == [denied, "nothing"]
        assert asked("aolog.Writer(path)", at=where / "other") == [denied]
        slab.chmod(0o000)
        assert asked("aolog.Reader(path)", "aolog.verify(path)") == [denied] * 2
        path.chmod(0o000)
        assert asked("aolog.Writer(path)", "aolog.Reader(path)") == [denied] * 2
    finally:
        shutil.rmtree(where)
