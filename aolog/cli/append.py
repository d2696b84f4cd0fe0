"""`aolog append`: from standard input or files into a log.

Input becomes visible to readers within the writer's flush interval, whatever the sizes of its chunks.
At the end, after an error and after a signal, the command closes the log, so that every record that it
took is durable, and prints how many there are.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict
from signal import Signals
from typing import Any, Literal

import click

from aolog.cli.input import DELIMITERS, STDIN, Delimiter, Source, splitter
from aolog.cli.option_groups import GroupedCommand
from aolog.cli.output import json_option, out, pruned_to_json, tell_pruned, to_stderr
from aolog.cli.parse import log_argument
from aolog.cli.record_parts import SPEC, RecordParts, Spec, Tally
from aolog.cli.stop_signals import StopSignals
from aolog.cli.writer_options import as_typed, headings, writer_options
from aolog.errors import (
    AddressPruned,
    AologError,
    RecordTooLarge,
    RetentionFull,
    StorageError,
    StorageFull,
    UsageError,
    counted,
)
from aolog.log.retention import Retention
from aolog.queuefka.format1 import without
from aolog.read.gaps import reported_elsewhere
from aolog.read.reader import Reader
from aolog.write.validate import TOPIC_NAME
from aolog.write.writer import Writer

_ROOM_POLL_S = 0.05  # between looks for room, and for a stop signal

# Replaces an error's hint, which is for a program that can call again.
_TO_DO: dict[type[AologError], str] = {
    StorageFull: "free some space",
    RetentionFull: "let the cursors catch up, delete unused ones (aolog cursor delete), or raise "
    "--retention-max-bytes",
}


def _take(
    writer: Writer,
    signals: StopSignals,
    parts: RecordParts,
    paths: tuple[str, ...],
    delimiter: Delimiter,
    record_bytes_max: int,
    tally: Tally,
    *,
    waits: bool,
) -> None:
    """Appends the inputs in order until they end or a stop signal comes. waits: whether to wait while retention
    has no room."""
    stops = signals if waits else None
    for path in paths:
        if signals.signum is not None:
            return
        source, before = Source(path), tally.records
        split = splitter(delimiter, record_bytes_max)
        try:
            while chunk := source.read(signals):
                _append(writer, parts, split.feed(chunk), tally, stops)
            if chunk is None:
                tally.unappended_bytes += split.pending_bytes
            else:
                _append(writer, parts, split.finish(), tally, stops)
        except UsageError as error:
            if isinstance(error, RecordTooLarge):
                error.hint = "raise --max-record-bytes, or split the record"
            number = tally.records - before + 1
            noun = "line" if delimiter == "line" else "record"
            error.reason = f"{source.name}, {noun} {number}: {error.reason}"
            error.details |= {"input": source.name, "number": number}
            raise
        finally:
            source.close()


def _append(
    writer: Writer,
    parts: RecordParts,
    values: Iterator[bytes],
    tally: Tally,
    stops: StopSignals | None,
) -> None:
    """Appends the values. stops: ends a wait for room; without it, no room is an error."""
    append, add, parts_of = writer.append, tally.add, parts.of
    for value in values:
        fields = parts_of(value, tally)
        while True:
            try:
                add(append(value, **fields), len(value))
                break
            except RetentionFull:
                if stops is None:
                    raise
            if stops.signum is not None:
                tally.unappended_bytes += len(value) + sum(map(len, values))
                return
            time.sleep(_ROOM_POLL_S)


def _close(writer: Writer) -> tuple[AologError | None, int]:
    """(the error of closing, the address after the last record in the log)."""
    problem: AologError | None = None
    try:
        writer.close()
    except AologError as error:
        problem = error
    return problem, writer.give_up()  # nothing calls close again


def _explain(problem: AologError, log: str, tally: Tally, count: int | None) -> None:
    """Adds the number of records in the log, and where to resume."""
    if count is None:
        text, to_do = "", f"see with `aolog tail -n 1 {shlex.quote(log)}` what the log has"
    else:
        text = (
            f"; {counted(count, 'record')} of the input {'is' if count == 1 else 'are'} in the log"
        )
        to_do = f"append the input from record {count + 1} on"
    if isinstance(problem, StorageError):
        hint = _TO_DO.get(type(problem)) or problem.hint
        problem.hint = f"{hint}, then {to_do}" if hint else to_do
    problem.reason += text
    problem.details |= {"records": tally.records, "records_in_log": count}


def _records_in_log(log: str, first: int | None, end: int) -> int | None:
    """How many of this run's records are before `end`; None if they cannot be read."""
    if first is None:
        return 0
    try:
        with Reader(log, first, on_gap=reported_elsewhere) as reader:
            return sum(1 for _ in reader.up_to(end))
    except AologError:  # for example, retention removed the first one
        return None


