"""`aolog read` and `aolog tail`: from a log to standard output.

Each gap is reported on standard error, in order with the records, and sets the exit status. A cursor is
committed after all output is written. So an interrupted read repeats records and skips none.
"""

from __future__ import annotations

import itertools
import select
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from aolog.cli.input import LENGTH
from aolog.cli.output import OutputClosed, json_option, out, record_to_json, tell_gap
from aolog.cli.parse import CURSOR_NAME, WHERE, log_argument
from aolog.errors import AddressPruned, warn
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.directory import Log
from aolog.log.tiers import with_archive
from aolog.read import seek
from aolog.read.reader import Reader, view_of
from aolog.read.start import Where
from aolog.record import Losses
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog.record import Gap, Record

RecordFormat: TypeAlias = Literal["value", "nul", "length", "json"]
_FORMATS: tuple[RecordFormat, ...] = ("value", "nul", "length", "json")

_EARLIEST = Where("earliest")

_format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="value: one line each; nul: a zero byte after each; length: u32le before each; json: one "
    "object a line with all fields.  [default: value, or json with --json]",
)
_skip_gaps_option = click.option(
    "--skip-gaps", is_flag=True, help="Exit 0 in spite of gaps. They are still reported."
)


def _encoder(format_: RecordFormat) -> Callable[[Record], bytes]:
    """Converts a record to its bytes on standard output. Except in JSON, null becomes empty."""
    match format_:
        case "value" if out.is_terminal:  # a value with newlines could pass for several records
            return lambda record: (record.value or b"").replace(b"\n", rb"\n") + b"\n"
        case "value":
            return lambda record: (record.value or b"") + b"\n"
        case "nul":
            return lambda record: (record.value or b"") + b"\0"
        case "json":
            return record_to_json
        case "length":
            return lambda record: LENGTH.pack(len(record.value or b"")) + (record.value or b"")


def _write(records: Iterable[Record], encode: Callable[[Record], bytes]) -> None:
    write = out.write
    for data in map(encode, records):
        write(data)


class _Gaps:
    """Reports each gap and counts all of them."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._losses = Losses()

    def met(self, gap: Gap) -> None:
        """A reader's `on_gap`."""
        tell_gap(gap, as_json=self._as_json)
        self._losses.add(gap)

    def check(self, log: str) -> None:
        """Raises GapFound if there was a gap."""
        self._losses.check(log, "read")


def _open(
    log: str, start: Where, cursor: str | None, gaps: _Gaps, *, commit: bool, strict: bool
) -> Reader:
    """A reader at the cursor's position, or at `start` if there is no such cursor. It holds the cursor
    only if it will commit."""

    def opened(start: Where, cursor: str | None = None) -> Reader:
        on_gap = None if strict else gaps.met  # the error reports the only gap
        return start.open(log, cursor=cursor, on_gap=on_gap, strict=strict)

    if cursor is None:
        return opened(start)
    storage = Storage()
    if cursor not in cursor_names(log, storage):
        _EARLIEST.open(log).close()  # if there is no log, that is the error
        warn("cursor %r does not exist yet; reading from --from", cursor)
        return opened(start, cursor if commit else None)
    if commit:
        return opened(_EARLIEST, cursor)
    reader = opened(_EARLIEST)
    try:
        view_of(reader).resume_at(read_position(log, cursor, storage))
    except BaseException:
        reader.close()
        raise
    return reader


