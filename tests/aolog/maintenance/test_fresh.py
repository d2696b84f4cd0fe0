"""A copy to a new log: its frames as they were, the room that it takes, and what is left of one that
cannot be completed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import xxhash

import aolog
from aolog.errors import LockedError, StorageFull, UsageError
from aolog.format.frame import CODEC_SHIFT, KIND_RECORDS, Frame
from aolog.format.slab import SlabHeader
from aolog.log.directory import Log
from aolog.log.walk import Tail
from aolog.storage.files import Storage
from aolog.testing import Fault, SimulatedSystem
from tests.aolog import commands
from tests.aolog.commands import damage, failure
from tests.aolog.conftest import (
    Operation,
    WatchedStorage,
    one_by_one,
    raising_at,
    read_all,
    slab_files,
    snapshot,
)
from tests.aolog.read.test_compressed_logs import NAMES, fill

Codec = str
SPARE_BYTES = (1 << 20) + 30_000  # however small the log is


class Stored(NamedTuple):
    """Of a frame of records, what does not depend on where it stands."""

    body: bytes
    codec: int
    columns: int
    records: int
    timestamp_us: int


def stored(path: str) -> list[Stored]:
    log = Log(path, Storage())
    found = []
    for i in range(len(log.bases)):
        walker = log.slab(i).walker()
        while not isinstance(frame := walker.next(), Tail):
            if isinstance(frame, Frame) and frame.header.kind == KIND_RECORDS:
                head = frame.header
                codec = head.flags >> CODEC_SHIFT
                of = (codec, head.columns, head.records, head.timestamp_us)
                found.append(Stored(bytes(frame.body), *of))
    log.close()
    return found


def seals(path: str) -> list[tuple[int, int, int]]:
    log = Log(path, Storage())
    found = [seal for i in range(len(log.bases)) if (seal := log.slab(i).seal()) is not None]
    log.close()
    return [(seal.records, seal.least_us, seal.greatest_us) for seal in found]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[Codec, str]:
    """One of each codec, and one that was written with each in turn."""
    root = tmp_path_factory.mktemp("fresh")
    made = {name: str(root / name) for name in ("none", *NAMES, "mixed", "single", "queuefka")}
    for name in ("none", *NAMES):
        with aolog.Writer(made[name], compression=name, compression_level=None) as writer:
            fill(writer)
    for name in ("none", "lz4", "zstd", "none"):
        with aolog.Writer(made["mixed"], compression=name, slab_bytes=12_000) as writer:
            fill(writer, 12)
    for name, options in {
        "single": {"batch_bytes": 0},
        "queuefka": {"format": "queuefka"},
    }.items():
        with aolog.Writer(made[name], slab_bytes=100_000, **options) as writer:
            for i in range(10_000):
                writer.append(b"%d" % i)
    return made


@pytest.mark.parametrize("name", ["none", *NAMES, "mixed", "single"])
def test_frames_go_as_they_are_whatever_compressed_them(
    logs: dict[Codec, str], name: str, tmp_path: Path
) -> None:
    done = aolog.repair(logs[name], tmp_path / "new")
    assert stored(done.into) == stored(logs[name])
    assert [record._replace(address=0) for record in read_all(done.into)] == [
        record._replace(address=0) for record in read_all(logs[name])
    ]
    if name not in {"mixed", "single"}:  # one slab is one slab
        assert seals(done.into) == seals(logs[name])
    header = Log(done.into, Storage()).slab(0).header
    assert isinstance(header, SlabHeader)
    assert header.compressed == (name not in {"none", "single"})


@pytest.mark.parametrize("level", [None, 19])
def test_a_compressed_log_is_no_larger_as_a_new_one(
    log_path: str, tmp_path: Path, level: int | None
) -> None:
    with aolog.Writer(
        log_path, compression="zstd", compression_level=level, batch_bytes=1 << 20
    ) as writer:
        for i in range(30_000):
            writer.append(b"a line like the others, %d" % (i // 100) * 4)
    size = sum(slab.stat().st_size for slab in slab_files(log_path))
    assert size < 600_000
    done = aolog.repair(log_path, tmp_path / "new")
    assert sum(slab.stat().st_size for slab in slab_files(done.into)) == size


@pytest.mark.parametrize("name", ["none", *NAMES, "mixed", "single", "queuefka"])
def test_the_room_that_is_asked_for_is_what_is_taken_and_not_much_more(
    logs: dict[Codec, str], name: str, tmp_path: Path
) -> None:
    asked = aolog.repair(logs[name], tmp_path / "new", dry_run=True).needed_bytes
    aolog.repair(logs[name], tmp_path / "new")
    taken = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert taken <= asked <= taken * 1.2 + SPARE_BYTES


def test_a_url_is_no_place_for_a_copy(
    logs: dict[Codec, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"s3://b/x: .*URL"):
        aolog.repair(logs["none"], into="s3://b/x")
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_said_before_anything_is_made() -> None:
    system = SimulatedSystem(capacity=4 << 20)
    with aolog.Writer("/log", storage=Storage(system)) as writer:
        for _ in range(30):
            writer.append(b"x" * 60_000)
    before = system.files()
    with pytest.raises(StorageFull) as caught:
        aolog.repair("/log", "/new", storage=Storage(system))
    assert 1_800_000 < caught.value.details["needed"] < 3_000_000
    assert system.files() == before


@pytest.mark.parametrize("name", ["zstd", "queuefka"])
def test_of_a_copy_that_finds_the_disk_full_nothing_is_left(
    logs: dict[Codec, str], name: str, tmp_path: Path
) -> None:
    (tmp_path / "beside").mkdir()
    records, n = one_by_one(logs[name]).records, 0
    while True:
        storage = WatchedStorage(raising_at(n, lambda: StorageFull("no room", path="x")))
        storage.unlink = Storage().unlink  # room can always be made
        try:
            aolog.repair(logs[name], tmp_path / "new", storage=storage)
            break
        except StorageFull:
            made = {path.name for path in tmp_path.iterdir()} - {"beside"}
            if storage.operations[-1:] and "new" in made:  # only its directory's sync failed
                break
            assert made == set(), (n, storage.operations[-3:])
            n += 1
    assert n > 8
    assert [r.value for r in read_all(str(tmp_path / "new"))] == [r.value for r in records]


def test_of_a_copy_that_is_interrupted_nothing_is_left_and_it_may_be_made_again(
    log_path: str, tmp_path: Path
) -> None:
    with aolog.Writer(log_path, batch_bytes=0) as writer:
        for i in range(20):
            writer.append(b"v%d" % i)
    damage(log_path, b"v5")
    before = set(tmp_path.rglob("*"))
    system_calls = 0

    class Interrupted(Storage):
        def rename(self, old: str, new: str) -> None:
            nonlocal system_calls
            system_calls += 1
            if system_calls == at:
                raise KeyboardInterrupt
            super().rename(old, new)

    for at in range(1, 5):
        system_calls = 0
        with pytest.raises(KeyboardInterrupt):
            aolog.repair(log_path, tmp_path / "new", storage=Interrupted())
        assert set(tmp_path.rglob("*")) == before, at
    done = aolog.repair(log_path, tmp_path / "new")
    assert (done.records, done.salvaged) == (19, 1)


def test_a_real_full_disk_keeps_nothing_of_it(
    logs: dict[Codec, str],
    small_disk: Callable[[int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log_path = str(tmp_path / "log")
    with aolog.Writer(log_path) as writer:
        for _ in range(50):
            writer.append(b"x" * 60_000)
    disk = small_disk(2 << 20)
    before = snapshot(str(disk))
    assert failure("repair", log_path, "--fresh", str(disk / "new"))["code"] == "storage_full"
    assert snapshot(str(disk)) == before
    monkeypatch.setattr(Storage, "free_bytes", lambda *_: 1 << 40)  # somebody else takes it
    error = failure("repair", log_path, "--fresh", str(disk / "new"))
    assert error["code"] == "storage_full"
    assert snapshot(str(disk)) == before


def test_a_copy_of_another_is_left_alone_by_one_that_is_refused(
    logs: dict[Codec, str], tmp_path: Path
) -> None:
    other = Storage().open_lock(str(tmp_path / "new.unfinished.lock"))
    assert other.try_lock()
    (tmp_path / "new.unfinished").mkdir()
    (tmp_path / "new.unfinished" / f"{0:020}.slab").write_bytes(b"its")
    before = snapshot(str(tmp_path))
    with pytest.raises(LockedError):
        aolog.repair(logs["zstd"], tmp_path / "new")
    assert snapshot(str(tmp_path)) == before
    other.close()


def beside(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()} - {"log"}


def assert_complete(into: Path) -> None:
    """The log is there, its map is of it, and nothing is left of any other."""
    assert beside(into.parent) == {into.name, f"{into.name}.map.jsonl"}
    lines = Path(f"{into}.map.jsonl").read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])
    assert last["records"] == len(read_all(str(into)))
    assert last["xxh3"] == xxhash.xxh3_64_hexdigest(b"".join(lines[:-1]))


def test_a_copy_is_refused_where_another_was_completed_while_it_looked(
    log_path: str, tmp_path: Path
) -> None:
    into, made = tmp_path / "new", []
    commands.fill(log_path, [b"x"] * 100)

    def meanwhile(*_: int) -> None:
        if not made:
            made.append(aolog.repair(log_path, into))
            made.append(snapshot(str(tmp_path)))
            commands.fill(log_path, [b"y"] * 50)

    with pytest.raises(UsageError, match="there already"):
        aolog.repair(log_path, into, progress=meanwhile)
    assert made[0].records == 100
    assert_complete(into)
    for name, content in made[1].items():  # the log itself went on
        assert name.startswith("log/") or snapshot(str(tmp_path))[name] == content, name


class Second:
    """Copies to the same place, before the n-th operation of a first."""

    records: int | None = None
    began = False

    def __init__(self, log_path: str, into: Path, n: int) -> None:
        self.log_path, self.into, self.left = log_path, into, n

    def __call__(self, operation: Operation) -> None:
        self.left -= 1
        if self.left != -1:
            return
        self.began, before = True, beside(self.into.parent)
        try:
            self.records = aolog.repair(self.log_path, self.into).records
        except LockedError:
            assert before, operation
        except UsageError:
            assert self.into.exists(), operation
        else:
            assert not before, operation


def test_of_two_copies_to_one_place_the_one_that_began_is_completed(
    log_path: str, tmp_path: Path
) -> None:
    commands.fill(log_path, [b"x"] * 100)
    n, first_made = 0, 0
    while True:
        into = tmp_path / f"to{n}" / "new"
        into.parent.mkdir()
        second, first = Second(log_path, into, n), None
        try:
            first = aolog.repair(log_path, into, storage=WatchedStorage(second)).records
        except UsageError:
            assert second.records == 100
        assert_complete(into)
        if not second.began:
            break
        assert {first, second.records} == {100, None}, n
        first_made += first is not None
        n += 1
    assert 10 < first_made < n


def test_nobody_begins_while_a_copy_that_cannot_be_completed_is_removed(
    log_path: str, tmp_path: Path
) -> None:
    commands.fill(log_path, [b"x"] * 100)
    asked: list[Operation] = []

    def second(operation: Operation) -> None:
        if asked or operation == ("rename", "new"):
            asked.append(operation)
            with pytest.raises(LockedError):
                aolog.repair(log_path, tmp_path / "new")
        if len(asked) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        aolog.repair(log_path, tmp_path / "new", storage=WatchedStorage(second))
    assert len(asked) > 4
    assert beside(tmp_path) == set()
    aolog.repair(log_path, tmp_path / "new")
    assert_complete(tmp_path / "new")


def test_the_map_leads_from_each_record_and_cursor_to_the_same_one(
    logs: dict[Codec, str], tmp_path: Path
) -> None:
    for path in [logs["mixed"], logs["queuefka"]]:
        records = read_all(path)
        for n in (0, 1, 17, len(records) // 2, len(records) - 1):
            with aolog.Reader(path, cursor=f"c{n}") as reader:
                reader.seek(records[n].address)
                reader.commit()
        done = aolog.repair(path, tmp_path / Path(path).name)
        new = read_all(done.into)
        lines = [json.loads(line) for line in Path(done.map_path).read_text().splitlines()]
        cursors = {line["cursor"]: line["new"] for line in lines if "cursor" in line}
        assert {
            f"c{n}": new[n].address
            for n in (0, 1, 17, len(records) // 2, len(records) - 1)
        } == cursors  # fmt: skip
        at = {record.address: record.value for record in new}
        runs = [(line["old"], line["new"]) for line in lines if "new" in line and "old" in line]
        moved = {
            old + i: to + i
            for (old, end), (to, _) in (run for run in runs if isinstance(run[0], list))
            for i in range(end - old)
        }
        assert [at[moved[r.address]] for r in records] == [r.value for r in records]


def test_a_directory_that_is_removed_is_gone_once_that_is_synced() -> None:
    system = SimulatedSystem()
    storage = Storage(system)
    storage.make_directory("/a/b")
    storage.write_file("/a/b/f", [b"x"])
    with pytest.raises(aolog.StorageError):
        storage.remove_directory("/a/b")
    storage.unlink("/a/b/f")
    storage.remove_directory("/a/b")
    storage.remove_directory("/a/b")
    left = {frozenset(survivor.system.files()) for survivor in system.power_cut(100)}
    assert left == {
        frozenset({"/a"}), frozenset({"/a", "/a/b"}), frozenset({"/a", "/a/b", "/a/b/f"}),
    }  # fmt: skip
    system = SimulatedSystem(faults=[Fault("rmdir", errno=5)])
    system.mkdir("/a")
    with pytest.raises(aolog.StorageError):
        Storage(system).remove_directory("/a")
