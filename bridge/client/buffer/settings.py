"""A Buffer's settings and status, as values."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

from aolog.errors import UsageError

Mode: TypeAlias = Literal["block", "error", "buffer", "always"]
_POSITIVE = ("memory_messages", "memory_bytes", "live_age_s", "batch_messages")


class Settings(NamedTuple):
    """See Buffer."""

    mode: Mode = "buffer"
    memory_messages: int = 10_000
    memory_bytes: int = 16 << 20
    live_age_s: float = 5.0
    live_after_s: float = 5.0
    batch_messages: int = 5_000
    commit_s: float = 1.0
    retry_max_s: float = 30.0

    def check(self) -> None:
        """Raises UsageError."""
        if self.mode not in get_args(Mode):
            raise UsageError(f"mode={self.mode!r}", hint=f"use one of {', '.join(get_args(Mode))}")
        for name in _POSITIVE:
            if not (number := getattr(self, name)) > 0:
                raise UsageError(f"{name}={number!r}", hint="use a positive number")


class BufferStatus(NamedTuple):
    """A moment of a Buffer. Counts of messages."""

    # live; buffering: through the log, as mode always does at all times; blocked: in mode block, while the
    # destination fails
    state: str
    in_memory: int  # and not known to be delivered
    in_backlog: int  # on disk, and still to be delivered
    delivered: int  # since the Buffer was opened
    rejected: int  # as well
    lost: int  # retention or damage removed them before they were delivered
    # The last failure, until a message is delivered; or, after one second, how long no answer came.
    error: str | None
