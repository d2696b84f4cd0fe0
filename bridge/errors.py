"""What can go wrong at the destination. Codes and exit statuses as in `aolog.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import AologError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.provider import Message

__all__ = ["DestinationError", "NotDelivered", "Undeliverable", "WrongSetting"]


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


class NotDelivered(DestinationError):
    """Messages that a Buffer accepted were not delivered, and it does not keep them: in the modes
    block and error, where one was rejected, and where its log took no more at the end.
    `undelivered`: those messages, in order; some may have arrived all the same."""

    code = "not_delivered"

    def __init__(self, name: str, why: str, undelivered: Sequence[Message]) -> None:
        super().__init__(
            f"{len(undelivered):,} messages were not delivered to {name}: {why}",
            hint="send `undelivered` again, in order",
        )
        self.undelivered = list(undelivered)
