"""Pending slabs and their publication: who may, what is refused, what is left."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import time
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
import pytest
import xxhash

import aolog
from aolog.errors import CorruptionError, NewerFormat
from aolog.format.names import MANIFEST_NAME
from aolog.format.root_manifest import (
    CONTENTS_MAX,
    Content,
    PublishedSlab,
    Transaction,
    decode_manifest,
    encode_manifest,
)
from aolog.format.root_manifest import RootManifest as Manifest
from aolog.log import manifest
from aolog.log.directory import Log
from aolog.log.retention import Retention, prune
from aolog.publish import publication
from aolog.publish.leftovers import abort, sweep
from aolog.publish.pending import PendingLog, depth_of
from aolog.publish.publication import check_free, publish
from aolog.storage.storage import Storage
from aolog.storage.system import REAL, System
from aolog.testing import Fault, Killed, SimulatedSystem
from aolog.write.options import WriterOptions
from bridge.supervise.discovery import Discovery, find_logs, is_gone
from tests.aolog.conftest import SOON_S, fill, in_thread
from tests.publish.job import (
    FIRST,
    JOB,
    OLD,
    OTHER,
    ROOT,
    TASKS,
    added,
    old_disk,
    pending_names,
    run,
    seen,
    task,
    write,
)


def batch(*values: str, **columns: object) -> pa.RecordBatch:
    return pa.record_batch({"value": [v.encode() for v in values], **columns})


class Dies(System):
    """Killed between the commit and the renames."""

    def replace(self, old: str, new: str, /, **directories: int) -> None:
        if new.endswith(".slab"):
            raise Killed
        super().replace(old, new, **directories)


def read(path: Path) -> list[str]:
    with aolog.Reader(path, strict=True) as reader:
        return [record.value.decode() for record in reader]


def age(path: Path) -> None:
    """Eight days."""
    old = time.time() - 8 * 86400
    os.utime(path, (old, old))


def killed_behind_commit(system: SimulatedSystem, **options: object) -> SimulatedSystem:
    """A publication that died before its first rename of a slab."""

    def before(call: object) -> None:
        if call.name == "replace" and call.path.endswith(".slab"):
            raise Killed

    system.before = before
    with pytest.raises(Killed):
        run(Storage(system), **options)
    return system.kill()


# --- by a bridge, whose manifest is damaged ---------------------------------------------------


def test_a_log_whose_manifest_cannot_be_read_is_named_and_kept(tmp_path: Path) -> None:
    """Of slabs that are published and not renamed, which nothing else says."""
    root = tmp_path / "root"
    fill(root / "sound", [b"x"])
    slabs = task(root, "a/log", "1", "2")

    with pytest.raises(Killed):
        publish(root, JOB, slabs, storage=Storage(Dies()))
    assert list(find_logs(str(root))) == ["a/log", "sound"]
    tree, single = Discovery(str(root)), Discovery(None, {"one": str(root / "a/log")})
    for each, names in ((tree, ["a/log", "sound"]), (single, ["one"])):
        assert (list(each.scan()), each.unlisted) == (names, {})
    manifest = root / "published.jsonl"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-9])
    assert list(tree.scan()) == ["sound"]
    assert "the manifest is damaged" in tree.unlisted["a/log"]
    assert tree.may_hold("a/log")
    assert not tree.may_hold("sound")
    assert list(single.scan()) == ["one"]
    assert not is_gone(str(root / "a/log"))
    tree.park(str(root / "a/log"))
    assert tree.grown() == set()
    manifest.write_bytes(whole)
    assert (list(tree.scan()), tree.unlisted) == (["a/log", "sound"], {})
    assert tree.grown() == {str(root / "a/log")}
    tree.close()
    single.close()


# --- by another path -------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["to the log", "to a directory above", "in the root"])
def test_a_log_that_is_opened_through_a_link_has_all_that_is_published(tmp_path, link):
    """Killed between the commit and the renames."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "b").mkdir(parents=True)
    elsewhere.mkdir()
    by = root / "b/log"
    if link == "in the root":
        (root / "b/log").symlink_to(elsewhere)
    slabs = task(root, "b/log", "1", "2")

    with pytest.raises(Killed):
        publish(root, JOB, slabs, storage=Storage(Dies()))
    assert [name for name in os.listdir(root / "b/log") if name.endswith(".pending")]
    if link == "to the log":
        by = tmp_path / "alias"
        by.symlink_to(root / "b/log")
    elif link == "to a directory above":
        (elsewhere / "there").symlink_to(root / "b")
        by = elsewhere / "there/log"
    assert read(by) == ["1", "2"]
    assert aolog.verify(by).records == 2
    fill(by, [b"3"])
    assert not [name for name in os.listdir(by) if name.endswith(".pending")]
    assert read(by) == read(root / "b/log") == ["1", "2", "3"]


