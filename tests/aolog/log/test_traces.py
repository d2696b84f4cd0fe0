"""A log whose only slab says nothing is of format 2 where anything beside the slab is.

An empty slab is a healthy slab of format 1. A damaged log of format 2 that is taken for one counts
as intact, and a writer gives its addresses out again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import aolog
from aolog.publish.publication import publish
from tests.aolog.commands import failure, run
from tests.aolog.conftest import commit, fill, slab_files, unchanged
from tests.publish.job import JOB, task


def with_a_cursor(path: str) -> None:
    fill(path, [b"a", b"b"])
    commit(path)


def with_a_published_slab(path: str) -> None:
    """The root's manifest names the slab until the next publication."""
    root = Path(path).parent
    publish(root, JOB, task(root, Path(path).name, "a", "b"))


def with_an_unfinished_slab(path: str) -> None:
    """A writer was killed before the next slab had its name."""
    fill(path, [b"a", b"b"])
    Path(path, f"{1 << 20:020d}.slab.tmp").touch()


def with_a_pending_slab(path: str) -> None:
    fill(path, [b"a", b"b"])
    Path(path, f"{'ab' * 16}.{'cd' * 16}.1.pending").touch()


TRACES = [
    with_a_cursor,
    with_a_published_slab,
    with_an_unfinished_slab,
    with_a_pending_slab,
]


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("trace", TRACES)
def test_an_only_slab_that_was_cut_is_lost_where_a_trace_of_format_2_is_left(
    log_path: str, trace: Callable[[str], None], size: int
) -> None:
    trace(log_path)
    (slab,) = slab_files(log_path)
    slab.write_bytes(slab.read_bytes()[:size])
    with unchanged(log_path):
        report = aolog.verify(log_path)
        assert not report.ok
        assert [found.code for found in report.findings if found.damage] == ["header_lost"]
        assert [gap.reason for gap in report.gaps] == ["corrupt"]
        assert run("verify", log_path).exit_code == 3
        assert failure("append", log_path, given=b"next\n")["code"] == "header_lost"
        for format_ in ("aolog", "queuefka"):
            with pytest.raises((aolog.HeaderLost, aolog.UsageError)):
                aolog.Writer(log_path, format=format_)
        with pytest.raises(aolog.HeaderLost):
            aolog.repair(log_path, f"{log_path}.copy")


def test_an_empty_log_of_format_1_stays_one_beside_a_cursor_of_its_own(log_path: str) -> None:
    with aolog.Writer(log_path, format="queuefka"):
        pass
    with aolog.Reader(log_path, cursor="c") as reader:
        assert reader.read() is None
        reader.commit()
    assert [slab.stat().st_size for slab in slab_files(log_path)] == [0]
    assert aolog.verify(log_path).ok
    assert run("append", log_path, "--format", "queuefka", given=b"next\n").exit_code == 0


def test_a_trace_that_cannot_be_read_says_nothing(log_path: str) -> None:
    with_a_cursor(log_path)
    (slab,) = slab_files(log_path)
    slab.write_bytes(b"")
    Path(log_path, "cursors", "c.cursor").write_bytes(b"no cursor")
    Path(log_path, "published.jsonl").write_bytes(b"no manifest")
    assert aolog.verify(log_path).gaps == []
    shutil.rmtree(Path(log_path, "cursors"))
    assert aolog.verify(log_path).ok
