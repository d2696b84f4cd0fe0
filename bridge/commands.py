"""Commands that look after a bridge's position: seek, replay, cursors."""

from __future__ import annotations

import json
import logging
import signal
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

import aolog
from aolog import Reader
from aolog.cli.parse import where
from aolog.cursor import read_position
from aolog.errors import UsageError
from aolog.storage import Storage

if TYPE_CHECKING:
    from types import FrameType

    from bridge.engine import Poison
    from bridge.forwarder import Forwarder

__all__ = ["cursors", "replay", "seek"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _settings(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


_cursor_option = click.option(
    "--cursor", default="bridge", show_default=True, help="Name of the bridge's cursor."
)
_settings_option = click.option(
    "-X", "--set", "settings", multiple=True, metavar="KEY=VALUE", callback=_settings,
    help="A setting of librdkafka. Repeatable.",
)  # fmt: skip  # options read best one a line
_json_option = click.option("--json", "as_json", is_flag=True, help="JSON, one object a line.")


def _address(
    path: str, text: str, *, cursor: str, servers: str | None, settings: dict[str, str]
) -> int:
    """The address that a user means. Raises UsageError."""
    from bridge.kafka import check
    from bridge.seeking import address_in_kafka, place

    kind, colon, rest = text.partition(":")
    if colon and kind == "cursor":
        return read_position(path, rest, Storage()).address
    if colon and kind == "kafka":
        if servers is None:
            raise UsageError("kafka:... needs --bootstrap-servers")
        check(settings)
        return address_in_kafka(path, rest, cursor, servers, settings)
    found = where(text, datetime.now(UTC))
    if found is None:
        raise UsageError(
            f"{text!r} is no place in a log",
            hint="use an address, ordinal:N, a time, 15m-ago, earliest, latest, cursor:NAME or"
            " kafka:TOPIC/PARTITION@OFFSET",
        )
    return place(path, found.start, found.ordinal)


_PLACES = """\b
A place is an address, ordinal:N, earliest, latest, a time (2026-01-31T12:00:00Z, UTC unless it
says otherwise), a time ago (15m-ago), cursor:NAME, or kafka:TOPIC/PARTITION@OFFSET: the record
that lies there, which its header names (needs --bootstrap-servers)."""


@click.command(
    short_help="Move a bridge's cursor.",
    context_settings=_CONTEXT,
    epilog=f"""{_PLACES}

\b
Examples:
  aolog-bridge seek LOG --to 2026-01-31T12:00:00Z --dry-run
  aolog-bridge seek LOG --to cursor:nightly
  aolog-bridge seek LOG --to kafka:events/3@120934 --bootstrap-servers kafka:9092""",
)
@click.argument("log", type=click.Path())
@click.option("--to", "to", required=True, metavar="PLACE", help="Where it goes on.")
@_cursor_option
@click.option("--only-missing", is_flag=True, help="Back: send only what is not in Kafka already.")
@click.option("--bootstrap-servers", metavar="HOST:PORT[,...]", help="For kafka:...")
@_settings_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@_json_option
def seek(
    log: str,
    to: str,
    *,
    cursor: str,
    only_missing: bool,
    bootstrap_servers: str | None,
    settings: dict[str, str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move the cursor of the bridge of LOG while no bridge runs.

    Back: what lies between is sent once more, unless --only-missing. Forward: what lies between
    is never sent.
    """
    from bridge import seeking

    address = _address(log, to, cursor=cursor, servers=bootstrap_servers, settings=settings)
    moved = seeking.seek(log, address, cursor=cursor, only_missing=only_missing, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(moved._asdict()))
        return
    before = "nowhere" if moved.before is None else f"address {moved.before}"
    will = "" if moved.done else "would be "
    again = "; what lies between is sent again" if moved.forgot else ""
    click.echo(f"cursor {cursor} {will}moved from {before} to address {moved.address}{again}")


@click.command(
    short_help="Send a range, or dead letters, again.",
    context_settings=_CONTEXT,
    epilog=f"""{_PLACES}

\b
Examples:
  aolog-bridge replay LOG --from 2h-ago --to 1h-ago --bootstrap-servers kafka:9092
  aolog-bridge replay LOG --from 81920 --to 90112 --topic again --bootstrap-servers kafka:9092
  aolog-bridge replay LOG --dead-letter --bootstrap-servers kafka:9092

\b
Exit status: 0 all was acknowledged, 2 usage, 5 a replay runs already, 6 records were refused.""",
)
@click.argument("log", type=click.Path())
@click.option("--from", "begin", metavar="PLACE", help="The first record's place.")
@click.option("--to", "end", metavar="PLACE", help="The place behind the last.")
@click.option("--dead-letter", "dead", is_flag=True, help="The dead letters of LOG instead.")
@click.option("--topic", help="Topic for records that name none. Default: the log's own.")
@click.option("--bootstrap-servers", required=True, metavar="HOST:PORT[,...]", help="The cluster.")
@click.option(
    "--poison", default="stop", show_default=True, type=click.Choice(["stop", "drop"]),
    help="What becomes of a record that is refused: it stays, and what follows in its partition"
    " with it, or it is counted and passed.",
)  # fmt: skip  # as above
@_cursor_option
@_settings_option
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@_json_option
def replay(
    log: str,
    *,
    begin: str | None,
    end: str | None,
    dead: bool,
    topic: str | None,
    bootstrap_servers: str,
    poison: Poison,
    cursor: str,
    settings: dict[str, str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send a range of LOG again, or its dead letters to the topics that they were meant for.

    A range must lie before the bridge's cursor: what is behind that, the bridge sends itself.
    Dead letters that are acknowledged are not sent by the next replay.
    """
    from bridge import replaying
    from bridge.kafka import check

    if dead == (begin is not None or end is not None) or (begin is None) != (end is None):
        raise UsageError("give --from and --to, or --dead-letter")
    if dead and topic is not None:
        raise UsageError("dead letters go to the topics that they were meant for, not to --topic")
    check(settings)
    options = {"bootstrap_servers": bootstrap_servers, "settings": settings}
    if dead:
        if dry_run:
            _tell_dead_letters(log, cursor, as_json=as_json)
            return
        _run(
            replaying.replay_dead_letters(log, cursor=cursor, poison=poison, **options),
            as_json=as_json,
        )
        return
    assert begin is not None
    assert end is not None
    first, behind = (
        _address(log, text, cursor=cursor, servers=bootstrap_servers, settings=settings)
        for text in (begin, end)
    )
    if dry_run:
        _tell_range(log, first, behind, as_json=as_json)
        return
    _run(
        replaying.replay_range(log, first, behind, topic=topic, poison=poison, **options),
        as_json=as_json,
    )
    replaying.finished(log)


def _tell_range(log: str, begin: int, end: int, *, as_json: bool) -> None:
    records = 0
    with Reader(log, begin) as reader:
        for record in reader:
            if record.address >= end:
                break
            records += 1
    if as_json:
        click.echo(json.dumps({"begin": begin, "end": end, "records": records}))
    else:
        click.echo(f"{records} records from address {begin} to {end} would be sent")


def _tell_dead_letters(log: str, cursor: str, *, as_json: bool) -> None:
    from bridge.dead_letter import dead_letter_path, read_dead_letter
    from bridge.replaying import CURSOR

    path = dead_letter_path(log, cursor)
    names = [each.name for each in aolog.cursors(path)] if Storage().exists(path) else None
    if names is None:
        raise UsageError("there are no dead letters", path=log)
    begin = read_position(path, CURSOR, Storage()).address if CURSOR in names else "earliest"
    with Reader(path, begin) as reader:  # type: ignore[arg-type]  # an address or the word
        for record in reader:
            letter = read_dead_letter(record)
            if letter is None:
                continue
            told = {
                "address": record.address,
                "topic": letter.topic,
                "partition": letter.partition,
                "origin": letter.origin.address,
                "code": letter.code,
                "reason": letter.reason,
            }
            if as_json:
                click.echo(json.dumps(told))
            else:
                click.echo(
                    f"{letter.topic}/{letter.partition}  from address {letter.origin.address}"
                    f"  {letter.code}: {letter.reason}"
                )


def _run(forwarder: Forwarder, *, as_json: bool) -> None:
    from bridge.report import reporter

    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s"
    )
    logging.getLogger("bridge.librdkafka").setLevel(logging.CRITICAL)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        forwarder.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with reporter(as_json=as_json, drain=True) as report:
        status = forwarder.run(report)
    if status.lag_records and forwarder.stop_asked:
        raise click.exceptions.Exit(130)


@click.command(
    short_help="Show where bridges stand.",
    context_settings=_CONTEXT,
    epilog="\b\nExample:\n  aolog-bridge cursors LOG --json | jq .lag.records",
)
@click.argument("log", type=click.Path())
@_json_option
def cursors(log: str, *, as_json: bool) -> None:
    """Show the cursors of bridges on LOG, and what each lane holds."""
    from bridge.lanes import LaneNotes
    from bridge.seeking import bridge_cursors

    storage = Storage()
    with Reader(log) as reader:
        path, uuid = reader.path, reader.topic_uuid
    of_bridges = set(bridge_cursors(path, storage))
    for each in aolog.cursors(path):
        if each.name not in of_bridges:
            continue
        notes = LaneNotes.load(path, each.name, storage, topic_uuid=uuid, begun=False)
        lanes = sorted(notes.lanes.items())
        if as_json:
            told: dict[str, object] = {
                **each._asdict(),
                "lag": each.lag._asdict(),
                "clean": notes.clean,
            }
            told["lanes"] = [
                {"topic": topic, "partition": partition, **asdict(note)}
                for (topic, partition), note in lanes
            ]
            click.echo(json.dumps(told))
            continue
        lag = "unknown" if each.lag.records is None else f"{each.lag.records:,}"
        click.echo(f"{each.name}: address {each.address}, {lag} records to go")
        for (topic, partition), note in lanes:
            ahead = "  ahead of the cursor" if note.address > each.address else ""
            held = f"holds up to {note.address}" if note.address >= 0 else "holds nothing"
            click.echo(f"  {topic}/{partition}  {held}{ahead}")
