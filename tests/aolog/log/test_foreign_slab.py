"""A slab of another log is never returned as ours, whatever its place, and who we are is decided.

The logs have slabs of the same sizes, so the slab of one can take the place of the other's at any
address. Labels are the rows of FORMAT.md's table in *Identity*.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

import aolog
from aolog.format.slab import DATA_BEGIN
from aolog.log.identity import decide_uuid
from aolog.record import Gap, Record
from tests.aolog.commands import answer, failure, run, well
from tests.aolog.conftest import (
    WAYS,
    Way,
    by_iteration,
    commit,
    fill,
    read_all,
    slab_files,
    unchanged,
)

PER_SLAB = 20
SLAB_BYTES = DATA_BEGIN + 1000  # two frames


class Log(NamedTuple):
    path: str
    slabs: list[Path]
    records: list[Record]
    uuid: str

    def base(self, i: int) -> int:
        return int(self.slabs[i].stem)

    def of(self, *which: int) -> list[Record]:
        """The records of these slabs."""
        return [record for i in which for record in self.records[i * PER_SLAB :][:PER_SLAB]]


def build(path: Path, slabs: int, word: bytes) -> Log:
    """So many slabs of 20 records each."""
    with aolog.Writer(path, slab_bytes=SLAB_BYTES, flush_seconds=None, sync="never") as writer:
        for i in range(slabs * 2):
            writer.append_many([b"%s %020d %050d" % (word, i, j) for j in range(PER_SLAB // 2)])
    files = slab_files(str(path))
    assert len(files) == slabs
    records = read_all(str(path))
    assert len(records) == slabs * PER_SLAB
    with aolog.Reader(path) as reader:
        assert reader.topic_uuid is not None
        return Log(str(path), files, records, reader.topic_uuid.hex())


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Log, Log]]:
    """Ours with so many slabs, and another log of 5, of the same places."""

    def pair(slabs: int) -> tuple[Log, Log]:
        ours, theirs = (
            build(tmp_path / "ours", slabs, b"our"),
            build(tmp_path / "theirs", 5, b"her"),
        )
        assert [slab.name for slab in theirs.slabs[:slabs]] == [slab.name for slab in ours.slabs]
        return ours, theirs

    return pair


def put(ours: Log, theirs: Log, *which: int) -> None:
    """Slabs of the other log over ours."""
    for i in which:
        shutil.copy(theirs.slabs[i], ours.slabs[i])


def take_cursor(ours: Log, theirs: Log, name: str = "stray") -> None:
    """A cursor of the other log's among ours."""
    commit(theirs.path, cursor=name)
    target = Path(ours.path, "cursors")
    target.mkdir(exist_ok=True)
    shutil.copy(Path(theirs.path, "cursors", f"{name}.cursor"), target)


def assert_undecided(log: Log, other: Log) -> None:
    """No one reads or writes it, and the error names what says what."""
    with unchanged(log.path):
        for act in (
            read_all,
            aolog.verify,
            partial(aolog.repair, into=f"{log.path}.copy"),
            aolog.Writer,
        ):
            with pytest.raises(aolog.IdentityUnclear) as caught:
                act(log.path)
            assert log.uuid in str(caught.value)
            assert other.uuid in str(caught.value)
            assert log.slabs[0].name in str(caught.value)
            assert caught.value.exit_status == 3
        for command in (["read"], ["info"], ["verify"], ["repair", "--into", "copy"], ["salvage"]):
            assert failure(*command, log.path)["code"] == "identity_unclear"
        assert failure("append", log.path, given=b"x\n")["code"] == "identity_unclear"


# --- decided: the other log's slabs are gaps --------------------------------------------------


def expect(ours: Log, *foreign: int) -> Way:
    """What is read where slabs of another log are in these places: gaps with counts from what
    follows; none where nothing does, and where the slabs before are not counted either."""
    kept = [i for i in range(len(ours.slabs)) if i not in foreign]
    gaps = []
    for i in foreign:
        end = ours.base(i) + ours.slabs[i].stat().st_size
        lost = None if i == len(ours.slabs) - 1 else PER_SLAB
        if i - 1 in foreign:  # one gap with the slab before
            before = gaps.pop()
            gaps.append(before._replace(end=end, records_lost=lost and before.records_lost + lost))
        else:
            gaps.append(Gap(ours.base(i), end, "foreign", lost))
    return Way(ours.of(*kept), gaps)


