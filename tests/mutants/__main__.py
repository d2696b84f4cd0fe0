"""See the package."""

from __future__ import annotations

import argparse
import sys
import time

from tests.mutants.c_mutants import C_MUTANTS
from tests.mutants.defects import MUTANTS
from tests.mutants.page import PAGE, page
from tests.mutants.run import AnyMutant, first_of_each_clause, run_all


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Runs named tests on mutants of the code."
    )
    parser.add_argument("names", nargs="*", help="mutants to run [all]")
    parser.add_argument(
        "--few",
        action="store_true",
        help="as CI does: the first of each clause, and nothing without a mutant",
    )
    parser.add_argument("--jobs", type=int, help="processes [one a core]")
    parser.add_argument("--show", action="store_true", help="show the tests' output of all")
    parser.add_argument(
        "--page", action="store_true", help="only write aolog/docs/explanation/proof.md"
    )
    args = parser.parse_args()
    mutants: dict[str, AnyMutant] = MUTANTS | C_MUTANTS
    if unknown := [name for name in args.names if name not in mutants]:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    if args.page:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    chosen = [mutants[name] for name in args.names] or list(mutants.values())
    if args.few:
        chosen = first_of_each_clause(chosen)
    began_s = time.monotonic()
    ran = alive = 0
    for outcome in run_all(chosen, args.jobs, first_without=not args.few):
        said = "caught" if outcome.caught else "ALIVE"
        print(f"{said}: {outcome.mutant.name} ({outcome.seconds:.1f} s)", flush=True)
        if not outcome.caught or args.show:
            print(outcome.output, flush=True)
        ran += 1
        alive += not outcome.caught
    took_s = time.monotonic() - began_s
    print(f"{ran} of {len(mutants)} mutants ran, {alive} alive, in {took_s:.0f} s")
    return bool(alive)


if __name__ == "__main__":
    sys.exit(main())
