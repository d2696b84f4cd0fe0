"""Forwarder: one log to one cluster. The thin shell around the engine.

It owns the reader with its cursor, the cluster, the lane notes and the clock; it carries out
the engine's commands and reports events to it. One thread does everything.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from aolog import Gap, Reader
from aolog.errors import AddressPruned, StorageError, SyncFailed
from aolog.retention import Retention, prune
from aolog.storage import Storage
from bridge.arrivals import read_back
from bridge.dead_letter import DeadLetters
from bridge.engine import Command, Commit, Connect, Engine, Poison, Position, SetAside, State
from bridge.errors import Undeliverable
from bridge.feed import Feed
from bridge.kafka import Cluster, Delivered, Forbade, KafkaEvent, NotReachable
from bridge.lanes import LaneNotes
from bridge.routing import Routing
from bridge.status import Status
from bridge.topics import Topics

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aolog import Record

__all__ = ["Forwarder"]

_log = logging.getLogger("bridge")

CURSOR = "bridge"
IDLE_S = 0.2  # an idle wait: how late a signal or a due commit may be noticed
BUSY_S = 0.005  # a wait while acknowledgements are under way: how late new records are read


class Forwarder:
    """Forwards a log until it is told to stop, or with `drain` until what was there at the start
    is acknowledged.

    topic: for records that name none; the log's own if None. routing: in place of topic, where
    there are rules. poison: what becomes of a record
    that will never be taken: "stop": its lane stands before it, the others go on; "dead-letter":
    it goes to the log in LOG/dead-letter; "drop": it is counted, logged and passed.
    prune_delivered: removes slabs that the cursor and every other protecting cursor have passed,
    or of them what retention lets go. until: it drains up to this address and no further. view, keyless: see Feed. Raises what Reader
    and `check` raise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        topic: str | None = None,
        bootstrap_servers: str,
        routing: Routing | None = None,
        settings: dict[str, str] | None = None,
        cursor: str = CURSOR,
        drain: bool = False,
        commit_s: float = 1.0,
        stop_s: float = 5.0,
        poison: Poison = "stop",
        prune_delivered: bool | Retention = False,
        until: int | None = None,
        view: Callable[[Record], Record] | None = None,
        keyless: bytes | None = None,
    ) -> None:
        self._storage = Storage()
        self._reader = Reader(path, cursor=cursor, on_gap=self._on_gap, storage=self._storage)
        try:
            routing = routing or Routing(topic)
            routing.of_log(self._reader.topic)
            uuid = self._reader.topic_uuid
            self._notes = LaneNotes.load(
                self._reader.path, cursor, self._storage, topic_uuid=uuid,
                begun=self._reader.has_cursor_position,
            )  # fmt: skip  # one call, one place
            start = Position(self._reader.tell(), self._reader.ordinal)
            self._drain_to = self._reader.end() if drain else until
            if not self._reader.has_cursor_position:
                self._notes.save()  # before the cursor is: after it they would count as lost
            self._reader.commit()  # from now on it protects what it has not passed
        except BaseException:
            self._reader.close()
            raise
        self._cluster = Cluster(bootstrap_servers, settings or {})
        self._engine = Engine(
            start,
            now_s=time.monotonic(),
            poison=poison,
            commit_s=commit_s,
            stop_s=stop_s,
            until=until,
            in_doubt=not self._notes.clean,
        )
        for key, note in self._notes.lanes.items():
            if note.distrusted:
                lane = self._engine.lane(key)
                lane.distrusted, lane.last_address = True, note.address
        self._dead = DeadLetters(
            self._reader.path, cursor, self._notes.source, self._storage, drop=poison == "drop"
        )
        self._topics = Topics(
            self._cluster,
            self._engine,
            self._notes,
            below=self._reader.end,
            give_up=self._asked_to_stop,
        )
        self._feed = Feed(
            self._reader,
            self._engine,
            self._cluster,
            self._topics,
            routing=routing,
            source=self._notes.source,
            go_to=self._go_to,
            view=view,
            keyless=keyless,
        )
        keep = Retention(max_slabs=1) if prune_delivered is True else prune_delivered
        self._retention = keep or None
        self._stop_asked = False
        self.moved_s = time.monotonic()  # when its thread last showed that it does not hang
        self._lost = 0
        self._gaps: set[int] = set()
        self._rate_from = (time.monotonic(), 0)
        self._rate = 0.0

    # --- life ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Asks it to end soon; safe in a signal handler."""
        self._stop_asked = True

    @property
    def stop_asked(self) -> bool:
        """Whether it ended, or will, before its time."""
        return self._stop_asked

    def run(self, report: Callable[[Status], None] | None = None, every_s: float = 1.0) -> Status:
        """Forwards until the end; the last status. Raises Undeliverable where it was to drain
        and a lane stands, with the cursor durable up to there."""
        report_due_s = 0.0
        try:
            if self._engine.poison == "dead-letter":
                self._engine.aside |= self._dead.known(self._engine.committed.address)
            while not self._engine.over:
                self._turn()
                if report is not None and time.monotonic() >= report_due_s:
                    report_due_s = time.monotonic() + every_s
                    report(self.status())
            self._finish()
            status = self.status()
            if report is not None:
                report(status)
        finally:
            self._cluster.disconnect()
            self._dead.close()
            self._reader.close()
        if self._drain_to is not None and not self._stop_asked and self._engine.standing:
            raise self._failure()
        return status

    def _turn(self) -> None:
        """One round: time, what the cluster says, what the log has."""
        engine, feed = self._engine, self._feed
        now_s = self.moved_s = time.monotonic()
        if self._stop_asked or self._drained():
            self._do(engine.stop(now_s=now_s))
        self._do(engine.tick(now_s))
        if engine.over:
            return
        busy = bool(engine.outstanding or feed.waiting)
        more = engine.wants_batch and not feed.waiting and not feed.idle
        for event in self._cluster.poll(BUSY_S if busy and not more else 0):
            self._take(event)
        wait_s = min(IDLE_S, engine.seconds_to_tick(now_s))
        if feed.waiting:
            self._do(feed.send())
        elif engine.wants_batch and (self._cluster.reachable or not engine.outstanding):
            self._do(feed.read(0.0 if busy else wait_s))
        elif not busy:
            time.sleep(wait_s)

    def _drained(self) -> bool:
        if self._drain_to is None or self._engine.state is not State.SENDING:
            return False
        if self._engine.position.address >= self._drain_to:
            return True
        return self._feed.idle and self._engine.stopped_short  # what is left cannot be sent

    def _finish(self) -> None:
        """The last word of the notes: whether anything may still be in flight."""
        engine = self._engine
        under_way = engine.outstanding > 0 or engine.in_doubt
        self._notes.clean = engine.state is State.STOPPED and not under_way
        self._save_notes()
        self._prune()

    def _failure(self) -> Undeliverable:
        standing = self._engine.standing.items()
        key, lane = min(standing, key=lambda item: item[1].behind or self._engine.frontier)
        assert lane.closed is not None
        assert lane.behind is not None
        hint = "raise the topic's limits, or start with --poison dead-letter"
        if lane.closed.code == "NO_TOPIC":
            hint = "name a default with --topic, or start with --poison dead-letter"
        return Undeliverable(
            f"the record at address {lane.behind.address} cannot be delivered:"
            f" {lane.closed.reason}",
            hint=hint,
            path=self._reader.path,
            address=lane.behind.address,
            lanes=len(standing),
            refusal=lane.closed.code,
            topic=key[0],
        )

    # --- commands and events ------------------------------------------------------------------

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Connect):
                self._connect(careful=command.careful)
            elif isinstance(command, Commit):
                self._commit(command.position)
            elif isinstance(command, SetAside):
                self._set_aside(command)
            else:
                self._disconnect()

    def _take(self, event: KafkaEvent) -> None:
        engine = self._engine
        if isinstance(event, Delivered):
            self._do(
                engine.delivered(event.lane, event.address, event.offset, now_s=time.monotonic())
            )
        elif isinstance(event, Forbade):
            _log.warning("refused: %s", event.reason)
            if event.topic is not None:
                self._topics.forbid(event.topic, event.reason)
            self._do(engine.failed(event.reason, now_s=time.monotonic()))
        elif event.suspect:
            _log.warning("looking for what was refused: %s", event.reason)
            self._do(engine.suspect(event.reason, event.code, event.lane, now_s=time.monotonic()))
        else:
            _log.warning("sending again from the cursor: %s", event.reason)
            self._do(engine.failed(event.reason, now_s=time.monotonic()))

    def _set_aside(self, command: SetAside) -> None:
        try:
            self._dead.take(command.records, self._feed.records, self._feed.epoch)
        except SyncFailed:
            raise
        except StorageError as error:
            _log.warning("nothing can be set aside: %s", error)
            self._do(self._engine.failed(str(error), now_s=time.monotonic()))
            return
        self._engine.set_aside(aside.position.address for aside in command.records)
        self._do(self._feed.send())

    def _commit(self, position: Position) -> None:
        """Cursor durable, then notes, then pruning: in this order."""
        if position.address > self._engine.committed.address:
            self._reader.commit_at(*position)
            self._engine.committed_at(position)
            self._save_notes()
            self._prune()

    def _prune(self) -> None:
        """Lets go what every cursor has passed, if that was asked for."""
        if self._retention is None:
            return
        pruned = prune(self._reader.path, self._storage, self._retention)
        if pruned.slabs:
            _log.info("pruned %d slabs, up to address %d", pruned.slabs, pruned.end)

    def _save_notes(self) -> None:
        for key, lane in self._engine.lanes.items():
            note = self._notes.lanes.get(key)
            if note is not None:
                note.address = max(note.address, lane.last_address)
                note.offset = max(note.offset, lane.last_offset)
                note.distrusted = lane.distrusted
        try:
            self._notes.save()
        except SyncFailed:
            raise
        except StorageError as error:
            # Older notes only make a restart read more; the cursor needs no free block.
            _log.warning("lane notes were not saved: %s", error)

    def _connect(self, *, careful: bool) -> None:
        self._cluster.connect(careful=careful)
        self._topics.forget()
        lanes = dict(self._notes.lanes)
        if not lanes:
            self._do(self._engine.connected({}))
            return
        reader = self._cluster.reader(self._asked_to_stop)
        try:
            arrivals = read_back(
                reader,
                lanes,
                self._notes.source,
                below=self._reader.end(),
                clean=self._notes.clean,
                distrusts=self._engine.distrusts,
            )
        except NotReachable as error:
            reason = self._cluster.unanswered(error)
            self._do(self._engine.failed(reason, now_s=time.monotonic()))
            return
        finally:
            reader.close()
        if self._notes.clean:
            self._notes.clean = False  # before anything is sent: a crash is no clean stop
            self._save_notes()
        self._do(self._engine.connected(arrivals.held))
        self._topics.heard(arrivals)

    def _asked_to_stop(self) -> bool:
        self.moved_s = time.monotonic()
        return self._stop_asked

    def _disconnect(self) -> None:
        self._cluster.disconnect()
        self._feed.forget()

    def _go_to(self, position: Position) -> None:
        """To be read again from there; what retention has removed meanwhile is a gap."""
        try:
            self._reader.seek_position(*position)
        except AddressPruned:
            begin, ordinal = self._reader.seek("earliest"), self._reader.ordinal
            before = position.ordinal
            lost = None if ordinal is None or before is None else max(0, ordinal - before)
            self._on_gap(Gap(position.address, begin, "pruned", lost))

    # --- what there is to say -----------------------------------------------------------------

    def _on_gap(self, gap: Gap) -> None:
        if gap.begin in self._gaps:
            return  # told before, ahead of a rewind
        self._gaps.add(gap.begin)
        self._lost += gap.records_lost or 0
        _log.warning(
            "gap in the log: addresses %d to %d (%s), %s records lost",
            gap.begin,
            gap.end,
            gap.reason,
            "an unknown number of" if gap.records_lost is None else gap.records_lost,
        )

    def status(self) -> Status:
        """How things stand."""
        engine = self._engine
        now_s = time.monotonic()
        since_s, before = self._rate_from
        if now_s - since_s >= 0.5:
            self._rate = (engine.acknowledged - before) / (now_s - since_s)
            self._rate_from = (now_s, engine.acknowledged)
        lag = self._reader.lag_from(*engine.position)
        state = engine.state.value
        if engine.state is State.SENDING and not self._cluster.reachable:
            state = State.CONNECTING.value
        elif engine.state is State.SENDING and engine.standing and engine.stopped_short:
            state = "blocked"
        return Status(
            state=state,
            reachable=self._cluster.reachable,
            position=engine.position.address,
            committed=engine.committed.address,
            acknowledged=engine.acknowledged,
            skipped=engine.skipped,
            outstanding=engine.outstanding,
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            lost_records=self._lost,
            gaps=len(self._gaps),
            error=self._error(),
            rate=self._rate,
            dead_lettered=0 if self._dead.drop else self._dead.taken,
            dropped=self._dead.taken if self._dead.drop else 0,
            standing=len(engine.standing),
            held_back=sum(lane.behind is not None for lane in engine.lanes.values()),
        )

    def _error(self) -> str | None:
        """What keeps it, or some lane, from going on."""
        engine, cluster = self._engine, self._cluster
        if cluster.forbidden is not None:
            return f"{cluster.forbidden}; check credentials and rights"
        if engine.failure is not None or not cluster.reachable:
            return engine.failure or cluster.last_error
        for (topic, partition), lane in engine.lanes.items():
            if lane.closed is not None and lane.behind is not None:
                where = f"{topic}/{partition}" if partition >= 0 else topic or "no topic"
                return f"{where} waits at address {lane.behind.address}: {lane.closed.reason}"
        return None
