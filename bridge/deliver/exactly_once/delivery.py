"""Exactly once: the thin shell around `transactions`. Records and the cursor record behind them
are committed together, or not at all.

It owns the cluster and what is read ahead; it carries out the machine's commands and reports
events to it. While a transaction is being committed (in a thread of `transactional_producer`'s) the next
one's records are read and made ready, so that a commit costs little more than its round trip.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from aolog import Reader
from aolog.errors import (
    AddressBeyondEnd,
    AddressPruned,
    CursorDiverged,
    CursorForeign,
    StorageError,
    SyncFailed,
    counted,
)
from aolog.log.cursor_file import Position as CursorPosition
from aolog.read.reader import position_at, resume_at
from bridge.deliver.committer import Committer
from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.delivery import (
    BUSY_S,
    EXACTLY_ONCE,
    IDLE_S,
    Progress,
    undeliverable,
)
from bridge.deliver.exactly_once.prefetch import Ahead, Ready
from bridge.deliver.exactly_once.transactions import (
    Abort,
    Command,
    Commit,
    Connect,
    Prove,
    Save,
    Settle,
    State,
    Transactions,
)
from bridge.deliver.partitions import Partitions
from bridge.deliver.position import Poison, Position
from bridge.deliver.stall_watch import StallWatch, late
from bridge.deliver.trouble_log import TroubleLog
from bridge.errors import DestinationError, WrongSetting
from bridge.kafka.client import ANSWER_S
from bridge.kafka.cursor_record import CursorName, CursorRecord
from bridge.kafka.error_table import UNKNOWN_TOPIC, Kind, advice, kind_of, names_records
from bridge.kafka.lane import Refusal
from bridge.kafka.origin import HEADER_NAME, decode_stamp
from bridge.kafka.outcomes import (
    Aborted,
    Broke,
    Committed,
    Found,
    Impossible,
    Looked,
    Proven,
    TransactionEvent,
)
from bridge.kafka.producer import Failed, Put
from bridge.kafka.transactional_producer import TransactionalCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.config.routing import Routing
    from bridge.deliver.checkpoints import Checkpoints
    from bridge.deliver.log_source import LogSource
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.topic_creation import CreateTopics

__all__ = ["ExactlyOnce"]

_log = logging.getLogger("bridge")
_INSTEAD = "start with --poison dead-letter"
_TIMEOUT_MS = 60_000  # the client's default


class ExactlyOnce:
    """See the module, and bridge.deliver.delivery. routing: where records go. records, seconds: how much,
    and for how long, a transaction takes up. poison, create_topics: see Forwarder. give_up: asked
    now and then where something takes long, in another thread too. Raises WrongSetting for a log of format 1."""

    def __init__(
        self,
        source: LogSource,
        notes: Checkpoints,
        *,
        routing: Routing,
        bootstrap_servers: str,
        settings: dict[str, str],
        cursor_topic: str,
        records: int,
        seconds: float,
        commit_s: float,
        stop_s: float,
        poison: Poison,
        create_topics: CreateTopics,
        give_up: Callable[[], bool],
    ) -> None:
        uuid = source.reader.topic_uuid
        if uuid is None:
            raise WrongSetting(
                "exactly once needs the log's UUID, and format 1 has none",
                hint="use at_least_once",
            )
        timeout_ms = int(settings.get("transaction.timeout.ms", _TIMEOUT_MS))
        if seconds * 2_000 > timeout_ms:
            raise WrongSetting(
                f"transactions of {seconds} s, and the cluster gives them up after "
                f"transaction.timeout.ms={timeout_ms}",
                hint="leave a transaction at least twice its time",
            )
        self._uuid = uuid
        self._source = source
        self._routing = routing
        self._notes = notes
        notes.lanes.clear()
        notes.unsure = notes.unsure or notes.lost or not notes.clean
        notes.delivery, notes.lost = EXACTLY_ONCE, False
        notes.save()
        source.reader.commit()  # from now on it protects what it has not passed
        self._cluster = TransactionalCluster(
            bootstrap_servers,
            settings,
            CursorName(uuid, source.cursor),
            cursor_topic,
            give_up,
            notes.cluster,
            create_topics=create_topics,
        )
        self._partitions = Partitions(self._cluster)
        self._engine = Transactions(
            source.position,
            now_s=time.monotonic(),
            records=records,
            seconds=seconds,
            save_s=commit_s,
            stop_s=stop_s,
            in_doubt=not notes.clean,
        )
        self._committer = Committer(source, self._engine.saved_at)
        admission = self._cluster.admission()
        self._topic_settings = self._cluster.topic_settings(admission)
        self._ahead = Ahead(
            source,
            self._partitions,
            self._cluster,
            admission=admission,
            routing=routing,
            uuid=uuid,
            records=records,
            stop_at_poison=poison == "stop",
        )
        self._poison = poison
        self._refusal = Refusal("", "")  # the last
        self._waits: Refusal | None = None  # for what is not a record's fault, until it goes on
        self._unanswered_s: float | None = None  # since when a commit or an abort is not answered
        self._watch = StallWatch(
            self._cluster, self._topic_settings, lambda _: self._engine.position.address
        )
        self._trouble = TroubleLog()
        self._draining = False
        self._dead = DeadLetters(
            source.reader.path,
            source.cursor,
            uuid,
            source.storage,
            drop=poison == "drop",
            mode=source.mode,
        )
        if poison == "dead-letter":
            self._ahead.aside = self._dead.known(source.position.address, notes.aside_from)
        self._full = False  # the client's queue
        # Whether something of ours may be left open; where that was looked for on this connection.
        self._unsure = notes.unsure
        self._connections = 0
        self._looked: set[LaneKey] = set()
        self._last: tuple[int, int] | None = None  # record that was put: address, timestamp
        self._skipped = 0
        self._begun_s = time.monotonic()
        self._error: DestinationError | None = None

    # --- a round ------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """As Delivery says."""
        return self._engine.over

    @property
    def unread(self) -> Position | None:
        """As Delivery says. After a kill the cluster's cursor may be ahead of the local one; if the
        cluster does not answer in time, the local one counts."""
        asked = self._engine.in_doubt and not self._connections
        if asked and time.monotonic() < self._begun_s + ANSWER_S:
            return None
        return self._source.position

    @property
    def attempts(self) -> int:
        """As Delivery says."""
        return self._engine.backoff.attempts

    def turn(self, now_s: float) -> None:
        """As Delivery says."""
        engine = self._engine
        self._committer.go_on()
        self._do(engine.tick(now_s))
        if engine.over:
            return
        wait_s = idle_s = min(IDLE_S, engine.seconds_to_tick(now_s))
        pause_s = self._source.rate_limit.wait_s(now_s)
        if pause_s > 0:
            wait_s = min(wait_s, pause_s)
        wants = (
            self._ahead.room and engine.state in {State.SENDING, State.COMMITTING} and pause_s == 0
        )
        can_send = bool(self._ahead.ready) and engine.room > 0 and not self._cluster.calling
        if self._full:
            wait_s = min(wait_s, BUSY_S)
        elif wants or can_send:
            wait_s = 0.0
        waits = self._ahead.idle
        for event in self._cluster.happened(wait_s):
            self._take(event)
            waits = False  # for more of the log: first it is asked whether that was all
        if self._watch.look(now_s) and (gone := self._partitions.gone(now_s)) is not None:
            self._take_broken(Broke(gone, UNKNOWN_TOPIC))
        if self._ahead.ready and engine.room > 0 and not self._cluster.calling:
            self._send()
        elif wants and engine.state in {State.SENDING, State.COMMITTING}:  # after that, too
            read_s = BUSY_S if self._cluster.calling else idle_s
            self._ahead.read(read_s if waits else 0.0)
            if self._ahead.idle and self._ahead.empty:  # it moves on over seals and gaps
                engine.moved(self._source.position)
                if not engine.outstanding:
                    self._trouble.over()

    def stop(self, now_s: float) -> None:
        """As Delivery says."""
        self._do(self._engine.stop(now_s=now_s))

    def reopen(self) -> None:
        """As Delivery says. Where it stopped before a record it has ended, and is made anew."""
        self._topic_settings.forget()
        self._engine.retry(now_s=time.monotonic())

    def drain(self, to: int) -> bool:
        """As Delivery says."""
        engine, self._draining = self._engine, True
        if engine.state is not State.SENDING or not self._ahead.empty:
            return False
        if engine.sent_to.address < to and not self._ahead.idle:
            return False
        self._do(engine.hurry())
        return not engine.outstanding

    def finish(self) -> None:
        """The last word of the notes: whether the local cursor says all that the cluster has."""
        self._committer.finish()
        self._notes.clean = not self._engine.in_doubt
        if self._connections:
            self._notes.unsure = self._unsure or not self._engine.intact
        self._notes.saving()()
        self._source.prune()

    def error(self) -> DestinationError | None:
        """As Delivery says."""
        if self._engine.state is not State.FAILED:
            return None
        if self._error is not None:
            return self._error
        at = self._engine.failed_at
        path = self._source.reader.path
        return undeliverable(
            path,
            self._refusal,
            None if at is None else at.address,
            instead=_INSTEAD,
        )

    def close(self) -> None:
        """As Delivery says."""
        with ExitStack() as closing:  # in the other order, all of them, whatever one raises
            closing.callback(self._dead.close)
            closing.callback(self._cluster.disconnect)
            closing.callback(self._committer.close)

    def progress(self) -> Progress:
        """As Delivery says."""
        engine, cluster = self._engine, self._cluster
        stalled = self._watch.now(time.monotonic())
        waits = self._waits and f"{self._waits.reason}: {advice(self._waits.code)}"
        waits = self._watch.too_few or waits or late(stalled) or engine.failure
        return Progress(
            state=self._state(),
            reachable=cluster.reachable,
            position=engine.position,
            committed=engine.saved,
            acknowledged=engine.acknowledged,
            skipped=self._skipped,
            outstanding=engine.outstanding,
            error=cluster.trouble(waits),
            dead_lettered=self._dead.set_aside,
            dropped=self._dead.dropped,
            stalled=tuple(stalled),
        )

    def _state(self) -> str:
        state = self._engine.state
        if self._engine.stopping and not self._engine.over:
            return "stopping"
        if state in {State.SENDING, State.COMMITTING}:
            waits = "blocked" if self._waits is not None else "sending"
            return waits if self._cluster.reachable else "connecting"
        if state in {State.ABORTING, State.SETTLING}:
            return "backing_off"
        return "connecting" if state is State.PROVING else state.value

    # --- commands and events ------------------------------------------------------------------

    def _do(self, commands: list[Command]) -> None:
        cluster = self._cluster
        for command in commands:
            if isinstance(command, Connect):
                self._partitions.forget()
                self._looked.clear()
                cluster.open(self._engine.position.address)
            elif isinstance(command, Prove):
                self._unclean()
                cluster.prove(self._record(command.position))
            elif isinstance(command, Commit):
                cluster.commit(self._record(command.position), again=command.again)
            elif isinstance(command, Abort):
                cluster.abort()
                self._go_back(command.position)
            elif isinstance(command, Settle):
                self._settle(command.position)
            elif isinstance(command, Save):
                if command.position.address > self._engine.saved.address:
                    self._committer.want(command.position)
            else:
                cluster.disconnect()
                if not self._engine.over:
                    self._go_back(self._engine.position)

    def _take(self, event: TransactionEvent) -> None:
        engine, now_s = self._engine, time.monotonic()
        if isinstance(event, Found):
            self._unsure = self._unsure or self._connections > 0
            self._unanswered_s = None
            self._connections += 1
            self._do(engine.found(self._resume(event.record), now_s=now_s))
        elif isinstance(event, Looked):
            self._looked.update(event.lanes)
        elif isinstance(event, Proven):
            self._do(engine.proven(now_s=now_s, twice=event.twice))
        elif isinstance(event, Committed):
            self._waits = self._watch.too_few = self._unanswered_s = None
            self._trouble.over()
            self._do(engine.committed(now_s=now_s, twice=event.twice))
            self._ahead.passed(engine.position.address)
        elif isinstance(event, Aborted):
            self._unanswered_s = None
            self._do(engine.aborted(now_s=now_s))
        elif isinstance(event, Impossible):
            self._error = event.error
            self._do(engine.impossible(str(event.error)))
        elif isinstance(event, Broke):
            self._take_broken(event)
        elif isinstance(event, Failed):
            self._refusal = Refusal(event.reason, event.code)
            if event.suspect:
                self._suspect(event)
            else:
                self._trouble.say(event.reason, now_s, what="the transaction is aborted")
                self._do(engine.failed(event.reason, now_s=now_s))
        else:
            self._do(engine.unanswered(self._what_waits(event.reason, now_s)))

    def _suspect(self, event: Failed) -> None:
        """Something in the transaction was refused: see AtLeastOnce._suspect."""
        engine, now_s = self._engine, time.monotonic()
        bounds = self._topic_settings.learn(self._partitions.topics)
        if bounds:
            self._cluster.fit(bounds)
            _log.info("the transaction is aborted: %s", event.reason)
            self._do(engine.again(event.reason, now_s=now_s))
            return
        if event.named:
            count = counted(len(event.named), "record", ",")
            _log.info("the transaction is aborted: %s; %s will not be sent", event.reason, count)
            self._ahead.refusals |= dict.fromkeys(event.named, self._refusal)
            self._do(engine.again(event.reason, now_s=now_s, named=True))
            return
        what = "resending smaller ones to find the record"
        _log.info("the transaction is aborted: %s; %s", event.reason, what)
        self._do(engine.suspect(event.reason, now_s=now_s, names=names_records(event.code)))

    def _what_waits(self, reason: str, now_s: float) -> str:
        """Of a commit or an abort that is not answered: what of it, and for how long."""
        self._unanswered_s = self._unanswered_s or now_s
        records = counted(self._engine.outstanding, "record", ",")
        what = f"the end of a transaction of {records} is not answered by its coordinator"
        if self._cluster.unacknowledged:
            topics = ", ".join(self._partitions.topics)
            left = min(self._cluster.unacknowledged, self._engine.outstanding)
            what = f"{left:,} of a transaction's {records} are not acknowledged by the leaders of {topics}"
        return f"{what}, for {now_s - self._unanswered_s:.0f} s: {reason.partition(': ')[0]}"

    def _take_broken(self, event: Broke) -> None:
        """The producer is of no use. Without a right to a topic a drain ends, as it does before a
        topic that is missing."""
        engine, reason = self._engine, event.reason
        forbidden = kind_of(event.code) is Kind.TOPIC_FORBIDDEN
        if forbidden:
            reason = f"{reason} (of {', '.join(self._partitions.topics)}): {advice(event.code)}"
            self._waits = self._refusal = Refusal(reason, event.code)
        if forbidden and self._draining:
            self._error = undeliverable(
                self._source.reader.path, self._refusal, engine.position.address, instead=_INSTEAD
            )
            self._do(engine.impossible(reason))
            return
        now_s = time.monotonic()
        self._trouble.say(reason, now_s)
        self._do(engine.broken(reason, now_s=now_s))

    def _record(self, position: Position) -> CursorRecord:
        said = position_at(self._source.reader, *position)
        return CursorRecord(
            position.address, position.ordinal, self._uuid, said.epoch, self._cluster.owner,
            self._last,
        )  # fmt: skip  # where, whose, which

    def _resume(self, record: CursorRecord | None) -> Position:
        """Where to go on: at the cluster's cursor, or the local one where that is ahead (behind
        what has no records, or moved on by hand). Raises CursorForeign, CursorDiverged."""
        local, reader = self._engine.position, self._source.reader
        if record is None:
            self._go_back(local)
            return local
        address, ordinal, uuid, epoch, _, last = record
        self._last = last
        cursor = CursorPosition(address, ordinal, uuid, epoch, protects=True)
        try:
            reader.end()  # looks which slabs there are now
            resume_at(reader, cursor, kept_outside=True)
            if last is not None and not self._has(*last, epoch):
                raise CursorDiverged(
                    f"at {last[0]} the log has another record than the one that was delivered: "
                    "it was restored from a backup",
                    path=reader.path,
                )
        except (CursorForeign, CursorDiverged) as error:
            raise type(error)(
                f"the cluster's cursor record does not fit the log: {error}",
                hint="look at both; another --cursor begins anew and sends all again",
                path=reader.path,
            ) from None
        if address <= local.address:
            self._go_back(local)
            return local
        if ordinal is not None and local.ordinal is not None and not self._engine.acknowledged:
            self._skipped += max(0, ordinal - local.ordinal)
        position = Position(address, ordinal)
        self._go_back(position)
        return position

    def _has(self, address: int, timestamp_us: int, epoch: int) -> bool:
        """Whether the log has that record, or lost it with all of its epoch that follows."""
        with Reader(self._source.reader.path, storage=self._source.storage) as reader:
            try:
                reader.seek(address)
            except (AddressBeyondEnd, AddressPruned):
                return True
            batch = reader.read_batch(0)
            if batch is None or reader.gaps or batch.frames[0].epoch > epoch:
                return True
            record = next(iter(batch))
            return (record.address, record.timestamp) == (address, timestamp_us)

    def _settle(self, position: Position) -> None:
        """The record there is not taken: poison, unless that is not the record's fault."""
        refusal, now_s = self._refusal, time.monotonic()
        if refusal.is_poison and self._poison != "stop":  # it is read again, and sorted out
            self._ahead.refusals[position.address] = refusal
            self._go_back(position)
            self._do(self._engine.settled(position, now_s=now_s))
        elif refusal.is_poison or self._draining:
            self._do(self._engine.settled(None, now_s=now_s))
        else:
            at = f"waits at address {position.address}"
            reason = f"{at}: {refusal.reason}: {advice(refusal.code)}"
            if refusal != self._waits:
                event = {"event": "log_waits", "code": refusal.code}
                _log.warning("%s", reason, extra=event)
            self._waits = refusal
            self._do(self._engine.broken(reason, now_s=now_s))

    def _set_aside(self, ready: Ready) -> bool:
        """Keeps its poison elsewhere, durably, or counts it as dropped; whether that was done."""
        try:
            self._dead.take(ready.asides, ready.records_aside, ready.epoch)
        except SyncFailed:
            raise
        except StorageError as error:
            reason = f"no record can be set aside: {error}"
            self._do(self._engine.broken(reason, now_s=time.monotonic()))
            return False
        self._ahead.aside.update(ready.records_aside)
        ready.asides = ()
        return True

    def _unclean(self) -> None:
        """Durable before anything is sent: the local cursor may be behind the cluster's, and which
        cluster that is."""
        if self._notes.clean:
            self._notes.clean, self._notes.unsure = False, True
        self._notes.save()

    def _go_back(self, position: Position) -> None:
        self._ahead.forget()
        self._full = False
        if position != self._source.position:  # else nothing was read: nor is a loss known yet
            self._source.go_to(position)

    def _send(self) -> None:
        """Sends what is ready, as far as the transaction and the client's queue take it."""
        ready, engine = self._ahead.ready[0], self._engine
        if ready.asides and not self._set_aside(ready):
            return
        begin = ready.next
        room = min(engine.room, ready.records - begin)
        put = Put(0, None)
        if room and self._unsure and self._look(set(ready.lanes[begin : begin + room])):
            return
        if room:
            callback = self._cluster.failing if engine.suspected else None
            put = self._cluster.put(ready.part(room, callback))
        self._full = put.records < room
        self._ahead.taken(put.records)
        end = begin + put.records
        refusal = put.refusal
        if end == ready.records:
            refusal = refusal or ready.refusal
        now_s = time.monotonic()
        first, to = ready.position(begin), ready.position(end)
        if put.records:
            stamp = decode_stamp([(HEADER_NAME, ready.messages.stamp(end - 1))])
            assert stamp is not None
            self._last = stamp.address, stamp.timestamp_us or 0
            self._do(engine.sent(first, to, put.records, now_s=now_s))
        elif not room:  # all of it was set aside
            engine.moved(to)
        if refusal is not None:
            self._refusal = refusal
            self._do(engine.refused(refusal.reason, to))
        elif put.spoiled and engine.state is State.SENDING:
            self._do(engine.hurry() or engine.failed("nothing is taken", now_s=now_s))

    def _look(self, lanes: set[LaneKey]) -> bool:
        """Whether to wait, before the first record of this connection is sent to some of these
        lanes, until it is known that nothing of ours is open there."""
        if lanes <= self._looked:
            return False
        if self._engine.outstanding:  # what is begun is committed first
            self._do(self._engine.hurry())
        else:
            ahead = {lane for ready in self._ahead.ready for lane in ready.lanes}
            self._cluster.look(ahead - self._looked, self._engine.position.address)
        return True
