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
from bridge.engine import Command, Commit, Connect, Engine, Position, State
from bridge.errors import DestinationError, Forbidden, Undeliverable
from bridge.feed import NO_TOPIC, Feed
from bridge.kafka import Cluster, Delivered, Forbade, KafkaEvent, NotReachable
from bridge.lanes import LaneNotes
from bridge.routing import Routing
from bridge.status import Status
from bridge.topics import Topics

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["Forwarder"]

_log = logging.getLogger("bridge")

CURSOR = "bridge"
IDLE_S = 0.2  # an idle wait: how late a signal or a due commit may be noticed
BUSY_S = 0.005  # a wait while acknowledgements are under way: how late new records are read


class Forwarder:
    """Forwards a log until it is told to stop, or with `drain` until what was there at the start
    is acknowledged.

    topic: for records that name none; the log's own if None. routing: in place of topic, where
    there are rules. prune_delivered: removes slabs that the cursor and every other protecting
    cursor have passed, or of them what retention lets go. Raises what Reader and `check` raise.
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
        prune_delivered: bool | Retention = False,
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
            self._drain_to = self._reader.end() if drain else None
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
            commit_s=commit_s,
            stop_s=stop_s,
            in_doubt=not self._notes.clean,
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
        )
        keep = Retention(max_slabs=1) if prune_delivered is True else prune_delivered
        self._retention = keep or None
        self._stop_asked = False
        self.moved_s = time.monotonic()  # when its thread last showed that it does not hang
        self._forbidden = False
        self._lost = 0
        self._gaps: set[int] = set()
        self._rate_from = (time.monotonic(), 0)
        self._rate = 0.0

    # --- life ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Asks it to end soon; safe in a signal handler."""
        self._stop_asked = True

    def run(self, report: Callable[[Status], None] | None = None, every_s: float = 1.0) -> Status:
        """Forwards until the end; the last status. Raises Undeliverable or Forbidden where it
        stands before a record, with the cursor durable up to there."""
        report_due_s = 0.0
        try:
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
            self._reader.close()
        if self._engine.state is State.FAILED:
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
        elif engine.wants_batch:
            self._do(feed.read(0.0 if busy else wait_s))
        elif not busy:
            time.sleep(wait_s)

    def _drained(self) -> bool:
        if self._drain_to is None or self._engine.state is not State.SENDING:
            return False
        if self._feed.pending:
            return False
        if self._engine.position.address >= self._drain_to:
            return True
        return self._feed.idle and not self._engine.outstanding  # what is left cannot be read

    def _finish(self) -> None:
        """The last word of the notes: whether anything may still be in flight."""
        engine = self._engine
        under_way = engine.outstanding > 0 or engine.in_doubt
        self._notes.clean = engine.state is State.STOPPED and not under_way
        self._save_notes()
        self._prune()

    def _failure(self) -> DestinationError:
        reason, address = self._engine.failure, self._engine.failed_at
        if self._forbidden:
            return Forbidden(
                f"the cluster refuses: {reason}",
                hint="check credentials and rights, then start again: nothing is lost",
            )
        if reason == NO_TOPIC:
            return Undeliverable(
                f"the record at address {address} names no topic and there is no default",
                hint="name one with --topic",
                path=self._reader.path,
                address=address,
            )
        where = "" if address is None else f"the record at address {address} "
        return Undeliverable(
            f"{where}cannot be delivered: {reason}",
            hint="raise the topic's limits, or move the cursor past it with `aolog cursor set`",
            path=self._reader.path,
            address=address,
        )

    # --- commands and events ------------------------------------------------------------------

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Connect):
                self._connect(careful=command.careful)
            elif isinstance(command, Commit):
                self._commit(command.position)
            else:
                self._disconnect()

    def _take(self, event: KafkaEvent) -> None:
        engine = self._engine
        if isinstance(event, Delivered):
            self._do(
                engine.delivered(event.lane, event.address, event.offset, now_s=time.monotonic())
            )
        elif isinstance(event, Forbade):
            self._forbidden = True
            self._do(engine.refused(event.reason, None, now_s=time.monotonic()))
        elif event.address is not None:
            self._do(engine.refused(event.reason, event.address, now_s=time.monotonic()))
        else:
            _log.warning("sending again from the cursor: %s", event.reason)
            again = engine.suspect if event.suspect else engine.failed
            self._do(again(event.reason, now_s=time.monotonic()))

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
        try:
            self._notes.save()
        except SyncFailed:
            raise
        except StorageError as error:
            # Older notes only make a restart read more; the cursor needs no free block.
            _log.warning("lane notes were not saved: %s", error)

    def _connect(self, *, careful: bool) -> None:
        self._cluster.connect(careful=careful)
        self._feed.connected(careful=careful)
        self._topics.forget()
        lanes = dict(self._notes.lanes)
        if not lanes:
            self._do(self._engine.connected({}))
            return
        reader = self._cluster.reader(self._asked_to_stop)
        try:
            held = read_back(
                reader,
                lanes,
                self._notes.source,
                below=self._reader.end(),
                clean=self._notes.clean,
                distrusts=self._engine.distrusts,
            )
        except NotReachable as error:
            if self._cluster.forbids():
                for event in self._cluster.poll(0):
                    self._take(event)
                return
            self._cluster.last_error = str(error)
            self._do(self._engine.failed(str(error), now_s=time.monotonic()))
            return
        finally:
            reader.close()
        if self._notes.clean:
            self._notes.clean = False  # before anything is sent: a crash is no clean stop
            self._save_notes()
        self._do(self._engine.connected(held))

    def _asked_to_stop(self) -> bool:
        self.moved_s = time.monotonic()
        return self._stop_asked

    def _disconnect(self) -> None:
        self._cluster.disconnect()
        self._feed.forget()
        if not self._engine.over:
            self._go_back(self._engine.position)

    def _go_back(self, position: Position) -> None:
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
        return Status(
            state=state,
            reachable=self._cluster.reachable,
            position=engine.position.address,
            committed=engine.committed.address,
            acknowledged=engine.acknowledged,
            skipped=self._feed.skipped,
            outstanding=engine.outstanding,
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            lost_records=self._lost,
            gaps=len(self._gaps),
            error=engine.failure or (None if self._cluster.reachable else self._cluster.last_error),
            rate=self._rate,
        )
