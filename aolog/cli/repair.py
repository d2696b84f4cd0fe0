"""`aolog repair`: a damaged log made clean, copied to a new one, or salvaged from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

import aolog
from aolog.cli.output import counted, human_bytes, json_option, one_line, out, progress
from aolog.cli.parse import log_argument
from aolog.cli.verify import total_bytes
from aolog.errors import CorruptionError
from aolog.log.directory import Log
from aolog.maintenance.audit import audit
from aolog.maintenance.salvage import write_salvage
from aolog.storage.files import Storage
from aolog.storage.inside import beside

if TYPE_CHECKING:
    from aolog.maintenance.repair import Repaired

__all__ = ["repair"]


@click.command(
    epilog="""\b
Examples:
  aolog repair LOG --dry-run
  aolog repair LOG
  aolog repair LOG --fresh NEWLOG       # NEWLOG.map.jsonl: the new addresses
  aolog repair LOG --salvage out.jsonl  # only what damaged frames still hold

Reading never needs it: what is intact is read, what is lost is told. Repair makes the log's
files clean: header copies, seals, indexes and cursor copies are written anew, damaged bytes become
zeros. Addresses stay, cursors resume where they stood, and each gap stays a gap with its count: a
lost record is not made up, and `aolog verify` still tells it. --fresh copies the intact records to
a new log, which has no gaps.

The log's writer must be stopped; readers may go on. A repair that was killed is run again.

\b
Originals stay in LOG/aside/repair-NNNN/. When they are not wanted any more:
  rm -r LOG/aside/repair-0001

What damaged frames still hold goes to salvage.jsonl there (NEWLOG.salvage.jsonl with --fresh):
lines of JSON with the address where a record would have been, key_base64, value_base64, headers,
and why it is not to be trusted: its checksum is wrong, so any byte of it may be.

Format 1 (queuefka) has no headers, seals or counts that could be mended; --fresh copies what its
chain of frames still reaches, and with --resync what a guess finds behind damage.

Exit status 0 when done, 3 if damage is left that could not be mended."""
)
@log_argument
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--fresh", metavar="DIR", help="Copy what is intact to a new log, and map addresses.")
@click.option("--salvage", metavar="FILE", help="Only write what damaged frames still hold.")
@click.option("--resync", is_flag=True, help="Format 1 only: guess where records begin again.")
@json_option
def repair(
    log: str,
    dry_run: bool,  # noqa: FBT001 -- click passes options by name
    fresh: str | None,
    salvage: str | None,
    resync: bool,  # noqa: FBT001 -- the same
    as_json: bool,  # noqa: FBT001 -- the same
) -> int:
    """Make a damaged LOG clean, at the same addresses."""
    for place in (fresh, salvage):
        _require_beside(place, log)
    if salvage is not None:
        if fresh is not None or dry_run or resync:
            raise click.UsageError("--salvage stands alone")
        return _salvage(log, salvage, as_json=as_json)
    with progress("repair", total_bytes(log), shown=not as_json) as update:
        done = aolog.repair(
            log, fresh, dry_run=dry_run, resync=resync, progress=lambda at, _: update(at)
        )
    if as_json:
        named = {name: [x._asdict() for x in getattr(done, name)] for name in ("gaps", "slabs")}
        out.json({"log": log, **done._asdict(), **named})
    elif fresh is not None:
        _print_fresh(log, done)
    else:
        _print(log, done)
    return CorruptionError.exit_status if done.left else 0


def _require_beside(place: str | None, log: str) -> None:
    """Links and `..` followed."""
    if place == "":
        raise click.UsageError("a name is missing for what is to be made")
    if place and os.path.realpath(place).startswith(os.path.realpath(log) + "/"):
        raise click.UsageError(f"{place} lies in the log itself: name a place beside it")


def _salvage(log: str, path: str, *, as_json: bool) -> int:
    if os.path.lexists(path):
        raise click.UsageError(f"{path} is there already: name a file of its own")
    listed = Log(log, Storage())
    try:
        listed.require_slabs()
        with progress("salvage", total_bytes(log), shown=not as_json) as update:
            found = audit(listed, progress=lambda at, _: update(at))
        count = write_salvage(
            beside(path, listed.mode_of_copy() & 0o666), log, found.slabs, listed.storage
        )
    finally:
        listed.close()
    if as_json:
        out.json({"log": log, "salvaged": count, "salvage_path": path if count else None})
    elif count:
        out.line(f"{counted(count, 'record', ',')} of damaged frames, unverified: {one_line(path)}")
    else:
        out.line("nothing was found in damaged frames")
    return 0


def _print(log: str, done: Repaired) -> None:
    verb = "would be" if done.dry_run else "was"
    if not done.slabs and not done.cursors:
        out.line(f"{one_line(log)}: nothing to repair")
    for slab in done.slabs:
        out.line(f"{one_line(slab.path)}: {verb} replaced: {', '.join(slab.why)}")
    for name in done.cursors:
        out.line(f"cursor {name}: its damaged copy {verb} written anew")
    if done.dry_run and done.slabs:
        out.line(f"{human_bytes(done.needed_bytes)} of room are needed")
    if done.aside is not None:
        out.line(f"originals are kept in {one_line(done.aside)}; remove it when you like")
    _print_rest(done)


def _print_fresh(log: str, done: Repaired) -> None:
    verb = "would be" if done.dry_run else "was" if done.records == 1 else "were"
    records = counted(done.records, "record", ",")
    out.line(f"{one_line(log)}: {records} {verb} copied to {one_line(done.into or '')}")
    out.line(f"which went where: {one_line(done.map_path or '')}")
    _print_rest(done)


def _print_rest(done: Repaired) -> None:
    if done.salvaged:
        what = counted(done.salvaged, "record", ",")
        where = one_line(done.salvage_path or "")
        out.line(f"{what} of damaged frames, unverified: {where}")
    if done.gaps:
        lost = [gap.records_lost for gap in done.gaps]
        known = sum(count for count in lost if count is not None)
        more = " or more" if None in lost else ""
        count = f"{known:,}{more} lost"
        out.line(f"{counted(len(done.gaps), 'gap')}, {count}: see aolog verify")
    for problem in done.left:
        out.line(f"not mended: {one_line(problem)}")
