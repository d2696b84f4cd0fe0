"""Runs cases for a time, in one or several processes, and minimises failures.

Case k of a seed is the same in every campaign: with J jobs, job j runs the cases j, j + J, ...
"""

from __future__ import annotations

import hashlib
import multiprocessing
import queue
import shlex
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fuzz.disk import Disk
from fuzz.minimise import minimise, signature
from fuzz.shapes import quiet
from fuzz.target import Case, Target, draw, encode
from fuzz.targets import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["CORPUS", "Failure", "JobReport", "Plan", "Result", "campaign", "collect", "run_saved"]

CORPUS = Path(__file__).parent / "corpus"
KEPT_MAX = 5  # failures of one campaign that are minimised and saved; all are counted
_REPORT_EVERY_S = 0.5


@dataclass(frozen=True)
class Plan:
    """seconds, cases: the campaign ends with the first; None: no bound. save: directory of failures."""

    target: str
    seed: int
    seconds: float | None = None
    cases: int | None = None
    jobs: int = 1
    save: Path | None = None


class Failure(NamedTuple):
    """number: of the case. command: runs this case again. kind: equal for similar failures. small: the
    minimised case; None if that fails in another way."""

    number: int
    error: str
    command: str
    steps: int
    kind: str
    small: Case | None


@dataclass
class Result:
    """The state of a campaign. outcomes: how often each outcome occurred."""

    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


class JobReport(NamedTuple):
    """What a job did since its last report. done: it is the last one."""

    cases: int
    outcomes: Counter[str]
    failed: Counter[str]
    failures: list[Failure]
    done: bool


def campaign(plan: Plan, progress: Callable[[Result], None]) -> Result:
    """Runs it. progress: called with the result so far."""
    jobs = _job(plan, 0) if plan.jobs == 1 else _side_by_side(plan)
    return collect(plan, jobs, progress)


def collect(plan: Plan, jobs: Iterable[JobReport], progress: Callable[[Result], None]) -> Result:
    """Adds the jobs' reports up, and saves one failure of each kind."""
    begun_s = time.monotonic()
    result = Result()
    for report in jobs:
        result.cases += report.cases
        result.outcomes.update(report.outcomes)
        result.failed.update(report.failed)
        for failure in report.failures:
            kinds = {kept.kind for kept in result.failures}
            if failure.kind not in kinds and len(kinds) < KEPT_MAX:
                result.failures.append(_saved(plan, failure))
        result.seconds = time.monotonic() - begun_s
        progress(result)
    return result


def _side_by_side(plan: Plan) -> Iterator[JobReport]:
    context = multiprocessing.get_context("spawn")  # a job inherits nothing from this process
    reports: multiprocessing.Queue[JobReport] = context.Queue()
    jobs = [context.Process(target=_work, args=(plan, j, reports)) for j in range(plan.jobs)]
    for job in jobs:
        job.start()
    running = len(jobs)
    try:
        while running:
            try:
                one = reports.get(timeout=1.0)
            except queue.Empty:
                if any(job.exitcode not in {None, 0} for job in jobs):
                    raise RuntimeError("a job of the campaign died") from None
                continue
            running -= one.done
            yield one
    finally:
        for job in jobs:
            if running:
                job.terminate()
            job.join()


def _work(plan: Plan, first: int, reports: multiprocessing.Queue[JobReport]) -> None:
    for one in _job(plan, first):
        reports.put(one)


def _job(plan: Plan, number: int) -> Iterator[JobReport]:
    """Runs the cases number, number + jobs, ...: at least one."""
    quiet()
    until_s = time.monotonic() + plan.seconds if plan.seconds is not None else float("inf")
    reported_s = time.monotonic()
    seen = set[str]()
    cases, outcomes, failed = 0, Counter[str](), Counter[str]()
    failures: list[Failure] = []
    with Disk() as disk:
        target = load(plan.target)(disk)
        while plan.cases is None or number < plan.cases:
            case = draw(target, plan.target, plan.seed, number)
            try:
                outcomes[target.run(case)] += 1
            except Exception as error:  # noqa: BLE001 -- whatever it raises is a finding
                kind = signature(error)
                failed[kind] += 1
                if kind not in seen and len(seen) < KEPT_MAX:
                    seen.add(kind)
                    failures.append(_small(plan, number, target, case, error))
            cases += 1
            number += plan.jobs
            if time.monotonic() - reported_s > _REPORT_EVERY_S:
                yield JobReport(cases, outcomes, failed, failures, done=False)
                cases, outcomes, failed, failures = 0, Counter(), Counter(), []
                reported_s = time.monotonic()
            if time.monotonic() >= until_s:
                break
        yield JobReport(cases, outcomes, failed, failures, done=True)


def _small(plan: Plan, number: int, target: Target, case: Case, error: Exception) -> Failure:
    def failure(tried: Case) -> str | None:
        try:
            target.run(tried)
        except Exception as again:  # noqa: BLE001 -- as above
            return signature(again)
        return None

    kind = signature(error)
    small = minimise(case, failure)
    command = f"python -m fuzz {plan.target} --seed {plan.seed} --case {number}"
    kept = small if failure(small) == kind else None
    return Failure(
        number, f"{type(error).__name__}: {error}", command, len(small["steps"]), kind, kept
    )


def _saved(plan: Plan, failure: Failure) -> Failure:
    """Saves the minimised case, if there is one, and puts the command that runs it into the failure."""
    if plan.save is None or failure.small is None:
        return failure
    kept = save(plan.save, plan.target, failure.small)
    return failure._replace(
        command=f"python -m fuzz {plan.target} --input {shlex.quote(str(kept))}"
    )


def save(corpus: Path, target: str, case: Case) -> Path:
    """Saves the case under a name that is the hash of its text. Returns the path."""
    text = encode(case)
    at = corpus / target / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text, encoding="utf-8")
    return at


def run_saved(target: str, case: Case) -> str:
    """Runs one case. Returns its outcome; raises its error."""
    quiet()
    with Disk() as disk:
        return load(target)(disk).run(case)
