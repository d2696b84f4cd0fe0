"""A transactional producer; what comes back from it are `outcomes`.

One of the modules that speak to a Kafka cluster as a client; see `producer`. It decides nothing:
`transactions` does. What may block (opening, committing, aborting) is done in a thread of its
own, one call at a time, and its outcome comes as an event; meanwhile nobody sends.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from bridge.errors import DestinationError, Fenced, NotIsolated
from bridge.kafka.client import (
    ANSWER_S,
    DEFAULTS,
    FIXED,
    NotReachable,
    ToldToStop,
    no_transactions,
)
from bridge.kafka.cursor_record import CursorName, CursorRecord, decode_cursor, encode_cursor
from bridge.kafka.cursor_topic import CursorTopic
from bridge.kafka.ends import Ends
from bridge.kafka.error_table import Kind, kind_of
from bridge.kafka.hanging_transactions import LeftOpen, end_again, place_of
from bridge.kafka.lane import NO_PARTITION, Refusal
from bridge.kafka.origin import decode_stamp
from bridge.kafka.outcomes import (
    Aborted,
    Broke,
    Committed,
    Found,
    Impossible,
    Looked,
    Proven,
    TransactionEvent,
    Unanswered,
)
from bridge.kafka.producer import Cluster, Failed, Put, with_names
from bridge.kafka.stalls import Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from confluent_kafka import Message

    from aolog.format.native.speed import Rows
    from bridge.kafka.identity import Identity
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Callback
    from bridge.kafka.topic_creation import CreateTopics

__all__ = ["TransactionalCluster"]

_log = logging.getLogger("bridge")
CALL_S = 1.0  # how long one call waits for the cluster: how late a stop may be noticed
_FIRST_CALL_S = 0.1  # a commit mostly takes some 20 to 50 ms
_INIT_S = 10.0  # ending a predecessor's transaction takes milliseconds where the cluster is well
# Between fencing its predecessor and its first cursor record a bridge needs some round trips.
_TAKE_OVER_S = 5.0
_LOOK_PAUSE_S = 0.25
_RETRY, _RETRY_MAX = "retry.backoff.ms", "retry.backoff.max.ms"
_RETRY_MS = 250  # what takes longer is counted: see Ends
# Where its coordinator gives no answer no lane is at fault. A name that no topic can have.
_TRANSACTION = ("the transaction", NO_PARTITION)
_GAPLESS = "enable.gapless.guarantee"  # a gap is aborted with its transaction, and no end

# The library's public names begin with an underscore.
_STATE = KafkaError._STATE  # noqa: SLF001


class TransactionalCluster(Cluster):
    """A Cluster whose producer is transactional, for one log and cursor.

    One thread uses it, and sends nothing between a call of `open`, `look`, `prove`, `commit` or
    `abort` and the event that it ends with. give_up: asked now and then, in another thread too.
    retry_ms: the client's pause before it asks again; less its jitter, see Ends.
    """

    _statistics_ms = 500
    _heeds_others = False  # another knows nothing of the transaction, and ends it

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, str],
        name: CursorName,
        cursor_topic: str,
        give_up: Callable[[], bool],
        identity: Identity | None = None,
        *,
        create_topics: CreateTopics = "auto",
    ) -> None:
        super().__init__(bootstrap_servers, settings, identity, create_topics=create_topics)
        self.owner = os.urandom(8).hex()
        self._name = name
        self._leaving = False
        self._asked_to_give_up = give_up
        self._topic = CursorTopic(
            cursor_topic,
            self._settings,
            self._give_up,
            self._identity,
            creates=create_topics != "never",
        )
        self._left = LeftOpen(self._settings, self._give_up)
        self._worker: Thread | None = None
        # None: the call was given up, since the bridge is to stop.
        self._outcomes: queue.SimpleQueue[TransactionEvent | BaseException | None] = (
            queue.SimpleQueue()
        )
        self._failures: deque[TransactionEvent] = deque()
        self._begun = False
        self._is_owner = False
        self._fenced = False
        times = {_RETRY: _RETRY_MS, _RETRY_MAX: DEFAULTS[_RETRY_MAX], **self._settings}
        self.retry_ms = min(int(times[name]) for name in (_RETRY, _RETRY_MAX))
        self._ends = Ends(self.retry_ms / 1_000)
        self._coordinator: dict[str, Any] | None = None
        self._unanswered = False  # the last call
        self._answers = 0

    # --- calls that end with an event -----------------------------------------------------------

    def open(self, known: int) -> None:
        """A new producer; ends what a predecessor has open. known: what lies before this address
        is committed for certain. Ends with Found, Broke, Impossible."""
        self.disconnect()
        self._leaving = False
        self._make(
            {
                **{k: v for k, v in FIXED.items() if k != _GAPLESS},
                "batch.size": self._batch_bytes,
                "transactional.id": self._name.transactional_id,
                _RETRY: self.retry_ms,
            }
        )
        self._ends = Ends(self.retry_ms / 1_000)
        self._start(partial(self._open, known))

    def look(self, lanes: Collection[LaneKey], address: int) -> None:
        """Ends what the cluster left open there of ours, from the address on (see hanging_transactions),
        while no transaction is begun. Ends with Looked, Broke, Impossible."""
        self._start(partial(self._look, lanes, address))

    def prove(self, record: CursorRecord) -> None:
        """Aborts one record, commits a cursor record, and looks which of them is seen. Ends with
        Proven, Broke, Impossible."""
        self._start(partial(self._prove, record))

    def commit(self, record: CursorRecord, *, again: bool) -> None:
        """Commits what was sent, and the cursor record with it. Ends with Committed, Unanswered,
        Failed, Broke, Impossible."""
        self._start(partial(self._commit, record, again=again))

    def abort(self) -> None:
        """Ends with Aborted, Unanswered, Broke, Impossible."""
        self._failures.clear()
        self._start(self._abort)

    def disconnect(self) -> None:
        """As Cluster.disconnect. A call that is under way is given a moment, and then left."""
        if self._worker is not None:  # only at the end: each call is waited for otherwise
            self._leaving = True
            self._worker.join(CALL_S * 2)
            self._worker = None
            self._outcomes = queue.SimpleQueue()
        self._begun = False
        self._failures.clear()
        super().disconnect()

    # --- sending --------------------------------------------------------------------------------

    def put(self, messages: Rows) -> Put:
        """As Cluster.put, in the transaction, which begins with its first record; or until it is
        spoiled."""
        assert self._producer is not None
        error: KafkaError | None
        try:
            if not self._begun:
                self._producer.begin_transaction()
                self._begun = True
            sent, error = self._queue(messages)
        except KafkaException as failure:
            sent, error = 0, failure.args[0]
        if error is None:
            return Put(sent, None)
        if kind_of(error.name()) is Kind.POISON:
            return Put(sent, Refusal(error.str(), error.name()))
        if error.code() == _STATE:  # a commit tells why
            return Put(sent, None, spoiled=True)
        self._fail(error, None)
        return Put(sent, None)

    def failing(self, address: int) -> Callback:
        """For a record that is suspected, or its neighbours are: its failure tells the reason. A
        report a record costs more than the record (it takes the interpreter's lock in the midst of
        a commit), so none is asked for where nothing is suspected."""
        return partial(self._on_failure, self._generation, address)

    @property
    def unacknowledged(self) -> int:
        """How many records the client holds: queued, or sent without an answer."""
        return 0 if self._producer is None else len(self._producer)

    @property
    def calling(self) -> bool:
        """Whether a call is under way."""
        return self._worker is not None

    def happened(self, timeout_s: float) -> Iterator[TransactionEvent]:
        """Serves the client, or waits for a call, for a while; what happened."""
        if self._worker is None:
            self.serve(timeout_s)
            failures, self._failures = with_names(self._failures), deque()
            yield from failures
            return
        try:
            outcome = self._outcomes.get(timeout_s > 0, timeout_s)
        except queue.Empty:
            return
        self._worker.join()
        self._worker = None
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is None:
            return
        self._unanswered = isinstance(outcome, Unanswered | Broke)
        yield self._with_its_reason(outcome)

    def _with_its_reason(self, outcome: TransactionEvent) -> TransactionEvent:
        """What was told during the call counts, if it says more than the call."""
        told = with_names(self._failures)
        impossible = [event for event in told if isinstance(event, Impossible)]
        if impossible:
            return impossible[0]
        if isinstance(outcome, Unanswered):  # for good, where it is not let in
            return next((event for event in told if isinstance(event, Broke)), outcome)
        self._failures.clear()
        reports = [event for event in told if isinstance(event, Failed)]
        if isinstance(outcome, Failed) and reports:
            return next((report for report in reports if report.suspect), reports[0])
        return outcome

    # --- in the thread of a call ------------------------------------------------------------------

    def _start(self, call: Callable[[], TransactionEvent]) -> None:
        assert self._worker is None
        self._worker = Thread(target=self._run, args=(call,), name="aolog-bridge-call", daemon=True)
        self._worker.start()

    def _run(self, call: Callable[[], TransactionEvent]) -> None:
        outcomes = self._outcomes
        outcome: TransactionEvent | BaseException | None
        try:
            outcome = call()
        except ToldToStop:
            outcome = None
        except NotReachable as error:
            outcome = Broke(str(error) if self._leaving else self.unanswered(error))
        except DestinationError as error:
            outcome = Impossible(error)
        except BaseException as error:  # noqa: BLE001 -- raised in the caller's thread
            outcome = error
        outcomes.put(outcome)

    def _open(self, known: int) -> TransactionEvent:
        assert self._producer is not None
        self._topic.require()
        self._look_for(self._topic.name)  # so that the coordinator is found at once
        if self._is_owner:
            self._look_who_owns()
        until_s = time.monotonic() + _INIT_S
        while True:
            try:
                self._producer.init_transactions(CALL_S)
                break
            except KafkaException as error:
                late = time.monotonic() > until_s
                if late or not isinstance(self._told(error.args[0]), Unanswered):
                    return self._broke(error)
                if self._give_up():
                    raise ToldToStop from None
        self.reachable = True
        self._fenced = False
        return self._mend_cursor(known) or Found(self._topic.last(self._name.key))

    def _mend_cursor(self, known: int) -> TransactionEvent | None:
        """Ends what is open of ours in the cursor topic; what follows if something was."""
        name, place = self._name, (self._topic.name, 0)
        left = self._left.find([place], lambda message: message.key() in name.keys)
        said = [_address(message) for message in left if message.key() == name.key]
        return self._end(left, commit=any(0 <= address <= known for address in said))

    def _look(self, lanes: Collection[LaneKey], address: int) -> TransactionEvent:
        def own(message: Message) -> int | None:
            stamp = decode_stamp(message.headers())
            ours = stamp is not None and stamp.topic_uuid == self._name.topic_uuid
            return stamp.address if stamp is not None and ours else None

        left = []
        for message in self._left.find(lanes, lambda message: own(message) is not None):
            if (own(message) or 0) >= address:
                left.append(message)
            else:
                _log.warning("%s: committed, and seen with the next commit", place_of(message))
        return self._end(left, commit=False) or Looked(lanes)

    def _end(self, left: list[Message], *, commit: bool) -> TransactionEvent | None:
        """Ends what was left open. Then this producer is not used on either, and the next one
        looks whether it is."""
        assert self._producer is not None
        if not left:
            return None
        try:
            end_again(self._producer, left, commit=commit)
        except KafkaException as error:
            return self._broke(error)
        return Broke("what the cluster left open is ended")

    def _look_who_owns(self) -> None:
        """Before it is fenced: a bridge that has taken over stays, and is given the time to say
        that it has. Where nobody says so the cluster gave a transaction up for its age, which
        looks the same. Raises Fenced."""
        until_s = time.monotonic() + (_TAKE_OVER_S if self._fenced else 0.0)
        while True:
            record = self._topic.last(
                self._name.key, open_keys=self._name.keys
            )  # open yet, or left open
            if record is not None and record.owner != self.owner:
                raise Fenced(
                    "another bridge has taken over the delivery of this log",
                    hint="run one bridge a log; a copied log needs `aolog repair --new-uuid`",
                )
            if time.monotonic() > until_s or self._give_up():
                return
            time.sleep(_LOOK_PAUSE_S)

    def _prove(self, record: CursorRecord) -> TransactionEvent:
        producer, topic = self._producer, self._topic
        assert producer is not None
        begin = topic.end()
        failed: list[KafkaError | None] = []
        try:
            producer.begin_transaction()
            producer.produce(
                topic.name, self.owner.encode(), self._name.proof_key, 0,
                lambda error, _: failed.append(error),
            )  # fmt: skip  # one call
            if producer.flush(ANSWER_S):  # a purged record would prove nothing
                return Broke("no answer to the first record")
            if failed[0] is not None:  # the transaction is not to be committed, which says why
                producer.commit_transaction(ANSWER_S)
            with self._asking():
                producer.abort_transaction(ANSWER_S)
            producer.begin_transaction()
            producer.produce(topic.name, encode_cursor(record), self._name.key, 0)
            producer.flush(ANSWER_S)
            with self._asking():
                producer.commit_transaction(ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return Broke(topic.lacks("Write"))
            return self._broke(error)
        seen = list(topic.committed(begin, topic.end()))
        if (self._name.proof_key, self.owner.encode()) in seen:
            raise NotIsolated(
                "the cluster shows a read_committed consumer a record that was aborted",
                hint="use --delivery at_least_once, or a cluster that isolates transactions",
            )
        if (self._name.key, encode_cursor(record)) not in seen:
            return Broke("the first transaction was committed and is not seen")
        self._is_owner = True
        return Proven(twice=not self._asked_once())

    def _commit(self, record: CursorRecord, *, again: bool) -> TransactionEvent:
        assert self._producer is not None
        spoiled = False
        try:
            if not again:
                spoiled = not self._put_cursor(encode_cursor(record))
                self._flush()
                self._ends.asked(time.monotonic())
            self._ask_for_commit()
        except KafkaException as error:
            return self._told(error.args[0])
        if spoiled:  # cannot be: a commit of what is spoiled tells by what
            return Broke("a transaction was committed without its cursor record")
        self._begun = False
        return Committed(twice=not self._asked_once())

    def _flush(self) -> None:
        """Waits for what is under way for as long as that gets less: where a record failed others
        are not sent any more."""
        assert self._producer is not None
        before = len(self._producer) + 1
        while 0 < (left := self._producer.flush(_FIRST_CALL_S)) < before:
            before = left

    def _ask_for_commit(self) -> None:
        """Where a record failed the client waits for others until the call's time is over; and
        tells of the failure when it is asked again. So the first call is short. Raises
        KafkaException."""
        assert self._producer is not None
        try:
            self._producer.commit_transaction(_FIRST_CALL_S)
        except KafkaException as error:
            if not isinstance(self._told(error.args[0]), Unanswered):
                raise
            self._producer.commit_transaction(CALL_S)
        self._ends.answered(time.monotonic())

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """While an end is asked for, which is answered unless that raises."""
        self._ends.asked(time.monotonic())
        yield
        self._ends.answered(time.monotonic())

    def _asked_once(self) -> bool:
        """Whether none of the ends that were answered can have been asked for twice. False where
        that is not told in time."""
        if self._ends.sure:
            return True
        self.serve()  # what was counted before
        counts, until_s = self._ends.counts, time.monotonic() + 3 * self._statistics_ms / 1_000
        while self._ends.counts == counts:
            if self._leaving or time.monotonic() > until_s:
                return False
            self.serve(_FIRST_CALL_S)
        return self._ends.once()

    def _put_cursor(self, value: bytes) -> bool:
        """Last in its transaction: an open one hides what other bridges write behind it. False
        where the transaction is spoiled already."""
        assert self._producer is not None
        while True:
            try:
                self._producer.produce(self._topic.name, value, self._name.key, 0)
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                if error.args[0].code() != _STATE:
                    raise
                return False
            else:
                return True
            if self._leaving:
                raise ToldToStop

    def _abort(self) -> TransactionEvent:
        assert self._producer is not None
        if self._begun:
            try:
                self._producer.abort_transaction(CALL_S)
            except KafkaException as error:
                told = self._told(error.args[0])
                return Broke(told.reason) if isinstance(told, Failed) else told
        self._begun = False
        return Aborted()

    def _give_up(self) -> bool:
        return self._leaving or self._asked_to_give_up()

    # --- what an error means ------------------------------------------------------------------

    def _on_failure(
        self, generation: int, address: int, error: KafkaError | None, message: Any
    ) -> None:
        if (
            error is not None
            and generation == self._generation
            and kind_of(error.name()) is not Kind.CONSEQUENCE
        ):
            self._fail(error, (message.topic(), message.partition()), address)

    def _on_brokers(self, brokers: Collection[dict[str, Any]]) -> None:
        super()._on_brokers(brokers)
        self._ends.told(brokers)
        self._coordinator = next((b for b in brokers if b["source"] == "logical"), None)

    def _sent_to(self, told: dict[str, Any]) -> dict[LaneKey, Sent]:
        """What no leader was sent waits for the coordinator, while that gives no answer; so does a
        call without messages."""
        sent, of = super()._sent_to(told), self._coordinator
        silent = of is None or of["state"] != "UP" or of["waitresp_cnt"] > 0
        waiting = [lane.asked for lane in sent.values() if lane.waiting]
        calls = not waiting and (self.calling or self._unanswered)
        waits = calls or (silent and not all(waiting))
        self._answers += not waits
        if silent:
            sent = {k: lane if lane.asked else lane._replace(waiting=0) for k, lane in sent.items()}
        leader = "no coordinator" if of is None else f"{of['nodename']}, its coordinator"
        return {**sent, _TRANSACTION: Sent(int(waits), self._answers, leader)}

    def _fail(self, error: KafkaError, lane: LaneKey | None, address: int | None = None) -> None:
        told = self._told(error)
        if isinstance(told, Unanswered):
            told = Failed(told.reason, False)
        if isinstance(told, Failed):
            told = told._replace(lane=lane, address=address)
        self._failures.append(told)

    def _broke(self, error: KafkaException) -> Broke | Impossible:
        """Of a call behind which the producer is of no use, whatever the error."""
        told = self._told(error.args[0])
        return told if isinstance(told, Impossible | Broke) else Broke(_reason(error.args[0]))

    def _told(self, error: KafkaError) -> Unanswered | Failed | Broke | Impossible:
        kind, reason = kind_of(error.name()), _reason(error)
        self._fenced = self._fenced or kind is Kind.FENCED
        if kind is Kind.LOCKED_OUT:
            reason = self._words(error)
            if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                reason = f"{reason} ({self._name.transactional_id})"
            self.forbidden = reason
        if kind in {Kind.LOCKED_OUT, Kind.TOPIC_FORBIDDEN}:
            return Broke(reason, error.name())
        if kind in {Kind.NO_TRANSACTIONS, Kind.TRANSACTION_SETTING}:
            return Impossible(no_transactions(error))
        if kind in {Kind.POISON, Kind.NEIGHBOUR}:
            return Failed(reason, True, error.name())
        if error.fatal() or kind is Kind.FENCED:
            return Broke(reason)
        if error.txn_requires_abort() or error.code() == _STATE:
            return Failed(reason, False)
        if error.retriable() or kind is Kind.UNANSWERED:
            return Unanswered(reason)
        return Failed(reason, False)


def _address(message: Message) -> int:
    """Of a cursor record; -1 where it says none."""
    try:
        return decode_cursor(message.value() or b"").address
    except ValueError:
        return -1


def _reason(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"
