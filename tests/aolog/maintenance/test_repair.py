"""A repaired log is the same log: records, addresses, gaps and counts, and nothing else is damaged.

Every case of damage that test_gaps.py has is repaired, read in every way, and repaired again.
The whole file takes about 25 s.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import aolog
from aolog.errors import (
    HeaderLost,
    LogLocked,
    NotALog,
    PermissionDenied,
    StorageFailed,
    StorageFull,
    UsageError,
)
from aolog.format.slab import DATA_BEGIN, slab_name
from aolog.record import Gap
from aolog.storage.files import File, Storage
from tests.aolog.commands import fill, run
from tests.aolog.conftest import (
    WAYS,
    Killed,
    Operation,
    WatchedStorage,
    Way,
    by_iteration,
    copy_of,
    in_thread,
    kill,
    one_by_one,
    raising_at,
    read_all,
    slab_files,
    snapshot,
)
from tests.aolog.read import test_gaps
from tests.aolog.read.test_gaps import CASES, Built, build


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    where = tmp_path_factory.mktemp("repair")
    return {
        "sealed": build(str(where / "sealed"), closed=True),
        "open": build(str(where / "open"), closed=False),
        "marked": build(str(where / "marked"), closed=False, marks=True),
    }


@pytest.fixture
def damaged(shapes: dict[str, Built], tmp_path: Path) -> Callable[[str], Built]:
    """The case, carried out on a copy."""

    def make(name: str) -> Built:
        shape, damage = CASES[name]
        path = tmp_path / "log"
        shutil.copytree(shapes[shape].path, path)
        log = shapes[shape].at(str(path))
        damage(log)
        return log

    return make


def assert_same_gaps(before: list[Gap], after: list[Gap]) -> None:
    """Every gap that lost a record is told as it was, but that a damaged seal which is there again
    is no part of it; a gap that was nothing else is gone."""
    waiting = list(after)
    for gap in before:
        same = [g for g in waiting if g.begin >= gap.begin and g.end <= gap.end]
        if not same:
            assert gap.records_lost == 0, gap
            continue
        assert same[0][2:] == gap[2:]
        assert gap.begin == same[0].begin or gap.end == same[0].end
        waiting.remove(same[0])
    assert waiting == []


@pytest.mark.parametrize("name", CASES)
def test_a_repaired_log_reads_as_it_did(damaged: Callable[[str], Built], name: str) -> None:
    log = damaged(name)
    before, old = one_by_one(log.path), aolog.verify(log.path)
    done = aolog.repair(log.path)
    after = aolog.verify(log.path)
    assert_same_gaps(before.gaps, after.gaps)
    assert (done.records, done.gaps) == (after.records, after.gaps)
    assert after.records == old.records
    assert (after.end, after.tail_bytes) == (old.end, old.tail_bytes) or "on_its_way" in name
    assert after.problems == done.left == []
    for way in WAYS:
        assert way(log.path) == Way(before.records, after.gaps)


@pytest.mark.parametrize("name", CASES)
def test_a_second_repair_finds_nothing_to_do(damaged: Callable[[str], Built], name: str) -> None:
    log = damaged(name)
    first = aolog.repair(log.path)
    there = snapshot(log.path)
    second = aolog.repair(log.path)
    assert (second.slabs, second.cursors, second.aside) == ([], [], None)
    assert snapshot(log.path) == there
    assert second.gaps == first.gaps


@pytest.mark.parametrize("name", CASES)
def test_records_of_a_repaired_log_are_found_at_their_addresses_ordinals_and_times(
    damaged: Callable[[str], Built], name: str
) -> None:
    log = damaged(name)
    left = read_all(log.path)
    aolog.repair(log.path)
    ordinals = {record.address: i for i, record in enumerate(log.records)}
    with aolog.Reader(log.path) as reader:
        for record in left[::7]:
            reader.seek(record.address)
            assert reader.read() == record
            reader.seek(ordinal=ordinals[record.address])
            assert reader.read() == record
        for stamp, record in {r.timestamp: r for r in reversed(left)}.items():
            reader.seek(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=stamp))
            assert reader.read() == record


@pytest.mark.parametrize("name", CASES)
def test_a_writer_opens_a_repaired_log_as_it_would_have_opened_the_damaged_one(
    damaged: Callable[[str], Built], name: str
) -> None:
    log = damaged(name)
    if "on_its_way" in name and "seal" in name:
        pytest.skip("a mended seal is gone on behind; the damaged one would have been cut")
    twin = copy_of(log.path, Path(log.path).with_name("twin"))
    aolog.repair(log.path)
    openings = []
    for path in (log.path, twin):
        with aolog.Writer(path) as writer:
            openings.append(writer.opening)
            address = writer.append(b"behind")
        assert (read_all(path)[-1].address, read_all(path)[-1].value) == (address, b"behind")
    assert openings[0].cut_bytes == openings[1].cut_bytes


@pytest.mark.parametrize("name", CASES)
def test_originals_are_kept_byte_for_byte(damaged: Callable[[str], Built], name: str) -> None:
    log = damaged(name)
    before = snapshot(log.path)
    done = aolog.repair(log.path)
    for mended in done.slabs:
        assert mended.kept is not None
        assert Path(mended.kept).read_bytes() == before[slab_name(mended.base)]
    untouched = set(before) - {slab_name(mended.base) for mended in done.slabs}
    after = snapshot(log.path)
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    assert not [name for name in after if name.endswith(".tmp")]


@pytest.mark.parametrize("name", CASES)
def test_a_dry_run_touches_nothing_and_says_what_is_done(
    damaged: Callable[[str], Built], name: str
) -> None:
    log = damaged(name)
    before = snapshot(log.path)
    told = aolog.repair(log.path, dry_run=True)
    assert snapshot(log.path) == before
    done = aolog.repair(log.path)
    assert [slab[:3] for slab in told.slabs] == [slab[:3] for slab in done.slabs]
    assert told.needed_bytes == done.needed_bytes


def test_the_next_writer_goes_on_in_the_same_epoch_where_the_file_was_the_writer_s_own(
    log_path: str, tmp_path: Path
) -> None:
    fill(log_path, [b"x"] * 5)
    copied = copy_of(log_path, tmp_path / "copy")
    for path, case in ((log_path, "@B sealed"), (copied, "@K copied")):
        test_gaps.flip(slab_files(path)[0], 4096, 512)
        assert len(aolog.repair(path).slabs) == 1
        with aolog.Writer(path) as writer:
            assert writer.opening.case == case


# --- any damage ------------------------------------------------------------------------------


def grow(path: str, random_: random.Random) -> None:
    """A log of several epochs: some writers close, some die, some with a torn end."""
    for _ in range(random_.randrange(1, 5)):
        writer = aolog.Writer(
            path,
            slab_bytes=DATA_BEGIN + random_.randrange(200, 3000),
            batch_bytes=random_.choice([0, 300]),
            flush_seconds=None,
            sync="never",
        )
        for i in range(random_.randrange(40)):
            key = random_.choice([None, b"k%d" % i])
            writer.append(random_.randbytes(random_.randrange(60)), key=key)
            if random_.random() < 0.2:
                random_.choice([writer.flush, writer.sync])()
        if random_.random() < 0.5:
            writer.close()
            continue
        writer.flush()
        kill(writer)
        if random_.random() < 0.5:
            with slab_files(path)[-1].open("ab") as file:
                file.write(random_.randbytes(random_.randrange(1, 90)))


def harm(path: str, random_: random.Random) -> None:
    """One damage, anywhere."""
    slab = random_.choice(slab_files(path))
    data = bytearray(slab.read_bytes())
    if not data:
        return
    at = random_.randrange(len(data))
    at = at if random_.random() < 0.7 else random_.choice([3, 4099, len(data) - 5]) % len(data)
    length = random_.choice([1, 1, 8, 100, 700])
    match random_.randrange(10):
        case 0 | 1 | 2 | 3:
            data[at] ^= 1 << random_.randrange(8)
        case 4:
            data[at : at + length] = bytes(len(data[at : at + length]))
        case 5:
            data[at : at + length] = random_.randbytes(len(data[at : at + length]))
        case 6:
            del data[at:]
        case 7:
            data += random_.randbytes(length)
        case 8:
            if len(slab_files(path)) > 1:
                slab.unlink()
                return
        case 9:
            data[at:at] = random_.randbytes(length)
    slab.write_bytes(data)


@pytest.mark.parametrize("seeds", [40, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_any_damage_is_repaired_to_the_same_log(tmp_path: Path, seeds: int) -> None:
    """Random logs under random damage. About 5 s."""
    for seed in range(seeds):
        random_ = random.Random(seed)
        path = str(tmp_path / str(seed))
        grow(path, random_)
        with aolog.Reader(path, cursor="c") as reader:
            for _ in range(random_.randrange(40)):
                reader.read()
            reader.commit()
        for _ in range(random_.randrange(1, 5)):
            harm(path, random_)
        before = by_iteration(path)
        resumed = by_iteration(path, cursor="c").records
        damage = [f for f in aolog.verify(path).findings if f.damage]
        try:
            done = aolog.repair(path)
        except HeaderLost:
            assert not before.records
            continue
        after = by_iteration(path)
        assert after.records == before.records, seed
        assert_same_gaps(before.gaps, after.gaps)
        assert by_iteration(path, cursor="c").records == resumed, seed
        report = aolog.verify(path)
        assert report.gaps == after.gaps == done.gaps, seed
        assert report.problems == done.left
        for left in report.findings:
            unknown = left.code == "seal" and left.path == str(slab_files(path)[-1])
            assert not left.damage or left.code == "renamed" or unknown, (seed, left, damage)
        assert aolog.repair(path).slabs == [], seed
        shutil.rmtree(path)


def test_a_damaged_seal_before_an_emptied_last_slab_is_repaired(log_path: str) -> None:
    """The gap over the seal reaches the last slab's begin; the seal's part of it goes away."""
    log = build(log_path, closed=True)
    seal = log.seals[-2]
    assert seal is not None
    test_gaps.flip(log.slabs[-2], seal.begin + 60)
    log.slabs[-1].write_bytes(b"")
    before = one_by_one(log.path)
    assert before.gaps == [Gap(log.base(2) + seal.begin, log.base(3), "corrupt", None)]
    done = aolog.repair(log.path)
    assert [(slab.base, slab.why) for slab in done.slabs] == [
        (log.base(2), ["the seal and its index", "damaged bytes: zeros now"])
    ]
    after = one_by_one(log.path)
    assert after.records == before.records == log.records[: 3 * test_gaps.PER_SLAB]
    assert after.gaps == done.gaps == [Gap(log.base(3), log.base(3), "corrupt", None)]
    assert aolog.repair(log.path).slabs == []


@pytest.mark.parametrize("at", [0, 8, 40, 200, -24])
def test_a_seal_into_which_bytes_were_inserted_is_made_anew_where_it_was(
    log_path: str, at: int
) -> None:
    log = build(log_path, closed=True)
    seal = log.seals[-1]
    assert seal is not None
    original = log.slabs[-1].read_bytes()
    place = (seal.begin if at >= 0 else seal.end) + at
    inserted = original[:place] + bytes(range(1, 65)) + original[place:]
    log.slabs[-1].write_bytes(inserted)
    before = one_by_one(log.path)
    assert before == Way(log.records, [])
    done = aolog.repair(log.path)
    assert [slab.why for slab in done.slabs] == [["the seal and its index"]]
    assert one_by_one(log.path) == before
    report = aolog.verify(log.path)
    assert (report.ok, report.end) == (True, log.base(3) + len(original))
    assert done.slabs[0].kept is not None
    assert Path(done.slabs[0].kept).read_bytes() == inserted
    with aolog.Writer(log.path) as writer:
        assert writer.opening.case == "@B sealed"
    assert aolog.repair(log.path).slabs == []


# --- cursors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_cursors_resume_where_they_stood(damaged: Callable[[str], Built], name: str) -> None:
    log = damaged(name)
    for i in range(1, 6):
        with aolog.Reader(log.path, cursor=f"c{i}") as reader:
            for _ in range(i * 27):
                reader.read()
            reader.commit()
    expected = {i: by_iteration(log.path, cursor=f"c{i}").records for i in range(1, 6)}
    cursors = {path: path.read_bytes() for path in Path(log.path, "cursors").iterdir()}
    aolog.repair(log.path)
    assert {path: path.read_bytes() for path in Path(log.path, "cursors").iterdir()} == cursors
    for i, records in expected.items():
        assert by_iteration(log.path, cursor=f"c{i}").records == records


def commit(path: str, name: str, *counts: int) -> Path:
    with aolog.Reader(path, cursor=name) as reader:
        for count in counts:
            for _ in range(count):
                reader.read()
            reader.commit()
    return Path(path, "cursors", f"{name}.cursor")


@pytest.mark.parametrize("commits", [2, 3])
def test_a_damaged_cursor_copy_is_written_anew(log_path: str, commits: int) -> None:
    fill(log_path, [b"%d" % i for i in range(10)])
    file = commit(log_path, "c", *[1] * commits)
    for at in (0, 4096):
        test_gaps.flip(file, at + 20)
        (cursor,) = aolog.verify(log_path).cursors
        assert (cursor.state, cursor.copies) == ("ok", (at != 0, at == 0))
        before = by_iteration(log_path, cursor="c").records
        assert aolog.repair(log_path).cursors == ["c"]
        assert aolog.verify(log_path).cursors[0].copies == (True, True)
        assert by_iteration(log_path, cursor="c").records == before
        assert aolog.verify(log_path).ok


def test_a_cursor_that_a_reader_holds_is_left_to_it(log_path: str) -> None:
    fill(log_path, [b"%d" % i for i in range(10)])
    file = commit(log_path, "c", 1, 1)
    test_gaps.flip(file, 4096 + 20)
    with aolog.Reader(log_path, cursor="c") as reader:
        assert aolog.repair(log_path).cursors == []
        reader.read()
        reader.commit()
    assert aolog.verify(log_path).ok


# --- what is refused -------------------------------------------------------------------------


@pytest.fixture
def broken(shapes: dict[str, Built], tmp_path: Path) -> Built:
    """A log with a damaged frame, header copy and seal."""
    path = tmp_path / "log"
    shutil.copytree(shapes["sealed"].path, path)
    log = shapes["sealed"].at(str(path))
    test_gaps.body(log.frames[1][2])
    test_gaps.flip(log.slabs[0], 0, 512)
    test_gaps.head(log.seals[2]._replace(slab=log.slabs[2]))
    return log


def assert_refused(path: str, error: type[Exception], **options: object) -> Exception:
    before = snapshot(path)
    with pytest.raises(error) as raised:
        aolog.repair(path, **options)
    assert snapshot(path) == before
    return raised.value


def test_a_live_writer_is_refused_before_anything_is_touched(broken: Built) -> None:
    with aolog.Writer(broken.path):
        assert_refused(broken.path, LogLocked)
        assert_refused(broken.path, LogLocked, dry_run=True)
        assert run("repair", broken.path).exit_code == 5


def test_a_writer_is_refused_while_a_log_is_repaired(broken: Built) -> None:
    refused = []

    def before(operation: object) -> None:
        if not refused:
            with pytest.raises(LogLocked):
                aolog.Writer(broken.path)
            refused.append(operation)

    aolog.repair(broken.path, storage=WatchedStorage(before))
    assert refused


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"text")
    for path in (file, tmp_path / "nothing", tmp_path):
        with pytest.raises(NotALog):
            aolog.repair(path)
    assert run("repair", file).exit_code == 2


def test_a_log_without_any_header_is_refused(broken: Built) -> None:
    for slab in broken.slabs:
        test_gaps.zeros(slab, 0, DATA_BEGIN)
        test_gaps.trailer(slab)
    assert_refused(broken.path, HeaderLost)


def test_a_slab_that_is_a_symbolic_link_is_not_replaced(broken: Built, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    broken.slabs[1].rename(elsewhere)
    broken.slabs[1].symlink_to(elsewhere)
    error = assert_refused(broken.path, aolog.StorageFailed)
    assert "symbolic link" in str(error)


def test_a_log_behind_a_symbolic_link_is_repaired(broken: Built, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(broken.path)
    before = one_by_one(broken.path)
    assert len(aolog.repair(link).slabs) == 3
    assert one_by_one(broken.path).records == before.records


def test_too_little_room_is_told_before_anything_is_written(broken: Built) -> None:
    class Full(Storage):
        def free_bytes(self, path: str) -> int:
            return 5

    error = assert_refused(broken.path, StorageFull, storage=Full())
    needed = aolog.repair(broken.path, dry_run=True).needed_bytes
    assert error.details["needed"] == needed
    assert str(needed) in str(error)


def test_a_disk_that_is_full_changes_nothing(broken: Built) -> None:
    before = {n: data for n, data in snapshot(broken.path).items() if n.endswith(".slab")}
    way = one_by_one(broken.path)
    n = 0
    while True:
        storage = WatchedStorage(raising_at(n, lambda: StorageFull("no room", path="x")))
        storage.unlink = Storage().unlink  # room can always be made
        try:
            aolog.repair(broken.path, storage=storage)
            break
        except StorageFull:
            n += 1
        assert one_by_one(broken.path).records == way.records
        renamed = storage.count("rename") > 0 and any(
            op.what == "rename" and op.name.endswith(".slab") for op in storage.operations
        )
        if not renamed:
            now = {n: d for n, d in snapshot(broken.path).items() if n.endswith(".slab")}
            assert {n: d for n, d in now.items() if "aside" not in n} == before
            assert not list(Path(broken.path).glob("*.tmp"))
    assert n > 10


def test_a_real_full_disk_is_told_and_nothing_is_changed(
    broken: Built, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(2 << 20)
    path = str(disk / "log")
    shutil.copytree(broken.path, path)
    (disk / "ballast").write_bytes(bytes(1 << 20))
    assert_refused(path, StorageFull)
    assert run("repair", path).exit_code == 4
    (disk / "ballast").unlink()
    assert len(aolog.repair(path).slabs) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_directory_that_may_not_be_written_is_told(broken: Built) -> None:
    parent = Path(broken.path).parent
    while parent != Path("/tmp"):
        parent.chmod(0o755)
        parent = parent.parent
    before = snapshot(broken.path)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            aolog.repair(broken.path)
        except PermissionDenied:
            os._exit(4)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert snapshot(broken.path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_repaired_slab_keeps_its_owner_its_mode_and_its_time(broken: Built) -> None:
    for path in broken.slabs:
        os.chown(path, 65534, 65534)
    broken.slabs[1].chmod(0o600)
    os.utime(broken.slabs[1], ns=(10**18, 10**18))
    aolog.repair(broken.path)
    for path in broken.slabs:
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534), path
    assert broken.slabs[1].stat().st_mode & 0o777 == 0o600
    assert broken.slabs[1].stat().st_mtime_ns == 10**18


def test_where_there_are_no_hard_links_originals_are_copied(broken: Built) -> None:
    class WithoutLinks(Storage):
        def link(self, old: str, new: str) -> bool:
            return False

    originals = {slab.name: slab.read_bytes() for slab in broken.slabs}
    done = aolog.repair(broken.path, storage=WithoutLinks())
    assert len(done.slabs) == 3
    for mended in done.slabs:
        assert Path(mended.kept).read_bytes() == originals[Path(mended.kept).name]


def test_progress_goes_on_to_the_end(broken: Built, tmp_path: Path) -> None:
    for options in ({"dry_run": True}, {"into": tmp_path / "new"}, {}):
        told: list[tuple[int, int]] = []
        aolog.repair(broken.path, progress=lambda *at, told=told: told.append(at), **options)
        done = [at for at, _ in told]
        assert done == sorted(done)
        assert told[-1][0] == told[-1][1] > 0


# --- beside others ---------------------------------------------------------------------------


def test_readers_that_are_open_read_on(broken: Built) -> None:
    expected = one_by_one(broken.path)
    readers = []
    for n in (0, 55, 120, 170):
        reader = aolog.Reader(broken.path)
        readers.append((reader, [reader.read() for _ in range(n)]))
    aolog.repair(broken.path)
    for reader, read in readers:
        with reader:
            assert [r for r in read if r] + list(reader) == expected.records
            assert [g[2:] for g in reader.gaps if g.records_lost] == [("corrupt", 10)]


def test_a_follower_goes_on_with_the_next_writer(shapes: dict[str, Built], tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    shutil.copytree(shapes["open"].path, path)
    log = shapes["open"].at(path)
    test_gaps.flip(log.slabs[3], 0, 512)
    with aolog.Reader(path, "latest") as reader:
        assert reader.read() is None
        assert len(aolog.repair(path).slabs) == 1
        with aolog.Writer(path) as writer:
            writer.append(b"new")
        assert [record.value for record in reader] == [b"new"]
        assert reader.gaps == []


def test_a_slab_that_is_pruned_meanwhile_does_not_come_back(broken: Built) -> None:
    def before(operation: object) -> None:
        if operation == ("write", slab_name(0) + ".tmp") and broken.slabs[0].exists():
            broken.slabs[0].unlink()

    aolog.repair(broken.path, storage=WatchedStorage(before))
    assert not broken.slabs[0].exists()
    assert not list(Path(broken.path).glob("*.tmp"))


class _PrunedAtOpening(Storage):
    """A slab is pruned by somebody when it is to be opened for the n-th time; not any more once the
    retention lock is taken."""

    def __init__(self, slab: Path, n: int) -> None:
        super().__init__()
        self.slab, self.n, self.opened, self.locked = slab, n, 0, False

    def open_lock(self, path: str) -> File:
        self.locked = True
        return super().open_lock(path)

    def open_read(self, path: str) -> File:
        if path == str(self.slab) and not self.locked:
            self.opened += 1
            if self.opened == self.n:
                self.slab.unlink()
        return super().open_read(path)


def test_a_slab_may_be_pruned_whenever_it_is_opened(broken: Built, tmp_path: Path) -> None:
    test_gaps.body(broken.frames[0][0])
    n = 0
    while True:
        n += 1
        path = copy_of(broken.path, tmp_path / str(n))
        storage = _PrunedAtOpening(Path(path) / slab_name(0), n)
        aolog.repair(path, storage=storage)
        if storage.opened < n:
            break
        assert not storage.slab.exists()
        assert not list(Path(path).glob("*.tmp"))
        assert aolog.repair(path).slabs == []
    assert n > 6  # looked at, read, finished, held against zeros, copied, salvaged from


def test_pruning_waits_for_the_replacement(broken: Built) -> None:
    waiting = []

    def before(operation: object) -> None:
        if operation[0] == "rename" and operation[1].endswith(".slab") and not waiting:
            from aolog.log.retention import prune

            call = in_thread(lambda: prune(broken.path, Storage(), aolog.Retention(max_slabs=1)))
            assert call.waits()
            waiting.append(call)

    aolog.repair(broken.path, storage=WatchedStorage(before))
    waiting[0].result()
    assert [slab.name for slab in slab_files(broken.path)] == [broken.slabs[3].name]


# --- killed ----------------------------------------------------------------------------------


def test_killed_at_every_operation_the_log_is_whole_and_repair_goes_on(broken: Built) -> None:
    """Killed before each file operation in turn, each time in the state that the last left."""
    before = one_by_one(broken.path)
    originals = {slab.name: slab.read_bytes() for slab in broken.slabs}
    n = 0
    while True:
        try:
            done = aolog.repair(broken.path, storage=WatchedStorage(raising_at(n, Killed)))
            break
        except Killed:
            n += 1
        now = one_by_one(broken.path)
        assert now.records == before.records
        assert_same_gaps(before.gaps, now.gaps)
    assert n > 20
    assert done.slabs == [] or done.aside is not None
    assert aolog.verify(broken.path).problems == []
    kept = {at.name: at.read_bytes() for at in Path(broken.path, "aside").rglob("*.slab")}
    assert set(kept) == {broken.slabs[i].name for i in (0, 1, 2)}
    assert all(originals[name] == data for name, data in kept.items())
    assert list(Path(broken.path, "aside").rglob("salvage.jsonl"))


class WatchedWithLinks(WatchedStorage):
    """Second names are told too."""

    def link(self, old: str, new: str) -> bool:
        self.meet("link", new, lambda: self.system.link(old, new))
        return True


def test_each_step_of_a_repair_is_durable_before_the_next(broken: Built) -> None:
    """The copies, the originals' second names, the swap."""
    storage = WatchedWithLinks()
    did = storage.operations
    names = {Path(slab.path).name for slab in aolog.repair(broken.path, storage=storage).slabs}
    assert len(names) > 1
    first_link = next(i for i, one in enumerate(did) if one.what == "link")
    first_swap = next(i for i, one in enumerate(did) if one.what == "rename" and one.name in names)
    copied = did[:first_link]
    for name in names:
        assert [one.what for one in copied if one.name == f"{name}.tmp"][-2:] == [
            "write",
            "datasync",
        ]
    assert {one.name for one in did[first_link:first_swap] if one.what == "link"} == names
    assert did[first_swap - 1] == Operation("sync", "repair-0001")
    assert did[first_swap - 2].what == "link"
    assert did[first_swap : first_swap + len(names) + 1] == [
        *(Operation("rename", name) for name in sorted(names)),
        Operation("sync", "log"),
    ]


