"""Crashes short histories at every file operation, recovers from every state that the disk may be
left in, and checks what was promised.

  python -m tests.explore                   every case, as the tests do
  python -m tests.explore --case seed-7     one case; also by the names in history.py
  python -m tests.explore --json '{...}'    a case as a failure prints it; --point N: one point

Exit status: 0 nothing was found, 1 a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tests.explore.explore import Budget, Exploration, explore_all, failures_of, summary
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
    option("--drawn", "cases drawn from seeds 0 to N-1 [40]", type=int, default=40)
    budget = Budget()
    option("--limit", f"states a point [{budget.limit}]", type=int, default=budget.limit)
    option("--sample", f"states drawn past that [{budget.sample}]", type=int, default=budget.sample)
    option("--jobs", "processes [one a core]", type=int)
    args = parser.parse_args()
    if args.mutant:
        MUTANTS[args.mutant].apply()
        args.case = args.case or (None if args.json else MUTANTS[args.mutant].case)
    budget = Budget(args.limit, args.sample)
    began = time.monotonic()
    if args.case or args.json:
        try:
            case = case_named(args.case) if args.case else Case.from_json(args.json)
        except (KeyError, ValueError) as error:
            parser.error(f"no such case: {error}")
        only = None if args.point is None or args.point < 0 else args.point
        results = [Exploration(case, budget, only=only).explore()]
        for failure in results[0].failures:
            print(failure)
    else:
        results = []
        for result in explore_all(all_cases(args.drawn), budget, args.jobs):
            print(result.name, result.points, result.states, result.checks, f"{result.seconds:.1f}s",
                  *(f.what.split(":")[:2] for f in result.failures), flush=True)  # fmt: skip  # a line
            results.append(result)
        print(failures_of(results))
    print(summary(results, time.monotonic() - began))
    return any(result.failures for result in results)


if __name__ == "__main__":
    sys.exit(main())
