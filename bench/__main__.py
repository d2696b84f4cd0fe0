"""python -m bench: the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bench.cases import CASES, CASES_ON_REQUEST, CASES_WITH_TARGETS
from bench.quick import CASES as QUICK_CASES
from bench.sizes import SIZES

if TYPE_CHECKING:
    from pathlib import Path

    from bench.cases.plan import Plan
    from bench.measure import Group, Measured, Skipped
    from bench.panel import Panel, Reading
    from bench.results import Document

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_RESULTS, _PLOTS, _PAGE, _README = "bench/results", "bench/plots", "bench/RESULTS.md", "README.md"
_EPILOG = f"""\b
Examples:
  python -m bench --quick                            the README's table as bars, in a minute
  python -m bench                                    all cases, about twenty minutes
  python -m bench --only arrow --check               does the target hold?
  python -m bench --only append --record-bytes 20    small records
  python -m bench --only scale --size large --plot . how costs grow, up to 10^8 records
  python -m bench --size large --dir /mnt/disk --json large.json
  python -m bench --publish                          what is published, measured again
  python -m bench --publish --only durability        the same of one case, the others as they were
  python -m bench --publish --from {_RESULTS}     pages and plots again, without measuring
"""


@click.command(epilog=_EPILOG, context_settings=_CONTEXT)
@click.option("--size", type=click.Choice(list(SIZES)), default="normal", show_default=True,
              help="How much; small only proves that everything runs.")  # fmt: skip
@click.option("--quick", is_flag=True,
              help="The rows of the README's table only, three rounds, drawn as bars.")  # fmt: skip
@click.option("--only", type=click.Choice(CASES), multiple=True, help="This case; repeatable.")
@click.option("--instructions", is_flag=True,
              help="Also count instructions, which takes valgrind.")  # fmt: skip
@click.option("--record-bytes", type=click.IntRange(16), multiple=True,
              help="Length of a value; repeatable. [default: 100; large: 20, 100, 1024]")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), help="Rounds that count. [default: by size]")
@click.option("--dir", "parent", type=click.Path(exists=True, file_okay=False, writable=True),
              help="Where to write. [default: the system's temporary directory]")  # fmt: skip
@click.option("--from", "source", type=click.Path(exists=True, file_okay=False),
              help="Measure nothing: take what was published in this directory.")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(dir_okay=False, writable=True),
              help="Also write every figure that was taken.")  # fmt: skip
@click.option("--plot", "plot_path", type=click.Path(file_okay=False),
              help="Draw how costs grow, as SVG, into this directory; takes matplotlib.")  # fmt: skip
@click.option("--publish", is_flag=True,
              help="All cases, growth at the large size, instructions, or with --only these, the "
                   f"others as they were; into {_RESULTS}, {_PLOTS}, {_PAGE} and {_README}.")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Exit 1 unless the targets of these cases hold, which are printed at the end.")  # fmt: skip
def main(
    size: str,
    quick: bool,  # noqa: FBT001 -- click passes it by name
    only: tuple[str, ...],
    instructions: bool,  # noqa: FBT001 -- click passes it by name
    record_bytes: tuple[int, ...],
    repeat: int | None,
    parent: str | None,
    source: str | None,
    json_path: str | None,
    plot_path: str | None,
    publish: bool,  # noqa: FBT001 -- click passes it by name
    check: bool,  # noqa: FBT001 -- click passes it by name
) -> None:
    """Measure aolog beside msgpack, pyarrow IPC, lmdb, sqlite, RocksDB and raw files; the bridge beside
    the Kafka client alone; Spark on logs beside Spark on its own files; their memory; and how costs
    grow. All contenders of a case take turns, so compare within a run. Needs the packages of `pip
    install '.[bench]'`; missing ones are left out, and so are Apache Kafka without Java and the peer in Go without Go."""
    if publish and size != "normal":
        raise click.UsageError("--publish measures at its own sizes")
    if quick:
        if publish or check or only:
            raise click.UsageError("--quick has cases of its own, and neither targets nor results")
        only = QUICK_CASES
    cases = [
        case
        for case in CASES
        if case in only
        or (not only and case not in CASES_ON_REQUEST)
        or ((instructions or (publish and not only)) and case in CASES_ON_REQUEST)
    ]
    if check and source is None and (size == "small" or not set(cases) & set(CASES_WITH_TARGETS)):
        one_of = ", ".join(CASES_WITH_TARGETS)
        raise click.UsageError(f"--check needs a case of {one_of}, and a size that can be timed")

    from bench import results

    wrong = False
    if source is not None:
        found = results.load(source)
    else:
        found, wrong = _measure(
            cases, size, record_bytes, repeat, parent, grown=publish, quick=quick
        )
    if json_path is not None:
        results.save(json_path, found)
    if publish:
        found, plot_path = _published(found, measured=source is None), str(_root() / _PLOTS)
    if plot_path is not None:
        from bench import plot

        for path in plot.draw(found, plot_path):
            click.echo(f"drawn: {path}")
    lines = results.verdicts(found)
    if lines:
        click.echo("\n" + "\n".join(lines))
    if wrong or (check and (not lines or results.missed(found))):
        sys.exit(1)


def _root() -> Path:
    from bench.child import ROOT

    return ROOT


def _published(found: Document, *, measured: bool) -> Document:
    """Writes the results, the page and the README's table. Returns all published figures."""
    from bench import results, sentences, table

    at = str(_root() / _RESULTS)
    if measured:
        results.publish(at, found)
        found = results.load(at)
    table.write_page(str(_root() / _PAGE), found)
    table.write_readme(str(_root() / _README), found)
    pages = [_PAGE, _README, *(str(page) for page in sentences.write(_root(), found))]
    click.echo(f"figures in: {', '.join(pages)}")
    return found


