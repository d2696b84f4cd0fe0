"""What can go wrong at the destination. Codes and exit statuses as in `aolog.errors`."""

from __future__ import annotations

from aolog.errors import AologError, UsageError

__all__ = [
    "DestinationError",
    "Forbidden",
    "NotRunning",
    "Undeliverable",
    "WrongConfiguration",
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


class NotRunning(AologError):
    """No bridge answers where `status` was told to ask. Start it, or name where it serves."""

    code = "not_running"
    exit_status = 6


class WrongConfiguration(UsageError):
    """The configuration is not as it should be; nothing was started or changed. `problems`: each
    with its path in the file. Never holds a secret's value."""

    code = "wrong_configuration"

    def __init__(self, problems: list[str], *, path: str | None = None) -> None:
        self.problems = problems
        self.path = path
        super().__init__("; ".join(problems), path=path, problems=problems)
