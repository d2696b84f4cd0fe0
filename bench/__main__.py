"""python -m bench: the command line."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from bench.cases import CASES, CASES_WITH_TARGETS
from bench.sizes import SIZES

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_EPILOG = """\b
Examples:
  python -m bench                                    all cases, about five minutes
  python -m bench --only arrow --check               does the target hold?
  python -m bench --only append --record-bytes 20    small records
  python -m bench --size large --dir /mnt/disk --json large.json
"""


@click.command(epilog=_EPILOG, context_settings=_CONTEXT)
@click.option("--size", type=click.Choice(list(SIZES)), default="normal", show_default=True,
              help="How much; small only proves that everything runs.")  # fmt: skip
@click.option("--only", type=click.Choice(CASES), multiple=True, help="This case; repeatable.")
@click.option("--record-bytes", type=click.IntRange(16), multiple=True,
              help="Length of a value; repeatable. [default: 100; large: 20, 100, 1024]")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), help="Rounds that count. [default: by size]")
@click.option("--dir", "parent", type=click.Path(exists=True, file_okay=False, writable=True),
              help="Where to write. [default: the system's temporary directory]")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(dir_okay=False, writable=True),
              help="Also write every time that was taken.")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Exit 1 unless the targets of these cases hold, which are printed at the end.")  # fmt: skip
def main(
    size: str,
    only: tuple[str, ...],
    record_bytes: tuple[int, ...],
    repeat: int | None,
    parent: str | None,
    json_path: str | None,
    check: bool,  # noqa: FBT001 -- click passes it by name
) -> None:
    """How fast aolog is, beside msgpack, pyarrow IPC, lmdb, sqlite and persist-queue, and beside
    the same bytes written and read raw. All contenders of a case take turns, so compare within a
    run. Needs the packages of `pip install '.[bench]'`; what is missing is left out."""
    cases = [case for case in CASES if not only or case in only]
    if check and (size == "small" or not set(cases) & set(CASES_WITH_TARGETS)):
        one_of = ", ".join(CASES_WITH_TARGETS)
        raise click.UsageError(f"--check needs a case of {one_of}, and a size that can be timed")

    from bench import machine, report, target
    from bench.cases import groups_of_case
    from bench.cases.plan import Plan
    from bench.measure import measure

    rounds = repeat or SIZES[size].rounds
    measured = []
    with tempfile.TemporaryDirectory(prefix="aolog-bench-", dir=parent) as directory:
        about = machine.describe(directory)
        click.echo(report.head(about))
        plan = Plan(directory, SIZES[size], record_bytes or SIZES[size].record_bytes)
        for case in cases:
            for group in groups_of_case(case, plan):
                if not sys.stderr.isatty():
                    click.echo(f"measuring: {group.title}", err=True)
                results = measure(group, rounds=rounds, directory=directory, progress=_progress)
                _progress("")
                click.echo("\n" + report.table(group, results, rounds))
                measured.append((group, results))

    found = [] if size == "small" else target.figures(measured)  # its times mean nothing
    if json_path is not None:
        document = {
            "machine": about,
            "size": size,
            "rounds": rounds,
            "groups": [report.as_json(group, results, rounds) for group, results in measured],
            "targets": [
                {
                    "group": figure.title,
                    "what": figure.target.what,
                    "ratio": figure.ratio,
                    "ratio_max": figure.target.ratio_max,
                }
                for figure in found
            ],
        }
        Path(json_path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if found:
        click.echo()
    for figure in found:
        click.echo(figure)
    if check and not (found and all(figure.holds for figure in found)):
        sys.exit(1)


def _progress(text: str) -> None:
    """One line that is written over, where somebody looks."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


if __name__ == "__main__":
    main(prog_name="python -m bench")