# --- names and the manifest ------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written():
    manifest = Manifest({"app/ü": 7, "query/x": 0}, {"n": PublishedSlab("b/c", 1 << 62)})
    assert decode_manifest(encode_manifest(manifest), "p") == manifest
    assert manifest.has(Transaction("app/ü", 7))
    assert manifest.has(Transaction("app/ü", 6))
    assert not manifest.has(Transaction("app/ü", 8))
    assert not manifest.has(Transaction("app/y", 0))


def test_a_manifest_keeps_the_contents_of_the_last_transactions_of_an_id():
    kept = Manifest({}, {})
    for version in range(CONTENTS_MAX + 3):
        content = Content(version, "digest", "plan" if version % 2 else None)
        kept = kept.with_transaction(Transaction("query/x", version, content))
    kept = kept.with_transaction(Transaction("query/y", 1))
    assert decode_manifest(encode_manifest(kept), "p") == kept
    assert sorted(kept.contents["query/x"]) == list(range(3, CONTENTS_MAX + 3))
    assert kept.versions == {"query/x": CONTENTS_MAX + 2, "query/y": 1}


@pytest.mark.parametrize(
    ("other", "is_again"),
    [
        (Content(2, "a"), True),
        (Content(2, "a", "another plan"), True),
        (Content(3, "b", "plan"), True),
        (Content(2, "b"), False),
        (Content(3, "a", "another plan"), False),
    ],
)
def test_the_same_records_or_the_same_plan_are_the_same_transaction(other, is_again):
    assert Content(2, "a", "plan").is_again(other) == is_again
    assert not Content(2, "a").is_again(Content(3, "a"))  # no plan equals no plan


def test_a_repetition_returns_what_was_published(tmp_path):
    first = Transaction("app/x", 1, Content(1, "a"))
    publish(tmp_path, JOB, task(tmp_path, "a", "1"), transaction=first)
    later = Transaction("app/x", 2, Content(1, "b"))
    publish(tmp_path, JOB, task(tmp_path, "a", "2"), transaction=later)
    again = publish(tmp_path, JOB, [], transaction=first)
    assert (again.repeated, again.last, again.content) == (True, 2, Content(1, "a"))
    assert publish(tmp_path, JOB, [], transaction=Transaction("app/x", 0)).content is None


def test_every_damaged_byte_of_a_manifest_is_seen():
    data = encode_manifest(Manifest({"app/x": 7}, {"n": PublishedSlab("a", 4096)}))
    for i in range(len(data) - 1):
        with pytest.raises(CorruptionError):
            decode_manifest(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], "p")
    for i in range(len(data) - 1):
        with pytest.raises(CorruptionError):
            decode_manifest(data[:i], "p")


def hashed(*lines: str) -> bytes:
    """A manifest of these lines."""
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + b'{"xxh3": "%s"}\n' % xxhash.xxh3_64_hexdigest(text).encode()