@click.command(
    epilog="""\b
Examples:
  aolog read LOG
  aolog read LOG --from 2026-01-31T12:00:00Z --json | jq .value
  aolog read LOG --from 15m-ago
  aolog read LOG --from ordinal:1000000 -n 10
  aolog read LOG --cursor nightly --commit > part
  aolog read LOG --archive s3://bucket/logs/host-7
  aolog read LOG --format nul | xargs -0 -n1 echo

\b
WHERE is one of:
  earliest, latest        the first record that exists; the end
  8192                    an address
  ordinal:N               the record with N before it
  2026-01-31T12:00:00Z    the first record at or after this time (UTC)
  15m-ago                 the same, relative to now

JSON contains text if the bytes are UTF-8 (key, value), otherwise base64 (key_base64, value_base64).

Control characters are escaped on a terminal. Files and pipes get the exact bytes."""
)
@log_argument
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    type=WHERE,
    default="earliest",
    show_default=True,
    help="Where to begin, if there is no cursor.",
)
@click.option(
    "--cursor",
    metavar="NAME",
    type=CURSOR_NAME,
    help="Begin at this cursor's position. Without --commit it does not change.",
)
@click.option(
    "--commit",
    is_flag=True,
    help="Set the cursor after the last record, once all output is written.",
)
@click.option(
    "--archive",
    metavar="URL",
    help="The log's archive, from which slabs are read that were removed here.",
)
@click.option("-n", "--max-records", type=click.IntRange(min=0), help="Stop after N records.")
@_format_option
@click.option("--strict", is_flag=True, help="Stop at the first gap. Nothing is committed.")
@_skip_gaps_option
@json_option
def read(
    log: str,
    start: Where,
    cursor: str | None,
    commit: bool,  # noqa: FBT001 -- click passes options by name
    archive: str | None,
    max_records: int | None,
    format_: RecordFormat | None,
    strict: bool,  # noqa: FBT001 -- the same
    skip_gaps: bool,  # noqa: FBT001 -- the same
    as_json: bool,  # noqa: FBT001 -- the same
) -> None:
    """Print the records of LOG up to its end as it is now.

    Gaps are reported on standard error; the exit status is then 3.
    """
    if commit and cursor is None:
        raise click.UsageError("--commit needs --cursor")
    if strict and skip_gaps:
        raise click.UsageError("--strict and --skip-gaps exclude each other")
    if archive is not None:
        log = with_archive(log, archive)
    gaps = _Gaps(as_json=as_json)
    encode = _encoder(format_ or ("json" if as_json else "value"))
    with _open(log, start, cursor, gaps, commit=commit, strict=strict) as reader:
        end = reader.end()
        _write(itertools.islice(reader.up_to(end), max_records), encode)
        out.flush()
        if reader.tell() >= end:
            view_of(reader).report_lost_end()
        if commit:
            reader.commit()
    if not skip_gaps:
        gaps.check(log)


@click.command(
    epilog="""\b
Examples:
  aolog tail LOG
  aolog tail -n 100 --json LOG
  aolog tail -f LOG
  aolog tail -f -n 0 LOG | while read -r line; do echo "$line"; done"""
)
@log_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more records, until interrupted.")
@click.option(
    "-n",
    "--max-records",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Begin N records before the end.",
)
@_format_option
@_skip_gaps_option
@json_option
def tail(
    log: str,
    follow: bool,  # noqa: FBT001 -- click passes options by name
    max_records: int,
    format_: RecordFormat | None,
    skip_gaps: bool,  # noqa: FBT001 -- the same
    as_json: bool,  # noqa: FBT001 -- the same
) -> None:
    """Print the last records of LOG; with -f, also each new one."""
    gaps = _Gaps(as_json=as_json)
    encode = _encoder(format_ or ("json" if as_json else "value"))
    reader, records = _open_before_end(log, max_records, gaps)
    with reader:
        _write(records, encode)
        out.flush()
        view_of(reader).report_lost_end()
        while follow:
            batch = reader.read_batch(timeout=1.0)
            if batch is not None:
                _write(batch, encode)
                out.flush()
            _check_stdout()
    if not skip_gaps:
        gaps.check(log)


def _open_before_end(log: str, records: int, gaps: _Gaps) -> tuple[Reader, Iterable[Record]]:
    """A reader, and the last records up to the end, where the reader then is."""
    with Log(log, Storage()) as listed:
        listed.require_slabs()
        end = listed.listed(lambda: seek.latest(listed))
    if not records:
        return Reader(log, "latest", on_gap=gaps.met), ()
    if end.ordinal is None:  # records are not counted: all are read
        reader = Reader(log, on_gap=gaps.met)
        return reader, deque(reader.up_to(end.address), maxlen=records)
    try:
        reader = Where("earliest", max(0, end.ordinal - records)).open(log, on_gap=gaps.met)
    except AddressPruned:
        reader = Reader(log, on_gap=gaps.met)
    return reader, reader.up_to(end.address)


def _check_stdout() -> None:
    """Raises OutputClosed if standard output has no reader: otherwise `tail -f | head -1` would wait for
    the next record."""
    poll = select.poll()
    with suppress(OSError, ValueError):  # it has no file descriptor
        poll.register(sys.stdout, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise OutputClosed
