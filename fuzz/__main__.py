"""python -m fuzz: the command line."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fuzz.campaign import Plan, Result

__all__ = ["main"]

_TARGETS = ("frame", "log", "recovery", "cursor", "canary")
_OUTCOMES_SHOWN = 10  # --json has all
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_EPILOG = """\b
Targets:
  frame      arbitrary bytes as a slab: frame, need more, torn or corrupt, and nothing else
  log        random histories of a writer, its readers, cursors and retention
  recovery   random damages, every reader against the oracle, a writer, all again
  cursor     commits, torn commits, bit flips, foreign and diverged logs
  canary     defects put in on purpose: each must be found, or the fuzzer is broken

\b
Examples:
  python -m fuzz recovery --time 60                  a minute, seed 1
  python -m fuzz log --seed 7 --time 600 --jobs 2    ten minutes, two processes
  python -m fuzz recovery --seed 7 --case 4711       one case again
  python -m fuzz frame --input fuzz/corpus/frame/x.json
  python -m fuzz frame --engine atheris --time 60    coverage-guided; needs the package atheris
  python -m fuzz canary                              does the fuzzer still find defects?

\b
Exit status: 0 nothing was found, 1 a failure (or a canary that survives), 2 usage, 3 Ctrl-C, which prints
what was found."""


@click.command(epilog=_EPILOG, context_settings=_CONTEXT)
@click.argument("target", type=click.Choice(_TARGETS))
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True,
              help="Case K of seed N is always the same.")  # fmt: skip
@click.option("--time", "seconds", type=click.FloatRange(0, min_open=True),
              help="Seconds. [default: 10, unless --cases says how many]")  # fmt: skip
@click.option("--cases", type=click.IntRange(1), help="Stop after this number of cases.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True,
              help="Processes side by side.")  # fmt: skip
@click.option("--case", "number", type=click.IntRange(0), help="Run this case of the seed alone.")
@click.option("--input", "path", type=click.Path(exists=True, dir_okay=False),
              help="Run a saved case alone.")  # fmt: skip
@click.option("--engine", type=click.Choice(["own", "atheris"]), default="own", show_default=True,
              help="atheris: coverage-guided, target frame only.")  # fmt: skip
@click.option("--save", type=click.Path(file_okay=False), default=None,
              help="Where failures are kept, made small. [default: fuzz/corpus]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
def main(
    target: str,
    seed: int,
    seconds: float | None,
    cases: int | None,
    jobs: int,
    number: int | None,
    path: str | None,
    engine: str,
    save: str | None,
    as_json: bool,  # noqa: FBT001 -- click passes it by name
) -> None:
    """Attack the log with random input. Each failure is printed with the command that repeats it."""
    where = Path(save) if save is not None else Path(__file__).parent / "corpus"
    if seconds is not None and not math.isfinite(seconds):
        raise click.UsageError(f"--time {seconds} is no number of seconds")
    if number is not None and path is not None:
        raise click.UsageError("--case and --input name two cases: give one")
    alone = number is not None or path is not None
    if as_json and alone:
        raise click.UsageError("--json is for campaigns: one case is told with its traceback")
    if save is not None or not (alone or target == "canary"):
        _require_writable(where)
    if engine == "atheris":
        if target != "frame":
            raise click.UsageError("--engine atheris is for the target frame")
        _atheris(seed, seconds or 10.0, where)
        return
    if target == "canary":
        if alone:
            raise click.UsageError("canary has no cases of its own")
        sys.exit(_canary(seed, as_json=as_json))
    if alone:
        sys.exit(_one(target, seed, number, path))

    from fuzz.campaign import Plan, campaign

    if seconds is None and cases is None:
        seconds = 10.0
    plan, progress = Plan(target, seed, seconds, cases, jobs, where), _Progress(target)
    interrupted = False
    try:
        campaign(plan, progress)
    except KeyboardInterrupt:
        interrupted = True
    if progress.result is None:
        raise click.Abort
    _report(plan, progress.result, as_json=as_json)
    if interrupted:
        click.echo("Error: interrupted; this is what was found until then", err=True)
        sys.exit(3)
    sys.exit(1 if progress.result.failed else 0)


def _atheris(seed: int, seconds: float, corpus: Path) -> None:
    from aolog.errors import install_command
    from fuzz.engine import run_atheris

    try:
        run_atheris(seed, seconds, corpus)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error}; {install_command('fuzz')}") from None


def _one(target: str, seed: int, number: int | None, path: str | None) -> int:
    """Runs one case and prints its failure with the traceback. Returns the exit status."""
    import traceback

    from fuzz.campaign import run_saved
    from fuzz.disk import Disk
    from fuzz.target import decode, draw, encode
    from fuzz.targets import load

    if path is not None:
        try:
            case = decode(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # what is no JSON, or no UTF-8, too
            raise click.UsageError(f"{path} is no saved case: {error}") from None
    else:
        with Disk() as disk:
            case = draw(load(target)(disk), target, seed, number or 0)
    click.echo(encode(case), nl=False)
    try:
        outcome = run_saved(target, case)
    except Exception:  # noqa: BLE001 -- whatever it raises is the failure
        click.echo(traceback.format_exc(), nl=False)
        click.echo("FAILED")
        return 1
    click.echo(f"passed: {outcome}")
    return 0


def _require_writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        why = f"--save {directory}: {error.strerror}; failures are kept there"
        raise click.UsageError(why) from None


def _canary(seed: int, *, as_json: bool) -> int:
    from fuzz.canary import CANARIES, hunt

    found = []
    for canary in CANARIES:
        one = hunt(canary, seed)
        found.append(one)
        if not as_json:
            result = "NOT FOUND" if one.case is None else f"found by case {one.case}"
            click.echo(f"{canary.target:<9} {result:<18} {canary.name}")
    alive = [one.canary.name for one in found if one.case is None]
    if as_json:
        cases = {one.canary.name: one.case for one in found}
        click.echo(json.dumps({"target": "canary", "seed": seed, "found": cases, "alive": alive}))
    elif alive:
        click.echo(f"{len(alive)} of {len(found)} survive: the fuzzer is broken")
    return 1 if alive else 0


class _Progress:
    """On a terminal one line that is overwritten; otherwise a line each ten seconds."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._reported_s = 0.0
        self.result: Result | None = None

    def __call__(self, result: Result) -> None:
        self.result = result
        terminal = sys.stderr.isatty()
        if not terminal and result.seconds - self._reported_s < 10.0:
            return
        self._reported_s = result.seconds
        rate = result.cases / max(result.seconds, 1e-9)
        line = (
            f"{self._target}: {result.cases:,} cases, {rate:,.0f}/s, "
            f"{len(result.outcomes)} outcomes, {sum(result.failed.values())} failures"
        )
        click.echo(f"\r\x1b[K{line}" if terminal else line, err=True, nl=not terminal)


