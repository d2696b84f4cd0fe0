"""What to do when the cluster refuses something in a transaction, and why a log waits."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aolog.errors import counted
from bridge.deliver.exactly_once.partitions import Partitions
from bridge.deliver.status import LANES_MAX, WaitingLane
from bridge.deliver.verdicts import Judge
from bridge.kafka.client import lacking
from bridge.kafka.connection import Connection
from bridge.kafka.error_table import advice
from bridge.kafka.events import Broke, Failed
from bridge.kafka.lane import NO_PARTITION, Refusal

_log = logging.getLogger("bridge")


class Refusals:
    """Of one log. last: the latest refusal. waits: why the log waits, if no record is to blame."""

    def __init__(self, judge: Judge, connection: Connection, partitions: Partitions) -> None:
        self._judge = judge
        self._connection = connection
        self._partitions = partitions
        self.last = Refusal("", "")
        self.waits: Refusal | None = None

    def blame(self, event: Failed, alone: Sequence[int], open_s: float) -> Sequence[int] | None:
        """A record was refused. alone: the address of the transaction's only record, if it has one. open_s:
        how long ago its first record was sent. Returns which records are to blame: those that the cluster
        named, or the one that was alone; none if their topics' settings tell that; None if it is not known."""
        if alone:
            self._connection.refused_alone(event, open_s)
        if self._connection.learn(self._partitions.topics):
            _log.info("the transaction is aborted: %s", event.reason)
            return ()
        if named := event.named or alone:
            count = counted(len(named), "record", ",")
            _log.info("the transaction is aborted: %s; %s will not be sent", event.reason, count)
            self._judge.refuse(named, self.last)
            return named
        what = "resending smaller ones to find the record"
        _log.info("the transaction is aborted: %s; %s", event.reason, what)
        return None

    def wait_for(self, refusal: Refusal, address: int) -> str:
        """The log waits at this address until somebody acts; logs that once. The reason, in words."""
        reason = f"waits at address {address}: {refusal.reason}: {advice(refusal.code)}"
        if refusal != self.waits:
            _log.warning("%s", reason, extra={"event": "log_waits", "code": refusal.code})
        self.waits = refusal
        return reason

    @property
    def reason(self) -> str | None:
        """Why the log waits, and what to do; None if it does not."""
        return None if self.waits is None else f"{self.waits.reason}: {advice(self.waits.code)}"

    def waiting_lanes(self, reason: str | None) -> tuple[WaitingLane, ...]:
        """The topics whose records wait, for this reason; none without a reason. All lanes of the log wait
        together, so each topic is listed once, without partitions."""
        if reason is None:
            return ()
        state = "waits" if self.waits is None else "blocked"
        why = self.waits or Refusal(reason, "")
        topics = sorted(self._partitions.topics)[:LANES_MAX] or [""]
        return tuple(
            WaitingLane(
                topic=topic, partition=NO_PARTITION, state=state, reason=reason,
                cause=why.reason, code=why.code,
            )
            for topic in topics
        )  # fmt: skip  # one value

    def missing_right(self, event: Broke) -> str:
        """The log waits for a right to a topic. Kafka's error does not name the topic, so the cluster
        is asked for the rights to each. The reason, in words."""
        topics = self._partitions.topics
        without = self._connection.topic_settings.without_write(topics)
        reason = "; ".join(lacking("Write", topic, "grant it") for topic in without)
        if not reason:
            reason = f"{event.reason} (of {', '.join(topics)}): {advice(event.code)}"
        self.waits = self.last = Refusal(reason, event.code)
        return reason
