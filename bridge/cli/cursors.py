"""The cursors of bridges: `cursors` shows them, `seek` moves one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from aolog import Reader
from aolog.cli.cursor_state import HEAD, CursorState, cursor_states
from aolog.cli.lock_holders import Holders, require_log
from aolog.cli.option_groups import GroupedCommand
from aolog.cli.output import json_option, out, table
from aolog.cli.parse import log_argument
from aolog.errors import counted
from aolog.storage.storage import Storage
from bridge.cli.options import PLACES, address_of, of_cluster

if TYPE_CHECKING:
    from bridge.deliver.checkpoints import Checkpoints
    from bridge.deliver.forwarder_options import ForwarderOptions
    from bridge.deliver.seek import Moved


@click.command(
    epilog="\b\nExample:\n  aolog-bridge cursors LOG --json | jq .lag.records",
)
@log_argument
@json_option
def cursors(log: str, *, as_json: bool) -> None:
    """Show the cursors of bridges on LOG, and the last address that each partition has."""
    from bridge.deliver.checkpoints import Checkpoints
    from bridge.deliver.seek import bridge_cursors

    storage = Storage()
    with Reader(log) as reader:
        path, uuid = reader.path, reader.topic_uuid
    of_bridges = set(bridge_cursors(path, storage))
    rows = [
        each for each in cursor_states(path, Holders(require_log(path))) if each.name in of_bridges
    ]
    notes_of = {row.name: Checkpoints.load(path, row.name, storage, uuid) for row in rows}
    if as_json:
        for row in rows:
            out.json(_to_json(row, notes_of[row.name]))
        return
    if rows:
        out.line(table(HEAD, [each.row() for each in rows]))
    for row in rows:
        notes, at = notes_of[row.name], row.position
        known = notes.cluster.known
        out.line(f"\n{row.name}: {f'Kafka cluster {known}' if known else 'no cluster known yet'}")
        for (topic, partition), note in sorted(notes.lanes.items()):
            ahead = "  ahead of the cursor" if at is not None and note.address > at.address else ""
            held = f"up to address {note.address}" if note.address >= 0 else "no record"
            out.line(f"  {topic}/{partition}  {held}{ahead}")


def _to_json(row: CursorState, notes: Checkpoints) -> dict[str, object]:
    lanes = [
        {"topic": topic, "partition": partition, **asdict(note)}
        for (topic, partition), note in sorted(notes.lanes.items())
    ]
    cluster = notes.cluster.known or None
    return {**row.to_json(), "clean": notes.clean, "cluster": cluster, "lanes": lanes}


@click.command(
    cls=GroupedCommand,
    headings={
        "Position": "to cursor only_missing forget_cluster",
        "Cluster": "bootstrap_servers file cluster settings",
        "Output": "dry_run as_json",
    },
    epilog=f"""{PLACES}

\b
Examples:
  aolog-bridge seek LOG --to 2026-01-31T12:00:00Z --dry-run
  aolog-bridge seek LOG --to cursor:nightly
  aolog-bridge seek LOG --to kafka:events/3@120934 --bootstrap-servers k:9092
  aolog-bridge seek LOG --to kafka:events/3@120934 --config bridge.toml
  aolog-bridge seek LOG --forget-cluster""",
)
@of_cluster
@click.option("--to", "to", metavar="PLACE", help="Position at which the bridge continues.")
@click.option(
    "--only-missing", is_flag=True, help="Backwards: send only records that are not in Kafka yet."
)
@click.option(
    "--forget-cluster", is_flag=True,
    help="Let the cursor continue in another Kafka cluster; without --to it does not move.",
)  # fmt: skip  # options read best one a line
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@json_option
def seek(
    log: str,
    how: ForwarderOptions,
    *,
    to: str | None,
    only_missing: bool,
    forget_cluster: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move the cursor of the bridge of LOG while no bridge runs.

    Backwards: the records between are sent once more, unless --only-missing is given. Forwards:
    the records between are never sent.

    A cursor belongs to the Kafka cluster that it met first, and the bridge sends to no other: the
    records that the cursor has passed would be missing there. Use --forget-cluster to move a bridge
    to another cluster on purpose, or after a cluster was created again.
    """
    from bridge.deliver import seek

    if to is None and not forget_cluster:
        raise click.UsageError("name the new position: --to PLACE")
    if only_missing and forget_cluster:
        raise click.UsageError("--only-missing cannot be used with --forget-cluster")
    cursor = how.cursor
    address = None if to is None else address_of(log, to, how)
    moved = seek.seek(
        log,
        address,
        cursor=cursor,
        only_missing=only_missing,
        forget_cluster=forget_cluster,
        dry_run=dry_run,
    )
    if as_json:
        out.json(moved._asdict())
        return
    if moved.forgot_cluster:
        will = "belongs" if moved.done else "would belong"
        out.line(f"cursor {cursor} {will} to the next cluster that a bridge with it meets")
    if moved.address == moved.before:
        out.line(f"cursor {cursor} is at address {moved.address} already")
        return
    before = "nowhere" if moved.before is None else f"address {moved.before}"
    will = "" if moved.done else "would be "
    out.line(
        f"cursor {cursor} {will}moved from {before} to address {moved.address}{_between(moved)}"
    )


def _between(moved: Moved) -> str:
    """What happens to the records between the positions."""
    if moved.records == 0:
        return ""
    records = "the records" if moved.records is None else counted(moved.records, "record", ",")
    if moved.forgot:
        what = "sent again"
    elif moved.before is not None and moved.address < moved.before:
        what = "sent if Kafka lacks them"
    else:
        what = "never sent"
    return f"; {records} between: {what}"
