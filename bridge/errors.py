"""What can go wrong at the destination. Codes and exit statuses as in `aolog.errors`."""

from __future__ import annotations

from aolog.errors import AologError, UsageError

__all__ = ["DestinationError", "Undeliverable", "WrongSetting"]


class WrongSetting(UsageError):
    """A setting for the Kafka client that it refuses, or that the bridge's guarantees forbid."""

    code = "wrong_setting"


class DestinationError(AologError):
    """The cluster refused. Nothing is lost: the log keeps what was not acknowledged."""

    code = "destination"
    exit_status = 6


class Undeliverable(DestinationError):
    """A record that the cluster will never take (`details["address"]`). Its lane stands before it,
    and so does the cursor; everything that goes elsewhere was delivered."""

    code = "undeliverable"
