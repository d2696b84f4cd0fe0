"""What can go wrong, split by who is to blame.

Every error has a stable `code`, used by logs, metrics and the table in docs/operate.md, and an
`exit_status`, one a class of error, used by the command line. The message names the file,
the address, the reason and what to do; `details` holds the same for programs.

    usage       2   the caller asked for what cannot be done; nothing was touched
    corruption  3   bytes are not what was written; the intact rest stays readable
    storage     4   the disk or its permissions; the docstring says whether to try again
    locked      5   another process or thread owns what was asked for
    destination 6   (bridge) the cluster refused
"""

from __future__ import annotations

__all__ = [
    "AddressBeyondEnd",
    "AddressPruned",
    "AologError",
    "CodecUnavailable",
    "CorruptionError",
    "CursorCorrupt",
    "CursorDiverged",
    "CursorForeign",
    "CursorLocked",
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
    "StorageError",
    "StorageFailed",
    "StorageFull",
    "SyncFailed",
    "TopicMismatch",
    "UsageError",
]


class AologError(Exception):
    """Base of all errors of this project. `details`: the parts of the message, by name."""

    code = "error"
    exit_status = 1

    def __init__(self, reason: str, *, hint: str | None = None, **details: object) -> None:
        self.reason = reason
        self.hint = hint
        self.details = details
        where = "".join(f"{details[name]}: " for name in ("path",) if details.get(name) is not None)
        super().__init__(f"{where}{reason}" + (f"; {hint}" if hint else ""))


class UsageError(AologError):
    """The call cannot be carried out as asked. Nothing was changed; change the call."""

    code = "usage"
    exit_status = 2


def nested_call(of: str = "writer") -> UsageError:
    """For a call that a signal's handler, or a finalizer, makes while the thread that runs it is in
    the middle of another one of the same object's: that one's state is half changed."""
    return UsageError(
        f"called from within another call of the same {of}'s",
        hint=f"let a signal's handler set a flag or raise, and call the {of} outside of it",
    )


class NotALog(UsageError):
    """The path is no directory of slabs (a file, an empty or a foreign directory)."""

    code = "not_a_log"


class NewerFormat(UsageError):
    """A slab was written in a version of the format that this release does not know."""

    code = "newer_format"


class CodecUnavailable(UsageError):
    """Records are compressed with a codec whose package is not installed, or that this release
    does not know. Nothing is damaged: once it is installed the same call goes on there. A reader
    may seek over them, to `details["end"]`."""

    code = "codec_unavailable"


class RecordTooLarge(UsageError):
    """The record is over `max_record_bytes`, or a batch over a frame's 4 GiB. Not appended."""

    code = "record_too_large"


class RecordRefused(UsageError):
    """The record has a part that is of the wrong type or that this format has no place for."""

    code = "record_refused"


class LogClosed(UsageError):
    """The writer or reader was closed."""

    code = "closed"


class Forked(UsageError):
    """Writer or cursor was opened before a fork and is used in the child. Open one's own."""

    code = "forked"


class AddressBeyondEnd(UsageError):
    """The address lies beyond the end of the log."""

    code = "address_beyond_end"


class AddressPruned(UsageError):
    """The address lies before the first slab that is still there."""

    code = "address_pruned"


class NoSuchCursor(UsageError):
    """No cursor of that name belongs to the log."""

    code = "no_such_cursor"


class TopicMismatch(UsageError):
    """The log was created with another default topic."""

    code = "topic_mismatch"


class CorruptionError(AologError):
    """Bytes on disk are not what was written. What is intact stays readable."""

    code = "corrupt"
    exit_status = 3


class GapFound(CorruptionError):
    """A strict reader met a gap (`details["gap"]`). Reading again goes on behind it."""

    code = "gap"


class HeaderLost(CorruptionError):
    """No copy of the only slab's header is intact, or no slab is left beside the cursors, so
    nothing says what the log is."""

    code = "header_lost"


class IdentityUnclear(CorruptionError):
    """Slabs, or the only slab and the cursors, belong to different logs, and nothing says which log
    this is. Move what belongs to another log out of the directory."""

    code = "identity_unclear"


class CursorCorrupt(CorruptionError):
    """Both copies of a cursor are damaged. Set it anew with `aolog cursor set`."""

    code = "cursor_corrupt"


class CursorForeign(CorruptionError):
    """The cursor belongs to another log."""

    code = "cursor_foreign"


class CursorDiverged(CorruptionError):
    """The log took another course below the cursor's address (restored from a backup)."""

    code = "cursor_diverged"


class StorageError(AologError):
    """The disk, the file system or its permissions."""

    code = "storage"
    exit_status = 4


class PermissionDenied(StorageError):
    """The process may not read or write the path."""

    code = "permission_denied"


class StorageFull(StorageError):
    """No room (ENOSPC, EDQUOT). Nothing is lost: free space and call again."""

    code = "storage_full"


class RetentionFull(StorageFull):
    """`Retention(when_full="error")`: the total is reached and cursors need the oldest."""

    code = "retention_full"


class StorageFailed(StorageError):
    """A read or write failed (EIO and the like). Writing again retries at the same offset."""

    code = "storage_failed"


class SyncFailed(StorageError):
    """fsync failed: the page cache can no longer be believed, the writer refuses all further
    appends. Everything before `details["durable"]` survives; reopen the log to go on."""

    code = "sync_failed"


class LockedError(AologError):
    """Somebody else owns it. Try again when they are done."""

    code = "locked"
    exit_status = 5


class LogLocked(LockedError):
    """Another writer, in this process or another, has the log open."""

    code = "log_locked"


class CursorLocked(LockedError):
    """Another reader has the cursor open."""

    code = "cursor_locked"
