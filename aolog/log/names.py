"""The names of all files of a log: made and parsed here, and nowhere else.

LOG/00000000000000000000.slab        a slab; its name is the address of its first record
LOG/00000000000000000000.slab.tmp    a slab that has no name yet (UNBORN_SUFFIX)
LOG/JOB.UNIQUE.DEPTH.pending         a slab that a job wrote and may publish (manifest.py)
LOG/cursors/NAME.cursor              the durable position of a reader (cursor_file.py)
LOG/cursors/NAME.lanes               the bridge's notes on a cursor; not part of the log
LOG/cursors/NAME.losses              what the bridge has lost for a cursor; not part of the log
LOG/aside/...                        bytes that recovery and repair saved before removing them
LOG/known-gaps.json                  the gaps that repair copied from a damaged log (baseline.py)
LOG/retention.lock                   locked while slabs are pruned (lock.py)
ROOT/published.jsonl                 the manifest of the logs below ROOT (manifest.py)
"""

from __future__ import annotations

import re

from aolog.errors import UsageError
from aolog.format.slab import ADDRESS_END
from aolog.storage.directory import Directory, Inside
from aolog.storage.storage import absolute, parent_of

CURSOR_DIRECTORY = "cursors"
ASIDE_DIRECTORY = "aside"
RETENTION_LOCK = "retention.lock"
KNOWN_GAPS_NAME = "known-gaps.json"
MANIFEST_NAME = "published.jsonl"
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

_BASE_DIGITS = 20  # one more than 2^63 needs
_PENDING_NAME = re.compile(r"([^.]{32})\.[^.]*\.([0-9]{1,2})\.pending")  # job, unique, depth
_CURSOR_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def slab_name(base: int) -> str:
    """The name of the slab that begins at this address."""
    return f"{base:0{_BASE_DIGITS}d}.slab"


def slab_base(name: str) -> int | None:
    """The address at which a slab with this name begins; None if this is not a slab's name."""
    digits = name[:_BASE_DIGITS]
    if name[_BASE_DIGITS:] != ".slab" or not (digits.isascii() and digits.isdigit()):
        return None  # without a regular expression: a log may have 100,000 names
    base = int(digits)
    return base if base < ADDRESS_END else None


def check_cursor_name(name: str) -> str:
    """The same name. Raises UsageError if a cursor cannot have it."""
    if not _CURSOR_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a cursor",
            hint="use up to 128 letters, digits, '.', '_' and '-', not beginning with '.' or '-'",
        )
    return name


def cursor_path(log_path: str | Directory, name: str, suffix: str = CURSOR_SUFFIX) -> Inside:
    """The path of a cursor's file, or of the file with its notes. Raises UsageError."""
    return Inside(log_path, CURSOR_DIRECTORY, check_cursor_name(name) + suffix)


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


def root_of(log_path: str, name: str) -> str | None:
    """The root whose manifest may publish a pending slab; None if this is not such a name."""
    found = _PENDING_NAME.fullmatch(name)
    if found is None:
        return None
    root = absolute(log_path)
    for _ in range(int(found[2])):
        root = parent_of(root)
    return root
