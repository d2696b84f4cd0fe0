"""The names of all files of a log (FORMAT.md, *Directory*): made and parsed here, and nowhere else; those of slabs
in slab.py. Pure.
"""

from __future__ import annotations

import re

from aolog.errors import UsageError

CURSOR_DIRECTORY = "cursors"
ASIDE_DIRECTORY = "aside"
RETENTION_LOCK = "retention.lock"
KNOWN_GAPS_NAME = "known-gaps.json"
MANIFEST_NAME = "published.jsonl"  # of the logs below a directory
NOT_FOREIGN = {  # beside the slabs of a log, or in a directory that may become one
    CURSOR_DIRECTORY, ASIDE_DIRECTORY, RETENTION_LOCK, KNOWN_GAPS_NAME, MANIFEST_NAME,
    f"{MANIFEST_NAME}.tmp", "lost+found",
}  # fmt: skip  # a set
UNBORN_SUFFIX = ".slab.tmp"
PENDING_SUFFIX = ".pending"
CURSOR_SUFFIX = ".cursor"
NOTES_SUFFIX = ".lanes"
LOSSES_SUFFIX = ".losses"
BRIDGE_SUFFIXES = (NOTES_SUFFIX, LOSSES_SUFFIX)
DEPTH_MAX = 99  # directories from a log up to its root; two digits in a name

_PENDING_NAME = re.compile(r"([^.]{32})\.[^.]*\.([0-9]{1,2})\.pending")  # job, unique, depth
_CURSOR_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def check_cursor_name(name: str) -> str:
    """The same name. Raises UsageError if a cursor cannot have it."""
    if not _CURSOR_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a cursor",
            hint="use up to 128 letters, digits, '.', '_' and '-', not beginning with '.' or '-'",
        )
    return name


def cursor_name(file_name: str) -> str | None:
    """The name of the cursor in a file; None if this is not a cursor file's name."""
    name = file_name.removesuffix(CURSOR_SUFFIX)
    return name if name != file_name and _CURSOR_NAME.fullmatch(name) else None


def pending_name(job: str, unique: str, depth: int) -> str:
    """The name of a pending slab whose log is `depth` directories below the root. job, unique: 32
    hexadecimal digits."""
    return f"{job}.{unique}.{depth}{PENDING_SUFFIX}"


def job_of(name: str) -> str | None:
    """The job that wrote a pending slab; None if this is not a pending slab's name."""
    found = _PENDING_NAME.fullmatch(name)
    return found and found[1]


def depth_in(name: str) -> int | None:
    """How many directories the log of a pending slab is below the root; None if this is not such a name."""
    found = _PENDING_NAME.fullmatch(name)
    return found and int(found[2])