def test_a_newer_manifest_is_refused():
    with pytest.raises(NewerFormat):
        decode_manifest(hashed('{"aolog_manifest": 2}'), "p")


@pytest.mark.parametrize(
    "name",
    [
        "", "/", "a//b", "../a", "a/..", ".", "a/.b", "-a", "a\0b", "/a", "a/", f"{0:020d}.slab",
        MANIFEST_NAME, f"a/{MANIFEST_NAME}.tmp", f"{0:020d}.slab.tmp", "a.pending",
    ],
)  # fmt: skip  # a table
def test_a_log_s_name_stays_below_the_root_and_is_no_file_s(name):
    if name == ".":
        assert depth_of(name) == 0
        return
    with pytest.raises(aolog.UsageError, match="names no log"):
        depth_of(name)


# --- what a task writes ------------------------------------------------------------------------


def test_a_task_s_slabs_are_rolled_sealed_durable_and_described(tmp_path):
    with PendingLog(tmp_path, "a", JOB, WriterOptions(slab_bytes=1)) as pending:
        for value in ("x", "y"):
            pending.append_arrow(batch(value))
    slabs = pickle.loads(pickle.dumps(pending.slabs))
    assert [slab.records for slab in slabs] == [1, 1]
    assert [(tmp_path / "a" / slab.name).stat().st_size for slab in slabs] == [
        slab.bytes for slab in slabs
    ]
    with pytest.raises(aolog.NotALog):
        aolog.Reader(tmp_path / "a")
    assert find_logs(str(tmp_path)) == {}


def test_what_a_task_describes_survives_power_loss():
    system = SimulatedSystem(piece_bytes=512)
    slabs = write(Storage(system), TASKS[0])
    whole = system.files()
    for left in system.power_cut(200):
        assert left.system.files() == whole
    assert len(slabs) == 2


def test_a_task_that_fails_takes_its_files_with_it(tmp_path):
    with pytest.raises(aolog.RecordRefused), PendingLog(tmp_path, "a", JOB) as pending:
        pending.append_arrow(batch("x"))
        pending.append_arrow(pa.record_batch({"nonsense": [1]}))
    assert list((tmp_path / "a").iterdir()) == []


# --- publishing ----------------------------------------------------------------------------------


def test_a_published_slab_says_its_inode_as_a_writers_does(tmp_path):
    """With its generation: an inode's number alone is given to a copy too."""

    class Generations(type(REAL)):
        def generation(self, _fd):
            return 7

    storage = Storage(Generations())
    publish(tmp_path, JOB, task(tmp_path, "a", "1", storage=storage), storage=storage)
    log = Log(str(tmp_path / "a"), storage)
    slab = log.slab(0)
    assert slab.header.inode == slab.file.identity() != slab.file.stat().inode
    log.close()


def test_slabs_follow_what_is_there_in_their_order(tmp_path):
    with aolog.Writer(tmp_path / "a", topic="t") as log:
        log.append(b"old")
        uuid = aolog.Reader(tmp_path / "a").topic_uuid
    slabs = [*task(tmp_path, "a", "1"), *task(tmp_path, "a", "2"), *task(tmp_path, "b", "3")]
    told = publish(tmp_path, JOB, slabs)
    assert told[:4] == (False, 2, 3, 3)
    assert read(tmp_path / "a") == ["old", "1", "2"]
    assert read(tmp_path / "b") == ["3"]
    with aolog.Reader(tmp_path / "a") as reader:
        assert (reader.topic, reader.topic_uuid) == ("t", uuid)
        reader.seek(ordinal=2)
        assert reader.read().value == b"2"
    with aolog.Writer(tmp_path / "a") as log:
        assert log.opening.case == "sealed"
        log.append(b"new")
    assert read(tmp_path / "a") == ["old", "1", "2", "new"]
    assert aolog.verify(tmp_path / "a").ok


