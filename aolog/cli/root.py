"""The root command `aolog`: its help, and the list of commands."""

from __future__ import annotations

import click

import aolog
from aolog.cli.append import append
from aolog.cli.backup import backup
from aolog.cli.cursor import cursor
from aolog.cli.failing import CONTEXT_SETTINGS, Root
from aolog.cli.info import info
from aolog.cli.prune import prune
from aolog.cli.read import read, tail
from aolog.cli.repair import repair
from aolog.cli.salvage import salvage
from aolog.cli.verify import verify


@click.group(
    cls=Root,
    name="aolog",
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


for _command in (append, read, tail, info, verify, repair, salvage, backup, prune, cursor):
    main.add_command(_command)
