"""Measures contenders against each other: interleaved rounds, medians, ratios.

A round runs each contender once, A B C then A B C again, so that drift (clock, heat, neighbours)
affects all of them equally. The first round is a warm-up and a check: every contender's records are
read back and compared with its input, so that every figure is of work that was done. The garbage
collector runs between the timed parts and never inside one.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from bench.payloads import Proof

__all__ = ["Contender", "Group", "Measured", "Promise", "Skipped", "Target", "Wrong", "measure"]

Work: TypeAlias = "Callable[[], int]"


class Wrong(Exception):
    """A contender did not do the work that it was given, so its figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantees of a contender, which explain its cost. survives: "OS" means that records survive
    a crash of the process, not of the machine, when the timed part returns; syncs inside it are named.
    checksum: what it covers, if there is one."""

    survives: str
    checksum: str


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a group's work.

    session: gets an empty directory and yields the work, which is timed and returns the number of
    records; entering and leaving it is untimed. proof: reads back, untimed, what the session left;
    None if the contender has no records. expected: what the proof must be.
    """

    name: str
    promise: Promise
    records: int
    session: Callable[[str], AbstractContextManager[Work]]
    proof: Callable[[str], Proof] | None
    expected: Proof
    note: str = ""
    fdatasyncs: Callable[[], int] | None = None
    cpu_s: Callable[[], float] = time.process_time  # of all processes that do the work
    series: str = ""  # if its group has an axis: the curve on which it is the point at `at`
    at: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A contender that could not run, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Target:
    """A bound in a group: a contender takes at most ratio_max times the sum of the others' times, in
    the median of the rounds. what: the ratio in words."""

    what: str
    contender: str
    others: tuple[str, ...]
    ratio_max: float


@dataclass(frozen=True, slots=True)
class Group:
    """Contenders for the same work. timed: what is timed. baselines: contenders that the others are
    compared with. batch_bytes: of the log, if the group is about them. targets: bounds. unit: what is
    counted. axis: the variable, if the contenders form a curve. rounds: if fewer are enough."""

    case: str
    title: str
    timed: str
    record_bytes: int
    contenders: list[Contender]
    baselines: tuple[str, ...]
    skipped: list[Skipped] = field(default_factory=list)
    batch_bytes: int | None = None
    targets: tuple[Target, ...] = ()
    unit: str = "record"
    axis: str = ""
    rounds: int | None = None


@dataclass(slots=True)
class Measured:
    """Times of one contender, one for each round, in nanoseconds per record. stored_bytes: what the
    session left in its directory, 0 for readers. digest: of the records that were read back.
    fdatasyncs: per record, one for each round."""

    contender: Contender
    wall_ns: list[float] = field(default_factory=list)
    cpu_ns: list[float] = field(default_factory=list)
    stored_bytes: int = 0
    digest: str | None = None
    fdatasyncs: list[float] = field(default_factory=list)

    @property
    def median_ns(self) -> float:
        return statistics.median(self.wall_ns)

    @property
    def median_cpu_ns(self) -> float:
        return statistics.median(self.cpu_ns)

    def ratios_to(self, other: Measured) -> list[float]:
        """One for each round: a slow phase of the machine slows both contenders of a round."""
        return [ours / theirs for ours, theirs in zip(self.wall_ns, other.wall_ns, strict=True)]

    def ratio_to(self, other: Measured) -> float:
        """The median of `ratios_to`."""
        return statistics.median(self.ratios_to(other))


def measure(
    group: Group, *, rounds: int, directory: str, progress: Callable[[str], None]
) -> list[Measured]:
    """Measures the group's contenders. The warm-up counts only for the proof; a single round has none.
    Raises Wrong if a contender did not do its work."""
    rounds = group.rounds or rounds
    measured = [Measured(contender) for contender in group.contenders]
    first = 1 if rounds == 1 else 0
    for i in range(first, rounds + 1):
        for one in measured:
            at = f"round {i} of {rounds}" if i else "warm-up"
            progress(f"{group.title}: {at}: {one.contender.name}")
            _round(one, directory, proves=i == first, counts=i > 0)
    return measured


def _round(one: Measured, parent: str, *, proves: bool, counts: bool) -> None:
    contender = one.contender
    directory = tempfile.mkdtemp(prefix="round-", dir=parent)
    try:
        with contender.session(directory) as work:
            wall_s, cpu_s, records = _timed(work, contender.cpu_s)
        if records != contender.records:
            raise Wrong(f"{contender.name}: did {records} records of {contender.records}")
        if proves:
            one.stored_bytes = _bytes_in(directory)
            if contender.proof is not None:
                proof = contender.proof(directory)
                if proof != contender.expected:
                    raise Wrong(f"{contender.name}: gave {proof} for {contender.expected}")
                one.digest = proof.digest
        if counts:
            if contender.fdatasyncs is not None:
                one.fdatasyncs.append(contender.fdatasyncs() / records)
            one.wall_ns.append(round(wall_s * 1e9 / records, 2))
            one.cpu_ns.append(round(cpu_s * 1e9 / records, 2))
    finally:
        shutil.rmtree(directory)


def _timed(work: Work, cpu: Callable[[], float]) -> tuple[float, float, int]:
    gc.collect()
    gc.disable()
    try:
        cpu_s, wall_s = cpu(), time.perf_counter()
        records = work()
        return time.perf_counter() - wall_s, cpu() - cpu_s, records
    finally:
        gc.enable()


def _bytes_in(directory: str) -> int:
    """Allocated bytes: lmdb's file is sparse."""
    return sum(
        min(path.stat().st_size, path.stat().st_blocks * 512)
        for path in Path(directory).rglob("*")
        if path.is_file()
    )
