"""What happens around a log: thousands of rotations, clocks that jump, slabs that go while they
are read. About 10 s."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from fuzz.disk import Disk
from tests.aolog.conftest import assert_clean, open_below, slab_files


@pytest.fixture
def log_path() -> Iterator[str]:
    """In memory, where there is such a file system: no device is asked here."""
    with Disk() as disk:
        yield disk.path


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("rotations", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_descriptors_stay_flat_over_thousands_of_rotations(log_path: str, rotations: int) -> None:
    """With a reader that follows over all of them, and retention that removes most."""
    options = {"slab_bytes": 8193, "flush_seconds": None, "sync": "never"}
    keep = aolog.Retention(max_slabs=4)
    with aolog.Writer(log_path, retention=keep, **options) as writer:
        writer.append(b"first")
        writer.flush()
        with aolog.Reader(log_path) as reader:
            read, most = 0, 0
            for i in range(rotations):
                writer.append_many([b"%d" % i])
                if i % 2 == 0:
                    writer.flush()
                    read += sum(1 for _ in reader)
                if i % 100 == 0:
                    most = max(most, len(open_below(log_path)))
            writer.flush()
            read += sum(1 for _ in reader)
            lost = sum(gap.records_lost for gap in reader.gaps)
            assert {gap.reason for gap in reader.gaps} <= {"pruned"}
            assert read + lost == rotations + 1
            assert len(slab_files(log_path)) <= 5
            assert most <= 6
    assert_clean(log_path)
