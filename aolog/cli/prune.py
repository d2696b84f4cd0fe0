"""`aolog prune`: removes the oldest slabs of a log. It may run beside the log's writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aolog.cli.lock_holders import require_log
from aolog.cli.output import human_bytes, json_option, out, pruned_to_json, tell_pruned
from aolog.cli.parse import DURATION, SIZE, log_argument
from aolog.errors import CursorCorrupt, RetentionFull, counted, one_line
from aolog.log.retention import Retention
from aolog.log.retention import prune as prune_log
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.log.retention import Pruned


@click.command(
    epilog="""\b
Examples:
  aolog prune LOG --max-age 7d
  aolog prune LOG --max-bytes 10GiB --dry-run
  aolog prune LOG --max-bytes 10GiB --force

Removes whole slabs, the oldest first, and never the last one. Slabs that a protecting cursor has not
read stay; if --max-bytes then cannot be met, the exit status is 4. With --force they are deleted and
unread records are lost: the command says how many for each cursor (`pruned_unread` with --json),
`aolog cursor list` shows `pruned`, and readers get a gap with the count. A cursor that cannot be read
counts as if it had passed no record; then the exit status is 3."""
)
@log_argument
@click.option("--max-bytes", type=SIZE, help="Maximum size of all slab files together.")
@click.option(
    "--max-age", type=DURATION, help="Delete slabs last written before this: 90s, 12h, 7d."
)
@click.option("--max-slabs", type=click.IntRange(min=1), help="Keep at most N slabs.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option(
    "--force", is_flag=True, help="For --max-bytes: also delete slabs that cursors still need."
)
@json_option
def prune(
    log: str,
    max_bytes: int | None,
    max_age: float | None,
    max_slabs: int | None,
    dry_run: bool,  # noqa: FBT001 -- click passes options by name
    force: bool,  # noqa: FBT001 -- the same
    as_json: bool,  # noqa: FBT001 -- the same
) -> None:
    """Remove the oldest slabs of LOG until the limits are met."""
    if max_bytes is max_age is max_slabs is None:
        raise click.UsageError("give at least one of --max-bytes, --max-age, --max-slabs")
    if force and max_bytes is None:
        raise click.UsageError(
            "--force needs --max-bytes: the other limits never delete what a cursor needs"
        )
    storage = Storage()
    require_log(log)
    retention = Retention(max_bytes, max_age, max_slabs, "prune" if force else "block")
    pruned = prune_log(log, storage, retention, dry_run=dry_run)
    if as_json:
        found = pruned._asdict()
        found["room"] = found.pop("holder") is None
        found["pruned_unread"] = pruned_to_json(found.pop("unread"))
        out.json({"log": log, "dry_run": dry_run, **found})
    else:
        _print(log, pruned, dry_run=dry_run)
        out.flush()
        tell_pruned(pruned.unread, would=dry_run)
    if pruned.unreadable:
        raise CursorCorrupt(
            f"cursor {pruned.unreadable[0]!r} cannot be read, and may need any record",
            hint="set it again with `aolog cursor set`, or delete it if it is not used",
            path=log,
        )
    if pruned.holder is not None:
        raise RetentionFull(
            f"--max-bytes {max_bytes} is not met: cursor {pruned.holder!r} needs the oldest slab",
            hint="let it catch up, delete it if it is not used, or give --force",
            path=log,
        )


def _print(log: str, pruned: Pruned, *, dry_run: bool) -> None:
    if not pruned.slabs:
        out.line(f"{one_line(log)}: nothing to remove")
        return
    verb = "would remove" if dry_run else "removed"
    out.line(
        f"{one_line(log)}: {verb} {counted(pruned.slabs, 'slab')}, {human_bytes(pruned.bytes)}: "
        f"everything before address {pruned.end}"
    )
