"""`cursors`: shows the cursors of bridges."""

from __future__ import annotations

from dataclasses import asdict

import click

import aolog
from aolog import Reader
from aolog.cli.output import json_option, out
from aolog.errors import records_lost
from aolog.storage.storage import Storage


@click.command(
    short_help="Show the cursors of bridges.",
    epilog="\b\nExample:\n  aolog-bridge cursors LOG --json | jq .lag.records",
)
@click.argument("log", type=click.Path())
@json_option
def cursors(log: str, *, as_json: bool) -> None:
    """Show the cursors of bridges on LOG, and the last address that each partition has."""
    from bridge.deliver.checkpoints import Checkpoints
    from bridge.deliver.seek import bridge_cursors

    storage = Storage()
    with Reader(log) as reader:
        path, uuid = reader.path, reader.topic_uuid
    of_bridges = set(bridge_cursors(path, storage))
    for each in aolog.cursors(path):
        if each.name not in of_bridges:
            continue
        notes = Checkpoints.load(path, each.name, storage, topic_uuid=uuid, begun=False)
        lanes = sorted(notes.lanes.items())
        if as_json:
            shown: dict[str, object] = {
                **each._asdict(),
                "lag": each.lag._asdict(),
                "pruned": None if each.pruned is None else each.pruned._asdict(),
                "clean": notes.clean,
                "cluster": notes.cluster.known or None,
            }
            shown["lanes"] = [
                {"topic": topic, "partition": partition, **asdict(note)}
                for (topic, partition), note in lanes
            ]
            out.json(shown)
            continue
        lag = "unknown" if each.lag.records is None else f"{each.lag.records:,}"
        of = f", of Kafka cluster {notes.cluster.known}" if notes.cluster.known else ""
        lost = ""
        if each.pruned is not None:
            lost = f", {records_lost(each.pruned.records_lost)} pruned before they were delivered"
        out.line(f"{each.name}: address {each.address}, {lag} records pending{lost}{of}")
        for (topic, partition), note in lanes:
            ahead = "  ahead of the cursor" if note.address > each.address else ""
            held = f"up to address {note.address}" if note.address >= 0 else "no record"
            out.line(f"  {topic}/{partition}  {held}{ahead}")
