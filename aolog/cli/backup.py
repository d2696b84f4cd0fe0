"""`aolog backup`: a copy of a log beside its writer."""

from __future__ import annotations

import click

import aolog
from aolog.cli.output import json_option, named, out, progress
from aolog.cli.parse import DIRECTORY, log_argument
from aolog.errors import CorruptionError, counted, one_line
from aolog.log.directory import Log
from aolog.maintenance.baseline import own_baseline
from aolog.storage.storage import Storage


@click.command(
    epilog="""\b
Examples:
  aolog backup LOG /backup/log-$(date +%F)
  aolog read /backup/log-2026-01-31           # a backup is a log
  aolog backup LOG CLONE --new-uuid           # another log, to use beside LOG

\b
To restore, stop the writer and the readers of LOG, then:
  mv LOG LOG.old && cp -a /backup/log-2026-01-31 LOG

LOG's writer and readers go on. Every byte is read and checked; DIR appears when it is complete. On the
same file system, sealed slabs are hard links: they take no space and protect from deletion and
retention, not from the loss of the disk. On another file system everything is copied. Cursors keep
their positions. A restored log begins where the backup ended: a bridge sends again what its cursor had
not passed at that time.

Exit status 0 when done, 3 if the log has damage (the backup is made, with the same gaps). Gaps that a
repair has noted in LOG are known: they do not count."""
)
@log_argument
@click.argument("directory", type=DIRECTORY, metavar="DIR")
@click.option("--new-uuid", is_flag=True, help="Make a clone with an identity of its own.")
@json_option
def backup(
    log: str,
    directory: str,
    new_uuid: bool,  # noqa: FBT001 -- click passes options by name
    as_json: bool,  # noqa: FBT001 -- the same
) -> int:
    """Copy LOG to a new DIR, consistently, beside its writer."""
    with progress("backup", shown=not as_json) as update:
        done = aolog.backup(log, directory, new_uuid=new_uuid, progress=update)
    if as_json:
        out.json({"log": log, **named(done)})
    else:
        records = counted(done.records, "record", ",")
        cursors = counted(len(done.cursors), "cursor")
        out.line(f"{one_line(log)}: {records} and {cursors} are in {one_line(done.into)}")
        if done.gaps:
            out.line(f"{counted(len(done.gaps), 'gap')}: see `aolog verify`")
        for problem in done.left:
            out.line(f"damaged: {one_line(problem)}")
    with Log(done.into, Storage()) as copy:
        own = own_baseline(copy)
    whole = not done.left and all(own.covers(gap) for gap in done.gaps)
    return 0 if whole else CorruptionError.exit_status
