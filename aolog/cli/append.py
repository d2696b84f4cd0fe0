"""`aolog append`: from standard input or files into a log.

What is read becomes visible within the writer's flush interval, whatever the size of the pieces
it comes in. Whatever ends the command (the end of the input, an error, a signal), what was taken
before is closed properly, and the last words say how many records are durable.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import click

from aolog.cli.options import has_options, in_options, said_in_options
from aolog.cli.output import counted, json_option, out, progress, tell_pruned, to_stderr
from aolog.cli.parse import DURATION, MODE, SIZE, SIZE_OR_ZERO, log_argument
from aolog.cli.pick import PICK, Pick, Picks
from aolog.cli.resuming import Inputs
from aolog.cli.source import STDIN, Source, total_bytes
from aolog.cli.split import DELIMITERS, Delimiter, splitter
from aolog.cli.stopping import Stopping, closed_when_stuck
from aolog.cli.tally import Tally
from aolog.errors import (
    AologError,
    LogClosed,
    NotALog,
    RecordTooLarge,
    RetentionFull,
    StorageError,
    StorageFull,
    SyncFailed,
    UsageError,
)
from aolog.log.directory import Log
from aolog.log.pruned import pruned_to_json
from aolog.log.retention import Retention
from aolog.storage.storage import DIRECTORY_MODE, Storage
from aolog.write.options import BATCH_BYTES, MAX_RECORD_BYTES, SLAB_BYTES
from aolog.write.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.format.compression import Compression

__all__ = ["append"]

# Else an error's own hint, which is for who can call again.
_TO_DO: dict[type[AologError], str] = {
    StorageFull: "free some space",
    RetentionFull: "let the cursors catch up, delete those not used (aolog cursor delete), or raise "
    "--retention-max-bytes",
}


class Appending:
    """One run of the command."""

    def __init__(
        self,
        writer: Writer,
        stopping: Stopping,
        picks: Picks,
        delimiter: Delimiter,
        record_bytes_max: int,
        inputs: Inputs,
    ) -> None:
        self.tally = Tally()
        self.inputs = inputs
        self._writer = writer
        self._stopping = stopping
        self._picks = picks
        self._delimiter: Delimiter = delimiter
        self._max = record_bytes_max
        self._read_bytes = 0

    def take_all(self, paths: tuple[str, ...], update: Callable[[int], None]) -> None:
        """Appends the inputs, one after the other, until they end or a signal asks to stop."""
        for path in paths:
            if self._stopping.signum is not None:
                return
            source = Source(path)
            before = self.tally.records
            self.inputs.begin(path, source.name, before)
            try:
                self._take(source, update)
            except (UsageError, LogClosed) as error:
                if isinstance(error, LogClosed) and self._stopping.signum is not None:
                    return  # closed for us, while it waited for room
                if isinstance(error, RecordTooLarge):
                    error.hint = "raise --max-record-bytes, or split the record"
                number = self.tally.records - before + 1
                what = "line" if self._delimiter == "line" else "record"
                raise _told(
                    error,
                    f"{source.name}, {what} {number}: {in_options(error.reason)}",
                    input=source.name,
                    number=number,
                ) from error
            finally:
                source.close()
        self.inputs.ended = self._stopping.signum is None

    def _take(self, source: Source, update: Callable[[int], None]) -> None:
        tally, split = self.tally, splitter(self._delimiter, self._max)
        while chunk := source.read(self._stopping):
            self._append(split.feed(chunk))
            self._read_bytes += len(chunk)
            update(self._read_bytes)
            tally.forget(self._writer.durable)
        if chunk is None:
            tally.unappended_bytes += split.pending_bytes
        else:
            self._append(split.finish())

    def _append(self, values: Iterator[bytes]) -> None:
        append, add = self._writer.append, self.tally.add
        value = b""
        try:
            if not self._picks.any:
                for value in values:
                    add(append(value), len(value))
                return
            for value in values:
                add(append(value, **self._picks.parts(value, self.tally)), len(value))
        except LogClosed:
            self.tally.unappended_bytes += len(value) + sum(map(len, values))
            raise


def _told(error: AologError, reason: str, **details: object) -> AologError:
    """The same error, saying more."""
    return type(error)(reason, hint=error.hint, **{**error.details, **details})


def _run(appending: Appending, writer: Writer, take: Callable[[], None]) -> None:
    """Takes, then closes in any case. Raises what went wrong, with how many records are in the log
    and, where the disk was to blame, how the rest gets there."""
    problem: AologError | None = None
    try:
        take()
    except AologError as error:
        problem = error
    except BaseException:
        _close(writer)
        raise
    closing, end = _close(writer)
    if isinstance(closing, StorageError) or problem is None:
        problem = closing or problem  # losing what was taken is worse than not taking more
    if problem is None:
        return
    tally = appending.tally
    durable = tally.records_before(writer.durable)
    if isinstance(problem, StorageError) and not isinstance(problem, SyncFailed):
        records = tally.records_before(end)
        text, how, fields = appending.inputs.told(records, durable, tally.records)
        problem.hint = _TO_DO.get(type(problem)) or problem.hint
        if how is not None:
            problem.hint = f"{problem.hint}, then: {how}" if problem.hint else f"go on with: {how}"
        raise _told(problem, f"{problem.reason}; {text}", records=tally.records, **fields)
    reason = f"{problem.reason}; {counted(durable, 'record')} appended before it and durable"
    if lost := tally.records - durable:
        reason += f", {lost} more may be lost"
    raise _told(problem, reason, records=tally.records, records_durable=durable) from problem


def _close(writer: Writer) -> tuple[AologError | None, int]:
    """What stood in the way, and the address behind the last record that is in the log."""
    problem: AologError | None = None
    try:
        writer.close()
    except AologError as error:
        problem = error
    return problem, writer.give_up()  # nobody will come to close it again


def _format_of(log: str) -> Literal["aolog", "queuefka"]:
    """The format of the log that is there; aolog's own for one that is not."""
    try:
        listed = Log(log, Storage())
    except NotALog:
        return "aolog"  # or a file, about which the writer complains
    try:
        return "queuefka" if listed.bases and listed.format == 1 else "aolog"
    finally:
        listed.close()