def _report(plan: Plan, result: Result, *, as_json: bool) -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
    failed = sum(result.failed.values())
    if as_json:
        document = {
            "target": plan.target,
            "seed": plan.seed,
            "jobs": plan.jobs,
            "cases": result.cases,
            "seconds": round(result.seconds, 3),
            "outcomes": dict(result.outcomes.most_common()),
            "failed": dict(result.failed),
            "failures": [
                {k: v for k, v in failure._asdict().items() if k != "small"}
                for failure in result.failures
            ],
        }
        click.echo(json.dumps(document))
        return
    click.echo(
        f"{plan.target}, seed {plan.seed}: {result.cases:,} cases in {result.seconds:.1f} s, "
        f"{failed} failures"
    )
    click.echo(
        f"{len(result.outcomes)} distinct outcomes: what the log did with a case, in a few words. Few of"
        " them would mean that the cases are alike. The most frequent:"
    )
    for outcome, cases in result.outcomes.most_common(_OUTCOMES_SHOWN):
        click.echo(f"{cases:>8,}  {outcome}")
    for failure in result.failures:
        click.echo(f"\ncase {failure.number}, made {failure.steps} steps: {failure.error}")
        click.echo(f"  {failure.command}")


if __name__ == "__main__":
    main(prog_name="python -m fuzz")
