"""The power is cut, on a real file system: what a sync acknowledged is there.

A log is written on a file system in an image, and the image is copied at arbitrary moments. The
copy is one moment's and no mixture, for it is a reflink on an XFS around it: what the inner file
system had handed to its device by then, and nothing of its page cache. 15 cuts, 10 seconds.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.storage.system import System
from tests.crash.killing import Killer
from tests.crash.ledger import Id, check, value_of
from tests.crash.places import image_of, mounted, place

CUTS = 3
REASONS = frozenset({"torn", "torn_or_corrupt"})
_NOUUID = {"ext4": (), "xfs": ("nouuid",)}  # two copies of one XFS are mounted at once


class AnotherBoot(System):
    """The machine was started again, as it is after its power was cut."""

    def __init__(self) -> None:
        self._boot_id = os.urandom(16)

    def boot_id(self) -> bytes:
        return self._boot_id


@pytest.mark.parametrize(
    ("inner", "role"),
    [("ext4", "sync"), ("ext4", "sync_in_threads"), ("ext4", "by_policy"),
     ("xfs", "sync_in_threads")],
)  # fmt: skip  # a table
def test_what_was_synced_survives_a_power_cut(
    inner: str, role: str, tmp_path: Path, seed: int
) -> None:
    owed = 0
    with place("xfs", tmp_path) as outer:
        image = image_of(inner, outer)
        (tmp_path / "in").mkdir()
        with mounted(image, tmp_path / "in" / "at", *_NOUUID[inner]) as directory:
            killer = Killer(directory, role, ledger=tmp_path / "ledger", seed=seed)
            with killer.running():
                for _ in range(CUTS):
                    time.sleep(0.15 * killer.rng.random())
                    kept = killer.ledger.kept()  # before the cut
                    copy = outer / "copy.img"
                    subprocess.run(["cp", "--reflink=always", image, copy], check=True)
                    taken = killer.ledger.taken(0)  # behind it: some of them it did not see
                    with mounted(copy, tmp_path / "copy", *_NOUUID[inner]) as found:
                        owed += after_a_cut(found / "log", taken, kept)
                    copy.unlink()
    assert owed > 0


def after_a_cut(path: Path, taken: dict[int, Id], kept: int) -> int:
    """Looks, recovers, looks again. How many were owed."""
    if kept == 0:
        return 0  # not even the log's directory is promised
    check(str(path), taken, kept, reasons=REASONS, in_order=False)
    with aolog.Writer(path, storage=Storage(AnotherBoot())) as writer:
        which = Id(1_000_000, 0, 0)
        address = writer.append(value_of(which))
        if writer.opening.case == "sealed":
            # The power was cut after a seal, before the next slab: records in that slab came after the cut.
            assert address >= kept
        else:
            assert address > max(taken)  # no address that anybody may have seen is used again
    check(str(path), {**taken, address: which}, kept, reasons=REASONS, in_order=False)
    with aolog.Reader(path, start=address) as reader:
        assert [record.value for record in reader] == [value_of(which)]
    return sum(address < kept for address in taken)