def _deleted(log: str, tally: Tally) -> int | None:
    """How many records of the run retention has deleted; None if this is unknown. Other writers may
    have appended since."""
    if tally.last_address is None:
        return 0
    try:
        with Reader(log) as reader:
            if reader.tell() <= (tally.first_address or 0):
                return 0
            first = reader.ordinal
            reader.seek(tally.last_address)
            last = reader.ordinal
    except AddressPruned:
        return tally.records
    except AologError:
        return None
    if first is None or last is None:
        return None
    return max(0, tally.records - (last + 1 - first))


def _print_outcome(
    log: str,
    tally: Tally,
    writer: Writer,
    stopped_by: Signals | None,
    *,
    bounded: bool,
    as_json: bool,
) -> None:
    """Prints the outcome of a run without an error, after the writer is closed. bounded: retention may
    have deleted records of the run."""
    deleted = _deleted(log, tally) if bounded else 0
    if as_json:
        out.json(
            {
                "log": log,
                **asdict(tally),
                "deleted": deleted,
                "durable": writer.durable,
                "pruned_unread": pruned_to_json(writer.pruned_unread),
                "stopped_by": stopped_by.name if stopped_by else None,
            }
        )
        return
    first, last = tally.first_address, tally.last_address
    where = "" if first is None else f"addresses {first}..{last}, "
    text = f"{counted(tally.records, 'record')}, {counted(tally.bytes, 'byte')}, {where}durable"
    if deleted:
        why = "" if writer.pruned_unread else ": no cursor needs them"
        text += f"; retention has deleted {deleted} of them already{why}"
    for count, what in (
        (tally.null_keys, "without a key"),
        (tally.null_topics, "without a topic of their own"),
        (tally.unusable_timestamps, "without a usable timestamp (they carry the time of append)"),
    ):
        text += f"; {count} {what}" if count else ""
    if tally.unappended_bytes:
        text += f"; {counted(tally.unappended_bytes, 'byte')} read but not appended"
    to_stderr(text if stopped_by is None else f"stopped by {stopped_by.name}: {text}")
    tell_pruned(writer.pruned_unread)


