"""`aolog verify`: every byte of a log checked, what is not intact listed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import aolog
from aolog.cli.output import counted, human_bytes, json_option, one_line, out, progress, table
from aolog.cli.parse import log_argument
from aolog.errors import CorruptionError
from aolog.log import Log
from aolog.storage import Storage
from aolog.verify import GAP_CAUSES

if TYPE_CHECKING:
    from aolog.verify import Report

__all__ = ["report_to_json", "total_bytes", "verify"]


@click.command(
    epilog="""\b
Examples:
  aolog verify LOG
  aolog verify LOG --json | jq '.gaps[]'
  aolog verify LOG || mail -s 'log damaged' ops@example.org < /dev/null

Exit status 0 if all is intact, 3 if anything is damaged: what lost records is listed apart from
what did not (a header copy, a seal, a cursor copy), which `aolog repair` mends. Verifying changes
nothing, and may run beside a writer."""
)
@log_argument
@click.option(
    "--resync",
    is_flag=True,
    help="Format 1 only: behind damage, guess where the next record begins.",
)
@json_option
def verify(log: str, resync: bool, as_json: bool) -> int:  # noqa: FBT001 -- click passes by name
    """Check every byte of LOG; list gaps and damage."""
    with progress("verify", total_bytes(log), shown=not as_json) as update:
        report = aolog.verify(log, resync=resync, progress=lambda done, _: update(done))
    if as_json:
        out.json({"log": log, **report_to_json(report)})
    else:
        _print(log, report)
    return 0 if report.ok else CorruptionError.exit_status


def report_to_json(report: Report) -> dict[str, Any]:
    """All of it, named."""
    named = {
        name: [item._asdict() for item in getattr(report, name)]
        for name in ("gaps", "findings", "health", "cursors", "leftovers")
    }
    return report._asdict() | named


def total_bytes(log: str) -> int:
    """Of the slab files. Raises NotALog."""
    listed = Log(log, Storage())
    try:
        return sum(Path(listed.slab_path(base)).stat().st_size for base in listed.bases)
    except FileNotFoundError:  # pruned meanwhile: no bar
        return 0
    finally:
        listed.close()


def _print(log: str, report: Report) -> None:
    out.line(f"{one_line(log)}: {'ok' if report.ok else 'DAMAGED'}")
    records, frames = counted(report.records, "record", ","), counted(report.frames, "frame", ",")
    slabs = counted(report.slabs, "slab", ",")
    out.line(f"{records} in {frames}, {slabs}, {human_bytes(report.bytes)}")
    out.line(f"end {report.end}, durable at least up to {report.durable}")
    if report.tail_bytes:
        out.line(
            f"{human_bytes(report.tail_bytes)} behind the end: an append that is going on, or a "
            "torn end that the next writer sets aside"
        )
    if report.gaps:
        out.line("")
        rows = [(gap.begin, gap.end, gap.records_lost, gap.reason) for gap in report.gaps]
        out.line(table(("BEGIN", "END", "RECORDS LOST", "REASON"), rows))
    damage = [found for found in report.findings if found.damage]
    causes = [found for found in damage if found.code in GAP_CAUSES and report.gaps]
    for head, part in (
        ("Damage that is why records are lost", causes),
        ("Damage that costs no record", [found for found in damage if found not in causes]),
    ):
        if part:
            out.line(f"\n{head}:")
        for found in part:
            out.line(f"  {one_line(found.message)}")
    notes = [
        found.message for found in report.findings if not found.damage and found.code != "tail"
    ]
    if notes:
        out.line("\nNo damage:")
        for note in notes:
            out.line(f"  {one_line(note)}")
    aside = [left for left in report.leftovers if left.kind == "aside"]
    if aside:
        size = human_bytes(sum(left.bytes for left in aside))
        out.line(f"\n{counted(len(aside), 'file')} kept aside by recovery or repair, {size}")
