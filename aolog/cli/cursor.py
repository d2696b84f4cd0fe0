"""`aolog cursor`: the durable positions of a log's readers, listed, set and removed.

A cursor that a reader holds is left alone. A cursor that is damaged, foreign or diverged can be
set anew or deleted here: that is what the errors about it advise.
"""

from __future__ import annotations

import sys

import click

from aolog.cli.failing import CONTEXT_SETTINGS
from aolog.cli.holder import Holders, require_log
from aolog.cli.output import counted, fields, json_option, out, table, to_stderr
from aolog.cli.parse import WHERE, Where, cursor_argument, log_argument
from aolog.cli.positions import HEAD, Standing, row, standing, standings
from aolog.errors import (
    CursorCorrupt,
    CursorDiverged,
    CursorForeign,
    NoSuchCursor,
    UsageError,
)
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.lock import lock_cursor
from aolog.log.names import CURSOR_DIRECTORY, cursor_path
from aolog.read.reader import Reader
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage

__all__ = ["cursor"]


@click.group(
    short_help="List, show, set and delete cursors.",
    context_settings=CONTEXT_SETTINGS,
    no_args_is_help=False,
    epilog="""\b
Examples:
  aolog cursor list LOG
  aolog cursor set LOG nightly earliest
  aolog cursor set LOG nightly 15m-ago --no-protect
  aolog cursor delete LOG nightly --yes""",
)
def cursor() -> None:
    """List, show, set and delete cursors: durable positions of readers.

    A protecting cursor keeps retention from removing what it has not passed.
    """


@cursor.command(
    name="list", epilog="\b\nExample:\n  aolog cursor list LOG --json | jq .lag.records"
)
@log_argument
@json_option
def list_(log: str, as_json: bool) -> None:  # noqa: FBT001 -- click passes options by name
    """List the cursors of LOG with their lag. With --json a line each.

    State `pruned`: retention removed records that the cursor has not read; their number is beside
    it, in JSON in `pruned`. The lag counts what can still be read.
    """
    found = standings(log, Holders(require_log(log)))
    if as_json:
        for each in found:
            out.json(each.to_json())
    elif found:
        out.line(table(HEAD, [row(each) for each in found]))
    else:
        to_stderr("no cursors")


@cursor.command(epilog="\b\nExample:\n  aolog cursor show LOG nightly")
@log_argument
@cursor_argument
@json_option
def show(log: str, name: str, as_json: bool) -> None:  # noqa: FBT001 -- as above
    """Show where cursor NAME of LOG stands."""
    _print(standing(log, name, Holders(require_log(log))), as_json=as_json)


def _print(each: Standing, *, as_json: bool) -> None:
    if as_json:
        out.json(each.to_json())
    else:
        out.line(fields(HEAD, row(each)))


@cursor.command(
    name="set",
    epilog="""\b
Examples:
  aolog cursor set LOG nightly earliest
  aolog cursor set LOG nightly ordinal:1000
  aolog cursor set LOG nightly 2026-01-31T12:00:00Z

WHERE is earliest, latest, an address, ordinal:N, a time (UTC unless it says otherwise), or
a time ago such as 15m-ago.""",
)
@log_argument
@cursor_argument
@click.argument("where", type=WHERE)
@click.option(
    "--protect/--no-protect",
    default=None,
    help="Whether retention keeps what it has not passed.  [default: as it is; a new one does]",
)
@json_option
def set_(log: str, name: str, where: Where, protect: bool | None, as_json: bool) -> None:  # noqa: FBT001 -- as above
    """Set cursor NAME of LOG to WHERE; create it if it is not there."""
    with where.open(log) as reader:  # the place is found before anything is touched
        address = reader.tell()
    with _held(log, name, address, protect=protect) as reader:
        reader.seek(address)
        reader.commit()
    _print(standing(log, name, Holders(require_log(log))), as_json=as_json)


def _held(log: str, name: str, address: int, *, protect: bool | None) -> Reader:
    """A reader that holds the cursor, in whatever state it was. Raises CursorLocked."""
    try:
        if protect is None:
            protect = _protects(log, name)
        return Reader(log, address, cursor=name, protect=protect)
    except (CursorCorrupt, CursorDiverged, CursorForeign):
        _remove(log, name)
        return Reader(log, address, cursor=name, protect=protect is not False)


def _protects(log: str, name: str) -> bool:
    storage = Storage()
    if name not in cursor_names(log, storage):
        return True
    return read_position(log, name, storage).protects


@cursor.command(epilog="\b\nExample:\n  aolog cursor delete LOG nightly --yes")
@log_argument
@cursor_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(log: str, name: str, yes: bool, as_json: bool) -> None:  # noqa: FBT001 -- as above
    """Delete cursor NAME of LOG. What only it protected may go at the next pruning."""
    found = standing(log, name, Holders(require_log(log)))
    if not yes and not _confirmed(found):
        raise UsageError("not deleted: it was not confirmed", hint="answer y, or give --yes")
    _remove(log, name)
    if as_json:
        out.json({"deleted": name, "address": found.position and found.position.address})
    else:
        to_stderr(f"cursor {name} deleted")


def _confirmed(found: Standing) -> bool:
    lag = found.lag
    behind = (
        "" if lag is None or lag.records is None else f", {counted(lag.records, 'record')} behind"
    )
    question = f"Delete cursor {found.name}{behind}? [y/N] "
    if sys.stdin is None:
        return False
    click.echo(question, nl=False, err=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _remove(log: str, name: str) -> None:
    """Removes the file; durable on return. Raises CursorLocked while a reader has it."""
    storage = Storage()
    try:
        file = lock_cursor(log, name, storage)
    except FileNotFoundError:
        raise NoSuchCursor(f"no cursor {name!r}", path=log) from None
    with file:
        storage.unlink(cursor_path(log, name))
        storage.sync_directory(Inside(log, CURSOR_DIRECTORY))
