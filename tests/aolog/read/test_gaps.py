"""Damage costs what it touches and no other record, and is told exactly, however one reads.

One table of cases: what is done to a log, and the gaps that it makes. Every case runs against every
way of reading, from the beginning and from inside of the damage, and against `verify`. The matrix
(test_damage_matrix.py) tries every byte against an oracle, which is held against this table.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

import aolog
from aolog.format.frame import FRAME_HEADER_LEN, KIND_RECORDS, KIND_SEAL
from aolog.format.slab import DATA_BEGIN
from aolog.record import Gap, Record
from fuzz.check import check_all
from fuzz.disk import Disk
from fuzz.layout import know, read_files
from tests.aolog.conftest import (
    WAYS,
    FrameAt,
    Way,
    by_batch,
    fill,
    flip,
    frames_of,
    kill,
    read_all,
    slab_files,
)

PER_FRAME = 10
PER_SLAB = 5 * PER_FRAME
FRAME_BYTES = 392
SLAB_BYTES = DATA_BEGIN + 5 * FRAME_BYTES


class Built(NamedTuple):
    """An intact log. slabs: its files. frames: of records, by slab. seals: None where unsealed."""

    path: str
    slabs: list[Path]
    frames: list[list[FrameAt]]
    seals: list[FrameAt | None]
    records: list[Record]

    def base(self, i: int) -> int:
        return int(self.slabs[i].stem)

    def at(self, path: str) -> Built:
        """The same in a copy."""
        slabs = [Path(path) / slab.name for slab in self.slabs]
        frames = [[f._replace(slab=slabs[i]) for f in fs] for i, fs in enumerate(self.frames)]
        return self._replace(path=path, slabs=slabs, frames=frames)


def write(path: str, *, closed: bool, marks: bool = False) -> None:
    """Slabs of five frames of ten records; the last slab has four. No two frames of a time."""
    writer = aolog.Writer(path, slab_bytes=SLAB_BYTES, flush_seconds=None, sync="never")
    for i in range(4 * 5 - 1):
        writer.append_many([b"%030d" % (i * PER_FRAME + j) for j in range(PER_FRAME)])
        if marks:
            writer.sync()
        time.sleep(0.0001)
    if closed:
        writer.close()
    else:
        writer.flush()
        kill(writer)


def build(path: str, **options: bool) -> Built:
    write(path, **options)
    slabs = slab_files(path)
    frames = frames_of(path)
    of = [[f for f in frames if f.slab == slab] for slab in slabs]
    built = Built(
        path,
        slabs,
        [[f for f in fs if f.kind == KIND_RECORDS] for fs in of],
        [next((f for f in fs if f.kind == KIND_SEAL), None) for fs in of],
        read_all(path),
    )
    assert [len(fs) for fs in built.frames] == [5, 5, 5, 4]
    return built


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """sealed: closed as it should be. open: its last slab is as a crash left it. marked: as open,
    but every frame was synced before the next."""
    where = tmp_path_factory.mktemp("gaps")
    return {
        "sealed": build(str(where / "sealed"), closed=True),
        "open": build(str(where / "open"), closed=False),
        "marked": build(str(where / "marked"), closed=False, marks=True),
    }


# --- what is done ----------------------------------------------------------------------------


def body(frame: FrameAt) -> None:
    flip(frame.slab, frame.begin + FRAME_HEADER_LEN + 60)


def head(frame: FrameAt) -> None:
    flip(frame.slab, frame.begin + 5)


def both_headers(slab: Path) -> None:
    flip(slab, 0, 512)
    flip(slab, 4096, 512)


def trailer(slab: Path) -> None:
    flip(slab, slab.stat().st_size - 4)


def gap(first: FrameAt, last: FrameAt, reason: str = "corrupt", lost: int | None = None) -> Gap:
    """From a frame to another, both included."""
    if lost is None:
        lost = (last.address - first.address) // FRAME_BYTES * PER_FRAME + PER_FRAME
    return Gap(first.address, last.base + last.end, reason, lost)


CASES: dict[str, tuple[str, Callable[[Built], list[Gap]]]] = {}


def case(shape: str) -> Callable[[Callable[[Built], list[Gap]]], Callable[[Built], list[Gap]]]:
    def add(damage: Callable[[Built], list[Gap]]) -> Callable[[Built], list[Gap]]:
        CASES[damage.__name__] = (shape, damage)
        return damage

    return add


# frames of sealed slabs


@case("sealed")
def body_of_a_frame(log: Built) -> list[Gap]:
    body(log.frames[1][2])
    return [gap(log.frames[1][2], log.frames[1][2])]


@case("sealed")
def head_of_the_first_frame_of_a_slab(log: Built) -> list[Gap]:
    head(log.frames[2][0])
    return [gap(log.frames[2][0], log.frames[2][0])]


@case("sealed")
def frames_side_by_side_are_one_gap(log: Built) -> list[Gap]:
    body(log.frames[1][1])
    head(log.frames[1][2])
    body(log.frames[1][3])
    return [gap(log.frames[1][1], log.frames[1][3])]


# headers, seals, trailers


@case("sealed")
def both_header_copies_where_the_seal_has_the_third(log: Built) -> list[Gap]:
    for slab in log.slabs:
        both_headers(slab)
    return []


@case("sealed")
def all_copies_of_the_header(log: Built) -> list[Gap]:
    both_headers(log.slabs[1])
    trailer(log.slabs[1])
    return [Gap(log.base(1), log.base(2), "corrupt", PER_SLAB)]


@case("sealed")
def all_copies_of_the_last_header(log: Built) -> list[Gap]:
    both_headers(log.slabs[3])
    trailer(log.slabs[3])
    end = log.base(3) + log.slabs[3].stat().st_size
    return [Gap(log.base(3), end, "corrupt", None)]


@case("sealed")
def the_format_is_told_by_seals_alone(log: Built) -> list[Gap]:
    for slab in log.slabs:
        both_headers(slab)
    trailer(log.slabs[3])
    end = log.base(3) + log.slabs[3].stat().st_size
    return [Gap(log.base(3), end, "corrupt", None)]


@case("sealed")
def a_frame_and_the_seal(log: Built) -> list[Gap]:
    """The frame is not torn: its successor is of the same epoch, so the slab was durable."""
    body(log.frames[1][2])
    head(log.seals[1]._replace(slab=log.slabs[1]))
    trailer(log.slabs[1])
    seal = Gap(log.seals[1].address, log.base(2), "corrupt", 0)
    return [gap(log.frames[1][2], log.frames[1][2]), seal]


# slabs that are gone or cut


@case("sealed")
def a_middle_slab_is_gone(log: Built) -> list[Gap]:
    log.slabs[1].unlink()
    return [Gap(log.base(1), log.base(2), "missing", PER_SLAB)]


@case("sealed")
def a_slab_is_gone_and_its_neighbours_are_damaged(log: Built) -> list[Gap]:
    body(log.frames[0][4])
    trailer(log.slabs[0])
    log.slabs[1].unlink()
    body(log.frames[2][0])
    return [
        Gap(log.frames[0][4].address, log.base(2), "missing", PER_FRAME + PER_SLAB),
        gap(log.frames[2][0], log.frames[2][0]),
    ]


@case("sealed")
def a_slab_is_cut_in_a_frame(log: Built) -> list[Gap]:
    frame = log.frames[1][2]
    os.truncate(frame.slab, frame.begin + 99)
    return [Gap(frame.address, log.base(2), "corrupt", 3 * PER_FRAME)]


@case("sealed")
def two_slabs_under_each_other_s_names(log: Built) -> list[Gap]:
    first, second = (slab.read_bytes() for slab in log.slabs[1:3])
    log.slabs[1].write_bytes(second)
    log.slabs[2].write_bytes(first)
    return [Gap(log.base(1), log.base(3), "corrupt", 2 * PER_SLAB)]


# a slab as a crash left it


@case("open")
def a_frame_that_nothing_proves_durable(log: Built) -> list[Gap]:
    body(log.frames[3][1])
    return [gap(log.frames[3][1], log.frames[3][1], "torn_or_corrupt")]


@case("marked")
def a_frame_that_a_later_one_proves_durable(log: Built) -> list[Gap]:
    body(log.frames[3][1])
    return [gap(log.frames[3][1], log.frames[3][1], "corrupt")]


@case("open")
def the_last_frame_may_be_on_its_way(log: Built) -> list[Gap]:
    body(log.frames[3][3])
    return []


# --- the claims ------------------------------------------------------------------------------


class Damaged(NamedTuple):
    log: Built
    gaps: list[Gap]
    left: list[Record]


@pytest.fixture(scope="module")
def damaged(
    shapes: dict[str, Built], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Damaged]:
    """The case, carried out once."""
    done: dict[str, Damaged] = {}

    def make(name: str) -> Damaged:
        if name not in done:
            shape, damage = CASES[name]
            path = tmp_path_factory.mktemp(name) / "log"
            shutil.copytree(shapes[shape].path, path)
            log = shapes[shape].at(str(path))
            gaps = damage(log)
            done[name] = Damaged(log, gaps, left_of(log, gaps))
        return done[name]

    return make


def left_of(log: Built, gaps: list[Gap]) -> list[Record]:
    """The records outside of gaps, a tail's included."""
    return [r for r in log.records if not any(gap.begin <= r.address < gap.end for gap in gaps)]