def test_the_root_may_be_a_log_itself(tmp_path):
    fill(tmp_path, [b"old"])
    publish(tmp_path, JOB, task(tmp_path, ".", "1"), transaction=FIRST)
    assert read(tmp_path) == ["old", "1"]
    publish(tmp_path, JOB, task(tmp_path, ".", "1"), transaction=FIRST)
    with aolog.Writer(tmp_path):
        pass
    assert read(tmp_path) == ["old", "1"]


def test_beside_a_live_writer_nothing_is_touched():
    system = old_disk()
    storage = Storage(system)
    slabs = [slab for values in ({"a": ["1"]}, {"d": ["2"]}) for slab in write(storage, values)]
    other = Storage(system.process())
    with aolog.Writer(f"{ROOT}/d", storage=other, flush_seconds=None):
        before = system.files()
        with pytest.raises(aolog.LogLocked, match=f"{ROOT}/d: another writer"):
            publish(ROOT, JOB, slabs, storage=storage)
        with pytest.raises(aolog.LogLocked):
            check_free(ROOT, ["d"], storage)
        check_free(ROOT, ["a", "never"], storage)
        assert system.files() == before
    assert publish(ROOT, JOB, slabs, storage=storage).records == 2


def test_a_transaction_is_committed_once(tmp_path):
    publish(tmp_path, JOB, task(tmp_path, "a", "1"), transaction=FIRST)
    again = publish(tmp_path, OTHER, task(tmp_path, "a", "1", job=OTHER), transaction=FIRST)
    assert again.repeated
    assert read(tmp_path / "a") == ["1"]
    assert [path for path in (tmp_path / "a").iterdir() if path.suffix == ".pending"] == []
    publish(tmp_path, OTHER, task(tmp_path, "a", "2"), transaction=FIRST._replace(version=2))
    assert publish(tmp_path, OTHER, [], transaction=FIRST).repeated
    assert read(tmp_path / "a") == ["1", "2"]


def test_a_transaction_of_nothing_is_committed_too(tmp_path):
    assert publish(tmp_path, JOB, [], transaction=FIRST)[:4] == (False, 0, 0, 0)
    assert publish(tmp_path, JOB, [], transaction=FIRST).repeated
    assert list(tmp_path.glob("*")) == [tmp_path / MANIFEST_NAME]


def test_a_manifest_is_not_read_anew_for_each_log(tmp_path, monkeypatch):
    """It grows with the logs of a job: 5,000 took ten minutes to be renamed."""
    slabs = [slab for i in range(20) for slab in task(tmp_path, f"{i}", "1")]
    read_anew = []

    def decode(data, path, real=manifest.decode_manifest):
        read_anew.append(path)
        return real(data, path)

    monkeypatch.setattr(manifest, "decode_manifest", decode)
    publish(tmp_path, JOB, slabs)
    publish(tmp_path, JOB, task(tmp_path, "20", "1"))
    assert len(read_anew) < 6
    assert all(read(tmp_path / f"{i}") == ["1"] for i in range(21))


@pytest.mark.parametrize("harm", ["gone", "shorter", "altered", "another"])
def test_a_file_that_is_not_what_the_task_wrote_stops_the_whole_publication(tmp_path, harm):
    slabs = [*task(tmp_path, "a", "1"), *task(tmp_path, "b", "2")]
    path = tmp_path / "b" / slabs[1].name
    data = path.read_bytes()
    if harm == "gone":
        path.unlink()
    elif harm == "shorter":
        path.write_bytes(data[:-8])
    elif harm == "altered":
        path.write_bytes(data[:-200] + b"\1" + data[-199:])
    else:
        path.write_bytes((tmp_path / "b" / task(tmp_path, "b", "3")[0].name).read_bytes())
    with pytest.raises(aolog.StorageError, match=slabs[1].name):
        publish(tmp_path, JOB, slabs, transaction=FIRST)
    assert find_logs(str(tmp_path)) == {}
    assert not publish(tmp_path, JOB, task(tmp_path, "a", "1"), transaction=FIRST).repeated


