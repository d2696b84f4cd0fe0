"""What a killed process left half done is made durable by the next one, before it goes on.

Each was a defect that crash exploration found: the name was there, so nobody synced it again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.testing import Call, Killed, SimulatedSystem

LOG = "/data/log"


def killed_at(n: int, system: SimulatedSystem, act: Callable[[Storage], object]) -> SimulatedSystem:
    """The process that is left when the one that acts dies before its n-th call."""

    def before(call: Call) -> None:
        if call.number >= n:
            raise Killed

    system.before = before
    with pytest.raises(Killed):
        act(Storage(system))
        raise Killed  # it was done before the n-th call
    return system.kill()


def write(storage: Storage, log_format: str = "aolog") -> None:
    with aolog.Writer(
        LOG, storage=storage, format=log_format, flush_seconds=None, sync="never"
    ) as log:
        log.append(b"kept")
        log.sync()
        storage.system.kill()  # type: ignore[attr-defined]  # a simulated one


@pytest.mark.parametrize("log_format", ["aolog", "queuefka"])
@pytest.mark.parametrize("n", range(1, 45))
def test_a_log_whose_creator_was_killed_survives_the_sync_of_the_next(
    n: int, log_format: str
) -> None:
    system = killed_at(n, SimulatedSystem(), lambda storage: write(storage, log_format))
    write(Storage(system), log_format)
    for survivor in system.power_cut(limit=100):
        with aolog.Reader(LOG, storage=Storage(survivor.system)) as reader:
            assert b"kept" in [record.value for record in reader]


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("n", range(1, 70))
def test_a_cursor_whose_creator_was_killed_survives_the_commit_of_the_next(
    n: int, there: bool, reads: int
) -> None:
    """there: the killed one only committed. reads 0: what the killed one wrote is committed again
    as it is found."""
    system = SimulatedSystem()
    write(Storage(system))
    with aolog.Writer(LOG, storage=Storage(system := system.process())) as log:
        log.append(b"second")

    def commit(storage: Storage) -> None:
        with aolog.Reader(LOG, storage=storage, cursor="c") as reader:
            assert reader.read() is not None
            reader.commit()

    if there:
        commit(Storage(system.process()))
    system = killed_at(n, system.process(), commit)
    with aolog.Reader(LOG, storage=Storage(system), cursor="c") as reader:
        for _ in range(reads):
            reader.read()
        reader.commit()
        address = reader.tell()
    for survivor in system.power_cut(limit=100):
        with aolog.Reader(LOG, storage=Storage(survivor.system), cursor="c") as reader:
            assert reader.tell() == address
