"""What can go wrong at the destination. Codes and exit statuses as in `aolog.errors`."""

from __future__ import annotations

from aolog.errors import AologError, UsageError

__all__ = [
    "CursorTopicUnfit",
    "DestinationError",
    "Fenced",
    "Forbidden",
    "NotIsolated",
    "Undeliverable",
    "WrongSetting",
]


class WrongSetting(UsageError):
    """A setting for the Kafka client that it refuses, or that the bridge's guarantees forbid."""

    code = "wrong_setting"


class DestinationError(AologError):
    """The cluster refused. Nothing is lost: the log keeps what was not acknowledged."""

    code = "destination"
    exit_status = 6


class Undeliverable(DestinationError):
    """A record that the cluster will never take (`details["address"]`). The bridge stands before
    it: the cursor does not pass it."""

    code = "undeliverable"


class Forbidden(DestinationError):
    """Authentication or authorisation failed: no waiting will help."""

    code = "forbidden"


class Fenced(DestinationError):
    """Another bridge has taken over this log's delivery (exactly once). Nothing is lost or
    repeated: it goes on where this one was cut off. Run one bridge a log."""

    code = "fenced"
    exit_status = 7


class NotIsolated(DestinationError):
    """The cluster shows records of aborted transactions, or has none: exactly once is not to be
    had there. Nothing of the log was sent."""

    code = "not_isolated"
    exit_status = 8


class CursorTopicUnfit(DestinationError):
    """The topic for cursor records has several partitions, or is not compacted. Nothing was sent
    or changed."""

    code = "cursor_topic_unfit"
    exit_status = 8
