"""What may interrupt a call at any line: a signal handler, a finalizer or a tracing function of the program.

An object that is interrupted is half changed. So it refuses calls from within another call, and fails
after an exception that is not its own (DESIGN: fail-stop).
"""

from __future__ import annotations

from typing import TypeGuard

from aolog.errors import AologError, UsageError
from aolog.storage.file import File
from aolog.storage.storage import Storage

# Packages whose functions an error of ours may pass: the last three are Python's, which call ours.
_OURS = {"aolog", "asyncio", "concurrent", "contextlib"}


def nested_call(of: str = "writer") -> UsageError:
    """The error for a re-entrant call: a signal handler or a finalizer calls an object while the same
    thread is inside another call of that object."""
    return UsageError(
        f"called from within another call of the same {of}",
        hint=f"let the signal handler set a flag or raise, and call the {of} outside the handler",
    )


def is_own(error: BaseException) -> TypeGuard[AologError]:
    """Whether the interrupted call raised this error itself. A signal handler may raise the same class of
    error, even one of the same log: then a function of the program is in the traceback. A storage that
    the program passed counts as ours. Call it where the error is caught."""
    if not isinstance(error, AologError):
        return False
    at = error.__traceback__
    while at is not None:
        frame, at = at.tb_frame, at.tb_next
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _OURS:
            return isinstance(frame.f_locals.get("self"), File | Storage)
    return True


def pass_on(error: Exception) -> None:
    """For a caller that goes on after an error: raises one of ours that is not the call's own."""
    if isinstance(error, AologError) and not is_own(error):
        raise error
