"""Every point of a case, every state that may survive there, checked; counts and failures."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import accumulate
from multiprocessing import get_context
from random import Random
from typing import NamedTuple

import xxhash

import aolog
from aolog.storage.storage import Storage
from aolog.testing import Call, Effect, Killed, SimulatedSystem
from tests.explore.check import Expected, Model
from tests.explore.history import Case
from tests.explore.observe import Observation, Violation, observe, options_of, read_all
from tests.explore.run import CHANGES, LOG, Point, Run, still_clock


class Budget(NamedTuple):
    """How much of a case is explored. states: after so many no further point is begun. limit,
    sample: states a point, see `SimulatedSystem.power_cut`. again: one state in so many is crashed
    again in recovery, at each call, with `again_limit` states each. halves: writes in the middle of
    which it is killed."""

    states: int = 1 << 30
    limit: int = 40
    sample: int = 10
    again: int = 128
    again_limit: int = 4
    halves: int = 6


@dataclass
class Failure:
    """A state that breaks the promise, and how to get there."""

    case: Case
    what: str
    point: int
    state: str
    at: str
    budget: Budget

    def __str__(self) -> str:
        return (
            f"{self.what[:1500]}\n  in {self.case.name}, crashed before {self.at}, state {self.state}\n"
            f"  again: python -m tests.explore --point {self.point} --limit {self.budget.limit}"
            f" --sample {self.budget.sample} --json '{self.case.to_json()}'"
        )


@dataclass
class Explored:
    """What came of a case. states: different ones, the first 8 bytes of each one's content hash.
    checks: states held against what was promised, some of them more than once as that grew."""

    name: str
    calls: int = 0
    points: int = 0
    states: set[int] = field(default_factory=set)
    checks: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


class Exploration:
    """One case. only: the number of the one point that is wanted."""

    def __init__(
        self, case: Case, budget: Budget, *, only: int | None = None, stop_at: int = 1
    ) -> None:
        self.case = case
        self.budget = budget
        self.result = Explored(case.name)
        self._only = only
        self._stop_at = stop_at
        self._seen: dict[bytes, Observation] = {}  # by content hash: of each state once
        self._killed: dict[tuple[bytes, bytes], Observation] = {}  # by content hash and boot

    def explore(self) -> Explored:
        began = time.process_time()
        with _quiet(), still_clock(), contextlib.suppress(_Enough):
            self._explore()
        self.result.states.update(int.from_bytes(digest[:8], "little") for digest in self._seen)
        self.result.seconds = time.process_time() - began
        return self.result

    def _explore(self) -> None:
        run = Run(self.case)
        try:
            run.run()
        except Exception as error:
            self._fail(f"history: {type(error).__name__}: {error}", -1, "-", "-")
        model = Model(self.case, run.records, run.dropped)
        self.result.calls, self.result.points = run.calls, len(run.points)
        visible_to = [*accumulate(map(self._behind, run.points), max)]
        known: dict[object, set[bytes]] = {}  # checked, by what was promised
        for point in Random(self.case.seed).sample(run.points, len(run.points)):
            if self._only is not None and point.number != self._only:
                continue
            if len(self._seen) >= self.budget.states:
                break
            promise, visible = point.promise, visible_to[point.number]
            expected = Expected(model, point, power_cut=False, visible_to=visible)
            killed = self._kill(point.system.snapshot(), power_cut=False)
            self._check(expected, point, killed, b"killed")
            promised = (promise.durable, repr(promise.committed), visible)  # the rest allows more
            expected = Expected(model, point, power_cut=True, visible_to=visible)
            self._cut(expected, point, known.setdefault(promised, set()))
        if self._only is None:
            self._half_writes(run, model)

    def _behind(self, point: Point) -> int:
        """Above every address that a reader saw just before the crash."""
        records = read_all(Storage(point.system.snapshot())).records
        return records[-1].address + 1 if records else 0

    def _kill(self, system: SimulatedSystem, *, power_cut: bool) -> Observation:
        """What comes of a state that a process left, with its page cache. power_cut: whether the
        promise is the one for a power cut."""
        digest = xxhash.xxh3_128()
        for path, content in system.files().items():
            digest.update(b"%b\0%d\0" % (path.encode(), -1 if content is None else len(content)))
            digest.update(content or b"")
        key = (digest.digest(), system.boot_id())
        seen = self._killed.get(key)
        if seen is None:
            seen = observe(self.case, system, power_cut=power_cut, draw=key[0][0])
            self._killed[key] = seen
        return seen

    def _cut(self, expected: Expected, point: Point, known: set[bytes]) -> None:
        """A power cut at a point."""
        crashed = point.system.snapshot()
        budget, rng = self.budget, Random(f"{self.case.seed}/{point.number}")
        for digest, system in crashed.power_cut(budget.limit, budget.sample, rng, known=known):
            if digest[1] % budget.again == 0:
                self._again(expected, point, system.snapshot())
            self._check(expected, point, self._observed(digest, system), digest)

    def _observed(self, digest: bytes, system: SimulatedSystem) -> Observation:
        """What comes of a state that a power cut left."""
        seen = self._seen.get(digest)
        if seen is None:
            seen = observe(self.case, system, power_cut=True, draw=digest[0])
            self._seen[digest] = seen
        return seen

    def _check(self, expected: Expected, point: Point, seen: Observation, digest: bytes) -> None:
        self.result.checks += 1
        try:
            expected.check(seen)
        except Violation as broken:
            self._fail(str(broken), point.number, digest.hex(), _said(point.call))

    def _fail(self, what: str, point: int, state: str, at: str) -> None:
        self.result.failures.append(Failure(self.case, what, point, state, at, self.budget))
        if len(self.result.failures) >= self._stop_at:
            raise _Enough

    # --- crashes of other kinds -----------------------------------------------------------------

    def _again(self, expected: Expected, point: Point, system: SimulatedSystem) -> None:
        """The crash's recovery crashes, at each of its calls."""
        versions, snapshots = set[int](), list[SimulatedSystem]()

        def before(call: Call) -> None:
            if call.name in CHANGES and system.version not in versions:
                versions.add(system.version)
                snapshots.append(system.snapshot())

        system.before = before
        options = options_of(self.case)
        try:
            aolog.Writer(LOG, storage=Storage(system), **options).close()  # type: ignore[arg-type]
        except aolog.AologError:
            return  # met, and told, by the check without a second crash
        for crashed in snapshots:
            self._check(expected, point, self._kill(crashed.snapshot(), power_cut=True), b"killed")
            for digest, left in crashed.power_cut(self.budget.again_limit):
                self._check(expected, point, self._observed(digest, left), digest)

    def _half_writes(self, run: Run, model: Model) -> None:
        """The process is killed in the middle of each write."""
        writes = [write for write in run.writes if write.size > 1]
        for write in writes[:: len(writes) // self.budget.halves + 1]:

            def strike(call: Call, at: int = write.number) -> None:
                if call.number > at:
                    raise Killed

            half = HalfRun(self.case, write.number, strike)
            half.run()
            half.promise.known = len(model.records)
            point = Point(-write.number, 0, write, half.system.kill(), half.promise)
            expected = Expected(model, point, power_cut=False, visible_to=0)
            self._check(expected, point, self._kill(point.system, power_cut=False), b"half")


class HalfRun(Run):
    """A run of which one write is cut short in the middle."""

    def __init__(self, case: Case, at: int, strike: object) -> None:
        self._at = at
        super().__init__(case, keep=False, strike=strike)  # type: ignore[arg-type]

    def _watched(self, system: SimulatedSystem) -> SimulatedSystem:
        super()._watched(system)
        system.faults = lambda call: (
            Effect(short=call.size // 2)
            if self.calls == self._at and call.name == "pwritev"
            else None
        )
        return system


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Each recovery would say that it was one; and rubbish is collected among what is young alone:
    writers leave some, and what is kept is much."""
    logger = logging.getLogger("aolog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(1000, 1 << 30)
    try:
        yield
    finally:
        logger.setLevel(level)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


class _Enough(Exception):
    """As many failures as were asked for."""


def _said(call: Call) -> str:
    return f"{call.name} {call.path.removeprefix(LOG + '/')} (call {call.number})"


# --- many cases ------------------------------------------------------------------------------------


def explore(case: Case, budget: Budget) -> Explored:
    """One case, in this process."""
    return Exploration(case, budget).explore()


# What the tests do: so many cases drawn, so many states a case and a point.
SMALL = (460, Budget(states=2000, limit=1000, sample=300))
# What `--long` does.
LONG = (4000, Budget(states=10_000, limit=4000, sample=1000))


def explore_all(
    cases: Iterable[Case], budget: Budget, seconds: float | None = None
) -> Iterator[Explored]:
    """All cases, side by side, each as it is done. What is explored depends on cases and budget alone.
    seconds: after which no further case is begun."""
    until = float("inf") if seconds is None else time.monotonic() + seconds
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(explore, case, budget) for case in cases]):
                yield done.result()
                if time.monotonic() > until:
                    return
        finally:
            pool.shutdown(cancel_futures=True)


def distinct(results: list[Explored]) -> int:
    """Different states in all of them together."""
    return len(set[int]().union(*(result.states for result in results)))


def summary(results: list[Explored], seconds: float) -> str:
    """One line."""
    states = distinct(results)
    checks = sum(result.checks for result in results)
    calls = sum(result.calls for result in results)
    return (
        f"crash exploration: {len(results)} histories, {calls} calls, {states} distinct states, "
        f"{checks} checks in {seconds:.0f} s ({states / max(seconds, 0.01):.0f} states/s)"
    )


def failures_of(results: Iterable[Explored]) -> str:
    """The first failure of each case."""
    return "\n\n".join(str(failure) for result in results for failure in result.failures[:1])
