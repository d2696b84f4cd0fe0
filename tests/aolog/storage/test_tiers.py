"""A local log and its archive, read as one log; here the archive is in a directory."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

import aolog
from aolog.errors import CorruptionError, NotALog, UsageError
from aolog.log.directory import Log
from aolog.log.tiers import with_archive
from aolog.storage.storage import Storage
from tests.aolog.commands import failure, well
from tests.aolog.storage.test_objects import entry_of, publish, url, written

pytest.importorskip("obstore")

from aolog.storage.objects import system as object_system


@pytest.fixture(autouse=True)
def another_system():
    object_system.object_system.cache_clear()


class Tiers:
    """A log, its archive, and all records that the log ever had."""

    def __init__(self, where: Path) -> None:
        self.log, self.archive = where / "log", where / "archive"
        written(self.log, 12000)
        self.records = list(aolog.Reader(self.log))
        self.sequence = 0

    @property
    def url(self) -> str:
        return url(self.archive)

    @property
    def slabs(self) -> list[Path]:
        return sorted(self.log.glob("*.slab"))

    def ship(self, count: int, end: int | None = None) -> None:
        """The archive has the first slabs. end: bytes of the last of them."""
        chosen = self.slabs[:count]
        ends = [None] * (count - 1) + [end]
        entries = [entry_of(slab, self.archive, e) for slab, e in zip(chosen, ends, strict=True)]
        self.sequence += 1
        publish(self.archive, str(self.log), entries, self.sequence)

    def prune(self, count: int) -> None:
        for slab in self.slabs[:count]:
            slab.unlink()

    def reader(self, *args, **options) -> aolog.Reader:
        return aolog.Reader(self.log, *args, archive=self.url, **options)


@pytest.fixture
def tiers(tmp_path) -> Tiers:
    return Tiers(tmp_path)


def whole(reader: aolog.Reader) -> list[aolog.Record]:
    with reader:
        got = list(reader)
        assert reader.gaps == []
    return got


@pytest.mark.parametrize(("shipped", "end", "pruned"), [
    (1, None, 0), (2, None, 2), (4, None, 1), (4, None, 4), (5, 9000, 3), (5, 9000, 4),
])  # fmt: skip  # a table
def test_each_record_is_read_once_wherever_its_slab_is(tiers, shipped, end, pruned):
    assert len(tiers.slabs) > 5
    tiers.ship(shipped, end)
    tiers.prune(pruned)
    assert whole(tiers.reader()) == tiers.records
    middle = tiers.records[1]
    with tiers.reader(middle.address) as reader:
        assert reader.read() == middle
        assert reader.ordinal == 2
        reader.seek(ordinal=3000)
        assert reader.read() == tiers.records[3000]


def test_a_slab_that_is_near_is_not_fetched(tiers):
    tiers.ship(4)
    objects = [path for path in tiers.archive.rglob("*") if path.name != "archive.json"]
    assert len(objects) >= 4
    for path in filter(Path.is_file, objects):
        path.unlink()
    assert whole(tiers.reader()) == tiers.records


def test_a_reader_goes_on_in_the_archive_when_slabs_are_archived_and_pruned_meanwhile(tiers):
    tiers.ship(1)
    with tiers.reader() as reader:
        got = [reader.read() for _ in range(10)]
        tiers.ship(5)
        tiers.prune(5)
        got += list(reader)
        assert (got, reader.gaps) == (tiers.records, [])


def test_a_reader_that_opens_between_a_commit_and_a_pruning_misses_nothing(tiers):
    tiers.ship(1)
    tiers.reader().close()  # the archive's list is known now
    tiers.ship(4)
    tiers.prune(4)
    assert whole(tiers.reader()) == tiers.records


def test_a_follower_of_both_gets_what_is_appended(tiers):
    tiers.ship(3)
    tiers.prune(3)
    with tiers.reader() as reader:
        assert list(reader) == tiers.records
        with aolog.Writer(tiers.log) as log:
            log.append(b"more")
        assert [record.value for record in reader] == [b"more"]


def test_a_cursor_goes_on_in_what_was_pruned_after_it_was_archived(tiers):
    with aolog.Reader(tiers.log, cursor="c", protect=False) as reader:
        got = [reader.read() for _ in range(100)]
        reader.commit()
    tiers.ship(4)
    tiers.prune(4)
    with tiers.reader(cursor="c") as reader:
        got += list(reader)
        reader.commit()
    assert got == tiers.records
    with aolog.Reader(tiers.log, cursor="c") as reader:
        assert reader.read() is None


def test_a_local_log_that_was_put_back_does_not_hide_what_the_archive_has(tiers):
    tiers.ship(3)
    third = tiers.slabs[2]
    for slab in tiers.slabs[3:]:
        slab.unlink()
    third.write_bytes(third.read_bytes()[:9000])
    shipped = [r for r in tiers.records if r.address < int(third.stem)]
    got = whole(tiers.reader())
    assert got == tiers.records[: len(got)]
    assert got[-1].address > int(third.stem) + 9000
    assert len(got) > len(shipped)


def test_a_slab_that_is_lost_in_the_middle_is_read_from_the_archive(tiers):
    tiers.ship(4)
    tiers.slabs[2].unlink()
    assert whole(tiers.reader()) == tiers.records


def test_what_neither_has_is_a_gap_with_its_count(tiers):
    tiers.ship(2)
    bases = [int(slab.stem) for slab in tiers.slabs]
    lost = sum(bases[2] <= r.address < bases[4] for r in tiers.records)
    tiers.prune(4)
    with tiers.reader() as reader:
        assert list(reader) == [r for r in tiers.records if not bases[2] <= r.address < bases[4]]
        (gap,) = reader.gaps
    assert (gap.begin, gap.end, gap.records_lost) == (bases[2], bases[4], lost)


def test_an_archive_of_another_log_is_refused(tiers, tmp_path):
    other = tmp_path / "other"
    written(other, 100)
    tiers.ship(2)
    with pytest.raises(CorruptionError, match="it is the archive of the log"):
        aolog.Reader(other, archive=tiers.url)
    with tiers.reader() as reader:
        publish(tiers.archive, str(other), [], 9)
        object_system.object_system().looked_at()[0].forget()
        with pytest.raises(CorruptionError, match="it is the archive of the log"):
            reader.seek(0)
            Log(with_archive(tiers.log, tiers.url), Storage())


@pytest.mark.parametrize("cut", [0, 9000])
def test_two_histories_are_refused(tiers, cut):
    tiers.ship(4)
    third = tiers.slabs[2]
    for slab in tiers.slabs[3 if cut else 2 :]:
        slab.unlink()
    if cut:
        third.write_bytes(third.read_bytes()[:cut])
    with aolog.Writer(tiers.log) as log:
        log.append(b"another history")
    with pytest.raises(CorruptionError, match="two copies of the log were written"):
        list(tiers.reader())


@pytest.mark.parametrize("what", ["format 1", "no archive", "no URL"])
def test_what_cannot_be_one_log_is_refused(tiers, tmp_path, what):
    tiers.ship(1)
    if what == "format 1":
        with aolog.Writer(tmp_path / "old", format="queuefka") as log:
            log.append(b"x")
        with pytest.raises(UsageError, match="no UUID"):
            aolog.Reader(tmp_path / "old", archive=tiers.url)
    elif what == "no archive":
        with pytest.raises(NotALog, match="no archive"):
            aolog.Reader(tiers.log, archive=url(tmp_path))
    else:
        with pytest.raises(UsageError, match="is not the URL of a store"):
            aolog.Reader(tiers.log, archive=str(tmp_path))


def test_the_command_reads_both(tiers):
    everything = well("read", tiers.log).stdout
    tiers.ship(3)
    tiers.prune(3)
    assert well("read", tiers.log, "--archive", tiers.url).stdout == everything
    assert well("read", tiers.log).stdout != everything
    assert failure("read", tiers.log, "--archive", url("/nowhere"))["code"] == "not_a_log"


def test_a_path_with_an_archive_survives_pickling(tiers):
    tiers.ship(1)
    path = with_archive(tiers.log, tiers.url)
    again = pickle.loads(pickle.dumps(path))
    assert (again, again.url, again.uuid) == (path, path.url, path.uuid)
    shutil.rmtree(tiers.archive)
    object_system.object_system.cache_clear()
    with pytest.raises(NotALog, match="the archive does not exist"):
        Log(again, Storage())
