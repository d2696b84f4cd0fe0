"""Why a delivery does not go on. In log lines: a TroubleLog for the connection, a StallWatch for lanes; both
deliveries have one of each. As an error, once it ends before a record: `undeliverable`.
`bridge.kafka.stalls` defines a stall.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from bridge.errors import Undeliverable
from bridge.kafka.connection import Connection
from bridge.kafka.error_table import advice
from bridge.kafka.lane import NO_PARTITION, LaneKey, Refusal
from bridge.kafka.stalls import ASK_WHY_S, Stall, Stalls, in_words

_log = logging.getLogger("bridge")
SET_ASIDE = "start with --poison dead-letter"  # what the operator can do about poison
_AGAIN_S = 60.0
_VARYING = re.compile(r" \(after [^()]*\)|\d+")  # the client's times, and counts of records


def late(stalled: Sequence[Stall]) -> str | None:
    """Which lanes do not acknowledge, in words; None if no lane is stalled."""
    return f"no acknowledgement from {in_words(stalled)}" if stalled else None


class TroubleLog:
    """One line for each cause, repeated each minute while it lasts, and one when it is over. For one thread."""

    def __init__(self) -> None:
        self._logged_s: dict[str, float] = {}

    def say(self, reason: str, now_s: float, *, what: str = "connecting anew") -> None:
        """Logs the reason, unless it was logged within the last minute with other numbers in it."""
        cause = _VARYING.sub("", reason)
        if now_s - self._logged_s.get(cause, float("-inf")) < _AGAIN_S:
            return
        self._logged_s = {c: s for c, s in self._logged_s.items() if now_s - s < _AGAIN_S}
        self._logged_s[cause] = now_s
        _log.warning("%s: %s", what, reason, extra={"event": "delivery_waits"})

    def over(self) -> None:
        """The delivery goes on. Logs that, if a reason was logged since the last call."""
        if self._logged_s:
            self._logged_s.clear()
            _log.info("connected again", extra={"event": "delivery_goes_on"})


class StallWatch:
    """Logs stalled lanes, and explains a stall by too few replicas in sync. low: see Stalls.see. too_few: which
    partition of a stalled topic has too few of them, in words; None if there is none. For one thread."""

    def __init__(self, connection: Connection, low: Callable[[LaneKey], int | None]) -> None:
        self._connection = connection
        self._low = low
        self.stalls = Stalls()
        self.too_few: str | None = None

    def look(self, now_s: float) -> bool:
        """Logs stalls when they begin, while they last, and when they end. Whether to ask the cluster
        for the cause: it is reachable, and something is stalled for ASK_WHY_S. It may be the transaction
        alone: with a topic deleted, the client waits for its partitions and has sent nothing to them."""
        begun, over = self.stalls.see(self._connection.sent, self._low, now_s)
        if begun:
            _log.warning("%s", late(begun), extra={"event": "stalled"})
        if over:
            _log.info("acknowledges again: %s", in_words(over), extra={"event": "stall_over"})
        asking = [stall for stall in self.stalls.now(now_s) if stall["seconds"] >= ASK_WHY_S]
        topics = {stall["topic"] for stall in asking if stall["partition"] != NO_PARTITION}
        if not topics:
            self.too_few = None
        elif self._connection.reachable:
            self.too_few = self._connection.topic_settings.too_few_in_sync(topics, now_s)
        return bool(asking) and self._connection.reachable


def undeliverable(
    path: str, refusal: Refusal, address: int, *, instead: str = SET_ASIDE, **details: object
) -> Undeliverable:
    """Of a delivery that waits before a record. instead: what else the operator can do about poison."""
    first = advice(refusal.code)
    return Undeliverable(
        f"the record at address {address} cannot be delivered: {refusal.reason}",
        hint=f"{first}; or {instead}" if refusal.is_poison else first,
        path=path,
        address=address,
        refusal=refusal.code,
        **details,
    )
