"""`aolog repair`: a clean copy of a damaged log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import aolog
from aolog.cli.output import human_bytes, json_option, named, out, progress
from aolog.cli.parse import DIRECTORY, log_argument
from aolog.cli.verify import gap_table
from aolog.errors import CorruptionError, counted, one_line

if TYPE_CHECKING:
    from aolog.maintenance.repair import Repaired


@click.command(
    epilog="""\b
Examples:
  aolog repair LOG --into COPY --dry-run
  aolog repair LOG --into COPY
  aolog repair LOG --into COPY --new-uuid  # to use the copy beside LOG

\b
To replace a damaged log, stop its writer and its readers, then:
  aolog repair LOG --into LOG.clean && mv LOG LOG.damaged && mv LOG.clean LOG
  aolog verify LOG  # 0 until something new is damaged

Reading never needs a repair: readers skip damage and report a gap. Repair never writes into LOG. The
copy has the same records at the same addresses, the cursors with their positions, and each file's
owner and mode. Damaged copies of headers and cursors are written from the intact copies; other damaged
bytes become zeros. A lost record stays lost: readers of the copy get the same gaps with the same
counts. The copy notes them in known-gaps.json, and `aolog verify COPY` lists them as known. The remains
of damaged frames stay in LOG: see `aolog salvage`.

Readers and a writer of LOG may go on; the copy then ends where the log ended when the repair began, or
a little later. Without --new-uuid, LOG and COPY are one log, and only one of them may be used. With
it, the copy and its cursors have an identity of their own, and a bridge may drain both.

Exit status 0 when done, 3 if the copy still has damage besides its gaps (a cursor without an intact
copy)."""
)
@log_argument
@click.option(
    "--into",
    type=DIRECTORY,
    metavar="DIR",
    required=True,
    help="Directory of the copy; must not exist.",
)
@click.option("--new-uuid", is_flag=True, help="Give the copy an identity of its own.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be copied.")
@json_option
def repair(
    log: str,
    into: str,
    new_uuid: bool,  # noqa: FBT001 -- click passes options by name
    dry_run: bool,  # noqa: FBT001 -- the same
    as_json: bool,  # noqa: FBT001 -- the same
) -> int:
    """Copy the intact records of a damaged LOG, at the same addresses; lost ones stay gaps."""
    with progress("repair", shown=not as_json) as update:
        done = aolog.repair(log, into, new_uuid=new_uuid, dry_run=dry_run, progress=update)
    if as_json:
        out.json({"log": log, **named(done)})
    else:
        _print(log, done)
    return CorruptionError.exit_status if done.left else 0


def _print(log: str, done: Repaired) -> None:
    verb = "would be" if done.dry_run else "was" if done.records == 1 else "were"
    records = counted(done.records, "record", ",")
    out.line(f"{one_line(log)}: {records} {verb} copied to {one_line(done.into)}")
    if done.dry_run:
        out.line(f"the copy needs {human_bytes(done.needed_bytes)}")
    if done.cursors:
        out.line(f"{counted(len(done.cursors), 'cursor')}: {', '.join(done.cursors)}")
    if done.gaps:
        lost = [gap.records_lost for gap in done.gaps]
        known = sum(count for count in lost if count is not None)
        count = counted(known, "record", ",")
        if None in lost:
            count = f"at least {count}" if known else "an unknown number of records"
        out.line(f"{counted(len(done.gaps), 'gap')}, {count} lost:")
        out.line(gap_table(done.gaps))
        if not done.records:
            out.line(f"the remains of damaged frames: `aolog salvage {one_line(log)}`, unverified")
    for problem in done.left:
        out.line(f"not repaired: {one_line(problem)}")
