"""After a sync that failed in one process, the next one makes durable what it says is durable."""

from __future__ import annotations

import errno

import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.testing import Fault, SimulatedSystem


@pytest.mark.parametrize("at_seal", [False, True])
def test_a_lost_sync_is_made_up_for_by_the_next_writer(at_seal: bool) -> None:
    system = SimulatedSystem(piece_bytes=512)
    options = {"flush_seconds": None, "sync": "never", "batch_bytes": 0}
    writer = aolog.Writer("/log", storage=Storage(system), **options)
    values = [b"first", b"second" * 100, b"third" * 100]
    writer.append(values[0])
    writer.sync()
    for value in values[1:]:
        writer.append(value)
    # The sync of the frames, or, as the second of a close, that of the seal.
    nth = 2 if at_seal else 1
    system.faults = [Fault("fdatasync", "*.slab", nth=nth, errno=errno.EIO, lies=True)]
    with pytest.raises(aolog.SyncFailed):
        writer.close()
    with aolog.Writer("/log", storage=Storage(system), **options) as again:
        assert again.durable == again.end
        values.append(b"fourth")
        again.append(values[-1])
        again.sync()
        states = 0
        for survivor in system.power_cut(500):
            with aolog.Reader("/log", storage=Storage(survivor.system)) as reader:
                assert [record.value for record in reader] == values
                assert reader.gaps == []
            states += 1
    assert states > 0
