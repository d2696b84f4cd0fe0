"""Gaps that a task records: records that its source lost are a gap in the log that it writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import aolog
from aolog.publish.pending import PendingLog, PendingSlab
from aolog.publish.publication import publish
from tests.publish.job import JOB, task


def write(root: Path, *steps: str | int | None, job: str = JOB) -> list[PendingSlab]:
    """One task: a text is a record, a number of records or None is a loss."""
    with PendingLog(root, "log", job) as pending:
        for step in steps:
            if isinstance(step, str):
                pending.append_arrow(pa.record_batch({"value": [step.encode()]}))
            else:
                pending.add_loss(step)
    return pending.slabs


def read(path: Path) -> list[str | int | None]:
    """Values, and the counts of the gaps between them."""
    found: list[str | int | None] = []
    with aolog.Reader(path, on_gap=lambda gap: found.append(gap.records_lost)) as reader:
        while (record := reader.read()) is not None:
            found.append(record.value.decode())
    return found


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([["a", 3, "b"]], ["a", 3, "b"]),
        ([["a", 3], ["b"]], ["a", 3, "b"]),
        ([["a"], [3, "b"]], ["a", 3, "b"]),
        ([[3, "a"]], [3, "a"]),
        ([["a", 3]], ["a", 3]),
        ([[3]], [3]),
        ([["a", 3, 4, "b", 0, "c"]], ["a", 7, "b", "c"]),
        ([["a", 3], [4], [5, "b"]], ["a", 3, 4, 5, "b"]),
        ([["a", None, "b"]], ["a", None, "b"]),
        ([["a", 3, None, "b"]], ["a", None, "b"]),
        ([["a", 1 << 40, "b"]], ["a", 1 << 40, "b"]),
    ],
    ids=str,
)  # fmt: skip  # a table
def test_a_loss_is_a_gap_of_missing_records_where_it_was(tmp_path, tasks, expected):
    slabs = [slab for steps in tasks for slab in write(tmp_path, *steps)]
    publish(tmp_path, JOB, slabs)
    path = tmp_path / "log"
    assert read(path) == expected
    report = aolog.verify(path)
    lost = [each for each in expected if not isinstance(each, str)]
    assert [(gap.reason, gap.records_lost) for gap in report.gaps] == [("missing", n) for n in lost]
    assert (report.ok, report.problems) == (False, [])
    assert list(tmp_path.rglob("*.pending")) == []


def test_records_after_a_loss_are_counted_with_it(tmp_path):
    """By a later publication, and by a Writer."""
    path = tmp_path / "log"
    publish(tmp_path, JOB, write(tmp_path, "a", 3, "b"))
    publish(tmp_path, JOB, write(tmp_path, "c", 2))
    with aolog.Writer(path) as log:
        log.append(b"d")
    assert read(path) == ["a", 3, "b", "c", 2, "d"]
    with aolog.Reader(path) as reader:
        reader.seek(ordinal=4)
        assert reader.read().value == b"b"
        assert reader.lag().records == len("c..d")


def test_a_repaired_copy_has_the_same_gap(tmp_path):
    publish(tmp_path, JOB, write(tmp_path, "a", 3, "b"))
    before = aolog.verify(tmp_path / "log").gaps
    aolog.repair(tmp_path / "log", tmp_path / "copy")
    after = aolog.verify(tmp_path / "copy")
    assert (after.ok, after.known) == (True, before)


def test_a_published_slab_at_the_end_that_is_gone_is_damage(tmp_path: Path) -> None:
    """Nothing in the log shows it: the slab before it is sealed, and no cursor is past it."""
    with aolog.Writer(tmp_path / "a") as writer:
        writer.append(b"old")
    first, second = (task(tmp_path, "a", "x", "y") for _ in range(2))
    publish(tmp_path, JOB, [*first, *second])
    assert aolog.verify(tmp_path / "a").ok
    *_, before, last = sorted((tmp_path / "a").glob("*.slab"))
    last.unlink()
    report = aolog.verify(tmp_path / "a")
    assert [(each.code, each.damage) for each in report.findings] == [("published_lost", True)]
    assert last.name in report.problems[0]
    before.unlink()
    assert len(aolog.verify(tmp_path / "a").problems) == 2


def test_a_publication_while_a_log_is_verified_is_no_loss(tmp_path: Path) -> None:
    with aolog.Writer(tmp_path / "a") as writer:
        writer.append(b"old")
    slabs = task(tmp_path, "a", "x")

    def publishing(done: int, _: int) -> None:
        if slabs:
            publish(tmp_path, JOB, [slabs.pop()])

    assert aolog.verify(tmp_path / "a", progress=publishing).ok
    assert not slabs
