"""Archives without a Kafka: claims exclude each other, and positions come from the logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from aolog import Reader, Retention, Writer
from aolog.errors import UsageError
from bridge.cli import main
from bridge.pull.archive import Archive
from bridge.pull.origin import HEADER_NAME, Origin, Source, origin_of
from bridge.pull.positions import Mark, read_names, read_positions, save_positions
from tests.waiting import Child

SOURCE = Source("cluster", UUID(int=28), 3)
OTHER = SOURCE._replace(partition=4)
CLAIM = """
import sys, uuid
from bridge.pull.archive import Archive
from bridge.pull.origin import Source
held = Archive(sys.argv[1], "")
print(held.claim(Source("cluster", uuid.UUID(int=28), 3)), flush=True)
sys.stdin.read()
"""


def fill(log: Path, source: Source, offsets: range, **options: Any) -> int:
    """The address of the last record."""
    with Writer(log, **options) as writer:
        for offset in offsets:
            address = writer.append(b"v", headers=[(HEADER_NAME, source.prefix + b"%d" % offset)])
    return address


def uuid_of(log: Path) -> bytes:
    with Reader(log) as reader:
        assert reader.topic_uuid is not None
        return reader.topic_uuid


@pytest.mark.parametrize("value", [None, b"", b"a/b/c/d", b"\xff", SOURCE.prefix, b"cluster/1/2"])
def test_a_malformed_origin_is_none(value):
    assert origin_of([(HEADER_NAME, value)]) is None


def test_the_last_origin_is_the_records_own():
    headers = [(HEADER_NAME, OTHER.prefix + b"1"), (HEADER_NAME, SOURCE.prefix + b"2")]
    assert origin_of(headers) == Origin(SOURCE, 2)


def test_a_claim_excludes_others_until_it_is_released_or_its_process_is_killed(tmp_path):
    ours = Archive(str(tmp_path), str(tmp_path / "a"))
    with Child(CLAIM, str(tmp_path)) as other:
        assert other.line() == "True"
        assert not ours.claim(SOURCE)
        assert ours.claim(OTHER)
        other.kill()
        assert ours.claim(SOURCE)
    third = Archive(str(tmp_path), "")
    assert not third.claim(SOURCE)
    ours.release(SOURCE)
    assert third.claim(SOURCE)


def test_an_archive_continues_after_the_greatest_offset_in_any_of_its_logs(tmp_path):
    fill(tmp_path / "a", SOURCE, range(10))
    fill(tmp_path / "b", SOURCE, range(10, 25))
    archive = Archive(str(tmp_path), str(tmp_path / "c"))
    assert archive.next_offsets([SOURCE, OTHER]) == {SOURCE: 25}


def test_saved_positions_are_believed_only_if_the_log_has_their_record(tmp_path):
    log = tmp_path / "log"
    last = fill(log, SOURCE, range(10))
    told = {SOURCE: 10, OTHER: 77}
    for mark, believed in (
        (Mark(last, Origin(SOURCE, 9)), True),
        (Mark(last, Origin(SOURCE, 8)), False),
        (Mark(last + 10_000, Origin(SOURCE, 9)), False),
    ):
        save_positions(str(log), uuid_of(log), mark, told)
        assert read_positions(str(log)) == (told if believed else {SOURCE: 10})
    save_positions(str(log), b"another log's", Mark(last, Origin(SOURCE, 9)), told)
    assert read_positions(str(log)) == {SOURCE: 10}
    for damaged in ("{ torn", '{"address": 0, "origin": ["c", 1, 2, 3]}', "[" * 100_000):
        (log / "pull-positions.json").write_text(damaged)
        assert read_positions(str(log)) == {SOURCE: 10}


def test_records_after_the_saved_positions_count(tmp_path):
    log = tmp_path / "log"
    last = fill(log, SOURCE, range(10))
    save_positions(str(log), uuid_of(log), Mark(last, Origin(SOURCE, 9)), {SOURCE: 10})
    fill(log, SOURCE, range(10, 12))
    fill(log, OTHER, range(5, 6))
    assert read_positions(str(log)) == {SOURCE: 12, OTHER: 6}


def test_positions_that_retention_has_passed_count_with_the_records_after_them(tmp_path):
    """A pull was killed after it had pulled more than `max_bytes` since its last note."""
    log = tmp_path / "log"
    bounded = {"slab_bytes": 1 << 14, "retention": Retention(max_bytes=1 << 16)}
    marked = fill(log, SOURCE, range(10), **bounded)
    save_positions(str(log), uuid_of(log), Mark(marked, Origin(SOURCE, 9)), {SOURCE: 10, OTHER: 77})
    fill(log, SOURCE, range(10, 3_000), **bounded)
    with Reader(log) as reader:
        assert reader.tell() > marked
    assert read_positions(str(log)) == {SOURCE: 3_000, OTHER: 77}


def test_the_topics_ids_are_saved_with_the_positions(tmp_path):
    log = tmp_path / "log"
    last = fill(log, SOURCE, range(10))
    assert read_names(str(log)) == {}
    names = {"t": SOURCE.topic_id}
    save_positions(str(log), uuid_of(log), Mark(last, Origin(SOURCE, 9)), {SOURCE: 10}, names)
    assert read_names(str(log)) == names
    (log / "pull-positions.json").write_text("{}")
    assert read_names(str(log)) == {}


def test_a_log_with_other_records_is_refused_and_no_log_has_no_positions(tmp_path):
    assert read_positions(str(tmp_path / "absent")) == {}
    with Writer(tmp_path / "log") as writer:
        writer.append(b"not from Kafka")
    with pytest.raises(UsageError, match="was not pulled"):
        read_positions(str(tmp_path / "log"))


def test_offsets_of_a_log_shows_addresses_and_back(tmp_path):
    log = tmp_path / "log"
    fill(log, SOURCE, range(10, 20))
    last = fill(log, OTHER, range(5))

    def told(*arguments: str) -> list[dict]:
        result = CliRunner().invoke(main, ["offsets", "--log", str(log), *arguments, "--json"])
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    first, second = told()
    assert (first["partition"], first["first"]["offset"], first["last"]["offset"]) == (3, 10, 19)
    assert (second["partition"], second["last"], second["records"]) == (
        4, {"offset": 4, "address": last}, 5,
    )  # fmt: skip  # a row
    [at] = told("--offset", "13")
    assert (at["partition"], at["offset"], at["cluster"]) == (3, 13, "cluster")
    assert told("--address", str(at["address"])) == [at]
    assert [each["offset"] for each in told("--offset", "0")] == [10, 0], "or the next greater one"
    assert told("--offset", "0", "--partition", "4")[0]["partition"] == 4


def test_a_group_of_another_archive_is_refused_and_one_of_its_own_is_not(tmp_path):
    ours, other = (Archive(str(tmp_path / each), "") for each in "ab")
    ours.check_notes("g", [])
    assert not (tmp_path / "a").exists(), "a check makes nothing"
    note = other.note()
    assert note == other.note() == Archive(str(tmp_path / "b"), "").note()
    other.check_notes("g", [note, "of another program"])
    for _ in range(2):
        with pytest.raises(UsageError, match="group 'g' fills another archive"):
            ours.check_notes("g", [note])
        ours.note()
