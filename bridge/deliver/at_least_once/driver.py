"""At least once: the shell around `engine`. Every record carries a stamp; what arrived before a crash
is read back and not sent again.

It owns the cluster, the checkpoints, the sender and the dead letters. It reports events to the engine,
and does what its state asks. One thread does everything except the cursor's commits.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from itertools import islice
from typing import TypeVar

from aolog.errors import StorageError, SyncFailed, counted
from aolog.read.batch import Batch
from aolog.record import Position
from bridge.config.routing import Routing
from bridge.deliver.at_least_once.engine import Engine, State
from bridge.deliver.at_least_once.lane_reports import LaneReports
from bridge.deliver.at_least_once.sender import Sender
from bridge.deliver.at_least_once.topics import Topics
from bridge.deliver.checkpoints import Checkpoints
from bridge.deliver.committer import Committer
from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.intake import Intake, PartitionsOf
from bridge.deliver.log_source import LogSource
from bridge.deliver.router import Router
from bridge.deliver.status import LANES_MAX, Status
from bridge.deliver.trouble import SET_ASIDE, StallWatch, TroubleLog, late, undeliverable
from bridge.errors import DestinationError, Unanswered
from bridge.kafka.client import ToldToStop
from bridge.kafka.error_table import Kind, advice, kind_of
from bridge.kafka.events import Delivered, Failed, KafkaEvent
from bridge.kafka.lane import LaneKey, Refusal, lane_name
from bridge.kafka.producer import IdempotentProducer

_T = TypeVar("_T")
_log = logging.getLogger("bridge")
_AGAIN = "a reload (SIGHUP) or a restart tries again"
_REPLAY_AGAIN = "another replay tries again"
_REPLAY_INSTEAD = "pass it with --poison drop"


class AtLeastOnce:
    """See the module. One thread calls it. engine: decides what it does. routing: of the log. give_up: called
    now and then in long questions; True ends them. committer, producer, dead: the forwarder closes them."""

    def __init__(
        self,
        source: LogSource,
        checkpoints: Checkpoints,
        options: ForwarderOptions,
        *,
        routing: Routing,
        give_up: Callable[[], bool],
    ) -> None:
        self._source = source
        self._checkpoints = checkpoints
        self._give_up = give_up
        self._waits = options.waits
        self._reads_back, self._drops = options.read_back, options.poison == "drop"
        self._take_cursor(routing)
        self.producer = IdempotentProducer(
            options.bootstrap_servers,
            options.client_settings(),
            options.terms(checkpoints.cluster),
            kept_bytes_max=options.in_flight_bytes // 2,
        )
        self.connection = self.producer.connection
        self.engine = Engine(
            source.position,
            now_s=time.monotonic(),
            stop_s=options.stop_s,
            until=options.until,
            bytes_max=options.in_flight_bytes,
            in_doubt=not checkpoints.clean,
        )
        self.committer = Committer(source, lambda: self.engine.position, options, self._saving)
        self.dead = DeadLetters(source, checkpoints.source, options.poison, checkpoints.aside_from)
        self._judge = self.dead.judge
        self._judge.aside.update(*(of.dropped for of in checkpoints.lanes.values()))
        self._topics = Topics(
            self.connection,
            self.engine,
            checkpoints,
            self._judge,
            options.waits,
            log_end=source.reader.end,
            give_up=give_up,
        )
        router = Router(routing, self.connection.admission, options.keyless or checkpoints.source)
        self._intake = Intake(source, router, self._judge, self._find, uuid=checkpoints.source)
        self._sender = Sender(self.producer)
        self._batch: Batch | None = None  # the last one, if some of its records are to be set aside
        self._idle = False  # the last read found no batch
        replays = options.until is not None or options.view is not None
        again = _REPLAY_AGAIN if replays else _AGAIN
        self._reports = LaneReports(self.engine.lanes, self._topics, again)
        self._instead = _REPLAY_INSTEAD if replays else SET_ASIDE
        self._draining = self._has_producer = self._has_read_back = False
        self._watch = StallWatch(self.connection, self._low)
        self._trouble = TroubleLog()
        self._logged: str | None = None  # the last failure that has a log line of its own

    def _take_cursor(self, routing: Routing) -> None:
        """From now on the cursor exists, and protects records after it."""
        reader, checkpoints = self._source.reader, self._checkpoints
        if checkpoints.epoch:  # a writer knows the cursor, and not how far the lanes are
            checkpoints.hold_none_from(self._source.end_of_epoch(checkpoints.epoch))
        end = reader.end()
        if any(each.address >= end for each in checkpoints.lanes.values()):
            # Unless the power was cut, another program has removed the log's end, and what was written since may
            # have addresses that lanes have passed.
            begin = end if self._source.lost_power() else reader.tell()
            checkpoints.hold_none_from(begin)
            _log.warning(
                "%s ends before records that were delivered: what is in it from address %d on is sent again",
                reader.path,
                begin,
            )
        checkpoints.reroute(routing, reader.tell())
        if checkpoints.delivery != "at_least_once" or not reader.has_cursor_position:
            checkpoints.delivery = "at_least_once"
            checkpoints.save()  # before the cursor exists: otherwise a crash would count as lost
        reader.commit()

    # --- a round ------------------------------------------------------------------------------

    @property
    def unread(self) -> Position:
        """The first record that still has to be read from the log."""
        return self.engine.unread

    def turn(self, now_s: float) -> None:
        """One round: time, events of the cluster, new records. Waits for Waits.idle_s at most."""
        engine, sender = self.engine, self._sender
        self.committer.go_on()
        engine.tick(now_s)
        if engine.state is State.STOPPING and not self.connection.reachable:
            engine.failed("no broker is connected", now_s=now_s)  # no answer will come
        self._follow()
        if engine.over:
            return
        self._reports.log_stopped()
        self._watch.look(now_s)
        is_idle = self._idle and not engine.outstanding
        is_connected = engine.state is State.SENDING and self.connection.reachable
        if is_connected and (is_idle or not engine.backoff.attempts):
            self._trouble.over()
        busy = bool(engine.outstanding or sender.waiting)
        wants_more = engine.wants_batch and not sender.waiting and not self._idle
        for event in self.producer.poll(self._waits.busy_s if busy and not wants_more else 0):
            self._take(event)
            self._follow()
        self._send(now_s, busy=busy)
        self._follow()

    def _send(self, now_s: float, *, busy: bool) -> None:
        """Reads, routes, admits and sends; or waits."""
        engine, sender = self.engine, self._sender
        wait_s = min(self._waits.idle_s, engine.seconds_to_tick(now_s))
        if engine.state is State.SENDING and not sender.waiting:
            self._ask(self._topics.read_back_again)
        if sender.waiting:
            self._queue()
        elif (pause_s := self._source.rate_limit.wait_s(now_s)) > 0:
            if not busy:
                time.sleep(min(pause_s, wait_s))
        elif engine.wants_batch and (self.connection.reachable or not engine.outstanding):
            self._read(0.0 if busy else wait_s)
        elif not busy:
            time.sleep(wait_s)

    def _read(self, timeout_s: float) -> None:
        """Reads a batch, waiting for one so long, and begins to send it. Raises what Reader raises."""
        engine, source, now_s = self.engine, self._source, time.monotonic()
        catching_up = engine.catching_up
        self._intake.go_to(engine.begin())
        judged = self._intake.next(0.0 if catching_up else timeout_s, engine.batch_bytes)
        self._idle = self._intake.idle and not catching_up
        if judged is None:
            if self._intake.idle:
                if catching_up:  # the records are no longer there
                    source.go_to(engine.frontier)
                engine.nothing_read(source.position)
            return
        planned = engine.admit(judged.given, source.position, now_s=now_s)
        self._batch = judged.batch if engine.pending else None
        self._sender.take(judged, planned)
        size = sum(mark.bytes for _, mark in planned.marks)
        source.rate_limit.spend(len(planned.sent), size, now_s=now_s)
        if not engine.pending:
            self._queue()

    def _queue(self) -> None:
        """Queues admitted records."""
        refused = self._sender.send()
        if refused is not None:
            address, (reason, code, _) = refused
            self._blame(reason, code, None, [address], time.monotonic())

    def _find(self, topics: Collection[str]) -> PartitionsOf | None:
        return self._ask(lambda: self._topics.read_back_new(topics))

    def _ask(self, question: Callable[[], _T]) -> _T | None:
        """Asks a question of the topics; None: it was not answered."""
        try:
            return question()
        except ToldToStop:
            return None
        except SyncFailed:
            raise
        except (Unanswered, StorageError) as error:
            reason = str(error)
        self.engine.failed(self.connection.unanswered(reason), now_s=time.monotonic())
        return None

    def reopen(self) -> None:
        """Retries lanes that wait for somebody to act."""
        self._topics.hurry()
        self.connection.topic_settings.forget()
        self._judge.ask_again()
        for key in self.engine.reopen():
            _log.info("retrying %s", lane_name(key), extra={"event": "lane_reopened"})

    def drain(self, to: int) -> bool:
        """Hurries records in flight. Whether all before the address is delivered, or cannot be."""
        self._draining = True
        if self.engine.state is not State.SENDING:
            return False
        if self.engine.position.address >= to:
            return True
        return self._idle and self.engine.stopped_short  # the rest cannot be sent

    def finish(self) -> None:
        """Once it is over, and its last cursor is durable: saves the last checkpoints."""
        engine = self.engine
        under_way = engine.outstanding > 0 or engine.in_doubt or engine.compares
        self._checkpoints.clean = engine.state is State.STOPPED and not under_way
        self._saving()()

    def error(self) -> DestinationError | None:
        """Which record a drain left: some lanes did not drain."""
        standing = self.engine.lanes.standing
        if not self._draining or self._give_up() or not standing:
            return None
        lane = min(standing, key=lambda each: standing[each][0].address)
        at, refusal = standing[lane]
        return undeliverable(
            self._source.reader.path,
            refusal,
            at.address,
            instead=self._instead,
            lanes=len(standing),
            topic=lane[0],
        )

    # --- status -------------------------------------------------------------------------------

    @property
    def acknowledged_by_topic(self) -> dict[str, int]:
        """How many records of each topic the cluster has acknowledged."""
        topics: Counter[str] = Counter()
        for (topic, _), lane in sorted(self.engine.lanes.items()):
            topics[topic] += lane.acknowledged
        return +topics

    def status(self) -> Status:
        """The present state: what only the delivery knows."""
        engine = self.engine
        stalled = self._watch.stalls.now(time.monotonic())
        waiting = (w for w in self._reports.waiting() if not self._topics.may_come(w["topic"]))
        first = next(waiting, None)
        waits = self._watch.too_few or late(stalled) or (first and first["reason"])
        return Status(
            state=engine.state.value,
            error=self.connection.trouble(engine.failure) or waits,
            standing=len(engine.lanes.standing),
            held_back=sum(lane.waits_from is not None for lane in engine.lanes.values()),
            stalled=tuple(stalled),
            waiting_lanes=tuple(islice(self._reports.waiting(), LANES_MAX)),
            copies=self._reports.copies,
        )

    def _low(self, key: LaneKey) -> int | None:
        lane = self.engine.lanes.get(key)
        low = None if lane is None else lane.low()
        return None if low is None else low.address

    # --- events -------------------------------------------------------------------------------

    def _take(self, event: KafkaEvent) -> None:
        engine, now_s = self.engine, time.monotonic()
        if isinstance(event, Delivered):
            engine.delivered(event.lane, event.address, event.offset, now_s=now_s)
        elif kind_of(event.code) is Kind.LOCKED_OUT:
            engine.failed(f"{event.reason}: {advice(event.code)}", now_s=now_s)
        elif kind_of(event.code) is Kind.TOPIC_FORBIDDEN and event.lane is not None:
            topic = event.lane[0]
            refusal = Refusal(f"topic {topic!r}: {event.reason}", event.code)
            self._topics.forbid(topic, refusal)
            self._logged = f"{refusal.reason}: {advice(event.code)}"
            engine.failed(self._logged, now_s=now_s)
        elif event.suspect:
            self._suspect(event, now_s)
        else:
            engine.failed(event.reason, now_s=now_s)

    def _suspect(self, event: Failed, now_s: float) -> None:
        """Records made a request fail: the cluster or their topic's settings tell which, or the lane is bisected."""
        engine, lane = self.engine, event.lane
        where = "a partition" if lane is None else lane_name(lane)
        in_flight = {key[0] for key, each in engine.lanes.items() if each.outstanding}
        of_lane, named = None if lane is None else engine.lanes.get(lane), len(event.named)
        if of_lane is not None and of_lane.records == 1:
            named = 1
            self.connection.refused_alone(event, of_lane.waits_s(now_s))
        if self.connection.learn({lane[0]} if lane else in_flight):
            _log.info("%s rejected a request: %s", where, event.reason)
            engine.again(event.reason, now_s=now_s)
            return
        what = "resending smaller groups to find the record"
        if named:
            what = f"{counted(named, 'record', ',')} of it will not be sent again"
        _log.info("%s rejected a request: %s; %s", where, event.reason, what)
        self._blame(event.reason, event.code, lane, event.named, now_s)

    def _blame(
        self, reason: str, code: str, lane: LaneKey | None, named: Collection[int], now_s: float
    ) -> None:
        guilty = self.engine.suspect(reason, code, lane, named=named, now_s=now_s)
        self._judge.refuse(guilty, Refusal(reason, code))

    # --- what the engine's state asks for -----------------------------------------------------

    def _follow(self) -> None:
        engine = self.engine
        if engine.copies:
            self._reports.log_copies(engine.copies)
            engine.copies.clear()
        if engine.pending:
            self._set_aside()
        if engine.state is State.CONNECTING and not self._has_producer:
            self._connect()
        if engine.state in {State.BACKING_OFF, State.STOPPED} and self._has_producer:
            self._disconnect()

    def _set_aside(self) -> None:
        engine = self.engine
        assert self._batch is not None
        reason = self.dead.take(engine.pending, self._batch)
        if reason is not None:
            self._logged = reason
            engine.failed(reason, now_s=time.monotonic())
            return
        if self._drops:  # dead letters are durable elsewhere
            self._checkpoints.drop(engine.pending)
        engine.set_aside()
        self._queue()

    def _saving(self) -> Callable[[], None]:
        """A function that saves the checkpoints, with what the lanes hold now."""
        self._judge.passed(self.engine.position.address)
        self._checkpoints.epoch = self._source.epoch_at(self.engine.frontier)
        for key, lane in self.engine.lanes.items():
            if (checkpoint := self._checkpoints.lanes.get(key)) is not None:
                checkpoint.reached(lane.last_address, lane.last_offset)
        return self._checkpoints.save_if_possible

    def _connect(self) -> None:
        """Makes a producer. If records may have been in flight, reads back what arrived."""
        checkpoints = self._checkpoints
        self._has_producer = True
        self.producer.connect(careful=self.engine.careful)
        self._topics.connecting()
        if not checkpoints.lanes or (self._has_read_back and not self.engine.in_doubt):
            self.engine.connected()
            return
        if not (self._reads_back or checkpoints.clean):
            _log.warning(
                "--no-read-back: records that were in flight are sent again, and may arrive twice",
                extra={"event": "not_read_back"},
            )
        if (found := self._ask(self._topics.read_back)) is None:
            return
        self._has_read_back = True
        checkpoints.clean = False  # before anything is sent: a crash is not a clean stop
        self._saving()()
        self.engine.connected()
        self._topics.apply(found)

    def _disconnect(self) -> None:
        engine, self._has_producer = self.engine, False
        # No attempt failed if a record was refused, or if it stops.
        if (
            engine.backoff.attempts
            and not engine.over
            and engine.failure not in {None, self._logged}
        ):
            self._trouble.say(str(engine.failure), time.monotonic())
        self.producer.disconnect()
        self._sender.forget()
        self._idle = False