def _measure(
    cases: list[str],
    size_name: str,
    record_bytes: tuple[int, ...],
    repeat: int | None,
    parent: str | None,
    *,
    grown: bool,
    quick: bool,
) -> tuple[Document, bool]:
    """Runs the cases. Returns the results, and whether a case went wrong; that case's figures are left
    out. grown: measures at the sizes of large how costs grow. quick: few rows, as bars."""
    import tempfile

    from bench import machine, report, results
    from bench import quick as few
    from bench.cases.plan import Plan
    from bench.measure import Wrong

    size = SIZES[size_name]
    if grown:
        large = SIZES["large"]
        size = size._replace(
            scale_records=large.scale_records,
            scale_slabs=large.scale_slabs,
            scale_rounds=large.scale_rounds,
        )
    rounds = repeat or (few.ROUNDS if quick else size.rounds)
    groups: list[tuple[Group, list[Measured]]] = []
    panels: list[tuple[Panel, list[Reading], list[Skipped]]] = []
    wrong = False
    with tempfile.TemporaryDirectory(prefix="aolog-bench-", dir=parent) as directory:
        about = machine.describe(directory)
        click.echo(report.machine_lines(about) if quick else report.head(about))
        plan = Plan(directory, size, record_bytes or size.record_bytes, few.ROWS if quick else None)
        for case in cases:
            try:
                its_groups, its_panels = _run(case, plan, rounds, quick=quick)
            except Wrong as error:  # the other cases may have taken an hour: keep them
                wrong = True
                click.echo(f"{case} went wrong, and counts for nothing: {error}", err=True)
            else:
                groups += its_groups
                panels += its_panels
    return results.document(about, size_name, rounds, groups, panels), wrong


def _run(
    case: str, plan: Plan, rounds: int, *, quick: bool
) -> tuple[list[tuple[Group, list[Measured]]], list[tuple[Panel, list[Reading], list[Skipped]]]]:
    """Runs a case and prints each group, or panel, as it is done. Raises Wrong."""
    from bench import panel, report
    from bench import quick as few
    from bench.cases import groups_of_case
    from bench.measure import Group, measure

    groups: list[tuple[Group, list[Measured]]] = []
    panels: list[tuple[Panel, list[Reading], list[Skipped]]] = []
    for one in groups_of_case(case, plan):
        if not sys.stderr.isatty():
            click.echo(f"measuring: {one.title}", err=True)
        if isinstance(one, Group):
            group = few.few(one) if quick else one
            timed = measure(group, rounds=rounds, directory=plan.directory, progress=_progress)
            text = few.bars(group, timed) if quick else report.table(group, timed, rounds)
            groups.append((group, timed))
        else:
            readings, skipped = panel.read_panel(one, rounds=rounds, progress=_progress)
            text = panel.text(one, readings, skipped)
            panels.append((one, readings, skipped))
        _progress("")
        click.echo("\n" + text)
    return groups, panels


def _progress(text: str) -> None:
    """On a terminal one line that is overwritten."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


if __name__ == "__main__":
    main(prog_name="python -m bench")
