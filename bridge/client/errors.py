"""What can go wrong with a client. Codes and exit statuses as in `aolog.errors`.

A wrong configuration has a class for each kind of mistake. Where one configuration has mistakes of
several kinds, it is a `WrongConfiguration` with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from aolog.errors import CorruptionError, UsageError
from bridge.errors import DestinationError, WrongConfiguration


class BrokenJSON(WrongConfiguration):
    """A client's configuration is not JSON, even without its comments. Nothing was started."""

    code = "broken_json"


class WrongType(WrongConfiguration):
    """`Type` names another kind of configuration, or a value has the wrong type or is out of its
    range. Nothing was started."""

    code = "wrong_type"


class UnknownKey(WrongConfiguration):
    """A client's configuration has a key that neither this project nor librdkafka knows. Nothing was
    started."""

    code = "unknown_key"


class KeyRefused(WrongConfiguration):
    """A key of the Java client or of kafka-fast that has no counterpart here. The message says what
    to use. Nothing was started."""

    code = "key_refused"


class KeyGivenTwice(WrongConfiguration):
    """Two keys are spellings of one setting. Nothing was started. Keep one of them."""

    code = "key_given_twice"


class MissingTopic(WrongConfiguration):
    """No topic is named, or no topic may have this name. Nothing was sent or subscribed."""

    code = "missing_topic"


class NoDirectory(WrongConfiguration):
    """A path of the configuration is not a directory that can be used. Nothing was started."""

    code = "no_directory"


class ClientClosed(UsageError):
    """The client is closed. Make a new one."""

    code = "client_closed"


class SendFailed(DestinationError):
    """A message was not acknowledged (`details["topic"]`, `details["kafka_code"]`), or several at a
    close. After a timeout they may have arrived all the same."""

    code = "send_failed"


class ReceiveFailed(DestinationError):
    """Kafka reported an error that waiting does not solve (`details["kafka_code"]`). Records that
    were received before it have been returned."""

    code = "receive_failed"


class SignatureForged(CorruptionError):
    """A record's signature is not that of its key, value, topic and timestamp, or no key of the key
    file made it (`details`: topic, partition, offset). The record was not returned."""

    code = "signature_forged"


class SignatureMissing(CorruptionError):
    """A record has no signature, and the client is configured to verify them. The record was not
    returned."""

    code = "signature_missing"


def refuse(mistakes: Sequence[WrongConfiguration], path: str | None = None) -> None:
    """Raises one error for all mistakes, of their class if they share one. None: does nothing."""
    if mistakes:
        kinds = {type(each) for each in mistakes}
        kind = kinds.pop() if len(kinds) == 1 else WrongConfiguration
        raise kind([text for each in mistakes for text in each.problems], path=path)
