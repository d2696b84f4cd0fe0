"""Processes are killed, on several file systems: nothing acknowledged is lost, nothing invented.

About 40 kills and 20 seconds; with `--long` thousands. What was acknowledged stands in a file that
the parent opened, written once the call had returned (ledger.py); what is killed in children.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aolog
from aolog.log.retention import Retention, prune
from aolog.storage.storage import Storage
from tests.aolog.conftest import in_thread, open_below
from tests.crash.killing import Killer
from tests.crash.ledger import Id, check, value_of
from tests.crash.places import PLACES, place

MOST = 40  # kills, where a busy machine lets a child do little before the first few
TORN = frozenset({"torn"})
PRUNED = TORN | {"pruned"}
UNSURE = TORN | {"torn_or_corrupt"}  # format 1 has no marks to tell them apart

# role, how often, what gaps may be called
WRITERS = [
    ("flush", 3, TORN),
    ("sync", 3, TORN),
    ("by_policy", 3, TORN),
    ("threads", 3, TORN),
    ("rotation", 3, TORN),
    ("batches", 2, TORN),
    ("format_1", 2, UNSURE),
    ("pruning", 3, PRUNED),
]


def kill_writers(
    directory: Path, ledger: Path, role: str, kills: int, reasons: frozenset[str], seed: int
) -> None:
    killer = Killer(directory, role, ledger=ledger, seed=seed)
    path, kind = killer.log_path, "queuefka" if role == "format_1" else "aolog"
    there: dict[int, Id] = {}  # what outlived a kill stays for ever
    kept = acknowledged = 0
    for kill in range(kills):
        killer.kill_one()
        if not list(Path(path).glob("*.slab")):
            continue  # it died before there was a log
        taken = killer.ledger.taken(kill)
        kept = max(kept, killer.ledger.kept(), max(there, default=0) + 1)
        acknowledged += sum(address < kept for address in taken)
        there = check(path, there | taken, kept, reasons=reasons)
        if kill % 2 == 0:  # else the next child is the one that recovers
            with aolog.Writer(path, format=kind) as writer:  # the lock is free
                which = Id(1_000_000 + kill, 0, 0)
                address = writer.append(value_of(which))
                assert address not in there
                kept = writer.flush()
            there = check(path, {**there, address: which}, kept, reasons=reasons)
            assert there[address] == which
    assert open_below(path) == []
    assert acknowledged > 0


@pytest.mark.parametrize(("role", "kills", "reasons"), WRITERS, ids=[role for role, *_ in WRITERS])
def test_a_writer_is_killed(
    tmp_path: Path, role: str, kills: int, reasons: frozenset[str], seed: int
) -> None:
    kill_writers(tmp_path, tmp_path / "ledger", role, kills, reasons, seed)


@pytest.mark.parametrize("kind", [kind for kind in PLACES if kind != "tmp"])
def test_a_writer_with_threads_is_killed_on(kind: str, tmp_path: Path, seed: int) -> None:
    with place(kind, tmp_path) as directory:
        kill_writers(directory, tmp_path / "ledger", "threads", 2, TORN, seed)


# --- beside a living writer -------------------------------------------------------------------


class Beside:
    """A writer of this process, which appends while others are killed."""

    def __init__(self, path: str, **options: object) -> None:
        self.writer = aolog.Writer(path, flush_seconds=None, sync="never", **options)
        self.taken: dict[int, Id] = {}

    def append(self, n: int) -> None:
        for _ in range(n):
            which = Id(0, 0, len(self.taken))
            self.taken[self.writer.append(value_of(which))] = which
        self.writer.flush()

    def append_until(self, stop_s: float) -> None:
        while time.monotonic() < stop_s:
            self.append(5)
            time.sleep(0.0005)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Callable[..., Beside]]:
    made = []

    def make(**options: object) -> Beside:
        made.append(Beside(str(tmp_path / "log"), **options))
        return made[-1]

    yield make
    for each in made:
        each.writer.close()


def test_a_reader_that_commits_is_killed_and_resumes_exactly(
    tmp_path: Path, beside: Callable[..., Beside], seed: int
) -> None:
    living = beside(slab_bytes=60_000)
    living.append(5)
    killer = Killer(tmp_path, "committer", ledger=tmp_path / "ledger", seed=seed)
    path, resumes = killer.log_path, 0  # how many went on where another had committed
    while killer.kills < 4 or (not resumes and killer.kills < MOST):
        with aolog.Reader(path, cursor="c") as reader:
            expected = reader.tell()
        said = len(killer.ledger.words())
        with killer.running():
            living.append_until(time.monotonic() + 0.1 * killer.rng.random())
        words = [(word, int(address)) for word, address in killer.ledger.words()[said:]]
        resumed = [address for word, address in words if word == "resumed"]
        assert resumed in ([expected], [])  # none: it was killed while it opened the log
        resumes += bool(resumed and expected)
        with aolog.Reader(path, cursor="c") as reader:  # nobody holds it
            position = reader.tell()
            kept = [expected, *(address for word, address in words if word == "committed")][-1]
            word, address = words[-1]
            assert position in ({kept, address} if word == "trying" else {kept})
            rest = {record.address: record.value for record in reader}
        assert rest == {a: value_of(which) for a, which in living.taken.items() if a >= position}
        check(path, living.taken, living.writer.end, reasons=frozenset())
    assert resumes > 0


def test_a_pruner_is_killed_and_takes_nothing_that_a_cursor_needs(
    tmp_path: Path, beside: Callable[..., Beside], seed: int
) -> None:
    living = beside(slab_bytes=20_000)
    living.append(5)
    killer = Killer(tmp_path, "pruner", ledger=tmp_path / "ledger", seed=seed)
    path, gone = killer.log_path, 0
    with aolog.Reader(path, cursor="needs") as reader:
        reader.commit()
        while killer.kills < 4 or (not gone and killer.kills < MOST):
            with killer.running():
                until = time.monotonic() + 0.15 * killer.rng.random()
                writing = in_thread(lambda until=until: living.append_until(until))
                while time.monotonic() < until:
                    for _ in range(20):
                        reader.read()
                    reader.commit()
                writing.result()
            first = min(int(slab.stem) for slab in Path(path).glob("*.slab"))
            assert first <= reader.tell()
            gone = max(gone, first)
            check(path, living.taken, living.writer.end, reasons=PRUNED)
            assert reader.gaps == []
            prune(path, Storage(), Retention(max_slabs=3))  # its lock is free
    assert gone > 0
