"""What to do when the cluster refuses something in a transaction, and why a log waits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aolog.errors import counted
from bridge.deliver.status import LANES_MAX, WaitingLane
from bridge.kafka.client import lacking
from bridge.kafka.error_table import advice, names_records
from bridge.kafka.lane import NO_PARTITION, Refusal

if TYPE_CHECKING:
    from bridge.deliver.exactly_once.engine import Transactions
    from bridge.deliver.exactly_once.partitions import Partitions
    from bridge.deliver.verdicts import Judge
    from bridge.kafka.connection import Connection
    from bridge.kafka.events import Failed
    from bridge.kafka.outcomes import Broke

_log = logging.getLogger("bridge")


class Refusals:
    """Of one log. Not thread-safe. last: the latest refusal. waits: why the log waits, if no record is
    to blame."""

    def __init__(
        self,
        engine: Transactions,
        judge: Judge,
        connection: Connection,
        partitions: Partitions,
    ) -> None:
        self._engine = engine
        self._judge = judge
        self._connection = connection
        self._partitions = partitions
        self.last = Refusal("", "")
        self.waits: Refusal | None = None

    def suspect(self, event: Failed, now_s: float) -> None:
        """A record was refused. The topics' settings may tell which, or the cluster names it, or it is
        alone; otherwise smaller transactions find it."""
        engine = self._engine
        if engine.alone:
            self._connection.refused_alone(event, engine.open_s(now_s))
        if self._connection.learn(self._partitions.topics):
            _log.info("the transaction is aborted: %s", event.reason)
            engine.again(event.reason)
        elif named := event.named or engine.alone:
            count = counted(len(named), "record", ",")
            _log.info("the transaction is aborted: %s; %s will not be sent", event.reason, count)
            self._judge.refuse(named, self.last)
            engine.again(event.reason, named=True)
        else:
            what = "resending smaller ones to find the record"
            _log.info("the transaction is aborted: %s; %s", event.reason, what)
            engine.suspect(event.reason, now_s=now_s, names=names_records(event.code))

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
        if reason is None or self._engine.outstanding:
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
