"""A transactional producer for one log and cursor. Here a transaction is committed.

It decides nothing: `bridge.deliver.exactly_once.engine` does. Calls that may block (open, look,
prove, commit) run in a thread of their own, one at a time, and each ends with an event of `events`.
Nothing is sent meanwhile.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from bridge.errors import DestinationError, Unanswered
from bridge.kafka.client import DEFAULTS, FIXED, ToldToStop
from bridge.kafka.connection import Connection, Listener, Terms
from bridge.kafka.cursor_record import CursorName, CursorRecord, encode_cursor
from bridge.kafka.cursor_topic import CursorTopic
from bridge.kafka.error_table import Kind, kind_of
from bridge.kafka.events import (
    INVALID_STATE,
    Broke,
    Committed,
    Failed,
    Found,
    Impossible,
    Looked,
    Pending,
    Proven,
    Put,
    TransactionEvent,
    outcome_of,
    with_names,
)
from bridge.kafka.hanging_transactions import HangingTransactions
from bridge.kafka.lane import NO_PARTITION, LaneKey
from bridge.kafka.messages import Callback, MessageRows
from bridge.kafka.ownership import Ends, Ownership
from bridge.kafka.producer import NAME_POLL_S
from bridge.kafka.stalls import Sent

_CALL_S = 1.0  # how long one call waits for the cluster: how late a stop may be noticed
_FIRST_CALL_S = 0.1  # most commits take 20 to 50 ms
_RETRY, _RETRY_MAX = "retry.backoff.ms", "retry.backoff.max.ms"
# The longer the client waits before it asks again, the more ends were certainly requested once: see Ends.
_RETRY_MS = 1_000
# Stalls of the coordinator are no lane's. No topic can have this name.
_TRANSACTION = ("the transaction", NO_PARTITION)
_GAPLESS = "enable.gapless.guarantee"  # here a gap only ends its transaction
_ENDED = "a transaction that the cluster left open is ended"


class TransactionalProducer:
    """On one connection after the other. One thread uses it, and sends nothing between a call of `open`,
    `look`, `prove` or `commit` and the event that it ends with. give_up: asked now and then, also in another
    thread. owner: this process, in cursor records. retry_ms: how long the client waits before it asks again,
    see Ends."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, Any],
        name: CursorName,
        cursor_topic: str,
        give_up: Callable[[], bool],
        terms: Terms,
    ) -> None:
        # Another cluster does not know the transaction, and so ends it.
        listener = Listener(self._fail, self._fatal, sent=self._sent)
        self.connection = connection = Connection(bootstrap_servers, settings, listener, terms)
        self._name = name
        self._asked_to_give_up = give_up
        self._topic = CursorTopic(
            cursor_topic,
            connection.settings,
            self._give_up,
            connection.identity,
            creates=terms.create_topics != "never",
        )
        self._hanging = HangingTransactions(connection.settings, self._give_up, name)
        self._ownership = Ownership(self._topic, name, self._give_up, terms.take_over_s)
        self.owner = self._ownership.owner
        self._pool = ThreadPoolExecutor(1, "aolog-bridge-call")
        self._call: Future[TransactionEvent | None] | None = None
        self._number = 0  # of the connection; a call on an earlier one gives up
        self._calling_for = 0
        self._failures: deque[TransactionEvent] = deque()
        self._begun = False
        times = {_RETRY: _RETRY_MS, _RETRY_MAX: DEFAULTS[_RETRY_MAX], **connection.settings}
        self.retry_ms = min(int(times[name]) for name in (_RETRY, _RETRY_MAX))
        self._ends = Ends(self.retry_ms / 1_000)
        self._unanswered = False  # the last call
        self._answers = 0

    # --- calls that end with an event -----------------------------------------------------------

    def open(self, known: int) -> None:
        """Makes a new producer; aborts what a predecessor has open. known: everything before this
        address is certainly committed. Ends with Found, Broke, Impossible."""
        self.disconnect()
        self.connection.open(
            {
                **{k: v for k, v in FIXED.items() if k != _GAPLESS},
                "transactional.id": self._name.transactional_id,
                _RETRY: self.retry_ms,
            }
        )
        self._ends = Ends(self.retry_ms / 1_000)
        self._start(self._open, known)

    def look(self, lanes: Collection[LaneKey], address: int) -> None:
        """Ends what the cluster left open of this log in these partitions, from the address on, while
        no transaction is begun: see hanging_transactions. Ends with Looked, Broke, Impossible."""
        self._start(self._look, lanes, address)

    def prove(self, record: CursorRecord) -> None:
        """Aborts a record, commits a cursor record, reads back which shows. Ends with Proven, Broke, Impossible."""
        self._start(self._prove, record)

    def commit(self, record: CursorRecord, *, again: bool) -> None:
        """Commits what was sent, with the cursor record. again: it was not answered. Ends with
        Committed, Pending, Failed, Broke, Impossible."""
        self._start(partial(self._commit, again=again), record)

    def disconnect(self) -> None:
        """Drops the producer and what it has not delivered, which is still in the log. Aborts an open transaction if
        the cluster answers at once: consumers wait for its end. Waits a moment for a call, then abandons it."""
        self._number += 1
        call, self._call = self._call, None
        if call is not None:
            wait([call], _CALL_S * 2)
        elif self._begun and (client := self.connection.client) is not None:
            with contextlib.suppress(KafkaException):
                client.abort_transaction(_CALL_S)
        self._begun = False
        self._failures.clear()
        self.connection.close()

    def close(self) -> None:
        """Ends it; it cannot be opened again."""
        self.disconnect()
        self._pool.shutdown(wait=False)

    # --- sending --------------------------------------------------------------------------------

    def put(self, messages: MessageRows) -> Put:
        """As IdempotentProducer.put. A transaction begins with its first record."""
        connection, error = self.connection, None
        try:
            if not self._begun:
                connection.opened.begin_transaction()
                self._begun = True
        except KafkaException as failure:
            error = failure.args[0]
        if error is not None:
            return connection.not_queued(error, 0, later=INVALID_STATE)
        return connection.put(messages, later=INVALID_STATE)  # the commit reports that

    def failing(self, address: int, time_ms: int) -> Callback:
        """The callback, when a refused record is searched for, that reports why the record failed. Otherwise there is
        none: a report costs more than its record, as it takes the interpreter's lock in the middle of a commit."""
        return partial(self._on_failure, self.connection.generation, address, time_ms)

    @property
    def calling(self) -> bool:
        """Whether a call is under way."""
        return self._call is not None

    def happened(self, timeout_s: float) -> Iterator[TransactionEvent]:
        """Serves the client, or waits for a call, for so long; yields what happened."""
        if self._call is None:
            self.connection.serve(timeout_s)
            failures, self._failures = with_names(self._failures), deque()
            number = self._number
            for failure in failures:
                if number == self._number:  # one of them may have ended it
                    yield failure
            return
        if not wait([self._call], timeout_s).done:
            return
        call, self._call = self._call, None
        outcome = call.result()
        if outcome is not None:
            self._unanswered = isinstance(outcome, Pending | Broke)
            event = self._with_its_reason(outcome)
            if isinstance(outcome, Committed):
                self.connection.serve()  # what was reported before it, perhaps that no broker answers
                self.connection.acknowledged()
            yield event

    def _with_its_reason(self, outcome: TransactionEvent) -> TransactionEvent:
        """The failure that was reported during the call, if it says more than the call's outcome."""
        reported = with_names(self._failures)
        impossible = [event for event in reported if isinstance(event, Impossible)]
        if impossible:
            return impossible[0]
        if isinstance(outcome, Pending):  # no answer will come if the cluster refuses the bridge
            return next((event for event in reported if isinstance(event, Broke)), outcome)
        self._failures.clear()
        failures = [event for event in reported if isinstance(event, Failed)]
        if isinstance(outcome, Failed) and failures:
            return next((failure for failure in failures if failure.suspect), failures[0])
        return outcome

    # --- in the thread of a call ------------------------------------------------------------------

    def _start(self, call: Callable[..., TransactionEvent], *of: object) -> None:
        """The call gets this connection's producer, and the caller's context: it names the log."""
        assert self._call is None
        call = partial(call, self.connection.opened, *of)
        run = partial(self._run, self._number, call)
        self._call = self._pool.submit(contextvars.copy_context().run, run)

    def _run(self, number: int, call: Callable[[], TransactionEvent]) -> TransactionEvent | None:
        """None: the call gave up, as the bridge is to stop."""
        self._calling_for = number
        try:
            return call()
        except KafkaException as error:
            return self._broke(error)
        except ToldToStop:
            return None
        except Unanswered as error:
            reason = str(error)
        except DestinationError as error:
            return Impossible(error)
        return Broke(reason if self._abandoned else self.connection.unanswered(reason))

    @property
    def _abandoned(self) -> bool:
        return self._calling_for != self._number

    def _give_up(self) -> bool:
        return self._abandoned or self._asked_to_give_up()

    def _open(self, producer: Producer, known: int) -> TransactionEvent:
        self._topic.require()
        self.connection.look_for(self._topic.name)  # so the client finds its coordinator at once
        self._ownership.take_over(producer)
        self.connection.reachable = True
        if self._hanging.end_in_cursor_topic(producer, self._topic.name, known):
            return Broke(_ENDED)
        return Found(self._topic.last(self._name.key))

    def _look(self, producer: Producer, lanes: Collection[LaneKey], at: int) -> TransactionEvent:
        if self._hanging.end_in_lanes(producer, lanes, at):
            return Broke(_ENDED)
        return Looked(lanes)

    def _prove(self, producer: Producer, record: CursorRecord) -> TransactionEvent:
        failure = self._ownership.prove(producer, record, self._ends)
        return failure or Proven(self._ends.twice)

    def _commit(self, producer: Producer, record: CursorRecord, *, again: bool) -> TransactionEvent:
        spoiled = False
        try:
            if not again:
                spoiled = not self._put_cursor(producer, encode_cursor(record))
                _flush(producer)
                self._ends.requested(time.monotonic())
            self._request_commit(producer)
        except KafkaException as error:
            return self._outcome(error.args[0])
        if spoiled:  # impossible: the commit of a failed transaction raises its reason
            return Broke("a transaction was committed without its cursor record")
        self._begun = False
        return Committed(self._ends.twice)

    def _request_commit(self, producer: Producer) -> None:
        """If a record failed, the client waits for others until the call's time is over, and raises
        the failure when it is asked again. So the first call is short. Raises KafkaException."""
        answered = True
        try:
            producer.commit_transaction(_FIRST_CALL_S)
        except KafkaException as error:
            if not isinstance(self._outcome(error.args[0]), Pending):
                raise
            answered = False
        if not answered:
            producer.commit_transaction(_CALL_S)
        self._ends.answered(time.monotonic())

    def _put_cursor(self, producer: Producer, value: bytes) -> bool:
        """The last record: it hides what other bridges write after it. False: the transaction has failed."""
        while not self._abandoned:
            try:
                producer.produce(self._topic.name, value, self._name.key, 0)
            except BufferError:
                pass
            except KafkaException as error:
                if error.args[0].code() != INVALID_STATE:
                    raise
                return False
            else:
                return True
            producer.poll(0.05)
        raise ToldToStop

    # --- what an error means ------------------------------------------------------------------

    def _on_failure(
        self, generation: int, address: int, time_ms: int, error: KafkaError | None, message: Any
    ) -> None:
        if error is None or generation != self.connection.generation:
            return
        if kind_of(error.name()) is not Kind.CONSEQUENCE:  # its cause is reported by itself
            event = self._event_of(error)
            if isinstance(event, Failed):
                lane = (message.topic(), message.partition())
                event = event._replace(lane=lane, address=address, time_ms=time_ms)
            self._failures.append(event)

    def _sent(
        self, statistics: Mapping[str, Any], sent: dict[LaneKey, Sent]
    ) -> dict[LaneKey, Sent]:
        """Records that no leader was asked to store, or a call without any, wait for a silent coordinator."""
        brokers = statistics["brokers"].values()
        coordinator = next((b for b in brokers if b["source"] == "logical"), None)
        silent = (
            coordinator is None or coordinator["state"] != "UP" or coordinator["waitresp_cnt"] > 0
        )
        waiting = [lane.asked for lane in sent.values() if lane.waiting]
        calls = not waiting and (self.calling or self._unanswered)
        waits = calls or (silent and not all(waiting))
        self._answers += not waits
        if silent:
            sent = {k: lane if lane.asked else lane._replace(waiting=0) for k, lane in sent.items()}
        leader = "no coordinator"
        if coordinator is not None and coordinator["nodename"]:
            leader = f"{coordinator['nodename']}, its coordinator"
        return {**sent, _TRANSACTION: Sent(int(waits), self._answers, leader)}

    def _event_of(self, error: KafkaError) -> TransactionEvent:
        outcome = self._outcome(error)
        return Failed(outcome.reason) if isinstance(outcome, Pending) else outcome

    def _fail(self, error: KafkaError) -> None:
        self._failures.append(self._event_of(error))

    def _fatal(self, error: KafkaError) -> None:
        with contextlib.suppress(KafkaException):  # reports of the records that failed
            self.connection.opened.poll(NAME_POLL_S)
        self._fail(error)

    def _broke(self, error: KafkaException) -> Broke | Impossible:
        """Of a call after which the producer cannot be used, whatever the error."""
        outcome = self._outcome(error.args[0])
        return outcome if isinstance(outcome, Impossible | Broke) else Broke(outcome.reason)

    def _outcome(self, error: KafkaError) -> Pending | Failed | Broke | Impossible:
        """As outcome_of; notes that the cluster refuses or has fenced this producer."""
        kind, outcome = kind_of(error.name()), outcome_of(error)
        self._ownership.fenced = self._ownership.fenced or kind is Kind.FENCED
        if kind is not Kind.LOCKED_OUT:
            return outcome
        reason = self.connection.locked_out(error)
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            reason = self.connection.forbidden = f"{reason} ({self._name.transactional_id})"
        return Broke(reason, error.name())


def _flush(producer: Producer) -> None:
    """Waits while the records in flight get fewer: after one has failed, the client sends no more."""
    before = len(producer) + 1
    while 0 < (left := producer.flush(_FIRST_CALL_S)) < before:
        before = left
