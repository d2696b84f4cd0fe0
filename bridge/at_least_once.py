"""At least once: the thin shell around `engine`. Every record carries a stamp, and what arrived
before a crash is read back and not sent again.

It owns the cluster, the lane notes and the feed; it carries out the engine's commands and
reports events to it. One thread does everything.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from aolog.errors import StorageError, SyncFailed
from bridge.arrivals import read_back
from bridge.delivery import AT_LEAST_ONCE, BUSY_S, IDLE_S, Progress, undeliverable
from bridge.engine import Command, Commit, Connect, Engine, Position, State
from bridge.errors import DestinationError, Forbidden
from bridge.feed import Feed
from bridge.kafka import Cluster, Delivered, Forbade, KafkaEvent, NotReachable
from bridge.topics import NotedTopics

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.lanes import LaneNotes
    from bridge.source import Source

__all__ = ["AtLeastOnce"]

_log = logging.getLogger("bridge")


class AtLeastOnce:
    """See the module, and bridge.delivery. topic: for records that name none. give_up: asked now
    and then where something takes long."""

    def __init__(
        self,
        source: Source,
        notes: LaneNotes,
        *,
        topic: str | None,
        bootstrap_servers: str,
        settings: dict[str, str],
        commit_s: float,
        stop_s: float,
        give_up: Callable[[], bool],
    ) -> None:
        reader = source.reader
        self._source = source
        self._notes = notes
        start = source.position
        if notes.delivery != AT_LEAST_ONCE or not reader.has_cursor_position:
            notes.delivery = AT_LEAST_ONCE
            notes.save()  # before the cursor is: after it they would count as lost
        reader.commit()  # from now on it protects what it has not passed
        self._give_up = give_up
        self._cluster = Cluster(bootstrap_servers, settings)
        self._engine = Engine(
            start,
            now_s=time.monotonic(),
            commit_s=commit_s,
            stop_s=stop_s,
            in_doubt=not notes.clean,
        )
        self._topics = NotedTopics(
            self._cluster, self._engine, notes, below=reader.end, give_up=give_up
        )
        self._feed = Feed(
            reader, self._engine, self._cluster, self._topics, topic=topic, source=notes.source
        )
        self._forbidden = False

    # --- a round ------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """As Delivery says."""
        return self._engine.over

    @property
    def attempts(self) -> int:
        """As Delivery says."""
        return self._engine.attempts

    def turn(self, now_s: float) -> None:
        """As Delivery says."""
        engine, feed = self._engine, self._feed
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

    def stop(self, now_s: float) -> None:
        """As Delivery says."""
        self._do(self._engine.stop(now_s=now_s))

    def drain(self, to: int) -> bool:
        """As Delivery says."""
        if self._engine.state is not State.SENDING or self._feed.pending:
            return False
        if self._engine.position.address >= to:
            return True
        return self._feed.idle and not self._engine.outstanding  # what is left cannot be read

    def finish(self) -> None:
        """The last word of the notes: whether anything may still be in flight."""
        engine = self._engine
        under_way = engine.outstanding > 0 or engine.in_doubt
        self._notes.clean = engine.state is State.STOPPED and not under_way
        self._save_notes()
        self._source.prune()

    def error(self) -> DestinationError | None:
        """As Delivery says."""
        if self._engine.state is not State.FAILED:
            return None
        reason = self._engine.failure
        if self._forbidden:
            return Forbidden(
                f"the cluster refuses: {reason}",
                hint="check credentials and rights, then start again: nothing is lost",
            )
        return undeliverable(self._source.reader.path, reason, self._engine.failed_at)

    def close(self) -> None:
        """As Delivery says."""
        self._cluster.disconnect()

    def progress(self) -> Progress:
        """As Delivery says."""
        engine, cluster = self._engine, self._cluster
        state = engine.state
        if state is State.SENDING and not cluster.reachable:
            state = State.CONNECTING
        return Progress(
            state=state.value,
            reachable=cluster.reachable,
            position=engine.position,
            committed=engine.committed,
            acknowledged=engine.acknowledged,
            skipped=self._feed.skipped,
            outstanding=engine.outstanding,
            error=engine.failure or (None if cluster.reachable else cluster.last_error),
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
            self._source.commit(position)
            self._engine.committed_at(position)
            self._save_notes()
            self._source.prune()

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
        reader = self._cluster.reader(self._give_up)
        try:
            held = read_back(
                reader,
                lanes,
                self._notes.source,
                below=self._source.reader.end(),
                clean=self._notes.clean,
                distrusts=self._engine.distrusts,
            )
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

    def _disconnect(self) -> None:
        self._cluster.disconnect()
        self._feed.forget()
        if not self._engine.over:
            self._source.go_back(self._engine.position)