def tail_records(name: str) -> int:
    """Records in a last frame that may be on its way: neither read nor lost."""
    return PER_FRAME if name == "the_last_frame_may_be_on_its_way" else 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_gaps_are_exact_and_every_other_record_is_read(
    damaged: Callable[[str], Damaged], name: str, way: Callable[..., Way]
) -> None:
    log, gaps, left = damaged(name)
    records, found = way(log.path)
    assert found == gaps
    if tail_records(name):
        left = left[: -tail_records(name)]
    assert records == left


@pytest.mark.parametrize("name", CASES)
def test_verify_counts_the_same(damaged: Callable[[str], Damaged], name: str) -> None:
    log, gaps, left = damaged(name)
    report = aolog.verify(log.path)
    assert report.gaps == gaps
    assert report.records == len(left) - tail_records(name)
    assert report.slabs == len(slab_files(log.path))
    on_its_way = "on_its_way" in name
    assert report.ok is on_its_way
    assert (report.tail_bytes > 0) is on_its_way


@pytest.mark.parametrize("name", CASES)
def test_every_record_that_is_left_is_found_by_address_ordinal_and_time(
    damaged: Callable[[str], Damaged], name: str
) -> None:
    log, gaps, left = damaged(name)
    left = left[: len(left) - tail_records(name)]
    for i in range(0, len(left), 7):
        records, found = by_batch(log.path, start=left[i].address)
        assert records == left[i:]
        assert found == [gap for gap in gaps if gap.begin > left[i].address]
    ordinals = {record.address: i for i, record in enumerate(log.records)}
    with aolog.Reader(log.path) as reader:
        for record in left[::7]:
            reader.seek(ordinal=ordinals[record.address])
            assert reader.read() == record
        firsts = {record.timestamp: record for record in reversed(left)}
        for stamp, record in firsts.items():
            reader.seek(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=stamp))
            assert reader.read() == record


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_of_the_matrix_says_what_this_table_says(
    damaged: Callable[[str], Damaged], shapes: dict[str, Built], name: str
) -> None:
    """By rules and by hand. With it come ranges, and a writer that cuts none of what is intact."""
    log, gaps, left = damaged(name)
    built = shapes[CASES[name][0]]
    known = know(read_files(built.path), built.records)
    with Disk() as disk:
        expected = check_all(known, read_files(log.path), disk, random.Random(name))
    assert expected is not None
    assert expected.gaps == gaps
    assert expected.records == left[: len(left) - tail_records(name)]


