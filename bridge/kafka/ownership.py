"""Which process delivers a log: the one that the cursor record names. It takes the log over from its
predecessor, and proves that the cluster isolates transactions before it sends anything.

Everything here runs in the thread of a transactional producer's calls.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Producer

from bridge.errors import Fenced, NotIsolated
from bridge.kafka.client import ANSWER_S, ToldToStop
from bridge.kafka.cursor_record import CursorName, CursorRecord, encode_cursor
from bridge.kafka.cursor_topic import CursorTopic
from bridge.kafka.events import Broke, Pending, outcome_of

_CALL_S = 1.0  # how late a stop may be noticed
_INIT_S = 10.0  # a healthy cluster ends a predecessor's transaction within milliseconds
_LOOK_PAUSE_S = 0.25
_SURE = 0.75  # of the client's pause before it asks again


class Ends:
    """Whether the client may have requested the end of a transaction twice: it sends a request that is not answered
    again, with the same epoch, and does not report it. The cluster may carry out the first one late, and would
    end the next transaction with it. But the client waits for `retry.backoff.ms` (or `retry.backoff.max.ms`, if
    that is less), minus a jitter of a fifth, before it asks again. So an end that was answered sooner was
    requested once. Of one producer. Times are seconds of any clock that only grows. retry_s: that pause."""

    def __init__(self, retry_s: float) -> None:
        self.twice = False  # one of the ends may have been requested twice
        self._sure_s = _SURE * retry_s
        self._since_s = 0.0

    def requested(self, now_s: float) -> None:
        """An end is requested now."""
        self._since_s = now_s

    def answered(self, now_s: float) -> None:
        """The cluster has answered it."""
        self.twice = self.twice or now_s - self._since_s >= self._sure_s


@dataclass(eq=False)
class Ownership:
    """Of one log and cursor."""

    topic: CursorTopic
    name: CursorName
    give_up: Callable[[], bool]  # asked now and then
    take_over_s: float  # at most, from fencing a predecessor to the first cursor record
    # This process, in cursor records.
    owner: str = field(default_factory=lambda: os.urandom(8).hex())
    fenced: bool = False  # of the last producer; a cluster that gave up its transaction does so
    _proven: bool = False

    def take_over(self, producer: Producer) -> None:
        """Fences the predecessor, aborts what it left open. Raises Fenced, KafkaException, Unanswered."""
        if self._proven:
            self._check()
        until_s = time.monotonic() + _INIT_S
        while True:
            try:
                producer.init_transactions(_CALL_S)
                break
            except KafkaException as error:
                unanswered = isinstance(outcome_of(error.args[0]), Pending)
                if not unanswered or time.monotonic() > until_s:
                    raise
                if self.give_up():
                    raise ToldToStop from None
        self.fenced = False

    def _check(self) -> None:
        """Raises Fenced if another bridge has taken over: it must not be fenced in turn. Once fenced, waits for the
        other one's first cursor record; without one, the cluster gave up a transaction for its age."""
        until_s = time.monotonic() + (self.take_over_s if self.fenced else 0.0)
        while True:
            record = self.topic.last(self.name.key, open_keys=self.name.keys)
            if record is not None and record.owner != self.owner:
                raise Fenced(
                    "another bridge has taken over the delivery of this log",
                    hint="run one bridge a log; a copied log needs `aolog repair --new-uuid`",
                )
            if time.monotonic() > until_s or self.give_up():
                return
            time.sleep(_LOOK_PAUSE_S)

    def prove(self, producer: Producer, record: CursorRecord, ends: Ends) -> Broke | None:
        """Aborts one record, commits a cursor record, and reads back which is visible. Broke: the producer cannot be
        used; None: the cluster isolates transactions. Raises KafkaException, NotIsolated, Unanswered."""
        topic, name = self.topic, self.name
        _, begin = topic.ends()
        failed: list[KafkaError | None] = []
        try:
            producer.begin_transaction()
            producer.produce(
                topic.name, self.owner.encode(), name.proof_key, 0,
                lambda error, _: failed.append(error),
            )  # fmt: skip  # one call
            if producer.flush(ANSWER_S):  # a purged record would prove nothing
                return Broke("no answer to the first record")
            if failed[0] is not None:
                producer.commit_transaction(ANSWER_S)  # raises the reason
            ends.requested(time.monotonic())
            producer.abort_transaction(ANSWER_S)
            ends.answered(time.monotonic())
            producer.begin_transaction()
            producer.produce(topic.name, encode_cursor(record), name.key, 0)
            producer.flush(ANSWER_S)
            ends.requested(time.monotonic())
            producer.commit_transaction(ANSWER_S)
            ends.answered(time.monotonic())
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return Broke(topic.lacks("Write"))
            raise
        visible = list(topic.committed(begin, topic.ends()[1]))
        if (name.proof_key, self.owner.encode()) in visible:
            raise NotIsolated(
                "the cluster shows a read_committed consumer a record that was aborted",
                hint="use --delivery at_least_once, or a cluster that isolates transactions",
            )
        if (name.key, encode_cursor(record)) not in visible:
            return Broke("the first transaction was committed and is not visible")
        self._proven = True
        return None
