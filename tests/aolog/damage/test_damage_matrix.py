"""Every damage of the table against every reader, and against a writer behind it.

Half a minute. Each case meets one way of reading, in turn, and each n-th case all of them, ranges,
verify and a writer. With --long (an hour) each meets all ways, each bit is tried, and n is smaller.
"""

from __future__ import annotations

import json
import random
import shutil
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import pytest

import aolog
from aolog.maintenance.repair import Repaired
from fuzz.check import check_all, check_way, format_is_unclear
from fuzz.damage import apply
from fuzz.disk import Disk
from fuzz.layout import base_of
from fuzz.oracle import expect
from fuzz.shapes import SHAPES, Made, make, quiet
from fuzz.ways import WAYS, CountingStorage
from tests.aolog.damage.table import COMPRESSED, TABLE, Group, every_hostile_length

# A search's pieces and the frames of a small log; far below any length that a header may claim.
READ_MEMORY_MAX = 8 << 20


@pytest.fixture(scope="module")
def disk() -> Iterator[Disk]:
    quiet()
    with Disk() as place:
        yield place


@pytest.fixture(scope="module")
def made(disk: Disk) -> dict[str, Made]:
    return {shape: make(disk, shape) for shape in SHAPES}


COPIES: list[tuple[Callable[..., Repaired], bool]] = [
    (aolog.repair, False),
    (aolog.backup, False),
    (aolog.repair, True),
    (aolog.backup, True),
]
REFUSALS = {"newer_format", "identity_unclear", "header_lost", "not_a_log"}  # true for the log, too
MATRIX = [
    pytest.param(group, shape, share, id=f"{group.__name__}-{shape}")
    for group, shapes, share in TABLE
    for shape in shapes
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("group", "shape", "share"), MATRIX)
def test_damage_costs_what_it_touches_however_one_reads(
    disk: Disk,
    made: dict[str, Made],
    pytestconfig: pytest.Config,
    group: Group,
    shape: str,
    share: int,
) -> None:
    log = made[shape]
    thorough = bool(pytestconfig.getoption("--long"))
    ways = list(WAYS)
    count = 0
    for name, damages in group(log, thorough):
        count += 1
        files = apply(log.files, damages)
        if not any(base_of(slab) is not None for slab in files):
            continue
        rng = random.Random(zlib.crc32(name.encode()))
        try:
            if count % (share // 8 + 1 if thorough else share) == 0:
                check_all(log.known, files, disk, rng)
                continue
            expected = expect(log.known, files)
            if not format_is_unclear(log.known, files, expected):
                for way in ways if thorough else [ways[count % len(ways)]]:
                    check_way(way, disk.put(files), files, expected)
        except Exception as error:
            pytest.fail(f"{shape}: {name}: {json.dumps(damages)}: {error!r}")
    assert count >= 12  # the group found something to damage


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("group", "shape"), [(group, shape) for group, shapes, _ in TABLE for shape in shapes]
)
def test_a_copy_verifies_as_whole_unless_it_says_what_is_damaged(
    disk: Disk,
    made: dict[str, Made],
    pytestconfig: pytest.Config,
    group: Group,
    shape: str,
) -> None:
    """With the same records and gaps, also as a clone. A backup accepts no gap that the log has not."""
    log = made[shape]
    kinds = COPIES[:2] if shape == "queuefka" else COPIES
    cases = list(group(log, False))
    whole, step = 0, 1 if pytestconfig.getoption("--long") else len(cases) // 20 + 1
    copy = f"{disk.path}-copy"
    for n, (name, damages) in enumerate(cases[::step]):
        path = disk.put(apply(log.files, damages))
        shutil.rmtree(copy, ignore_errors=True)
        copy_of, new_uuid = kinds[n % len(kinds)]
        try:
            before = aolog.verify(path)
            done = copy_of(path, copy, new_uuid=new_uuid)
        except aolog.AologError as error:
            if error.code not in REFUSALS:
                pytest.fail(f"{name}: {error}")
            continue
        after = aolog.verify(copy)
        assert (after.records, after.gaps) == (before.records, before.gaps), name
        assert done.gaps == after.gaps, name
        accepted = copy_of is aolog.repair or not after.gaps
        assert after.ok == (accepted and not done.left), (name, after)
        whole += after.ok
    assert whole


@pytest.mark.parametrize("shape", SHAPES)
def test_an_undamaged_log_is_read_whole(disk: Disk, made: dict[str, Made], shape: str) -> None:
    log = made[shape]
    expected = check_all(log.known, log.files, disk, random.Random(0))
    assert expected is not None
    assert len(expected.records) == len(log.known.records) > 0
    assert [gap.reason for gap in expected.gaps] == (["torn"] if shape == "epochs" else [])


@pytest.mark.parametrize("shape", ["closed", "marked", *COMPRESSED])
def test_no_length_allocates_what_is_not_there(
    disk: Disk, made: dict[str, Made], shape: str
) -> None:
    log = made[shape]
    cases = [*every_hostile_length(log, True)][::7]
    with aolog.Reader(disk.put(log.files)) as reader:  # what is imported on the way is not counted
        list(reader)
    tracemalloc.start()
    try:
        for name, damages in cases:
            path = disk.put(apply(log.files, damages))
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with aolog.Reader(path) as reader:
                list(reader)
            aolog.verify(path)
            aolog.Writer(path, flush_seconds=None, sync="never").close()
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < READ_MEMORY_MAX, name
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("way", ["one by one", "batches"])
@pytest.mark.parametrize("every", [2, 7])
def test_bytes_read_grow_as_the_log_does(disk: Disk, way: str, every: int) -> None:
    """Each n-th frame damaged, in a slab four times as long."""
    read = []
    for frames in (10_000, 30_000):
        with aolog.Writer(disk.fresh(), batch_bytes=0, flush_seconds=None, sync="never") as writer:
            addresses = [writer.append(b"%090d" % i) for i in range(frames)]
        files = disk.take()
        name = min(files)
        data = bytearray(files[name])
        for address in addresses[::every]:
            data[address + 60] ^= 1
        storage = CountingStorage()
        with aolog.Reader(disk.put({name: bytes(data)}), storage=storage) as reader:
            got = WAYS[way](reader)
        assert len(got) == frames - len(addresses[::every])
        read.append(storage.bytes_read / len(data))
    assert max(read) < 8
    assert read[1] < 1.5 * read[0]
