"""`cursors`: shows the cursors of bridges."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from aolog import Reader
from aolog.cli.cursor_state import HEAD, CursorState, cursor_states
from aolog.cli.lock_holders import Holders, require_log
from aolog.cli.output import json_option, out, table
from aolog.cli.parse import log_argument
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from bridge.deliver.checkpoints import Checkpoints


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