def _tell(log: str, tally: Tally, writer: Writer, stopping: Stopping, *, as_json: bool) -> None:
    """The last words."""
    signum = stopping.signum
    if as_json:
        out.json(
            {
                "log": log,
                "records": tally.records,
                "bytes": tally.bytes,
                "first_address": tally.first,
                "last_address": tally.last,
                "durable": writer.durable,
                "null_keys": tally.null_keys,
                "null_topics": tally.null_topics,
                "unusable_timestamps": tally.unusable_timestamps,
                "unappended_bytes": tally.unappended_bytes,
                "pruned_unread": pruned_to_json(writer.pruned_unread),
                "stopped_by": signum.name if signum else None,
            }
        )
        return
    where = "" if tally.first is None else f"addresses {tally.first}..{tally.last}, "
    text = f"{counted(tally.records, 'record')}, {counted(tally.bytes, 'byte')}, {where}durable"
    for count, what in (
        (tally.null_keys, "without a key"),
        (tally.null_topics, "without a topic of their own"),
        (tally.unusable_timestamps, "without a usable timestamp (they carry the time of append)"),
    ):
        text += f"; {count} {what}" if count else ""
    if tally.unappended_bytes:
        text += f"; {counted(tally.unappended_bytes, 'byte')} read but not appended"
    if signum is not None:
        text = f"stopped by {signum.name}: {text}"
    to_stderr(text)
    tell_pruned(writer.pruned_unread)