PLACES = [(5, (0,)), (5, (2,)), (5, (4,)), (5, (1, 2, 3)), (5, (0, 1)), (5, (3, 4)), (3, (0,)),
          (3, (1,)), (3, (2,))]  # fmt: skip  # slabs, and which are the other log's


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("slabs", "foreign"), PLACES)
def test_a_slab_of_another_log_is_a_gap_however_one_reads(
    make: Callable[[int], tuple[Log, Log]],
    slabs: int,
    foreign: tuple[int, ...],
    way: Callable[..., Way],
) -> None:
    """Rows agree and most."""
    ours, theirs = make(slabs)
    put(ours, theirs, *foreign)
    assert way(ours.path) == expect(ours, *foreign)


def test_a_cursor_resumes_over_it_and_its_lag_counts_what_is_ours(
    make: Callable[[int], tuple[Log, Log]],
) -> None:
    ours, theirs = make(5)
    commit(ours.path, records=PER_SLAB // 2)
    put(ours, theirs, 0, 2)
    with aolog.Reader(ours.path, cursor="c") as reader:
        assert reader.lag().records == 4 * PER_SLAB + PER_SLAB // 2
        assert list(reader) == ours.of(1, 3, 4)
        assert [(gap.reason, gap.records_lost) for gap in reader.gaps] == [
            ("foreign", PER_SLAB // 2),
            ("foreign", PER_SLAB),
        ]
        reader.commit()
        assert reader.lag().records == 0


def test_verify_and_info_name_it(make: Callable[[int], tuple[Log, Log]]) -> None:
    ours, theirs = make(5)
    put(ours, theirs, 0, 3)
    report = aolog.verify(ours.path)
    assert not report.ok
    assert report.gaps == expect(ours, 0, 3).gaps
    damage = [(found.code, found.path) for found in report.findings if found.damage]
    assert damage == [("foreign_slab", str(ours.slabs[i])) for i in (0, 3)]
    assert all(theirs.uuid in problem for problem in report.problems)
    told = run("verify", ours.path)
    assert told.exit_code == 3
    assert "Damage that caused gaps" in told.output
    assert "foreign" in told.output
    assert str(answer("info", ours.path)["topic_uuid"]).replace("-", "") == ours.uuid
    read = run("read", ours.path, "--json")
    assert read.exit_code == 3
    assert "foreign" in read.stderr


def test_a_slab_of_format_2_in_a_log_of_format_1_is_foreign(
    make: Callable[[int], tuple[Log, Log]], log_path: str
) -> None:
    _, theirs = make(3)
    fill(log_path, (b"%032d" % i for i in range(12)), format="queuefka", slab_bytes=100)
    slabs = slab_files(log_path)
    records = read_all(log_path)
    assert len(slabs) == 5
    shutil.copy(theirs.slabs[0], slabs[1])
    found, (gap,) = by_iteration(log_path)
    assert found == [*records[:3], *records[6:]]
    assert gap == Gap(int(slabs[1].stem), int(slabs[2].stem), "foreign", None)
    shutil.copy(theirs.slabs[0], slabs[-1])
    with unchanged(log_path):
        for format_ in ("aolog", "queuefka"):
            with pytest.raises((aolog.HeaderLost, aolog.UsageError)):
                aolog.Writer(log_path, format=format_)


# --- a writer ---------------------------------------------------------------------------------


def test_a_last_slab_of_another_log_is_foreign_named_and_kept_whole(
    make: Callable[[int], tuple[Log, Log]], caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = make(5)
    put(ours, theirs, 4)
    last = ours.slabs[4].read_bytes()
    with aolog.Writer(ours.path) as writer:
        assert writer.opening.case == "foreign"
        assert f"{ours.slabs[4]}: is of another log" in caplog.text
        assert writer.opening.next_base >= ours.base(4) + len(last)
        writer.append(b"next")
    assert ours.slabs[4].read_bytes() == last
    records, (gap,) = by_iteration(ours.path)
    assert records[:-1] == ours.of(0, 1, 2, 3)
    assert records[-1].value == b"next"
    assert gap == Gap(ours.base(4), ours.base(4) + len(last), "foreign", None)


# --- one test a row of the table --------------------------------------------------------------


def test_row_3_an_only_slab_against_all_cursors_is_read_but_not_written(
    make: Callable[[int], tuple[Log, Log]],
) -> None:
    ours, theirs = make(1)
    commit(ours.path)
    put(ours, theirs, 0)
    with unchanged(ours.path):
        with pytest.raises(aolog.CursorForeign):
            aolog.Reader(ours.path, cursor="c")
        with pytest.raises(aolog.IdentityUnclear) as caught:
            aolog.Writer(ours.path)
        assert theirs.uuid in str(caught.value)
        assert f"{ours.uuid} in cursor c" in str(caught.value)
        assert failure("append", ours.path, given=b"x\n")["code"] == "identity_unclear"
        assert run("verify", ours.path).exit_code == 3
    assert [r.value for r in read_all(ours.path)] == [r.value for r in theirs.of(0)]
    well("cursor", "delete", ours.path, "c", "--yes")
    fill(ours.path, [b"next"])


@pytest.mark.parametrize("cursors", ["none", "differ", "of a third log"])
@pytest.mark.parametrize("foreign", [0, 1])
def test_row_7_a_tie_that_cursors_do_not_decide_is_undecided(
    make: Callable[[int], tuple[Log, Log]], tmp_path: Path, cursors: str, foreign: int
) -> None:
    ours, theirs = make(2)
    if cursors == "differ":
        commit(ours.path)
        take_cursor(ours, theirs)
    elif cursors == "of a third log":
        take_cursor(ours, build(tmp_path / "third", 1, b"3rd"))
    put(ours, theirs, foreign)
    assert_undecided(ours, theirs)
    ours.slabs[foreign].rename(tmp_path / "elsewhere")
    assert by_iteration(ours.path).records == ours.of(1 - foreign)


def test_every_combination_of_slabs_and_cursors_lands_on_its_row() -> None:
    """The table in other words, for up to four slabs and two cursors of three logs."""
    a, b, c = b"a", b"b", b"c"
    seen = set()
    for count in range(1, 5):
        for slabs in product((a, b, None), repeat=count):
            for cursors in [(), *product((a, b, c), repeat=1), *product((a, b, c), repeat=2)]:
                if any(slabs):
                    for to_write in (False, True):
                        row, wanted = row_of(slabs, cursors, to_write=to_write)
                        bases, uuid_of = range(count), slabs.__getitem__
                        found = decide_uuid(bases, uuid_of, lambda: cursors, to_write=to_write)  # noqa: B023
                        assert found == wanted, (slabs, cursors, row)
                        seen.add(row)
    assert seen == set(range(1, 8))


def row_of(
    slabs: Sequence[bytes | None], cursors: Sequence[bytes], *, to_write: bool
) -> tuple[int, bytes | None]:
    said = [uuid for uuid in slabs if uuid is not None]
    named = cursors[0] if len(set(cursors)) == 1 else None
    if len(said) == 1:
        if named in {None, said[0]}:
            return 2, said[0]
        return 3, None if to_write else said[0]
    if said[0] == said[-1]:
        return 1, said[0]
    counts = {uuid: said.count(uuid) for uuid in said}
    most = [uuid for uuid in counts if counts[uuid] == max(counts.values())]
    if len(most) == 1:
        return (4, most[0]) if named in {None, most[0]} else (5, None)
    return (6, named) if named in counts else (7, None)


# --- what it costs, and what changes meanwhile --------------------------------------------------


def test_a_writer_begins_no_log_among_the_cursors_of_one_that_is_gone(
    make: Callable[[int], tuple[Log, Log]],
) -> None:
    ours, _ = make(2)
    commit(ours.path)
    for slab in ours.slabs:
        slab.unlink()
    with unchanged(ours.path), pytest.raises(aolog.HeaderLost):
        aolog.Writer(ours.path)
    shutil.rmtree(Path(ours.path, "cursors"))
    fill(ours.path, [b"new"])
