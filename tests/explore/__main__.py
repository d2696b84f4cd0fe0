"""Explores from the command line.

python -m tests.explore                       every case, as the tests do
python -m tests.explore --case seed-7         one case; also by_hand's names
python -m tests.explore --json '{...}'        a case as a failure prints it; --point N: one point
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.explore.explore import Budget, Exploration, explore_all, failures_of, summary
from tests.explore.history import Case, all_cases, case_named
from tests.explore.mutants import MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--case")
    parser.add_argument("--json")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this defect, its case")
    parser.add_argument("--point", type=int)
    parser.add_argument("--drawn", type=int, default=40, help="cases drawn from seeds 0 to N-1")
    parser.add_argument("--limit", type=int, default=Budget().limit)
    parser.add_argument("--sample", type=int, default=Budget().sample)
    parser.add_argument("--jobs", type=int)
    args = parser.parse_args()
    if args.mutant:
        MUTANTS[args.mutant].apply()
        args.case = args.case or (None if args.json else MUTANTS[args.mutant].case)
    budget = Budget(args.limit, args.sample)
    began = time.monotonic()
    if args.case or args.json:
        case = case_named(args.case) if args.case else Case.from_json(args.json)
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
