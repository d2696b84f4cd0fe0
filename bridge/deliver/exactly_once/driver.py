"""Exactly once: the shell around `engine`. Records and the cursor record after them are
committed together, or not at all.

It owns the cluster and the batches that are read ahead. It reports events to the machine, and does what
its state asks. While a transaction is being committed, in the thread of
`bridge.kafka.transactional_producer`, the next one's records are read and prepared, so a commit costs
little more than its round trip.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from aolog.read.reader import view_of
from aolog.record import Position
from bridge.config.routing import Routing
from bridge.deliver.checkpoints import Checkpoints
from bridge.deliver.committer import Committer
from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.exactly_once.engine import State, Transactions
from bridge.deliver.exactly_once.partitions import Partitions
from bridge.deliver.exactly_once.refusals import Refusals
from bridge.deliver.exactly_once.sender import Prefetch, Sender
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.intake import Intake
from bridge.deliver.log_source import LogSource
from bridge.deliver.router import Router
from bridge.deliver.status import Status
from bridge.deliver.trouble import StallWatch, TroubleLog, late, undeliverable
from bridge.errors import DestinationError, WrongSetting
from bridge.kafka import events
from bridge.kafka.cursor_record import CursorName, CursorRecord
from bridge.kafka.error_table import UNKNOWN_TOPIC, Kind, kind_of, names_records
from bridge.kafka.lane import Refusal
from bridge.kafka.telemetry import TRANSACTIONS
from bridge.kafka.transactional_producer import TransactionalProducer

_log = logging.getLogger("bridge")
_TIMEOUT_MS = 60_000  # the client's default


class ExactlyOnce:
    """See the module. The same to the forwarder as AtLeastOnce; give_up is asked in another thread, too. Raises
    WrongSetting for a log of format 1."""

    def __init__(
        self,
        source: LogSource,
        checkpoints: Checkpoints,
        options: ForwarderOptions,
        *,
        routing: Routing,
        give_up: Callable[[], bool],
    ) -> None:
        self._uuid = uuid = _uuid_of(source)
        settings = options.client_settings()
        timeout_s = _timeout_s(options.transaction_seconds, settings)
        self._waits = options.waits
        self._source = source
        self._checkpoints = checkpoints
        _take_cursor(checkpoints)
        source.reader.commit()  # from now on the cursor protects unread records from pruning
        self.producer = TransactionalProducer(
            options.bootstrap_servers,
            settings,
            CursorName(uuid, source.cursor),
            options.cursor_topic,
            give_up,
            options.terms(checkpoints.cluster),
        )
        self.connection = self.producer.connection
        self._partitions = Partitions(self.connection, options.waits)
        self.engine = Transactions(
            source.position,
            now_s=time.monotonic(),
            records=options.transaction_records,
            seconds=options.transaction_seconds,
            timeout_s=timeout_s,
            bytes_max=options.in_flight_bytes // 2,
            stop_s=options.stop_s,
            in_doubt=not checkpoints.clean,
        )
        self.committer = Committer(source, lambda: self.engine.position, options)
        self.dead = DeadLetters(source, uuid, options.poison, checkpoints.aside_from)
        self._judge = self.dead.judge
        router = Router(routing, self.connection.admission, uuid)
        intake = Intake(source, router, self._judge, self._partitions.of, uuid=uuid)
        self._prefetch = Prefetch(
            intake, records=options.transaction_records, bytes_max=options.in_flight_bytes // 2
        )
        self._watch = StallWatch(self.connection, lambda _: self.engine.position.address)
        self._trouble = TroubleLog()
        self._draining = False
        self._refusals = Refusals(self._judge, self.connection, self._partitions)
        self._sender = Sender(self._prefetch, self.producer, self.dead, unsure=checkpoints.unsure)
        self._followed = self.engine.state
        self._connections = 0
        self._begun_s = time.monotonic()
        self._error: DestinationError | None = None

    # --- a round ------------------------------------------------------------------------------

    @property
    def unread(self) -> Position | None:
        """As AtLeastOnce; None before it is known. After a kill the cluster's cursor may be ahead of the local
        one; if the cluster does not answer in time, the local one counts."""
        asked = self.engine.in_doubt and not self._connections
        if asked and time.monotonic() < self._begun_s + self._waits.answer_s:
            return None
        return self._source.position

    def turn(self, now_s: float) -> None:
        """As AtLeastOnce."""
        engine = self.engine
        self.committer.go_on()
        self._follow()  # what a stop or a drain asked for, even if its time is over by now
        engine.tick(now_s)
        self._follow()
        if engine.over:
            return
        wait_s = idle_s = min(self._waits.idle_s, engine.seconds_to_tick(now_s))
        pause_s = self._source.rate_limit.wait_s(now_s)
        if pause_s > 0:
            wait_s = min(wait_s, pause_s)
        wants = self._prefetch.room and engine.is_open and pause_s == 0
        can_send = bool(self._prefetch.ready) and engine.room > 0 and not self.producer.calling
        if self._sender.full:
            wait_s = min(wait_s, self._waits.busy_s)
        elif wants or can_send:
            wait_s = 0.0
        waits = self._prefetch.idle  # for new records; after an event, reads on without waiting
        for event in self.producer.happened(wait_s):
            self._take(event)
            waits = False
        stalled = self._watch.look(now_s) and engine.is_open  # otherwise no producer can ask
        if stalled and (gone := self._partitions.gone(now_s)) is not None:
            self._take(events.Broke(gone, UNKNOWN_TOPIC))
        if self._prefetch.ready and engine.room > 0 and not self.producer.calling:
            self._send()
        elif wants and engine.is_open:  # still, after the events
            read_s = self._waits.busy_s if self.producer.calling else idle_s
            self._prefetch.read(read_s if waits else 0.0)
            if self._prefetch.idle and self._prefetch.empty:  # passes seals and gaps
                engine.moved(self._source.position)
                if not engine.outstanding:
                    self._trouble.over()

    def reopen(self) -> None:
        """As AtLeastOnce. One that has stopped at a record is over, and is made anew."""
        self.connection.topic_settings.forget()
        self.engine.retry(now_s=time.monotonic())

    def drain(self, to: int) -> bool:
        """As AtLeastOnce."""
        engine, self._draining = self.engine, True
        if engine.state is not State.SENDING or not self._prefetch.empty:
            return False
        if engine.sent_to.address < to and not self._prefetch.idle:
            return False
        engine.hurry()
        return not engine.outstanding

    def finish(self) -> None:
        """Saves in the checkpoints whether the local cursor is where the cluster's is."""
        self._checkpoints.clean = not self.engine.in_doubt
        if self._connections:
            self._checkpoints.unsure = self._sender.unsure or not self.engine.intact
        self._checkpoints.save_if_possible()

    def error(self) -> DestinationError | None:
        """As AtLeastOnce."""
        return self._error

    def _undeliverable(self) -> DestinationError:
        path, address = self._source.reader.path, self.engine.position.address
        return undeliverable(path, self._refusals.last, address)

    def status(self) -> Status:
        """As AtLeastOnce."""
        engine = self.engine
        stalled = self._watch.stalls.now(time.monotonic())
        reason = self._refusals.reason
        late_and_why = "; ".join(filter(None, (late(stalled), engine.failure)))
        failure = self._watch.too_few or reason or late_and_why or None
        return Status(
            state=self._state(),
            error=self.connection.trouble(failure),
            stalled=tuple(stalled),
            waiting_lanes=self._refusals.waiting_lanes(None if engine.outstanding else failure),
        )

    def _state(self) -> str:
        engine, state = self.engine, self.engine.state
        if self._refusals.waits is not None and engine.is_open and not engine.stopping:
            return "blocked"
        return State.CONNECTING.value if state is State.PROVING else state.value

    # --- states and events --------------------------------------------------------------------

    def _follow(self) -> None:
        """Does what the machine's state asks, when it has changed."""
        engine, producer, state = self.engine, self.producer, self.engine.state
        if state is self._followed:
            return
        self._followed = state
        if state is State.CONNECTING:
            self._partitions.forget()
            self._sender.checked.clear()
            self._go_back(engine.position)
            producer.open(engine.position.address)
        elif state is State.PROVING:
            self._unclean()
            producer.prove(self._record(engine.position))
        elif state is State.COMMITTING:
            producer.commit(self._record(engine.sent_to), again=False)
        elif state is not State.SENDING:
            producer.disconnect()
            if not engine.over:
                self._go_back(engine.position)

    def _take(self, event: events.TransactionEvent) -> None:
        self._report(event)
        self._follow()

    def _report(self, event: events.TransactionEvent) -> None:
        engine, now_s = self.engine, time.monotonic()
        if isinstance(event, events.Found):
            self._sender.unsure = self._sender.unsure or self._connections > 0
            self._connections += 1
            engine.found(self._resume(event.record))
        elif isinstance(event, events.Looked):
            self._sender.checked.update(event.lanes)
        elif isinstance(event, events.Proven):
            engine.proven(twice=event.twice)
        elif isinstance(event, events.Committed):
            self._refusals.waits = self._watch.too_few = None
            self._trouble.over()
            before = engine.size.bytes
            engine.committed(now_s=now_s, twice=event.twice)
            if engine.size.bytes < before:
                _log.info("commits are slow: transactions of %d bytes at most", engine.size.bytes)
            TRANSACTIONS.labels("committed").inc()
            self._judge.passed(engine.position.address)
        elif isinstance(event, events.Impossible):
            self._error = event.error
            engine.impossible(str(event.error))
        elif isinstance(event, events.Broke):
            self._take_broken(event)
        elif isinstance(event, events.Failed):
            self._refusals.last = Refusal(event.reason, event.code)
            if event.suspect:
                self._suspect(event, now_s)
            else:
                self._break(event.reason, now_s, what="the transaction is aborted")
        else:
            engine.unanswered(event.reason)
            if engine.state is State.COMMITTING:
                self.producer.commit(self._record(engine.sent_to), again=True)

    def _suspect(self, event: events.Failed, now_s: float) -> None:
        engine, reason = self.engine, event.reason
        blame = self._refusals.blame(event, engine.alone, engine.open_s(now_s))
        if blame is None:
            engine.suspect(reason, now_s=now_s, names=names_records(event.code))
        else:
            engine.again(reason, named=bool(blame))

    def _take_broken(self, event: events.Broke) -> None:
        """The producer cannot be used any more. A missing right to a topic ends a drain, as a missing topic does."""
        engine, reason = self.engine, event.reason
        if kind_of(event.code) is Kind.TOPIC_FORBIDDEN:
            reason = self._refusals.missing_right(event)
            if self._draining:
                self._error = self._undeliverable()
                engine.impossible(reason)
                return
        self._break(reason, time.monotonic())

    def _break(self, reason: str, now_s: float, *, what: str = "connecting anew") -> None:
        TRANSACTIONS.labels("aborted").inc(self.engine.outstanding > 0)
        self.engine.broken(reason, now_s=now_s)
        self._trouble.say(self.engine.failure or reason, now_s, what=what)

    def _record(self, position: Position) -> CursorRecord:
        epoch = view_of(self._source.reader).to_store(position).epoch
        return CursorRecord(
            position.address, position.ordinal, self._uuid, epoch, self.producer.owner,
            self._sender.last,
        )  # fmt: skip  # where, whose, which

    def _resume(self, record: CursorRecord | None) -> Position:
        """Goes back to where the cluster's cursor record, or the local cursor, says."""
        local = self.engine.position
        position = self._source.resume_position(record, local)
        if record is not None:
            self._sender.last = record.last
        self._go_back(position)
        return position

    def _settle(self, refusal: Refusal) -> None:
        """The record at the committed position is refused: it is poison, or the log waits for the cause."""
        engine, position = self.engine, self.engine.position
        self._refusals.last = refusal
        if not self._judge.stops(refusal):  # it is read again, and set aside then
            self._judge.refuse([position.address], refusal)
            self._go_back(position)
        elif refusal.is_poison or self._draining:
            self._error = self._undeliverable()
            engine.end_at_refused(refusal.reason)
        else:
            self._judge.ask_again(position.address)  # the cluster
            reason = self._refusals.wait_for(refusal, position.address)
            engine.broken(reason, now_s=time.monotonic())

    def _unclean(self) -> None:
        """Notes, durably, before anything is sent: the cluster, and that its cursor may be ahead of the local one."""
        if self._checkpoints.clean:
            self._checkpoints.clean, self._checkpoints.unsure = False, True
        self._checkpoints.save()

    def _go_back(self, position: Position) -> None:
        self._sender.full = False
        self._prefetch.go_to(position)

    def _send(self) -> None:
        if (refusal := self._sender.send(self.engine)) is not None:
            self._settle(refusal)
        self._follow()


def _take_cursor(checkpoints: Checkpoints) -> None:
    """Notes, durably, that this delivery has the log's cursor now; it uses no lanes."""
    checkpoints.unsure = checkpoints.unsure or checkpoints.lost or not checkpoints.clean
    checkpoints.delivery = "exactly_once"
    checkpoints.forget_lanes()
    checkpoints.save()


def _uuid_of(source: LogSource) -> bytes:
    uuid = source.reader.topic_uuid
    if uuid is None:
        raise WrongSetting(
            "exactly once needs the log's UUID, and format 1 has none", hint="use at_least_once"
        )
    return uuid


def _timeout_s(seconds: float, settings: dict[str, Any]) -> float:
    """After which the cluster ends a transaction. seconds: how long one is open."""
    timeout_ms = int(settings.get("transaction.timeout.ms", _TIMEOUT_MS))
    if seconds * 2_000 > timeout_ms:
        raise WrongSetting(
            f"transactions of {seconds} s, and the cluster aborts them after "
            f"transaction.timeout.ms={timeout_ms}",
            hint="allow at least twice --transaction-seconds",
        )
    return timeout_ms / 1_000
