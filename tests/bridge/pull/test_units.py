"""Work units without a Kafka: a unit has one holder, and the next one goes on where it was left."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from aolog import Writer
from aolog.errors import UsageError
from bridge.cli import main
from bridge.operate.unit_events import events_of
from bridge.pull.archive import Archive
from bridge.pull.origin import HEADER_NAME, Source
from bridge.pull.units import Unit, Units

SOURCE = Source("cluster", UUID(int=28), 3)


def units(root: Path, name: str, records: int = 100) -> Units:
    return Units(str(root), str(root / name), records)


def append(log: Path, offsets: range) -> int:
    """The end of the log."""
    with Writer(log) as writer:
        for offset in offsets:
            writer.append(b"v", headers=[(HEADER_NAME, SOURCE.prefix + b"%d" % offset)])
        return writer.end


def finish(of: Units, unit: Unit) -> None:
    of.finish(unit, unit, unit.end - unit.begin, 0.5)


def test_units_are_aligned_and_those_that_are_done_are_left_out(tmp_path):
    ours = units(tmp_path, "a")
    ours.see({SOURCE: 50})
    found = list(ours.left(SOURCE, "t", 310))
    assert [(u.number, u.begin, u.end) for u in found] == [
        (0, 50, 100), (1, 100, 200), (2, 200, 300), (3, 300, 310),
    ]  # fmt: skip  # rows
    for unit in found[2:]:
        claimed = ours.claim(unit, 0)
        assert claimed == unit
        finish(ours, claimed)
    other = units(tmp_path, "b")
    other.see({SOURCE: 80})  # what was deleted since is left, too
    left = [(u.begin, u.end) for u in other.left(SOURCE, "t", 350)]
    assert left == [(50, 100), (100, 200), (310, 350)]


def test_a_unit_has_one_holder_and_is_finished_once(tmp_path):
    ours, other = units(tmp_path, "a"), units(tmp_path, "b")
    unit = Unit(SOURCE, "t", 0, 0, 100)
    assert ours.claim(unit, 0) == unit
    assert other.claim(unit, 0) is None
    finish(ours, unit)
    assert other.claim(unit, 0) is None, "it is done"
    [event] = events_of(str(tmp_path))
    assert abs(event["ts"] / 1_000 - time.time()) < 600
    assert event == {
        "event": "unit", "ts": event["ts"], "status": "done", "seen": 100, "topic": "t", "partition": 3,
        "offset": 0, "length": 100, "offset-read": 100, "duration": 0.5, "host": socket.gethostname(),
        "cluster": "cluster", "topic-id": str(UUID(int=28)),
    }  # fmt: skip  # an event
    shown = CliRunner().invoke(main, ["status", "--root", str(tmp_path), "--json"])
    assert json.loads(shown.stdout)["units"] == {"finished": 1, "seen": 100, "last": event}
    lines = CliRunner().invoke(main, ["status", "--root", str(tmp_path)]).stdout
    last = f"the last is t/3, 100 offsets from 0, by {socket.gethostname()}"
    assert f"units: 1 finished, 100 records; {last}" in lines
    assert not list((tmp_path / ".pull").glob("*.u0")), "a finished unit leaves no claim"


def test_the_event_of_a_unit_that_another_worker_began_covers_all_of_it(tmp_path):
    ours, unit = units(tmp_path, "a"), Unit(SOURCE, "t", 0, 0, 100)
    assert ours.claim(unit, 0) == unit
    ours.finish(unit._replace(begin=40), unit, 60, 0.5)
    [event] = events_of(str(tmp_path))
    assert (event["status"], event["offset"], event["length"]) == ("late", 0, 100)
    assert (event["seen"], event["offset-read"]) == (60, 100)


def test_the_next_holder_goes_on_after_the_records_of_all_earlier_ones(tmp_path):
    unit = Unit(SOURCE, "t", 1, 100, 200)
    begin = 100
    for name in "abc":
        own = units(tmp_path, name)
        address = append(tmp_path / name, range(500, 510))  # of another unit
        assert own.claim(unit, address) == unit._replace(begin=begin)
        append(tmp_path / name, range(begin, begin + 30))
        own.leave(unit)
        begin += 30
    last = units(tmp_path, "d")
    assert last.claim(unit, 0) == unit._replace(begin=190)


def test_the_next_holder_goes_on_after_what_an_earlier_one_has_reported_as_lost(tmp_path):
    unit = Unit(SOURCE, "t", 1, 100, 200)
    for name, begin in (("a", 100), ("b", 150)):
        own = units(tmp_path, name)
        assert own.claim(unit, 0) == unit._replace(begin=begin)
        own.lose(unit, 150, 0)
        own.leave(unit)


def test_a_partition_begins_at_the_lowest_first_offset_that_any_worker_saw(tmp_path):
    ours, other = units(tmp_path, "a"), units(tmp_path, "b")
    for of, first in ((ours, 120), (other, 130), (ours, 110), (ours, 140)):
        of.see({SOURCE: first})
    third = units(tmp_path, "c")
    third.see({SOURCE: 150})
    assert [(u.begin, u.end) for u in third.left(SOURCE, "t", 250)] == [(110, 200), (200, 250)]
    (tmp_path / ".pull/first.json").write_text("[]")
    with pytest.raises(UsageError, match=r"first.json does not say where the archive began"):
        units(tmp_path, "d").see({SOURCE: 150})


def test_an_archive_has_one_size_of_units_and_only_units(tmp_path):
    units(tmp_path / "one", "a")
    with pytest.raises(UsageError, match="have 100 records, not 50"):
        units(tmp_path / "one", "b", 50)
    with pytest.raises(UsageError, match="filled by units"):
        Archive(str(tmp_path / "one"), "")
    append(tmp_path / "two/a", range(3))
    with pytest.raises(UsageError, match="not filled by units"):
        units(tmp_path / "two", "b")
    assert not (tmp_path / "two/.pull").exists()
    (tmp_path / "one-events").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="one-events is missing"):
        units(tmp_path / "one", "b")
    (tmp_path / "one/.pull/units.json").write_text("[]")
    with pytest.raises(UsageError, match=r"units.json does not say how many records"):
        units(tmp_path / "one", "b")


def test_a_directory_that_only_has_the_name_of_an_event_log_is_not_read(tmp_path):
    root = tmp_path / "root"
    for path in (root / "a", tmp_path / "root-events" / "b"):
        with Writer(path) as writer:
            writer.append(b"no event")
    assert events_of(str(root)) == []
    (root / "a").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="root-events has logs that were not filled by units"):
        units(root, "b")
    assert list(root.iterdir()) == []
