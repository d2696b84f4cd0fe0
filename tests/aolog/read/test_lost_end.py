"""A log that another program cut short: its readers say so, once, before a writer opens it, and never of one
whose writer and readers go on."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from tests.aolog.commands import run
from tests.aolog.conftest import slab_files


class Cut(NamedTuple):
    """A log of 20 records of which 10 are left. content: of its slab before. end: its end now. middle, once: of
    cursors at 15 and 20."""

    path: str
    content: bytes
    end: int
    middle: int
    once: int

    @property
    def lost(self) -> aolog.Gap:
        return aolog.Gap(self.end, self.once, "corrupt", 10)

    def rewrite(self) -> int:
        """The next writer's first address."""
        with aolog.Writer(self.path) as writer:
            return writer.append(b"new")


@pytest.fixture
def cut(log_path: str) -> Cut:
    with aolog.Writer(log_path, batch_bytes=0) as writer:
        addresses = [writer.append(b"%d" % number) for number in range(20)]
    for name, count in (("middle", 15), ("once", 20)):
        with aolog.Reader(log_path, cursor=name) as reader:
            assert len([reader.read() for _ in range(count)]) == count
            reader.commit()
            once = reader.tell()
    (slab,) = slab_files(log_path)
    content = slab.read_bytes()
    os.truncate(slab, addresses[10] + 7)  # inside a frame
    return Cut(log_path, content, addresses[10], addresses[15], once)


