"""What a killed process left half done is made durable by the next one, before it goes on.

Each was a defect that crash exploration found: the name was there, so nobody synced it again.
"""

from __future__ import annotations

import pytest

import aolog
from aolog.log.retention import prune
from aolog.storage.storage import Storage
from aolog.testing import Call, Effect, Killed, SimulatedSystem

LOG = "/data/log"


def killed_at(n: int, system: SimulatedSystem, act: object) -> SimulatedSystem:
    """The process that is left when the one that acts dies before its n-th call."""

    def before(call: Call) -> None:
        if call.number >= n:
            raise Killed

    system.before = before
    assert callable(act)
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


@pytest.mark.parametrize("n", range(1, 70))  # a commit makes fewer calls
def test_a_commit_over_one_that_was_not_durable_never_costs_both_copies(n: int) -> None:
    """The process died between its write and its sync; then the power fails in the next commit,
    which writes over the other copy: the only durable one."""
    system = SimulatedSystem(piece_bytes=512)
    with aolog.Writer(LOG, storage=Storage(system)) as log:
        log.append_many([b"%d" % i for i in range(5)])

    def commit(storage: Storage) -> None:
        with aolog.Reader(LOG, storage=storage, cursor="c") as reader:
            assert reader.read() is not None
            reader.commit()

    commit(Storage(system))

    written = []

    def died_before_its_sync(call: Call) -> None:
        if call.name == "pwritev" and call.path.endswith(".cursor"):
            written.append(call)
        if call.name == "fdatasync" and written:
            raise Killed

    system.before = died_before_its_sync
    with pytest.raises(Killed):
        commit(Storage(system))
    system = system.kill()
    system.faults = lambda call: (  # torn by the power cut
        Effect(short=10) if call.name == "pwritev" and call.size > 10 else None
    )
    killed_at(n, system, commit)
    for survivor in system.power_cut(limit=300):
        with aolog.Reader(LOG, storage=Storage(survivor.system), cursor="c") as reader:
            assert reader.tell() > 0


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("n", range(1, 70))
def test_a_cursor_whose_creator_was_killed_survives_the_commit_of_the_next(
    n: int, there: bool, reads: int
) -> None:
    """there: the killed one only committed. reads 0: what the killed one wrote is committed again as it is found."""
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


def test_a_slab_whose_remover_was_killed_does_not_reappear_after_a_hole():
    """Two in turn die when they have unlinked a slab and not synced that."""
    system = SimulatedSystem()
    options = {"slab_bytes": 1, "batch_bytes": 0, "flush_seconds": None, "sync": "never"}
    with aolog.Writer(LOG, storage=Storage(system), **options) as log:
        for i in range(4):
            log.append(b"%d" % i)
    slabs = sum(name.endswith(".slab") for name in system.files())
    for _ in range(2):
        system, unlinked = system.process(), list[str]()

        def before(call: Call, unlinked: list[str] = unlinked) -> None:
            if call.name == "unlink":
                unlinked.append(call.path)
            elif call.name == "fsync" and unlinked:
                raise Killed

        system.before = before
        with pytest.raises(Killed):
            prune(LOG, Storage(system), aolog.Retention(max_slabs=1))
    assert sum(name.endswith(".slab") for name in system.files()) == slabs - 2
    for survivor in system.power_cut(limit=100):
        with aolog.Reader(LOG, storage=Storage(survivor.system)) as reader:
            list(reader)
            assert reader.gaps == []
