"""The client's log lines. Only there the client reports that another cluster answers, and that a broker
closes every connection at once."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from bridge.kafka.client import CLIENT_LOG, broker_of

if TYPE_CHECKING:
    from collections.abc import Callable

_OTHER_CLUSTER = "CLUSTERID"  # the line's facility (rdkafka_metadata.c)
_FAILURE = "FAIL"
# A listener that expects SASL or TLS closes a plain connection within milliseconds. A broker that
# closes an idle connection does so after minutes.
_CLOSED_AT_ONCE = re.compile(
    r".*: Disconnected: .*\(after (?:\d{1,2}ms in state UP|\d+ms in state APIVERSION_QUERY)\b.*"
)


class ListeningLog(logging.LoggerAdapter[logging.Logger]):
    """Passes on what the client logs. other_cluster: called if the servers lead to another cluster.
    closed: called with the broker that closed a new connection at once. Both are called in the
    thread that polls the client."""

    def __init__(self, other_cluster: Callable[[], None], closed: Callable[[str], None]) -> None:
        super().__init__(CLIENT_LOG)
        self._other_cluster = other_cluster
        self._closed = closed

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """Called by the client."""
        facility = args[0] if args else None
        if facility == _FAILURE and (broker := _closed_at_once(str(args[-1]))) is not None:
            self._closed(broker)
        if facility == _OTHER_CLUSTER and level >= logging.WARNING:  # below: the first cluster's id
            self._other_cluster()
        super().log(level, msg, *args, **more)


def _closed_at_once(line: str) -> str | None:
    """The broker, if the line reports that it closed a new connection at once:

    [thrd:...]: host:9092/bootstrap: Disconnected: connection closed by peer (after 1ms in state UP)
    """
    text = line.partition("]: ")[2]
    return broker_of(text) if _CLOSED_AT_ONCE.fullmatch(text) else None
