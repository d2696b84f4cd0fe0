"""The root command `aolog`: its help, and the list of commands."""

from __future__ import annotations

import click

import aolog
from aolog.cli.failing import CONTEXT_SETTINGS, Root

_COMMANDS = {
    "append": ("aolog.cli.append", "Append each line of the FILEs, or of standard input, to LOG."),
    "archive": ("aolog.cli.archive", "Archive LOG below URL in an object store."),
    "backup": ("aolog.cli.backup", "Copy LOG to a new DIR, consistently, beside its writer."),
    "compact": (
        "aolog.cli.archive",
        "Pack small slabs of the archive below URL into large objects, compressed.",
    ),
    "cursor": ("aolog.cli.cursor", "List, show, set and delete cursors."),
    "hold": ("aolog.cli.archive", "Keep all that the archive below URL has; or --release it."),
    "info": ("aolog.cli.info", "Show what LOG holds."),
    "prune": ("aolog.cli.prune", "Remove the oldest slabs of LOG until the limits are met."),
    "read": ("aolog.cli.read", "Print the records of LOG up to its end as it is now."),
    "repair": ("aolog.cli.repair", "Copy the intact records of a damaged LOG."),
    "restore": ("aolog.cli.archive", "Make a log in a new DIR from the archive below URL."),
    "salvage": ("aolog.cli.salvage", "Print the remains of damaged frames of LOG, unverified."),
    "tail": ("aolog.cli.read", "Print the last records of LOG; with -f, also each new one."),
    "verify": ("aolog.cli.verify", "Check every byte of LOG; list gaps and damage."),
}


@click.group(
    cls=Root,
    name="aolog",
    table=_COMMANDS,
    context_settings=CONTEXT_SETTINGS,
    epilog="""\b
Examples:
  printf 'one\\ntwo\\n' | aolog append /var/lib/app/log
  aolog read /var/lib/app/log
  aolog tail -f /var/lib/app/log
  aolog info /var/lib/app/log
  aolog verify /var/lib/app/log --json

\b
Exit status:
  0  done                        4  storage: disk, pipe, permission
  1  internal error              5  locked by another process
  2  usage; nothing was changed  130, 143  interrupted, terminated
  3  damage or a gap was met     141  output closed early (| head)

Errors are one line, "aolog: CODE: MESSAGE", or with --json one object, on standard error.""",
)
@click.version_option(aolog.__version__, prog_name="aolog", message="%(prog)s %(version)s")
def main() -> None:
    """Crash-safe append-only logs: append, read, maintain.

    A log is a directory with one writer and any number of readers. Every record has a 64-bit
    ADDRESS that never changes.
    """
