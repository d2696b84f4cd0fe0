"""`aolog read` and `aolog tail`: from a log to standard output.

Gaps are told on standard error as they are met, in their place among the records, and the exit
status says that there were some. A cursor is committed when everything that was asked for has
been written: what is cut off is read again, and nothing is skipped.
"""

from __future__ import annotations

import itertools
import logging
import select
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from aolog.cli.output import OutputClosed, json_option, out, record_to_json, tell_gap
from aolog.cli.parse import CURSOR_NAME, WHERE, Where, log_argument
from aolog.errors import AddressPruned
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.directory import Log
from aolog.read import seek
from aolog.read.reader import Reader, resume_at
from aolog.record import Losses
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog.record import Gap, Record

__all__ = ["read", "tail"]

RecordFormat: TypeAlias = Literal["value", "nul", "length", "json"]
_FORMATS: tuple[RecordFormat, ...] = ("value", "nul", "length", "json")

_log = logging.getLogger("aolog")

_LENGTH = struct.Struct("<I")
_LOOK_S = 1.0  # how often `tail -f` looks whether its reader is still there

_EARLIEST = Where("earliest")

_format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="value: a line each; nul: a zero byte behind each; length: u32le before each; json: an "
    "object a line, all fields.  [default: value, or json with --json]",
)
_skip_gaps_option = click.option(
    "--skip-gaps", is_flag=True, help="Exit 0 although there were gaps. They are told all the same."
)
_resync_option = click.option(
    "--resync",
    is_flag=True,
    help="Format 1 only: behind damage, guess where the next record begins.",
)


def _encoder(format_: RecordFormat) -> Callable[[Record], bytes]:
    """From a record to its bytes on standard output. A null value is an empty one but in JSON."""
    match format_:
        case "value" if out.is_terminal:  # a value with newlines could pass for several records
            return lambda record: (record.value or b"").replace(b"\n", rb"\n") + b"\n"
        case "value":
            return lambda record: (record.value or b"") + b"\n"
        case "nul":
            return lambda record: (record.value or b"") + b"\0"
        case "json":
            return lambda record: record_to_json(record) + b"\n"
        case "length":

            def measured(record: Record) -> bytes:
                value = record.value or b""
                return _LENGTH.pack(len(value)) + value

            return measured


def _write(records: Iterable[Record], encode: Callable[[Record], bytes]) -> None:
    write = out.write
    for record in records:
        write(encode(record))


class _Gaps:
    """Gaps met so far: told, and summed up at the end."""

    def __init__(self, *, as_json: bool, strict: bool = False) -> None:
        self._as_json = as_json
        self._strict = strict
        self._losses = Losses()
        self._held: list[Gap] | None = None

    def met(self, gap: Gap) -> None:
        """One more. A strict reader's only gap is told by the error that ends it."""
        if self._held is not None:
            self._held.append(gap)
            return
        if self._strict:
            return
        tell_gap(gap, as_json=self._as_json)
        self._losses.add(gap)

    def hold(self) -> None:
        """From here on a trial is under way: gaps of the one before are forgotten."""
        self._held = []

    def release(self) -> None:
        """The trial counts: its gaps are told."""
        held, self._held = self._held, None
        for gap in held or ():
            self.met(gap)

    def check(self, log: str) -> None:
        """Raises GapFound if there were any."""
        self._losses.check(log, "read")


def _open(
    log: str,
    start: Where,
    cursor: str | None,
    gaps: _Gaps,
    *,
    commit: bool,
    strict: bool,
    resync: bool,
) -> Reader:
    """The reader. A cursor is held only if it is to be committed, and wins over `start` if there
    is one of its name."""

    def opened(start: Where, cursor: str | None = None) -> Reader:
        return start.open(log, cursor=cursor, on_gap=gaps.met, strict=strict, resync=resync)

    if cursor is None:
        return opened(start)
    storage = Storage()
    if cursor not in cursor_names(log, storage):
        Where("earliest").open(log).close()  # no log at all is said first
        _log.warning("cursor %r is not there yet: reading from where --from says", cursor)
        return opened(start, cursor if commit else None)
    if commit:
        return opened(_EARLIEST, cursor)
    reader = opened(_EARLIEST)
    try:
        resume_at(reader, read_position(log, cursor, storage))
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
  aolog read LOG --format nul | xargs -0 -n1 echo

