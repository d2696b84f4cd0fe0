"""Crashes short histories at every file operation, recovers from every state that the disk may be
left in, and checks what was promised.

  python -m tests.explore                   every case, as the tests do
  python -m tests.explore --long            millions of states; --seconds: as many as there is time for
  python -m tests.explore --case seed-7     one case; also by the names in history.py
  python -m tests.explore --json '{...}'    a case as a failure prints it; --point N: one point

The same options, without --seconds, explore the same states with any --jobs. After an interrupt it
prints the sums so far. Exit status: 0 nothing was found, 1 a promise was broken, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from tests.explore.explore import (
    LONG,
    SMALL,
    Budget,
    Exploration,
    Explored,
    explore_all,
    failures_of,
    summary,
)  # fmt: skip  # names
from tests.explore.history import Case, all_cases, case_named
from tests.explore.history import drawn as case_at
from tests.mutants.defects import MUTANTS
from tests.mutants.mutant import applied


def main() -> int:
    with ExitStack() as held:
        return _main(held)


def _main(held: ExitStack) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.explore",
        usage="%(prog)s [options]",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )

    def option(name: str, what: str, **kind: Any) -> None:
        parser.add_argument(name, help=what, metavar=name[2:].upper(), **kind)

    known = "\n".join(f"  {name}" for name, one in MUTANTS.items() if one.case)
    option("--case", "this case alone")
    option("--json", "this case alone, in the form that a failure prints")
    option("--point", "this point of the case alone", type=int)
    option("--mutant", f"with this defect, on its case:\n{known}", choices=sorted(MUTANTS))
    parser.add_argument(
        "--long", action="store_true", help="hours: higher values of the options below"
    )
    drawn, budget = SMALL
    option("--drawn", f"number of cases drawn from seeds [{drawn}]", type=int)
    option("--first", "the first seed [0]; above 0, only drawn cases are explored", type=int)
    option("--seconds", "stop waiting for cases after so many seconds", type=float)
    option("--states", f"states per case [{budget.states}; one case: no limit]", type=int)
    option("--limit", f"states per point [{budget.limit}; one case: {Budget().limit}]", type=int)
    option("--sample", "states drawn beyond that limit", type=int)
    option("--jobs", "processes [one per core]", type=int)
    args = parser.parse_args()
    if args.mutant:
        held.enter_context(applied(MUTANTS[args.mutant]))
        args.case = args.case or (None if args.json else MUTANTS[args.mutant].case)
    one = args.case or args.json
    drawn, budget = LONG if args.long else SMALL
    if one and not args.long:
        budget = Budget()
    chosen = {name: getattr(args, name) for name in ("states", "limit", "sample")}
    budget = budget._replace(**{name: n for name, n in chosen.items() if n is not None})
    began, interrupted = time.monotonic(), False
    if one:
        try:
            case = case_named(args.case) if args.case else Case.from_json(args.json)
        except (KeyError, ValueError) as error:
            parser.error(f"no such case: {error}")
        only = None if args.point is None or args.point < 0 else args.point
        results = [Exploration(case, budget, only=only).explore()]
        for failure in results[0].failures:
            print(failure)
    else:
        count, first = args.drawn or drawn, args.first or 0
        cases = all_cases(count) if first == 0 else [case_at(first + i) for i in range(count)]
        results = []
        try:
            for result in _shown(cases, budget, args.jobs, args.seconds):
                results.append(result)  # one by one: an interrupt keeps them
        except KeyboardInterrupt:
            interrupted = True
        print(failures_of(results))
    print(summary(results, time.monotonic() - began))
    if any(result.failures for result in results):
        return 1
    return 130 if interrupted else 0


def _shown(
    cases: list[Case], budget: Budget, jobs: int | None, seconds: float | None
) -> Iterator[Explored]:
    """Prints a line for each case, and failures at once."""
    began, states = time.monotonic(), 0
    for number, result in enumerate(explore_all(cases, budget, jobs, seconds), 1):
        states += len(result.states)
        seconds = time.monotonic() - began
        print(f"{number}/{len(cases)} {result.name}: {result.points} points, {len(result.states)} states,"
              f" {result.checks} checks; {states} states in {seconds:.0f} s",
              *result.failures, flush=True)  # fmt: skip  # a line
        yield result


if __name__ == "__main__":
    sys.exit(main())