@click.command(
    epilog="""\b
Examples:
  printf 'one\\ntwo\\n' | aolog append LOG
  tail -F access.log | aolog append LOG --flush-seconds 200ms
  aolog append LOG quakes.ndjson --key-from json:id \\
      --timestamp-from json:properties.time --timestamp-unit ms
  aolog append LOG table.tsv --key-from field:2
  aolog append LOG data.csv --key-from 'field:1:,' --json
  aolog read --format length A | aolog append --delimiter length B

\b
SPEC says where in a record a part is found:
  field:N[:SEP]   the N-th field (from 1) between SEPs, a tab unless given
  json:PATH       the member at a dotted path, as in json:properties.id
  regex:PATTERN   the first group of the first match

A record without the part gets a null key, the log's topic, the time of append; they are counted.

With --retention-max-bytes and --when-full prune, records that a protecting cursor has not read may
be deleted. A warning on standard error says so when it happens; the last line, or the field
`pruned_unread` with --json, says how many records of which cursors were lost in all.

A line's newline is removed and nothing else: a carriage return stays. A last line without newline
counts. When a signal stops the command, all whole records that were read are appended, and it
says how many bytes of an unfinished one were not."""
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
    help="What ends a record: a newline, a zero byte, or each has its length (u32le) before it.",
)
@click.option("--key-from", metavar="SPEC", type=PICK, help="Where a record's key is found.")
@click.option("--topic-from", metavar="SPEC", type=PICK, help="Where a record's topic is found.")
@click.option(
    "--timestamp-from",
    metavar="SPEC",
    type=PICK,
    help="Where a record's timestamp is found: a number, or ISO 8601.",
)
@click.option(
    "--timestamp-unit",
    type=click.Choice(["s", "ms", "us"]),
    default="s",
    show_default=True,
    help="What a number counts since 1970.",
)
@click.option("--topic", help="The log's default topic, given when it is created.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["aolog", "queuefka"]),
    help="Format of a new log.  [default: aolog; an existing log keeps its own]",
)
@click.option(
    "--sync",
    type=click.Choice(["interval", "flush", "never"]),
    default="interval",
    show_default=True,
    help="When what is flushed is synced to the device. At the end it is in any case.",
)
@click.option("--sync-seconds", type=DURATION, default=1.0, help="For --sync interval.  [1s]")
@click.option(
    "--flush-seconds", type=DURATION, default=1.0, help="When readers see it at the latest.  [1s]"
)
@click.option("--slab-bytes", type=SIZE, default=SLAB_BYTES, help="A slab is this large.  [64M]")
@click.option("--slab-seconds", type=DURATION, help="A slab is this old at most.")
@click.option(
    "--batch-bytes",
    type=SIZE_OR_ZERO,
    default=BATCH_BYTES,
    help="Records are gathered into frames of this size; 0: a frame each.  [64k]",
)
@click.option(
    "--max-record-bytes", type=SIZE, default=MAX_RECORD_BYTES, help="The largest record.  [64M]"
)
@click.option(
    "--compression",
    type=click.Choice(["none", "zstd", "lz4"]),
    default="none",
    show_default=True,
    help="Of frames; readers need nothing but the package.",
)
@click.option("--compression-level", type=int, help="zstd's 1 to 22 [1], lz4's 1 to 12.")
@click.option("--preallocate", is_flag=True, help="Fill a slab with zeros when it begins.")
@click.option(
    "--mode",
    type=MODE,
    default=DIRECTORY_MODE,
    help="Of the log's directory if it is created; its files have the same bits.  [700]",
)
@click.option(
    "--retention-max-bytes", type=SIZE, help="Keep the log below this total. See --when-full."
)
@click.option("--retention-max-age", type=DURATION, help="Let slabs go that are older.")
@click.option("--retention-max-slabs", type=click.IntRange(min=1), help="Keep so many slabs.")
@click.option(
    "--when-full",
    type=click.Choice(["prune", "block", "error"]),
    default="prune",
    show_default=True,
    help="At the total, while cursors need the oldest slab: prune it (unread records are lost; this "
    "is reported), block, or end with an error.",
)
@json_option
def append(
    log: str,
    files: tuple[str, ...],
    delimiter: Delimiter,
    key_from: Pick | None,
    topic_from: Pick | None,
    timestamp_from: Pick | None,
    timestamp_unit: str,
    topic: str | None,
    format_: Literal["aolog", "queuefka"] | None,
    sync: Literal["interval", "flush", "never"],
    sync_seconds: float,
    flush_seconds: float,
    slab_bytes: int,
    slab_seconds: float | None,
    batch_bytes: int,
    max_record_bytes: int,
    compression: Compression,
    compression_level: int | None,
    preallocate: bool,  # noqa: FBT001 -- click passes options by name
    mode: int,
    retention_max_bytes: int | None,
    retention_max_age: float | None,
    retention_max_slabs: int | None,
    when_full: Literal["prune", "block", "error"],
    as_json: bool,  # noqa: FBT001 -- the same
) -> int:
    """Append records from FILEs, or standard input, to LOG.

    The log is created if it is not there. On return everything is durable.
    """
    picks = Picks(key_from, topic_from, timestamp_from, timestamp_unit)
    format_ = format_ or _format_of(log)
    if format_ == "queuefka" and (picks.any or topic is not None):
        raise click.UsageError("format 1 (queuefka) has no place for keys, topics or timestamps")
    if compression_level is not None and compression == "none":
        raise click.UsageError("--compression-level needs --compression")
    retention = Retention(retention_max_bytes, retention_max_age, retention_max_slabs, when_full)
    paths = files or (STDIN,)
    total = total_bytes(paths)
    if STDIN in paths:
        Source(STDIN).close()  # closed from the start: said before the log is created
    with Stopping() as stopping:
        with said_in_options():
            writer = Writer(
                log,
                slab_bytes=slab_bytes,
                slab_seconds=slab_seconds,
                batch_bytes=batch_bytes,
                flush_seconds=flush_seconds,
                sync=sync,
                sync_seconds=sync_seconds,
                retention=retention,
                format=format_,
                topic=topic,
                max_record_bytes=max_record_bytes,
                compression=compression,
                compression_level=compression_level,
                preallocate=preallocate,
                mode=mode,
            )
        inputs = Inputs(log, paths, delimiter, has_options=has_options())
        appending = Appending(writer, stopping, picks, delimiter, max_record_bytes, inputs)
        may_stick = when_full == "block"

        def take() -> None:
            with (
                progress("append", total, shown=not as_json) as update,
                closed_when_stuck(writer.close, stopping) if may_stick else nullcontext(),
            ):
                appending.take_all(paths, update)

        try:
            _run(appending, writer, take)
        except AologError as error:
            if not as_json:
                tell_pruned(writer.pruned_unread)
            elif writer.pruned_unread:
                error.details["pruned_unread"] = pruned_to_json(writer.pruned_unread)
            raise
        _tell(log, appending.tally, writer, stopping, as_json=as_json)
        return stopping.exit_status if stopping.signum is not None else 0