\b
WHERE is one of:
  earliest, latest        the first record that is there; the end
  8192                    an address
  ordinal:N               the record with N before it
  2026-01-31T12:00:00Z    the first record as late as this; UTC by default
  15m-ago                 the same, relative to now

JSON has text where bytes are UTF-8 (key, value), else base64 (key_base64, value_base64).

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
    help="Where to begin, unless a cursor says so.",
)
@click.option(
    "--cursor",
    metavar="NAME",
    type=CURSOR_NAME,
    help="Begin where this cursor stands. Without --commit it is only looked at.",
)
@click.option(
    "--commit", is_flag=True, help="Set the cursor behind what was read, once all is written."
)
@click.option("-n", "--max-records", type=click.IntRange(min=0), help="Stop after so many records.")
@_format_option
@click.option("--strict", is_flag=True, help="Stop at the first gap. Nothing is committed.")
@_skip_gaps_option
@_resync_option
@json_option
def read(
    log: str,
    start: Where,
    cursor: str | None,
    commit: bool,  # noqa: FBT001 -- click passes options by name
    max_records: int | None,
    format_: RecordFormat | None,
    strict: bool,  # noqa: FBT001 -- the same
    skip_gaps: bool,  # noqa: FBT001 -- the same
    resync: bool,  # noqa: FBT001 -- the same
    as_json: bool,  # noqa: FBT001 -- the same
) -> None:
    """Print the records of LOG up to its end as it is now.

    Gaps are told on standard error; exit status 3 if there was any.
    """
    if commit and cursor is None:
        raise click.UsageError("--commit needs --cursor")
    if strict and skip_gaps:
        raise click.UsageError("--strict and --skip-gaps exclude each other")
    gaps = _Gaps(as_json=as_json, strict=strict)
    encode = _encoder(format_ or ("json" if as_json else "value"))
    with _open(log, start, cursor, gaps, commit=commit, strict=strict, resync=resync) as reader:
        _write(itertools.islice(reader.up_to(reader.end()), max_records), encode)
        out.flush()
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
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until interrupted.")
@click.option(
    "-n",
    "--max-records",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Begin so many records before the end.",
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
    """Print the last records of LOG, and with -f those that come."""
    gaps = _Gaps(as_json=as_json)
    encode = _encoder(format_ or ("json" if as_json else "value"))
    reader, records = _open_before_end(log, max_records, gaps)
    with reader:
        _write(records, encode)
        out.flush()
        while follow:
            batch = reader.read_batch(timeout=_LOOK_S)
            if batch is not None:
                _write(batch, encode)
                out.flush()
            _check_stdout()
    if not skip_gaps:
        gaps.check(log)


def _open_before_end(log: str, records: int, gaps: _Gaps) -> tuple[Reader, Iterable[Record]]:
    """A reader, and the last records up to the end that it then stands at."""
    with Log(log, Storage()) as listed:
        listed.require_slabs()
        end = listed.listed(lambda: seek.latest(listed))
        bases = listed.bases
    if not records:
        return Reader(log, "latest", on_gap=gaps.met), ()
    if end.ordinal is None:
        return _open_by_slabs(log, bases, end.address, records, gaps)
    try:
        reader = Where("earliest", max(0, end.ordinal - records)).open(log, on_gap=gaps.met)
    except AddressPruned:
        reader = Reader(log, on_gap=gaps.met)
    return reader, reader.up_to(end.address)


def _open_by_slabs(
    log: str, bases: list[int], end: int, records: int, gaps: _Gaps
) -> tuple[Reader, Iterable[Record]]:
    """The same where nothing counts the records: sought from further and further back."""
    slabs = 1
    while True:
        at = max(0, len(bases) - slabs)
        gaps.hold()
        reader = Reader(log, bases[at], on_gap=gaps.met)
        last = deque(reader.up_to(end), maxlen=records)
        if len(last) == records or at == 0:
            gaps.release()
            return reader, last
        reader.close()
        slabs *= 2


def _check_stdout() -> None:
    """Raises OutputClosed if nobody reads standard output any more: else `tail -f | head -1`
    would stay until the next record comes."""
    try:
        fd = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return
    poll = select.poll()
    poll.register(fd, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise OutputClosed
