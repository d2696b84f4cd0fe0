"""Crashes short histories at every file operation, recovers from every state that the disk may be
left in, and checks what was promised.

  python -m tests.explore                   every case, as the tests do; --long: millions of states
  python -m tests.explore --case seed-7     one case; also by the names in history.py
  python -m tests.explore --json '{...}'    a case as a failure prints it; --point N: one point

The same options explore the same states, whatever --jobs says. Exit status: 0 nothing was found,
1 a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
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
from tests.explore.mutants import MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.explore",
        usage="%(prog)s [options]",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )

    def option(name: str, what: str, **kind: Any) -> None:
        parser.add_argument(name, help=what, metavar=name[2:].upper(), **kind)

    known = "\n".join(f"  {name}" for name in sorted(MUTANTS))
    option("--case", "this case alone")
    option("--json", "this case alone, as a failure prints it")
    option("--point", "this point of the case alone", type=int)
    option("--mutant", f"with this defect, on its case:\n{known}", choices=sorted(MUTANTS))
    parser.add_argument("--long", action="store_true", help="hours: more of all that follows")
    drawn, budget = SMALL
    option("--drawn", f"cases drawn from seeds 0 to N-1 [{drawn}]", type=int)
    option("--states", f"states a case [{budget.states}; one case: no end]", type=int)
    option("--limit", f"states a point [{budget.limit}; one case: {Budget().limit}]", type=int)
    option("--sample", "states drawn past that", type=int)
    option("--jobs", "processes [one a core]", type=int)
    args = parser.parse_args()
    if args.mutant:
        MUTANTS[args.mutant].apply()
        args.case = args.case or (None if args.json else MUTANTS[args.mutant].case)
    one = args.case or args.json
    drawn, budget = LONG if args.long else SMALL
    if one and not args.long:
        budget = Budget()
    chosen = {name: getattr(args, name) for name in ("states", "limit", "sample")}
    budget = budget._replace(**{name: n for name, n in chosen.items() if n is not None})
    began = time.monotonic()
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
        results = list(_shown(all_cases(args.drawn or drawn), budget, args.jobs))
        print(failures_of(results))
    print(summary(results, time.monotonic() - began))
    return any(result.failures for result in results)


def _shown(cases: list[Case], budget: Budget, jobs: int | None) -> Iterator[Explored]:
    """A line a case; failures at once."""
    began, states = time.monotonic(), 0
    for number, result in enumerate(explore_all(cases, budget, jobs), 1):
        states += len(result.states)
        seconds = time.monotonic() - began
        print(f"{number}/{len(cases)} {result.name}: {result.points} points, {len(result.states)} states,"
              f" {result.checks} checks; {states} states in {seconds:.0f} s",
              *result.failures, flush=True)  # fmt: skip  # a line
        yield result


if __name__ == "__main__":
    sys.exit(main())
