"""`aolog cursor`: lists, shows, sets and deletes the durable positions of a log's readers.

A cursor that a reader holds is not changed. A cursor that is damaged, foreign or diverged can be set
again or deleted here; the errors about it say so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aolog.cli.cursor_state import HEAD, CursorState, cursor_state, cursor_states
from aolog.cli.failing import CONTEXT_SETTINGS
from aolog.cli.lock_holders import Holders, require_log
from aolog.cli.output import fields, json_option, out, table, to_stderr
from aolog.cli.parse import WHERE, cursor_argument, log_argument
from aolog.errors import CursorCorrupt, CursorDiverged, CursorForeign, UsageError, counted
from aolog.log.cursor_file import cursor_names, delete_cursor, read_position
from aolog.read.reader import Reader
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.read.start import Where


@click.group(
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

    Retention does not remove records that a protecting cursor has not read.
    """


@cursor.command(
    name="list", epilog="\b\nExample:\n  aolog cursor list LOG --json | jq .lag.records"
)
@log_argument
@json_option
def list_(log: str, as_json: bool) -> None:  # noqa: FBT001 -- click passes options by name
    """List the cursors of LOG with their lag. With --json, one line for each cursor.

    State `pruned`: retention removed records that the cursor has not read, with their number (in JSON
    in `pruned`). The lag counts records that can still be read. State `ahead`: it is past the log's end, so the
    log was longer once; `aolog verify` says what is missing.
    """
    found = cursor_states(log, Holders(require_log(log)))
    if as_json:
        for each in found:
            out.json(each.to_json())
    elif found:
        out.line(table(HEAD, [each.row() for each in found]))
    else:
        to_stderr("no cursors")


@cursor.command(epilog="\b\nExample:\n  aolog cursor show LOG nightly")
@log_argument
@cursor_argument
@json_option
def show(log: str, name: str, as_json: bool) -> None:  # noqa: FBT001 -- as above
    """Show the position of cursor NAME of LOG, and its lag."""
    _print(cursor_state(log, name, Holders(require_log(log))), as_json=as_json)


def _print(each: CursorState, *, as_json: bool) -> None:
    if as_json:
        out.json(each.to_json())
    else:
        out.line(fields(HEAD, each.row()))


@cursor.command(
    name="set",
    epilog="""\b
Examples:
  aolog cursor set LOG nightly earliest
  aolog cursor set LOG nightly ordinal:1000
  aolog cursor set LOG nightly 2026-01-31T12:00:00Z

WHERE is earliest, latest, an address, ordinal:N, a time (default: UTC), or a time ago such as
15m-ago.""",
)
@log_argument
@cursor_argument
@click.argument("where", type=WHERE)
@click.option(
    "--protect/--no-protect",
    default=None,
    help="Whether retention keeps records that it has not read.  [default: unchanged; yes if new]",
)
@json_option
def set_(log: str, name: str, where: Where, protect: bool | None, as_json: bool) -> None:  # noqa: FBT001 -- as above
    """Set cursor NAME of LOG to WHERE; create it if it does not exist."""
    with where.open(log) as reader:  # raises before anything changes
        address = reader.tell()
    with _held(log, name, address, protect=protect) as reader:
        reader.seek(address)
        reader.commit()
    _print(cursor_state(log, name, Holders(require_log(log))), as_json=as_json)


def _held(log: str, name: str, address: int, *, protect: bool | None) -> Reader:
    """A reader that holds the cursor, also if the cursor was damaged. Raises CursorLocked."""
    try:
        if protect is None:
            protect = _protects(log, name)
        return Reader(log, address, cursor=name, protect=protect)
    except (CursorCorrupt, CursorDiverged, CursorForeign):
        delete_cursor(log, name, Storage(), notes=False)
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
    """Delete cursor NAME of LOG, with a bridge's notes on it. Retention may then remove records that
    only it protected."""
    found = cursor_state(log, name, Holders(require_log(log)))
    if not yes and not _confirmed(found):
        raise UsageError("not deleted: not confirmed", hint="answer y, or give --yes")
    delete_cursor(log, name, Storage())
    if as_json:
        out.json({"deleted": name, "address": found.position and found.position.address})
    else:
        to_stderr(f"cursor {name} deleted")


def _confirmed(found: CursorState) -> bool:
    unread = None if found.lag is None else found.lag.records
    lag = "" if unread is None else f", {counted(unread, 'record')} unread"
    # click.confirm raises the same at the end of input, where nobody answered, and at an interrupt.
    click.echo(f"Delete cursor {found.name}{lag}? [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
