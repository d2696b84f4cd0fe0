"""`aolog verify`: every byte of a log checked, what is not intact listed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import aolog
from aolog.cli.output import counted, human_bytes, json_option, one_line, out, progress, table
from aolog.cli.parse import log_argument
from aolog.errors import CorruptionError
from aolog.log.directory import Log
from aolog.maintenance.aside import recorded_gaps
from aolog.maintenance.verify import GAP_CAUSES
from aolog.storage.files import Storage

if TYPE_CHECKING:
    from aolog.maintenance.verify import Report

__all__ = ["report_to_json", "total_bytes", "verify"]


@click.command(
    epilog="""\b
Examples:
  aolog verify LOG
  aolog verify LOG --json | jq '.gaps[]'
  aolog verify LOG --known || mail -s damaged ops@example.org < /dev/null

Exit status 0 if all is intact, 3 if anything is damaged: what lost records is listed apart from
what did not (a header copy, a seal, a cursor copy), which `aolog repair` mends. A lost record stays
lost, so a repaired log stays DAMAGED; with --known only new damage counts, as long as LOG/aside
keeps the repair's report. Verifying changes nothing, and may run beside a writer."""
)
@log_argument
@click.option(
    "--resync",
    is_flag=True,
    help="Format 1 only: behind damage, guess where the next record begins.",
)
@click.option("--known", is_flag=True, help="Gaps that a repair has recorded are no damage.")
@json_option
def verify(
    log: str,
    resync: bool,  # noqa: FBT001 -- click passes options by name
    known: bool,  # noqa: FBT001 -- the same
    as_json: bool,  # noqa: FBT001 -- the same
) -> int:
    """Check every byte of LOG; list gaps and damage."""
    with progress("verify", total_bytes(log), shown=not as_json) as update:
        report = aolog.verify(log, resync=resync, progress=lambda done, _: update(done))
    recorded = recorded_gaps(log, Storage()) if report.gaps else {}
    since = [recorded[at] for gap in report.gaps if (at := (gap.begin, gap.end)) in recorded]
    ok = report.ok or (known and len(since) == len(report.gaps) and not report.problems)
    if as_json:
        out.json({"log": log, **report_to_json(report), "known_gaps": len(since)})
    else:
        _print(log, report, since, ok=ok)
    return 0 if ok else CorruptionError.exit_status


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
        return sum(Path(listed.slab_path(base)).lstat().st_size for base in listed.bases)
    except FileNotFoundError:  # pruned meanwhile: no bar
        return 0
    finally:
        listed.close()


def _print(log: str, report: Report, since: list[str], *, ok: bool) -> None:
    """since: the repair that recorded it, of each gap that one did."""
    state = "ok" if report.ok else "ok but for known gaps"
    out.line(f"{one_line(log)}: {state if ok else 'DAMAGED'}")
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
        if since:
            new = len(report.gaps) - len(since)
            gaps = f"{counted(len(since), 'gap')} known since {max(since)}"
            out.line(f"{gaps}, {new or 'none'} new")
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