def test_a_log_inside_a_log_is_refused(tmp_path):
    for logs in (["a", "a/b"], ["a/b", "a"]):
        slabs = [slab for log in logs for slab in task(tmp_path, log, "1")]
        with pytest.raises(aolog.UsageError, match="inside the log"):
            publish(tmp_path, JOB, slabs)
        abort(tmp_path, JOB, slabs)
    fill(tmp_path / "c", [b"old"])
    with pytest.raises(aolog.UsageError, match="inside the log"):
        check_free(tmp_path, ["c/d"])


def test_a_log_of_queuefkas_and_a_foreign_directory_are_refused(tmp_path):
    fill(tmp_path / "q", [b"old"], format="queuefka")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "notes.txt").write_text("mine")
    for name, error in (("q", "format 1"), ("f", "other files")):
        with pytest.raises(aolog.UsageError, match=error):
            publish(tmp_path, JOB, task(tmp_path, name, "1"))
        with pytest.raises(aolog.UsageError, match=error):
            check_free(tmp_path, [name])


@pytest.mark.parametrize(
    "fault",
    [
        Fault("pwritev", "*.pending", errno=errno.EIO),
        Fault("fdatasync", "*.pending", errno=errno.EIO),
        Fault("pwritev", "*.jsonl.tmp", errno=errno.ENOSPC),
        Fault("fdatasync", "*.jsonl.tmp", errno=errno.EIO),
        Fault("replace", "*.jsonl", errno=errno.EIO),
    ],
    ids=lambda fault: f"{fault.call}-{fault.path}",
)
def test_a_failing_device_before_the_commit_publishes_nothing(fault):
    system = old_disk()
    storage = Storage(system)
    slabs = [slab for values in ({"a": ["1"]}, {"d": ["2"]}) for slab in write(storage, values)]
    system.faults = [fault]
    with pytest.raises(aolog.StorageError):
        publish(ROOT, JOB, slabs, storage=storage, transaction=FIRST)
    system.faults = None
    assert seen(storage) == OLD
    assert abort(ROOT, JOB, slabs, storage=storage) == 2
    assert pending_names(system) == []


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failing_device_behind_the_commit_leaves_the_renames_to_the_next(call):
    system = old_disk()
    storage = Storage(system)
    slabs = [slab for values in ({"a": ["1"]}, {"d": ["2"]}) for slab in write(storage, values)]
    path = "*.slab" if call == "replace" else f"{ROOT}/a"
    system.faults = [Fault(call, path, times=None, errno=errno.EIO)]
    assert publish(ROOT, JOB, slabs, storage=storage, transaction=FIRST).records == 2
    system.faults = None
    assert seen(storage, "ad") == {"a": [*OLD["a"], "1"], "d": [*OLD["d"], "2"]}
    assert abort(ROOT, JOB, slabs, storage=storage) == 0
    assert publish(ROOT, JOB, slabs, storage=storage, transaction=FIRST).repeated
    assert pending_names(system) == []
    assert seen(storage, "ad") == {"a": [*OLD["a"], "1"], "d": [*OLD["d"], "2"]}


def test_a_publication_waits_for_another(tmp_path):
    """Else the second manifest would leave out what the first says."""
    slabs = task(tmp_path, "a", "1")
    told: SimpleQueue[str] = SimpleQueue()

    class Waits(type(REAL)):
        def flock(self, fd, operation):
            if not operation & fcntl.LOCK_NB:
                told.put("waits")
            fcntl.flock(fd, operation)

    first = Storage().open_directory(str(tmp_path))
    assert first.try_lock()
    other = in_thread(lambda: publish(tmp_path, JOB, slabs, storage=Storage(Waits())))
    try:
        assert told.get(timeout=SOON_S) == "waits"
        assert not (tmp_path / MANIFEST_NAME).exists()
    finally:
        first.close()
    assert other.result().records == 1
    assert read(tmp_path / "a") == ["1"]


