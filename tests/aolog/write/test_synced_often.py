"""A writer that syncs often and little at a time fills its slab with zeros ahead of the frames."""

from __future__ import annotations

import pytest

import aolog
from aolog.format.slab import slab_name
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from aolog.write import active_slab

LOG = "/log"
SLAB = f"{LOG}/{slab_name(0)}"
OFTEN = 8


@pytest.fixture
def system() -> SimulatedSystem:
    return SimulatedSystem()


def size_of(system: SimulatedSystem) -> int:
    return system.lstat(SLAB).st_size


def append_and_sync(writer: aolog.Writer, times: int, value: bytes = b"v") -> list[int]:
    addresses = []
    for _ in range(times):
        addresses.append(writer.append(value))
        writer.sync()
    return addresses


def read(system: SimulatedSystem) -> list[int]:
    with aolog.Reader(LOG, storage=Storage(system), strict=True) as reader:
        return [record.address for record in reader]


def test_zeros_come_with_the_eighth_sync_are_no_gap_and_go_with_the_seal(system):
    with aolog.Writer(LOG, storage=Storage(system)) as writer:
        given = append_and_sync(writer, OFTEN - 1)
        assert size_of(system) == writer.end
        given += append_and_sync(writer, 1)
        filled = size_of(system)
        assert filled == writer.end + active_slab.ZEROS_BYTES
        given += append_and_sync(writer, 20)
        assert size_of(system) == filled
        assert read(system) == given
        assert aolog.verify(LOG, storage=Storage(system)).ok
        end = writer.end
    assert end < size_of(system) < end + 4096
    assert aolog.verify(LOG, storage=Storage(system)).ok
    assert read(system) == given


def test_large_syncs_bring_none(system):
    with aolog.Writer(LOG, storage=Storage(system)) as writer:
        append_and_sync(writer, 3 * OFTEN, bytes(20 << 10))
        assert size_of(system) == writer.end


def test_after_a_kill_zeros_are_cut_and_nothing_is_lost_or_copied_aside(system):
    writer = aolog.Writer(LOG, storage=Storage(system))
    given = append_and_sync(writer, OFTEN + 3)
    system = system.kill()
    with aolog.Writer(LOG, storage=Storage(system)) as writer:
        assert writer.opening.cut_bytes == 0
        given += append_and_sync(writer, 2)
        assert not any(name.startswith("aside") for name in system.listdir(LOG))
    assert read(system) == given


def test_without_room_for_them_a_sync_is_as_it_was_and_they_are_not_tried_again(system):
    with aolog.Writer(LOG, storage=Storage(system)) as writer:
        given = append_and_sync(writer, OFTEN - 1)
        system.capacity = system.used() + 40_000
        given += append_and_sync(writer, 1)
        assert size_of(system) == writer.end
        given += append_and_sync(writer, 3 * OFTEN)
        assert size_of(system) == writer.end
        assert writer.durable == writer.end
        system.capacity = None
    assert read(system) == given
