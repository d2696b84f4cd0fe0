"""Every point of a case, every state that may survive there, checked; counts and failures."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from multiprocessing import get_context
from random import Random
from typing import NamedTuple

import aolog
from aolog.storage import Storage
from aolog.testing import Call, Effect, Killed, SimulatedSystem
from tests.explore.check import Model, Violation, check, options_of, read_all
from tests.explore.history import Case
from tests.explore.run import CHANGES, LOG, Point, Run, still_clock


class Budget(NamedTuple):
    """How much of a case is explored. limit, sample: states a point, see
    `SimulatedSystem.power_cut`. again: one state in so many is crashed again in recovery, at each
    call, with `again_limit` states each. halves: writes in the middle of which it is killed.
    seconds: of the processor, after which no further point is begun."""

    limit: int = 40
    sample: int = 10
    again: int = 64
    again_limit: int = 4
    halves: int = 16
    seconds: float = 1e9


@dataclass
class Failure:
    """A state that breaks the promise, and how to get there."""

    case: Case
    what: str
    point: int
    state: str
    at: str

    def __str__(self) -> str:
        return (
            f"{self.what[:1500]}\n  in {self.case.name}, crashed before {self.at}, state {self.state}\n"
            f"  again: python -m tests.explore --point {self.point} --json '{self.case.to_json()}'"
        )


@dataclass
class Explored:
    """What came of a case. states: different ones, by content hash. checks: states checked, some
    of them twice as more was promised later."""

    name: str
    calls: int = 0
    points: int = 0
    states: int = 0
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
        self._hashes: set[bytes] = set()

    def explore(self) -> Explored:
        began = time.process_time()
        with _quiet(), still_clock(), contextlib.suppress(_Enough):
            self._explore(began)
        self.result.states = len(self._hashes)
        self.result.seconds = time.process_time() - began
        return self.result

    def _explore(self, began: float) -> None:
        run = Run(self.case)
        try:
            run.run()
        except Exception as error:
            self._fail(f"history: {type(error).__name__}: {error}", -1, "-", "-")
        model = Model(self.case, run.records, run.dropped)
        self.result.calls, self.result.points = run.calls, len(run.points)
        visible_to = [*accumulate(map(self._visible, run.points), max)]
        known: dict[object, set[bytes]] = {}  # checked, by what was promised
        for point in Random(self.case.seed).sample(run.points, len(run.points)):  # time may end
            if self._only is not None and point.number != self._only:
                continue
            if time.process_time() - began > self.budget.seconds:
                return
            promise, visible = point.promise, visible_to[point.number]
            promised = (promise.durable, repr(promise.committed), visible)  # the rest allows more
            self._point(model, point, visible, known.setdefault(promised, set()))
        if self._only is None:
            self._half_writes(run, model)

    def _visible(self, point: Point) -> int:
        """Above every address that a reader saw just before the crash."""
        records = read_all(Storage(point.system.snapshot())).records
        return records[-1].address + 1 if records else 0

    def _point(self, model: Model, point: Point, visible_to: int, known: set[bytes]) -> None:
        killed = point.system.snapshot()
        self._check(model, point, killed, b"killed", visible_to, power_cut=False)
        crashed = point.system.snapshot()
        budget, rng = self.budget, Random(f"{self.case.seed}/{point.number}")
        for digest, system in crashed.power_cut(budget.limit, budget.sample, rng, known=known):
            self._hashes.add(digest)
            if digest[1] % budget.again == 0:
                self._again(model, point, system.snapshot(), visible_to)
            self._check(model, point, system, digest, visible_to, power_cut=True)

    def _check(
        self, model: Model, point: Point, system: SimulatedSystem, digest: bytes, visible_to: int,
        *, power_cut: bool,
    ) -> None:  # fmt: skip  # as it is called
        self.result.checks += 1
        try:
            check(model, point, system, power_cut=power_cut, visible_to=visible_to, draw=digest[0])
        except Violation as broken:
            self._fail(str(broken), point.number, digest.hex(), _said(point.call))
        except Exception as error:
            what = f"raised: {type(error).__name__}: {error}"
            self._fail(what, point.number, digest.hex(), _said(point.call))

    def _fail(self, what: str, point: int, state: str, at: str) -> None:
        self.result.failures.append(Failure(self.case, what, point, state, at))
        if len(self.result.failures) >= self._stop_at:
            raise _Enough

    # --- crashes of other kinds -----------------------------------------------------------------

    def _again(self, model: Model, point: Point, system: SimulatedSystem, visible_to: int) -> None:
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
            self._check(model, point, crashed.snapshot(), b"killed", visible_to, power_cut=True)
            for digest, left in crashed.power_cut(self.budget.again_limit):
                self._hashes.add(digest)
                self._check(model, point, left, digest, visible_to, power_cut=True)

    def _half_writes(self, run: Run, model: Model) -> None:
        """The process is killed in the middle of each write."""
        writes = [write for write in run.writes if write.size > 1]
        for write in writes[:: len(writes) // self.budget.halves + 1]:

            def strike(call: Call, at: int = write.number) -> None:
                if call.number > at:
                    raise Killed

            half = HalfRun(self.case, write.number, strike)
            half.run()
            killed = half.system.kill()
            half.promise.known = len(model.records)
            point = Point(-write.number, 0, write, killed, half.promise)
            self._check(model, point, killed, b"half", 0, power_cut=False)


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
    """Each recovery would say that it was one; and rubbish is collected less often: what writers
    leave is small."""
    logger, thresholds = logging.getLogger("aolog"), gc.get_threshold()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    gc.set_threshold(50_000)
    try:
        yield
    finally:
        logger.setLevel(level)
        gc.set_threshold(*thresholds)


class _Enough(Exception):
    """As many failures as were asked for."""


def _said(call: Call) -> str:
    return f"{call.name} {call.path.removeprefix(LOG + '/')} (call {call.number})"


# --- many cases ------------------------------------------------------------------------------------


def explore(case: Case, budget: Budget) -> Explored:
    """One case, in this process."""
    return Exploration(case, budget).explore()


def explore_all(
    cases: Iterable[Case], budget: Budget, jobs: int | None = None
) -> Iterator[Explored]:
    """All cases, side by side, as they end."""
    cases = list(cases)
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(explore, cases, [budget] * len(cases))


def minimised(failure: Failure, budget: Budget, seconds: float = 20.0) -> Failure:
    """The same case with steps left out as long as it fails in the same clause."""
    until = time.monotonic() + seconds
    shortest, clause = failure, failure.what.split(":")[0]
    again = True
    while again:
        again = False
        for i in range(len(shortest.case.steps)):
            if time.monotonic() > until:
                return shortest
            steps = shortest.case.steps[:i] + shortest.case.steps[i + 1 :]
            found = explore(shortest.case._replace(steps=steps), budget).failures
            if found and found[0].what.split(":")[0] == clause:
                shortest, again = found[0], True
                break
    return shortest


def summary(results: list[Explored], seconds: float) -> str:
    """One line."""
    states = sum(result.states for result in results)
    checks = sum(result.checks for result in results)
    calls = sum(result.calls for result in results)
    return (
        f"crash exploration: {len(results)} histories, {calls} calls, {states} distinct states, "
        f"{checks} checks in {seconds:.0f} s ({states / max(seconds, 0.01):.0f} states/s)"
    )


def failures_of(results: Iterable[Explored]) -> str:
    """All failures, each minimised."""
    shown = []
    for result in results:
        for failure in result.failures[:1]:
            short = minimised(failure, Budget())
            shown.append(f"{failure}\n  shortest: {json.dumps(short.case.steps)}\n{short}")
    return "\n\n".join(shown)