def test_a_copy_that_does_not_read_as_the_log_replaces_nothing(broken: Built) -> None:
    """A device that writes other bytes than it was given."""
    before = {slab.name: slab.read_bytes() for slab in broken.slabs}

    class Altering(File):
        def pwrite_all(self, parts: Sequence[bytes], offset: int) -> None:
            data = bytearray(b"".join(map(bytes, parts)))
            data[-1] ^= 1
            super().pwrite_all([bytes(data)], offset)

    class Device(Storage):
        def create(self, path: str) -> File:
            made = super().create(path)
            altering = Altering(path, os.dup(made.fd))
            made.close()
            return altering if path.endswith(".slab.tmp") else File(path, os.dup(altering.fd))

    with pytest.raises(StorageFailed):
        aolog.repair(broken.path, storage=Device())
    assert {slab.name: slab.read_bytes() for slab in slab_files(broken.path)} == before
    assert not list(Path(broken.path).rglob("*.tmp"))


def kill_this_process() -> BaseException:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.parametrize("kills", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_killed_at_random_moments_the_log_is_whole(
    shapes: dict[str, Built], tmp_path: Path, kills: int
) -> None:
    """SIGKILL of a process that repairs, until so many of them met it at work. About 3 s."""
    random_ = random.Random(5)
    killed = rounds = 0
    took_s = 0.05
    while killed < kills:
        path = str(tmp_path / f"{rounds}")
        shutil.copytree(shapes["sealed"].path, path)
        log = shapes["sealed"].at(path)
        test_gaps.body(log.frames[1][2])
        test_gaps.flip(log.slabs[0], 4096, 512)
        test_gaps.head(log.seals[2]._replace(slab=log.slabs[2]))
        test_gaps.all_copies_of_the_last_header(log)
        before = one_by_one(path)
        rounds += 1
        while True:
            began_s = time.monotonic()
            child = os.fork()
            if child == 0:
                aolog.repair(path)
                os._exit(0)
            time.sleep(random_.random() * took_s)
            os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            now = one_by_one(path)
            assert now.records == before.records
            assert_same_gaps(before.gaps, now.gaps)
            if status == 0:
                took_s = max(0.01, time.monotonic() - began_s)
                break
            assert status == -signal.SIGKILL
            killed += 1
            took_s *= 1.05  # a machine that is slower than it was
        assert aolog.verify(path).problems == []
        assert aolog.repair(path).slabs == []
        shutil.rmtree(path)


# --- a new log -------------------------------------------------------------------------------


def lines_of(path: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def check_map(path: str, old: list[aolog.Record], new: list[aolog.Record]) -> None:
    """The map leads from every old record to its new one."""
    import xxhash

    text = Path(path).read_bytes()
    head, *lines, last = lines_of(path)
    assert head["aolog_map"] == 1
    body = text[: text.rstrip(b"\n").rindex(b"\n") + 1]
    assert last == {"records": len(old), "xxh3": xxhash.xxh3_64_hexdigest(body)}
    at = {record.address: record for record in new}
    moved = {}
    for line in lines:
        if "new" in line and "cursor" not in line:
            (old_begin, old_end), (new_begin, new_end) = line["old"], line["new"]
            assert old_end - old_begin == new_end - new_begin > 0
            moved |= dict(zip(range(old_begin, old_end), range(new_begin, new_end), strict=True))
    assert [at[moved[record.address]]._replace(address=0) for record in old] == [
        record._replace(address=0) for record in old
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_fresh_log_has_every_record_and_no_gap(
    damaged: Callable[[str], Built], name: str, tmp_path: Path
) -> None:
    log = damaged(name)
    before = snapshot(log.path)
    way = one_by_one(log.path)
    done = aolog.repair(log.path, tmp_path / "new")
    assert snapshot(log.path) == before
    new = one_by_one(done.into)
    assert new.gaps == []
    assert aolog.verify(done.into).ok
    check_map(done.map_path, way.records, new.records)
    gaps = [line for line in lines_of(done.map_path) if "gap" in line]
    assert [(*line["old"], line["gap"], line["records_lost"]) for line in gaps] == way.gaps


def test_the_map_says_where_cursors_would_stand(log_path: str, tmp_path: Path) -> None:
    addresses = fill(log_path, [b"%d" % i for i in range(30)], batch_bytes=100)
    commit(log_path, "ten", 10)
    commit(log_path, "all", 30)
    done = aolog.repair(log_path, tmp_path / "new")
    new = read_all(done.into)
    found = {line["cursor"]: line for line in lines_of(done.map_path) if "cursor" in line}
    assert found["ten"]["new"] == new[10].address
    assert found["ten"]["old"] <= addresses[10]
    with aolog.Reader(done.into, found["all"]["new"]) as reader:
        assert reader.read() is None


def test_a_fresh_log_keeps_every_part_of_a_record(log_path: str, tmp_path: Path) -> None:
    with aolog.Writer(log_path, topic="default") as log:
        log.append(None, key=b"k", headers=(("h", None), ("h", b"v")), timestamp=-5, topic="other")
        log.append(b"", timestamp=7)
    done = aolog.repair(log_path, tmp_path / "new")
    old, new = read_all(log_path), read_all(done.into)
    assert [r._replace(address=0) for r in old] == [r._replace(address=0) for r in new]
    with aolog.Reader(done.into) as reader:
        assert reader.topic == "default"


def test_a_fresh_log_goes_where_nothing_is(broken: Built, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for into in (tmp_path / "there", Path(broken.path, "inside")):
        assert_refused(broken.path, UsageError, into=into)
    assert_refused(broken.path, UsageError, into=broken.path)
    (tmp_path / "file").write_bytes(b"")
    for dry_run in (True, False):
        assert_refused(broken.path, NotALog, into=tmp_path / "file" / "new", dry_run=dry_run)


def test_a_copy_that_was_killed_is_begun_again(broken: Built, tmp_path: Path) -> None:
    into = tmp_path / "new"
    values = [record.value for record in read_all(broken.path)]
    for n in range(0, 30, 2):
        child = os.fork()
        if child == 0:
            aolog.repair(
                broken.path, into, storage=WatchedStorage(raising_at(n, kill_this_process))
            )
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        assert not into.exists()
    if not into.exists():
        aolog.repair(broken.path, into)
    assert [record.value for record in read_all(str(into))] == values
    assert not into.with_name("new.unfinished").exists()


# --- format 1 --------------------------------------------------------------------------------


def test_format_1_has_nothing_to_mend_in_place(log_path: str, tmp_path: Path) -> None:
    fill(log_path, [b"%05d" % i for i in range(100)], format="queuefka", slab_bytes=300)
    test_gaps.flip(slab_files(log_path)[1], 10)
    before, there = one_by_one(log_path), snapshot(log_path)
    assert before.gaps
    assert aolog.repair(log_path).slabs == []
    assert snapshot(log_path) == there
    done = aolog.repair(log_path, tmp_path / "new")
    assert [r.value for r in read_all(done.into)] == [r.value for r in before.records]
    assert aolog.verify(done.into).ok
