"""Forwarder: one log to one cluster. The thin shell around the engine.

It owns the reader with its cursor, the cluster, the lane notes and the clock; it carries out
the engine's commands and reports events to it. One thread does everything.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from aolog import Gap, Reader, Record
from aolog.errors import AddressPruned, StorageError, SyncFailed
from aolog.retention import Retention, prune
from aolog.storage import Storage
from bridge.engine import Command, Commit, Connect, Engine, LaneKey, Position, State
from bridge.errors import DestinationError, Forbidden, Undeliverable
from bridge.kafka import (
    Cluster,
    Delivered,
    Forbade,
    KafkaEvent,
    NotReachable,
    ReadBack,
    Refused,
)
from bridge.lanes import LaneNote, LaneNotes
from bridge.planning import MARK_EVERY, Outgoing, plan
from bridge.routing import partition_of
from bridge.stamp import HEADER_NAME, encode_stamp

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aolog.batch import Batch

__all__ = ["Forwarder", "Status"]

_log = logging.getLogger("bridge")

CURSOR = "bridge"
NO_TOPIC = "it names no topic and there is no default"
READ_BYTES = 256 << 10  # a batch: a few thousand small records, a tick's worth of work
ANSWER_S = 5.0  # how long the cluster may take for a question before it counts as out of reach
TOPIC_WAIT_S = 30.0  # a topic that is being created appears within seconds
SETTLE_S = 0.25  # after an unclean stop: a predecessor's last request may still be landing
SETTLE_MAX_S = 5.0
IDLE_S = 0.2  # an idle wait: how late a signal or a due commit may be noticed
BUSY_S = 0.005  # a wait while acknowledgements are under way: how late new records are read


class Status(NamedTuple):
    """A moment in a forwarder's life, for progress and machines.

    acknowledged, skipped: records since it started; skipped were in Kafka already. lag_records,
    lag_bytes, lag_seconds: not yet acknowledged. lost_records: in gaps that it had to pass.
    """

    state: str
    reachable: bool
    position: int
    committed: int
    acknowledged: int
    skipped: int
    outstanding: int
    lag_records: int | None
    lag_bytes: int
    lag_seconds: float | None
    lost_records: int
    gaps: int
    error: str | None
    rate: float


class Forwarder:
    """Forwards a log until it is told to stop, or with `drain` until what was there at the start
    is acknowledged.

    topic: for records that name none; the log's own if None. prune_delivered: removes slabs that
    the cursor and every other protecting cursor have passed. Raises what Reader and `check`
    raise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        topic: str | None,
        bootstrap_servers: str,
        settings: dict[str, str] | None = None,
        cursor: str = CURSOR,
        drain: bool = False,
        commit_s: float = 1.0,
        stop_s: float = 5.0,
        prune_delivered: bool = False,
    ) -> None:
        self._storage = Storage()
        self._reader = Reader(path, cursor=cursor, on_gap=self._on_gap, storage=self._storage)
        try:
            self._topic = topic if topic is not None else self._reader.topic
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
        self._prune_delivered = prune_delivered
        self._partitions: dict[str, int] = {}
        self._topic_asked_s: dict[str, float] = {}
        self._stop_asked = False
        self._forbidden = False
        self._skipped = 0
        self._lost = 0
        self._gaps: set[int] = set()
        self._idle = False
        self._mark_every = MARK_EVERY
        self._waiting: list[Outgoing] = []
        self._epoch = 0
        self._opening: set[LaneKey] = set()
        self._pending: Batch | None = None
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
        engine = self._engine
        now_s = time.monotonic()
        if self._stop_asked or self._drained():
            self._do(engine.stop(now_s=now_s))
        self._do(engine.tick(now_s))
        if engine.over:
            return
        busy = bool(engine.outstanding or self._waiting)
        more = engine.wants_batch and not self._waiting and not self._idle
        for event in self._cluster.poll(BUSY_S if busy and not more else 0):
            self._take(event)
        wait_s = min(IDLE_S, engine.seconds_to_tick(now_s))
        if self._waiting:
            self._send_waiting()
        elif engine.wants_batch:
            self._read_and_send(0.0 if busy else wait_s)
        elif not busy:
            time.sleep(wait_s)

    def _drained(self) -> bool:
        if self._drain_to is None or self._engine.state is not State.SENDING:
            return False
        if self._pending is not None:
            return False
        if self._engine.position.address >= self._drain_to:
            return True
        return self._idle and not self._engine.outstanding  # what is left cannot be read

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
        if not self._prune_delivered:
            return
        pruned = prune(self._reader.path, self._storage, Retention(max_slabs=1))
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
        self._mark_every = 1 if careful else MARK_EVERY
        self._partitions.clear()
        self._topic_asked_s.clear()
        lanes = dict(self._notes.lanes)
        if not lanes:
            self._do(self._engine.connected({}))
            return
        reader = self._cluster.reader(self._asked_to_stop)
        try:
            held = self._read_back(reader, lanes)
        except NotReachable as error:
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
        return self._stop_asked

    def _disconnect(self) -> None:
        self._cluster.disconnect()
        self._waiting.clear()
        self._opening.clear()
        self._pending = None
        self._idle = False
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

    def _read_back(self, reader: ReadBack, lanes: dict[LaneKey, LaneNote]) -> dict[LaneKey, int]:
        """The last address that each lane holds. After an unclean stop it waits until a
        predecessor's last request has landed. Partitions that are gone hold nothing."""
        there = {topic: reader.partitions(topic, ANSWER_S) for topic in {key[0] for key in lanes}}
        lanes = {
            key: note
            for key, note in lanes.items()
            if key[1] < there[key[0]] and not self._engine.distrusts(key)
        }
        held = {key: note.address for key, note in lanes.items()}
        seen: dict[LaneKey, int] = {}
        settle_until_s = time.monotonic() + SETTLE_MAX_S
        while True:
            moved = False
            for key, note in lanes.items():
                first, end = reader.ends(key, ANSWER_S)
                if end == seen.get(key):
                    continue
                seen[key], moved = end, True
                begin = max(min(note.offset, end), first)  # beyond the end: the topic is a new one
                if begin < end:
                    stamp = reader.last_stamp(
                        key, self._notes.source, begin, end, self._reader.end(), ANSWER_S * 2
                    )
                    held[key] = max(held[key], -1 if stamp is None else stamp)
                note.offset, note.address = max(begin, end - 1), held[key]
            if self._notes.clean or not moved or time.monotonic() > settle_until_s:
                return held
            time.sleep(SETTLE_S)

    # --- from the log to the lanes ------------------------------------------------------------

    def _read_and_send(self, timeout_s: float) -> None:
        batch = self._pending or self._reader.read_batch(READ_BYTES, timeout=timeout_s)
        self._idle = batch is None
        if batch is None:  # the position moves on over seals and gaps
            self._engine.read(Position(self._reader.tell(), self._reader.ordinal), [])
            self._do(self._engine.stands(now_s=time.monotonic()))
            return
        self._pending = batch
        records, read_to = self._until_refused(batch)
        for record in records:
            topic = record.topic or self._topic
            if topic not in self._partitions and not self._know(topic, record.address):
                return
        self._pending = None
        outgoing, marks = plan(
            records,
            _first_ordinal(batch),
            self._lane_of,
            self._engine.holds,
            self._engine.opened,
            mark_every=self._mark_every,
        )
        self._skipped += len(records) - len(outgoing)
        self._engine.read(read_to, marks)
        self._waiting = outgoing
        self._epoch = batch.frames[0].epoch
        self._send_waiting()
        self._do(self._engine.stands(now_s=time.monotonic()))

    def _until_refused(self, batch: Batch) -> tuple[list[Record], Position]:
        """The batch's records, up to one that the cluster will not take."""
        records = list(batch)
        at = self._engine.failed_at
        kept = records if at is None else [r for r in records if r.address < at]
        if at is None or len(kept) == len(records):
            return records, Position(self._reader.tell(), self._reader.ordinal)
        first = _first_ordinal(batch)
        return kept, Position(at, None if first is None else first + len(kept))

    def _lane_of(self, record: Record) -> LaneKey:
        topic = record.topic or self._topic
        assert topic is not None
        return topic, partition_of(record.key, self._notes.source, self._partitions[topic])

    def _know(self, topic: str | None, address: int) -> bool:
        """Whether the lanes of a record's topic are known and noted; else ask again later."""
        if topic is None:
            reason = NO_TOPIC
            self._do(self._engine.refused(reason, address, now_s=time.monotonic()))
            return False
        now_s = time.monotonic()
        asked_s = self._topic_asked_s.setdefault(topic, now_s)
        try:
            partitions = self._lanes_in_use(topic, self._cluster.partitions(topic, ANSWER_S))
            if partitions:
                self._note_lanes(topic, partitions)
        except Refused as error:
            self._do(self._engine.refused(str(error), address, now_s=now_s))
            return False
        except (NotReachable, StorageError) as error:
            if isinstance(error, SyncFailed):
                raise
            del self._topic_asked_s[topic]
            self._cluster.last_error = str(error)
            self._do(self._engine.failed(str(error), now_s=now_s))
            return False
        for event in self._cluster.poll(0):
            self._take(event)
        if self._engine.state is not State.SENDING:
            return False
        if partitions:
            self._partitions[topic] = partitions
            self._topic_asked_s.pop(topic, None)
            return True
        if now_s - asked_s > TOPIC_WAIT_S:
            reason = f"there is no topic {topic!r}"
            self._do(self._engine.refused(reason, address, now_s=now_s))
        time.sleep(IDLE_S)
        return False

    def _lanes_in_use(self, topic: str, partitions: int) -> int:
        """Into how many lanes the topic's records are cut. Where one has records that the cursor
        has not passed, as many as they were cut into: in a topic that has grown since, they would
        be looked for in other lanes, and missing ones be taken for held."""
        noted = sum(name == topic for name, _ in self._notes.lanes)
        position = self._engine.position.address
        lanes = self._engine.lanes.items()
        ahead = any(name == topic and lane.last_address >= position for (name, _), lane in lanes)
        return noted if ahead and 0 < noted < partitions else partitions

    def _note_lanes(self, topic: str, partitions: int) -> None:
        """Before a lane is first used it is durable from where to read it back."""
        new = [key for p in range(partitions) if (key := (topic, p)) not in self._notes.lanes]
        if not new:
            return
        reader = self._cluster.reader(self._asked_to_stop)
        try:
            for key in new:
                first, end = reader.ends(key, ANSWER_S)
                self._notes.lanes[key] = LaneNote(first if self._notes.lost else end)
            if self._notes.lost:
                _log.warning("reading %s back from its begin", topic)
                lanes = {key: self._notes.lanes[key] for key in new}
                for key, address in self._read_back(reader, lanes).items():
                    self._engine.note_held(key, address)
            self._notes.clean = False
            self._notes.save()
        except BaseException:
            for key in new:
                self._notes.lanes.pop(key, None)
            raise
        finally:
            reader.close()

    def _send_waiting(self) -> None:
        """Sends what is planned, as far as the client's queue takes it."""
        epoch, source = self._epoch, self._notes.source
        send, opened, opening = self._cluster.send, self._engine.opened, self._opening
        waiting = self._waiting
        for i, (record, lane, marked) in enumerate(waiting):
            if lane in opening:
                if not opened(lane):
                    self._waiting = waiting[i:]
                    return
                opening.discard(lane)
            stamp = encode_stamp(source, epoch, record.address, record.timestamp)
            headers: list[tuple[str, str | bytes | None]] = [*record.headers, (HEADER_NAME, stamp)]
            mark = record.address if marked else None
            try:
                sent = send(
                    lane, record.value, record.key, _milliseconds(record.timestamp), headers, mark
                )
            except Refused as error:
                self._do(self._engine.refused(str(error), record.address, now_s=time.monotonic()))
                return
            if not sent:
                self._waiting = waiting[i:]
                return
            if marked and not opened(lane):
                opening.add(lane)
            if not i % 4096 and i:
                self._cluster.serve()
        self._waiting = []

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
            skipped=self._skipped,
            outstanding=engine.outstanding,
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            lost_records=self._lost,
            gaps=len(self._gaps),
            error=engine.failure or (None if self._cluster.reachable else self._cluster.last_error),
            rate=self._rate,
        )


def _first_ordinal(batch: Batch) -> int | None:
    frame = batch.frames[0]
    return None if frame.ordinal is None else frame.ordinal + frame.skip


def _milliseconds(timestamp_us: int | None) -> int:
    """Kafka's timestamp: rounded down. 0 makes the client take the present, which is right for a
    record without one; what lies before 1970 Kafka cannot say, so it becomes its first
    millisecond and only the stamp has the truth."""
    if timestamp_us is None:
        return 0
    return max(1, timestamp_us // 1000)