@click.command(
    cls=GroupedCommand,
    headings={
        "Records": "delimiter key_from topic_from timestamp_from timestamp_unit",
        **headings(),
    },
    epilog="""\b
Examples:
  printf 'one\\ntwo\\n' | aolog append LOG
  tail -F access.log | aolog append LOG --flush-seconds 200ms
  aolog append LOG quakes.ndjson --key-from json:id \\
      --timestamp-from json:properties.time --timestamp-unit ms
  aolog append LOG table.tsv --key-from field:2
  aolog append LOG data.csv --key-from 'field:1:,' --json
  aolog read --format length A | aolog append --delimiter length B
  tail -n +1001 FILE | aolog append LOG   # resume FILE from line 1001 on

\b
SPEC says where a part is in a record:
  field:N[:SEP]   the N-th field (from 1), separated by SEP (default: a tab)
  json:PATH       the member at a dotted path, for example json:properties.id;
                  a number is an index into an array: json:items.0.id.
                  A string is its text, all else its JSON text without spaces
  regex:PATTERN   the first group of the first match

A record without the part gets a null key, the log's topic, or the time of append. The command counts
such records.

A line's newline is removed and nothing else: a carriage return stays. The last line may lack its
newline. After a stop signal, the command appends all complete records that it read, and says how many
bytes of an incomplete one it dropped.

With --retention-max-bytes and --when-full prune, records that a protecting cursor has not read may
be deleted. A warning on standard error says so when it happens; the last line, or `pruned_unread`
with --json, says how many records each cursor lost.

If the disk becomes full, the error says how many records of the input are in the log (`records_in_log`
with --json): append the rest of the input.""",
)
@log_argument
@click.argument(
    "files",
    metavar="[FILE]...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
)
@click.option(
    "-d",
    "--delimiter",
    type=click.Choice(DELIMITERS),
    default="line",
    show_default=True,
    help="End of a record: newline or zero byte; length: u32le before each record.",
)
@click.option("--key-from", metavar="SPEC", type=SPEC, help="Where a record's key is.")
@click.option("--topic-from", metavar="SPEC", type=SPEC, help="Where a record's topic is.")
@click.option(
    "--timestamp-from",
    metavar="SPEC",
    type=SPEC,
    help="Where a record's timestamp is: a number, or ISO 8601.",
)
@click.option(
    "--timestamp-unit",
    type=click.Choice(["s", "ms", "us"]),
    default="s",
    show_default=True,
    help="Unit of a number, since 1970.",
)
@writer_options
@json_option
def append(
    log: str,
    files: tuple[str, ...],
    *,
    delimiter: Delimiter,
    key_from: Spec | None,
    topic_from: Spec | None,
    timestamp_from: Spec | None,
    timestamp_unit: str,
    retention_max_bytes: int | None,
    retention_max_age: float | None,
    retention_max_slabs: int | None,
    when_full: Literal["prune", "block", "error"],
    as_json: bool,
    **options: Any,  # the writer's, under the writer's names
) -> int:
    """Append each line of the FILEs, or of standard input, to LOG as a record.

    LOG is created if it does not exist. When the command ends, every record is durable.
    """
    parts = RecordParts(key_from, topic_from, timestamp_from, timestamp_unit)
    if options["format"] == "queuefka" and (parts.any or options["topic"] is not None):
        raise click.UsageError(f"the log {without('keys, topics or timestamps')}")
    if options["topic"] is not None and re.fullmatch(TOPIC_NAME, options["topic"]) is None:
        raise click.UsageError(
            f"--topic {options['topic']}: Kafka has no such names: use up to 249 of letters, digits,"
            " '.', '_', '-'"
        )
    if options["compression_level"] is not None and options["compression"] == "none":
        raise click.UsageError("--compression-level needs --compression")
    # A wait inside the writer could not see a stop signal: `_append` waits instead.
    waits, policy = when_full == "block", "error" if when_full == "block" else when_full
    retention = Retention(retention_max_bytes, retention_max_age, retention_max_slabs, policy)
    paths, tally = files or (STDIN,), Tally()
    with StopSignals() as signals:
        try:
            writer = Writer(log, retention=retention, **options)
        except UsageError as error:
            raise as_typed(error) from None
        problem: AologError | None = None
        try:
            record_bytes_max = options["max_record_bytes"]
            _take(writer, signals, parts, paths, delimiter, record_bytes_max, tally, waits=waits)
        except AologError as error:
            problem = error
        finally:
            closing, end = _close(writer)
        if isinstance(closing, StorageError) or problem is None:
            problem = closing or problem  # a lost record is worse than one that was not taken
        if problem is not None:
            count = (
                tally.records if closing is None else _records_in_log(log, tally.first_address, end)
            )
            if not as_json:
                tell_pruned(writer.pruned_unread)
            elif writer.pruned_unread:
                problem.details["pruned_unread"] = pruned_to_json(writer.pruned_unread)
            _explain(problem, log, tally, count)
            raise problem
        bounded = retention.bounded
        _print_outcome(log, tally, writer, signals.signum, bounded=bounded, as_json=as_json)
        return 0 if signals.signum is None else 128 + signals.signum