@pytest.mark.parametrize("log", [".", "a"])
def test_a_lock_that_is_held_for_a_moment_is_waited_for(tmp_path, monkeypatch, log):
    """As jobs do that look at a log which is the root of one of them, or lies below both roots."""
    slabs = task(tmp_path, log, "1")
    for act in (lambda: check_free(tmp_path, [log]), lambda: publish(tmp_path, JOB, slabs)):
        held = Storage().open_directory(str(tmp_path / log))
        assert held.try_lock()
        monkeypatch.setattr(publication.time, "sleep", lambda _, held=held: held.close())
        act()
    assert read(tmp_path / log) == ["1"]


# --- readers beside it ----------------------------------------------------------------------------


def test_a_log_that_was_appended_to_by_another_path_meanwhile_is_refused_and_hides_nothing():
    """There its root is not seen, nor what it published."""
    system = killed_behind_commit(old_disk())
    system.replace(f"{ROOT}/a", "/elsewhere")
    fill("/elsewhere", [b"by another path"], storage=Storage(system))
    system.replace("/elsewhere", f"{ROOT}/a")
    for open_ in (aolog.Reader, aolog.Writer, aolog.verify):
        with pytest.raises(CorruptionError, match="by another path"):
            open_(f"{ROOT}/a", storage=Storage(system.process()))


def test_pruning_takes_a_slab_under_whichever_name_it_has():
    system = killed_behind_commit(old_disk())
    prune(f"{ROOT}/a", Storage(system), Retention(max_slabs=1))
    assert seen(Storage(system), "a") == {"a": ["p2"]}
    for log in OLD:
        aolog.Writer(f"{ROOT}/{log}", storage=Storage(system), flush_seconds=None).close()
    assert seen(Storage(system)) == added() | {"a": ["p2"]}
    report = aolog.verify(f"{ROOT}/a", storage=Storage(system))
    assert report.problems == []


def test_a_damaged_manifest_is_told_where_it_matters(tmp_path):
    publish(tmp_path, JOB, task(tmp_path, "a", "1"), transaction=FIRST)
    manifest = tmp_path / MANIFEST_NAME
    manifest.write_bytes(manifest.read_bytes().replace(b"nightly", b"daily"))
    assert read(tmp_path / "a") == ["1"]  # no pending name: nobody asks
    task(tmp_path, "a", "2")
    with pytest.raises(CorruptionError, match=MANIFEST_NAME):
        aolog.Reader(tmp_path / "a")
    with pytest.raises(CorruptionError, match=MANIFEST_NAME):
        publish(tmp_path, JOB, [], transaction=FIRST)


# --- what is left ----------------------------------------------------------------------------------


def test_a_manifest_goes_on_naming_what_it_cannot_rename():
    """Another process holds the lock of a log that a killed publication left."""
    system = killed_behind_commit(old_disk())
    storage = Storage(system)
    held = Storage(system.process()).open_directory(f"{ROOT}/a")
    assert held.try_lock()
    publish(ROOT, OTHER, write(storage, {"d": ["later"]}, OTHER), storage=storage)
    held.close()
    assert seen(storage) == added() | {"d": [*added()["d"], "later"]}
    publish(ROOT, OTHER, [], transaction=FIRST._replace(version=9), storage=storage)
    assert seen(storage) == added() | {"d": [*added()["d"], "later"]}
    assert len(pending_names(system)) == 2  # unpublished: of the first attempt


