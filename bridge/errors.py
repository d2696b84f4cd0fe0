"""What can go wrong at the destination. Codes and exit statuses as in `aolog.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import AologError, UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.buffer.provider import Message

__all__ = [
    "CursorTopicUnfit",
    "DestinationError",
    "Fenced",
    "NotDelivered",
    "NotIsolated",
    "NotRunning",
    "OtherCluster",
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
    """A record that the cluster will never take (`details["address"]`). Its lane stands before it,
    and so does the cursor; everything that goes elsewhere was delivered."""

    code = "undeliverable"


class Fenced(DestinationError):
    """Another bridge has taken over this log's delivery (exactly once). Nothing is lost or
    repeated: it goes on where this one was cut off. Run one bridge a log."""

    code = "fenced"
    exit_status = 7


class OtherCluster(DestinationError):
    """The servers are not the Kafka cluster that the cursor is of. Nothing was sent or changed."""

    code = "other_cluster"


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


class NotDelivered(DestinationError):
    """Messages that a Buffer accepted were not delivered, and it does not keep them: in the modes
    block and error, where one was rejected, and where its log took no more at the end.
    `undelivered`: those messages, in order; some may have arrived all the same."""

    code = "not_delivered"

    def __init__(self, name: str, why: str, undelivered: Sequence[Message]) -> None:
        count = len(undelivered)
        were = "was" if count == 1 else "were"
        super().__init__(
            f"{counted(count, 'message', ',')} {were} not delivered to {name}: {why}",
            hint="send `undelivered` again, in order",
        )
        self.undelivered = list(undelivered)


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