# --- format 1 --------------------------------------------------------------------------------


class Queuefka(NamedTuple):
    path: str
    slabs: list[Path]
    records: list[Record]


@pytest.fixture
def queuefka(log_path: str) -> Queuefka:
    """Three slabs of ten records of 28 bytes and their header, and a last one that is empty."""
    fill(log_path, (b"%028d" % i for i in range(30)), format="queuefka", slab_bytes=359)
    slabs = slab_files(log_path)
    assert [slab.stat().st_size for slab in slabs] == [360, 360, 360, 0]
    return Queuefka(log_path, slabs, read_all(log_path))


@pytest.mark.parametrize("way", WAYS)
def test_an_altered_payload_of_format_1_costs_its_record(
    queuefka: Queuefka, way: Callable[..., Way]
) -> None:
    path, slabs, records = queuefka
    flip(slabs[1], 3 * 36 + 20)
    found, gaps = way(path)
    assert found == [*records[:13], *records[14:]]
    assert gaps == [Gap(360 + 108, 360 + 144, "torn_or_corrupt", None)]


@pytest.mark.parametrize("way", WAYS)
def test_an_altered_length_of_format_1_costs_the_rest_of_its_slab(
    queuefka: Queuefka, way: Callable[..., Way]
) -> None:
    path, slabs, records = queuefka
    flip(slabs[1], 3 * 36)
    found, gaps = way(path)
    assert found == [*records[:13], *records[20:]]
    assert gaps == [Gap(360 + 108, 720, "torn_or_corrupt", None)]