@pytest.mark.parametrize("mount", [True, False])
def test_a_manifest_goes_on_naming_slabs_of_a_log_that_is_away(tmp_path, mount):
    """A killed publication; then the log's file system is not mounted while others are published.
    With a mount point there is an empty directory in its place."""
    root = tmp_path / "root"
    fill(root / "a", [b"0"])
    slabs = task(root, "a", "1")
    publish(root, JOB, slabs, transaction=FIRST)
    *_, slab = sorted((root / "a").glob("*.slab"))
    slab.rename(slab.with_name(slabs[0].name))
    (root / "a").rename(tmp_path / "away")
    if mount:
        (root / "a").mkdir()
    for version in (2, 3):
        later = task(root, "b", str(version), job=OTHER)
        publish(root, OTHER, later, transaction=FIRST._replace(version=version))
    if mount:
        (root / "a").rmdir()
    (tmp_path / "away").rename(root / "a")
    assert read(root / "a") == ["0", "1"]
    publish(root, OTHER, [], transaction=FIRST._replace(version=4))
    assert read(root / "a") == ["0", "1"]
    publish(root, OTHER, [], transaction=FIRST._replace(version=5))
    assert slabs[0].name not in (root / MANIFEST_NAME).read_text()


def test_what_another_root_published_is_not_swept(tmp_path):
    """Roots inside one another: a name says whose it is."""
    inner = tmp_path / "x"
    slabs = task(tmp_path, "x/a", "1")
    publish(tmp_path, JOB, slabs)
    (slab,) = (inner / "a").glob("*.slab")
    slab.rename(slab.with_name(slabs[0].name))
    age(inner / "a" / slabs[0].name)
    publish(inner, OTHER, [], transaction=FIRST)
    mine = task(inner, "a", "2", job=OTHER)
    assert publish(inner, OTHER, mine, transaction=FIRST).repeated
    assert read(inner / "a") == ["1"]
    assert not (inner / "a" / mine[0].name).exists()


def test_an_aborted_job_leaves_nothing_and_takes_nothing_of_others(tmp_path):
    publish(tmp_path, JOB, task(tmp_path, "a", "1"))
    mine = task(tmp_path, "a", "2")
    task(tmp_path, "b/c", "3")  # by a task that was killed: nobody has its description
    others = task(tmp_path, "a", "4", job=OTHER)
    assert abort(tmp_path, JOB, mine) == 2
    assert abort(tmp_path, JOB, mine) == 0
    publish(tmp_path, OTHER, others)
    assert read(tmp_path / "a") == ["1", "4"]


def test_an_abort_behind_the_commit_takes_nothing():
    system = killed_behind_commit(old_disk())
    storage = Storage(system)
    names = set(pending_names(system))
    assert abort(ROOT, JOB, storage=storage) == 2  # the first attempt's
    assert len(names - set(pending_names(system))) == 2
    assert seen(storage) == added()


def test_what_other_jobs_left_goes_by_age(tmp_path):
    dead, live = task(tmp_path, "a", "1", job=OTHER), task(tmp_path, "a", "2", job="ef" * 16)
    age(tmp_path / "a" / dead[0].name)
    publish(tmp_path, JOB, task(tmp_path, "a", "3"))
    assert not (tmp_path / "a" / dead[0].name).exists()
    with pytest.raises(aolog.StorageFailed, match="is gone"):
        publish(tmp_path, OTHER, dead)
    publish(tmp_path, "ef" * 16, live)
    assert read(tmp_path / "a") == ["3", "2"]


def test_a_job_that_still_writes_keeps_its_old_files(tmp_path):
    first = task(tmp_path, "a", "1", job=OTHER)
    age(tmp_path / "a" / first[0].name)
    second = task(tmp_path, "a", "2", job=OTHER)
    publish(tmp_path, JOB, task(tmp_path, "a", "3"))
    publish(tmp_path, OTHER, [*first, *second])
    assert read(tmp_path / "a") == ["3", "1", "2"]


def test_what_the_manifest_names_is_never_swept(tmp_path):
    slabs = [*task(tmp_path, "a", "1"), *task(tmp_path, "a", "2")]
    sweep(str(tmp_path), str(tmp_path / "a"), JOB, {slabs[0].name}, 0.0, Storage())
    assert [path.name for path in (tmp_path / "a").iterdir()] == [slabs[0].name]