WAYS: dict[str, Callable[[aolog.Reader], object]] = {
    "read": lambda reader: [*iter(reader.read, None)],
    "iterate": list,
    "values": lambda reader: [*reader.values()],
    "batches": lambda reader: [*iter(reader.read_batch, None)],
    "follow": lambda reader: [*reader.follow(0.0)],
    "wait": lambda reader: [*iter(lambda: reader.read_batch(timeout=0.01), None)],
    "arrow": lambda reader: reader.to_arrow().read_all(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_reader_reports_the_lost_end_once_and_the_next_writers_gap_not_again(
    cut: Cut, way: Callable[[aolog.Reader], object]
) -> None:
    met: list[aolog.Gap] = []
    with aolog.Reader(cut.path, on_gap=met.append) as reader:
        for _ in range(2):
            way(reader)
            assert met == reader.gaps == [cut.lost]
            assert reader.tell() == cut.end
        added = cut.rewrite()
        assert [record.address for record in reader] == [added]
        assert reader.gaps == met == [cut.lost]
        assert reader.ordinal == 21


def test_a_strict_reader_raises_once(cut: Cut) -> None:
    with aolog.Reader(cut.path, strict=True) as reader:
        with pytest.raises(aolog.GapFound) as raised:
            list(reader)
        assert raised.value.details["gap"] == cut.lost
        assert list(reader) == []
        cut.rewrite()
        assert [record.value for record in reader] == [b"new"]


def test_a_reader_that_has_passed_a_part_has_lost_the_rest(cut: Cut) -> None:
    with aolog.Reader(cut.path, cursor="middle") as reader:
        assert list(reader) == []
        assert reader.gaps == [aolog.Gap(cut.middle, cut.once, "corrupt", 5)]
        cut.rewrite()
        assert [record.value for record in reader] == [b"new"]
        assert len(reader.gaps) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_reader_that_has_passed_all_warns_and_counts_nothing(
    cut: Cut, caplog: pytest.LogCaptureFixture, *, strict: bool
) -> None:
    what = f"the log ended at {cut.once} (ordinal 20) once; 10 records are missing"
    with aolog.Reader(cut.path, cursor="once", strict=strict) as reader:
        if strict:
            with pytest.raises(aolog.GapFound, match="10 records are missing"):
                reader.read()
        for _ in range(2):
            assert reader.read() is None
        assert reader.gaps == []
    assert caplog.text.count(what) == (not strict)


def test_an_end_that_is_put_back_is_read(cut: Cut) -> None:
    (slab,) = slab_files(cut.path)
    with aolog.Reader(cut.path) as reader:
        assert len(list(reader)) == 10
        assert reader.gaps == [cut.lost]
        with slab.open("r+b") as file:
            file.write(cut.content)
        assert [int(value or b"") for value in reader.values()] == [*range(10, 20)]


@pytest.mark.parametrize("format", ["aolog", "queuefka"])
def test_a_reader_skips_nothing_of_a_log_that_was_cut_and_written_again_below_it(
    log_path: str, format: Any
) -> None:
    """Without a cursor past the end the next writer does not know how far readers were."""
    with aolog.Writer(log_path, batch_bytes=0, format=format) as writer:
        addresses = [writer.append(bytes(100)) for _ in range(1_000)]
    (slab,) = slab_files(log_path)
    with aolog.Reader(log_path) as reader:
        assert len(list(reader)) == 1_000
        os.truncate(slab, addresses[5])
        with aolog.Writer(log_path, format=format, slab_bytes=1 << 16) as writer:
            writer.append_many([b"new"] * 10)
            if format == "queuefka":  # it goes on in the same slab
                writer.append_many([b"new"] * 8_000)
        for _ in range(2):
            with pytest.raises(aolog.NotALog, match="written again from"):
                list(reader)


def test_the_commands_say_it(cut: Cut, caplog: pytest.LogCaptureFixture) -> None:
    done = run("read", cut.path)
    assert (done.exit_code, len(done.stdout.split())) == (3, 10)
    assert "10 records lost" in done.stderr
    done = run("read", cut.path, "-n", "3")
    assert (done.exit_code, done.stderr) == (0, "")
    assert run("read", cut.path, "--strict").exit_code == 3
    done = run("read", cut.path, "--cursor", "once")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "10 records are missing" in caplog.text
    assert run("tail", cut.path).exit_code == 3
    assert json.loads(run("read", cut.path, "--json", "-n", "1").stdout)["value"] == "0"


def test_readers_beside_a_writer_are_told_nothing(
    log_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each comes to an end that the other's cursor is past, by the time it reads the cursors."""
    caplog.set_level(logging.WARNING)
    with aolog.Writer(log_path, batch_bytes=0, slab_bytes=1 << 16) as writer:
        writer.append(b"first")
        writer.flush()
        with aolog.Reader(log_path, cursor="fast") as fast:
            for _ in range(300):
                with aolog.Reader(log_path) as slow:
                    while slow.tell() < writer.end:
                        assert slow.read() is not None
                    writer.append(bytes(500))
                    writer.flush()
                    assert list(fast)
                    fast.commit()
                    list(slow)
                    assert slow.read() is None
                    assert slow.gaps == []
    assert caplog.text == ""


def test_after_a_power_cut_a_writer_that_does_not_sync_is_the_reason() -> None:
    system = SimulatedSystem()
    writer = aolog.Writer("/log", sync="never", storage=Storage(system))
    writer.append(b"lost")
    writer.flush()
    with aolog.Reader("/log", cursor="c", storage=Storage(system)) as reader:
        assert len(list(reader)) == 1
        reader.commit()
    left = set()
    for survivor in system.power_cut(limit=50):
        with aolog.Reader("/log", storage=Storage(survivor.system)) as reader:
            left.add(len(list(reader)))
            assert reader.gaps == []
    assert left == {0, 1}


def test_a_copy_of_a_slab_under_a_name_just_after_its_own_is_a_gap(log_path: str) -> None:
    """The slab before it has no room for a frame then. No reader was further."""
    with aolog.Writer(log_path, slab_bytes=16 << 10, batch_bytes=0) as writer:
        addresses = [writer.append(b"%1000d" % number) for number in range(30)]
    slab, following = slab_files(log_path)[1:3]
    shutil.copy(slab, slab.with_name(f"{int(slab.stem) + 8:020}.slab"))
    begin, end = int(slab.stem), int(following.stem)
    left = [address for address in addresses if not begin <= address < end]
    with aolog.Reader(log_path) as reader:
        assert [record.address for record in reader] == left
        assert sum(gap.records_lost or 0 for gap in reader.gaps) == len(addresses) - len(left)
