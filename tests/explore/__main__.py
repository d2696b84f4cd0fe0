"""Crashes short histories at every file operation, recovers from every state that the disk may be
left in, and checks what was promised.

  python -m tests.explore                   every case, as the tests do
  python -m tests.explore --long            millions of states; --seconds: as many as there is time for
  python -m tests.explore --case seed-7     one case; also by the names in history.py
  python -m tests.explore --mutant NAME     with this defect, on its case
  python -m tests.explore --json '{...}'    a case as a failure prints it; --point N: one point

Exit status: 0 nothing was found, 1 a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext

from tests.explore.explore import (
    LONG,
    SMALL,
    Budget,
    Exploration,
    explore_all,
    failures_of,
    summary,
)  # fmt: skip  # names
from tests.explore.history import Case, all_cases, case_named
from tests.mutants.defects import MUTANTS
from tests.mutants.mutant import applied


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.explore",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--case", type=case_named)
    parser.add_argument("--json", dest="case", type=Case.from_json)
    parser.add_argument("--mutant", choices=sorted(MUTANTS))
    parser.add_argument("--point", type=int)
    parser.add_argument("--limit", type=int, default=Budget().limit, help="states a point")
    parser.add_argument("--sample", type=int, default=Budget().sample, help="drawn beyond those")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seconds", type=float)
    args = parser.parse_args()
    mutant = MUTANTS[args.mutant] if args.mutant else None
    case = args.case or (case_named(mutant.case) if mutant and mutant.case else None)
    began_s, results = time.monotonic(), []
    if case is not None:
        budget = Budget(limit=args.limit, sample=args.sample)
        only = None if args.point is None or args.point < 0 else args.point
        with applied(mutant) if mutant else nullcontext():
            results = [Exploration(case, budget, only=only).explore()]
        for failure in results[0].failures:
            print(failure)
    else:
        drawn, budget = LONG if args.long else SMALL
        for result in explore_all(all_cases(drawn), budget, args.seconds):
            results.append(result)
            print(f"{result.name}: {len(result.states)} states", *result.failures, flush=True)
        print(failures_of(results))
    print(summary(results, time.monotonic() - began_s))
    return int(any(result.failures for result in results))


if __name__ == "__main__":
    sys.exit(main())
