"""`aolog verify`: checks every byte of a log and lists damage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import aolog
from aolog.cli.output import human_bytes, json_option, named, out, progress, table
from aolog.cli.parse import log_argument
from aolog.errors import CorruptionError, UsageError, counted, one_line
from aolog.format.signature import parse_keys
from aolog.maintenance.baseline import BYTES_MAX, GAP_CAUSES, Baseline, parse_baseline
from aolog.maintenance.signatures import check_signatures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aolog.maintenance.baseline import News
    from aolog.maintenance.report import Report
    from aolog.maintenance.signatures import Signatures
    from aolog.record import Gap

_KEYS_BYTES_MAX = 1 << 20  # thousands of keys: FILE may be /dev/zero


@click.command(
    epilog="""\b
Examples:
  aolog verify LOG
  aolog verify LOG --json | jq '.gaps[]'
  aolog verify LOG --key-file keys

\b
To accept the gaps that a log has now, and report only new damage:
  aolog verify LOG --json > known.json
  aolog verify LOG --baseline known.json || echo 'new damage'

Exit status 0 if everything is intact, 3 if anything is damaged. Two lists of damage: damage that caused
a gap, and damage that cost no record (a header copy, a cursor copy). A copy made by `aolog repair` is
free of the second kind. A lost record stays lost: the copy has the same gaps, which are known there
(known-gaps.json in the copy): exit status 0 until something new is damaged.

With --baseline the gaps in FILE, and the lost slab headers and seals that cause them, are known: exit
status 0 if nothing else is damaged, 3 if a gap is new or has grown, or if there is other damage. FILE
is also valid for a copy of the log that `aolog repair` made.

With --key-file, exit status 3 also if a record has no signature, or a forged one.

Verify changes nothing and may run beside a writer: it checks what the log held when it began."""
)
@log_argument
@click.option(
    "--baseline",
    metavar="FILE",
    help="Accept the gaps in FILE, made by `aolog verify LOG --json > FILE`.",
)
@click.option(
    "--key-file",
    metavar="FILE",
    help="Check each record's signature too, by the keys in FILE: lines of ID ALGORITHM SECRET.",
)
@json_option
def verify(
    log: str,
    baseline: str | None,
    key_file: str | None,
    as_json: bool,  # noqa: FBT001 -- click passes options by name
) -> int:
    """Check every byte of LOG; list gaps and damage."""
    known = Baseline([], set())
    if baseline is not None:
        known = parse_baseline(_read_file(baseline, BYTES_MAX), baseline)
    keys = None
    if key_file is not None:
        text = _read_file(key_file, _KEYS_BYTES_MAX).decode(errors="replace")
        keys = parse_keys(text, key_file)
    with progress("verify", shown=not as_json) as update:
        report = aolog.verify(log, progress=update)
    news = None if baseline is None and not report.known else known.news(report)
    signatures = None if keys is None else check_signatures(log, keys)
    ok = report.ok if news is None else news.ok
    if as_json:
        more = {} if signatures is None else {"signatures": named(signatures)}
        if news is not None:
            more |= {"new_gaps": named(news.gaps), "new_findings": named(news.findings)}
        out.json({"log": log, **named(report), **more})
    else:
        _print(log, report, news)
        if signatures is not None:
            _print_signatures(signatures)
    return 0 if ok and (signatures is None or signatures.ok) else CorruptionError.exit_status


def _print(log: str, report: Report, news: News | None) -> None:
    ok = report.ok if news is None else news.ok
    state = "ok" if report.ok and not report.gaps else "ok except for known gaps"
    out.line(f"{one_line(log)}: {state if ok else 'DAMAGED'}")
    records, frames = counted(report.records, "record", ","), counted(report.frames, "frame", ",")
    slabs = counted(report.slabs, "slab", ",")
    out.line(f"{records} in {frames}, {slabs}, {human_bytes(report.bytes)}")
    durable = f"durable at least up to {report.durable}"
    if not report.durable:  # format 1 has no marks
        durable = "nothing in the log shows how much of it is durable"
    out.line(f"end {report.end}, {durable}")
    if report.tail_bytes:
        out.line(
            f"{human_bytes(report.tail_bytes)} after the end: an append in progress, or a torn end that "
            "the next writer sets aside"
        )
    if report.gaps:
        out.line("")
        out.line(gap_table(report.gaps))
    if news is not None:
        out.line(f"{counted(len(report.gaps) - len(news.gaps), 'gap')} known, {len(news.gaps)} new")
        for gap in news.gaps:
            out.line(f"new: [{gap.begin}, {gap.end}) {gap.reason}")
    damage = [found for found in report.findings if found.damage]
    codes = GAP_CAUSES if report.gaps else set()
    causes = [found for found in damage if found.code in codes]
    others = [found for found in damage if found.code not in codes]
    notes = [each for each in report.findings if not each.damage and each.code != "tail"]
    for head, part in (
        ("Damage that caused gaps", causes),
        ("Damage that cost no record", others),
        ("Notes", notes),
    ):
        if part:
            out.line("\n".join([f"\n{head}:", *(f"  {one_line(each.message)}" for each in part)]))


def gap_table(gaps: Sequence[Gap]) -> str:
    """A row for each gap."""
    rows = [(gap.begin, gap.end, gap.records_lost, gap.reason) for gap in gaps]
    return table(("BEGIN", "END", "RECORDS LOST", "REASON"), rows)


def _read_file(name: str, bytes_max: int) -> bytes:
    """A file that the user names. Raises UsageError."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    if len(data) > bytes_max:
        raise UsageError(f"{name}: is larger than {bytes_max} bytes")
    return data


def _print_signatures(found: Signatures) -> None:
    """For people."""
    out.line("")
    out.line(
        f"signatures: {counted(found.signed, 'record', ',')} as signed, "
        f"{found.unsigned:,} without a signature, {found.forged:,} forged"
    )
    for wrong in found.wrong:
        out.line(f"  {wrong.address}: {wrong.reason}")
