"""At least once: the thin shell around `engine`. Every record carries a stamp, and what arrived
before a crash is read back and not sent again.

It owns the cluster, the lane notes, the feed and the dead letters; it carries out the engine's
commands and reports events to it. One thread does everything but the cursor's commits.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from aolog.errors import StorageError, SyncFailed, counted
from bridge.deliver.at_least_once.arrivals import read_back
from bridge.deliver.at_least_once.engine import (
    Command,
    Commit,
    Connect,
    Engine,
    Poison,
    SetAside,
    State,
)
from bridge.deliver.at_least_once.recognise import Recogniser
from bridge.deliver.at_least_once.sender import Feed
from bridge.deliver.at_least_once.topics import Topics
from bridge.deliver.committer import Committer
from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.delivery import (
    AT_LEAST_ONCE,
    BUSY_S,
    IDLE_S,
    Progress,
    undeliverable,
)
from bridge.deliver.stall_watch import StallWatch, late
from bridge.deliver.trouble_log import TroubleLog
from bridge.kafka.client import NotReachable, ToldToStop
from bridge.kafka.error_table import advice
from bridge.kafka.events import Delivered, Failed, Forbade, KafkaEvent
from bridge.kafka.lane import Refusal, lane_name
from bridge.kafka.producer import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog import Record
    from bridge.config.routing import Routing
    from bridge.deliver.at_least_once.partition_state import Position
    from bridge.deliver.checkpoints import LaneNotes
    from bridge.deliver.log_source import Source
    from bridge.errors import DestinationError
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.topic_creation import CreateTopics

__all__ = ["AtLeastOnce"]

_log = logging.getLogger("bridge")
_AGAIN = "a reload (SIGHUP) or a restart tries again"
_INSTEAD = "start with --poison dead-letter"
_REPLAY_AGAIN = "another replay tries again"
_REPLAY_INSTEAD = "pass it with --poison drop"


def _stands(key: LaneKey, how: str, address: int, refusal: Refusal) -> str:
    return f"{lane_name(key)} {how} address {address}: {refusal.reason}: {advice(refusal.code)}"


class AtLeastOnce:
    """See the module, and bridge.deliver.delivery. routing: where records go. poison, until,
    create_topics: see Forwarder; reads_back: its read_back. view, keyless: see Feed. give_up: asked now and then where something takes long."""

    def __init__(
        self,
        source: Source,
        notes: LaneNotes,
        *,
        routing: Routing,
        bootstrap_servers: str,
        settings: dict[str, str],
        commit_s: float,
        stop_s: float,
        poison: Poison,
        until: int | None,
        view: Callable[[Record], Record] | None,
        keyless: bytes | None,
        create_topics: CreateTopics,
        reads_back: bool,
        give_up: Callable[[], bool],
    ) -> None:
        reader = source.reader
        self._source = source
        self._notes = notes
        start = source.position
        self._rerouted = self._distrust_rerouted(routing, start.address)
        self._known_end = reader.end()
        if notes.delivery != AT_LEAST_ONCE or not reader.has_cursor_position:
            notes.delivery = AT_LEAST_ONCE
            notes.save()  # before the cursor is: after it they would count as lost
        reader.commit()  # from now on it protects what it has not passed
        self._give_up = give_up
        self._cluster = Cluster(
            bootstrap_servers,
            settings,
            notes.cluster,
            create_topics=create_topics,
            reads_back=reads_back,
        )
        self._reads_back = reads_back
        self._engine = Engine(
            start,
            now_s=time.monotonic(),
            poison=poison,
            commit_s=commit_s,
            stop_s=stop_s,
            until=until,
            in_doubt=not notes.clean,
        )
        self._committer = Committer(source, self._engine.committed_at, self._saving)
        for key, note in notes.lanes.items():
            if note.distrusted:
                lane = self._engine.lane(key)
                lane.distrusted, lane.last_address = True, note.address
        self._dead = DeadLetters(
            reader.path,
            source.cursor,
            notes.source,
            source.storage,
            drop=poison == "drop",
            mode=source.mode,
        )
        if poison == "dead-letter":
            self._engine.aside |= self._dead.known(start.address, notes.aside_from)
        self._recogniser = Recogniser(
            reader.path,
            source.storage,
            notes.source,
            since=lambda: self._engine.position.address,
            view=view,
        )
        self._topics = Topics(
            self._cluster, self._engine, notes, recogniser=self._recogniser, give_up=give_up
        )
        admission = self._cluster.admission()
        self._topic_settings = self._cluster.topic_settings(admission)
        self._feed = Feed(
            source,
            self._engine,
            self._cluster,
            self._topics,
            admission=admission,
            routing=routing,
            uuid=notes.source,
            view=view,
            keyless=keyless,
        )
        replays = until is not None or view is not None  # it has another command, which ends
        self._again = _REPLAY_AGAIN if replays else _AGAIN
        self._instead = _REPLAY_INSTEAD if replays else _INSTEAD
        self._draining = self._has_read_back = False
        self._stood: set[LaneKey] = set()
        self._watch = StallWatch(self._cluster, self._topic_settings, self._low)
        self._trouble = TroubleLog()
        self._named: str | None = None  # the last failure that was logged with its topic or its log

    def _distrust_rerouted(self, routing: Routing, position: int) -> set[LaneKey]:
        """Records that waited may go to other lanes now. What such a lane holds from the cursor on
        does not vouch for them: it is sent again, until the cursor has passed what was there."""
        notes = self._notes
        ahead = {
            key
            for key, note in notes.lanes.items()
            if note.address >= position
            and notes.routing
            and routing.may_reroute_to(key[0], notes.routing)
        }
        for key in ahead:
            notes.lanes[key].distrusted, notes.lanes[key].address = True, position - 1
        if ahead:
            _log.warning(
                "records go elsewhere than before, and some lanes are ahead of those that waited: "
                "what %s received from address %d on is sent again",
                ", ".join(map(lane_name, sorted(ahead))),
                position,
            )
        # Saved with what is noted next; after a crash before that this is done again.
        notes.routing = routing.fingerprint
        return ahead

    # --- a round ------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """As Delivery says."""
        return self._engine.over

    @property
    def unread(self) -> Position:
        """As Delivery says."""
        return self._engine.unread

    @property
    def attempts(self) -> int:
        """As Delivery says."""
        return self._engine.backoff.attempts

    def turn(self, now_s: float) -> None:
        """As Delivery says."""
        engine, feed = self._engine, self._feed
        self._committer.go_on()
        self._do(engine.tick(now_s))
        if engine.over:
            return
        self._tell_standing()
        self._watch.look(now_s)
        idle = feed.idle and not engine.outstanding
        if (
            engine.state is State.SENDING
            and self._cluster.reachable
            and (idle or not engine.backoff.attempts)
        ):
            self._trouble.over()
        busy = bool(engine.outstanding or feed.waiting)
        more = engine.wants_batch and not feed.waiting and not feed.idle
        for event in self._cluster.poll(BUSY_S if busy and not more else 0):
            self._take(event)
        wait_s = min(IDLE_S, engine.seconds_to_tick(now_s))
        if engine.state is State.SENDING and not feed.waiting:
            self._do(feed.look_again())
        if feed.waiting:
            self._do(feed.send())
        elif (pause_s := self._source.pace.wait_s(now_s)) > 0:
            if not busy:
                time.sleep(min(pause_s, wait_s))
        elif engine.wants_batch and (self._cluster.reachable or not engine.outstanding):
            self._do(feed.read(0.0 if busy else wait_s))
        elif not busy:
            time.sleep(wait_s)

    def stop(self, now_s: float) -> None:
        """As Delivery says."""
        self._do(self._engine.stop(now_s=now_s))

    def reopen(self) -> None:
        """As Delivery says."""
        self._topics.hurry()
        self._topic_settings.forget()
        for key in self._engine.reopen():
            _log.info("%s is tried again", lane_name(key), extra={"event": "lane_reopened"})

    def drain(self, to: int) -> bool:
        """As Delivery says."""
        self._draining = True
        if self._engine.state is not State.SENDING:
            return False
        if self._engine.position.address >= to:
            return True
        return self._feed.idle and self._engine.stopped_short  # what is left cannot be sent

    def finish(self) -> None:
        """The last word of the notes: whether anything may still be in flight."""
        self._committer.finish()
        engine = self._engine
        under_way = engine.outstanding > 0 or engine.in_doubt
        self._notes.clean = engine.state is State.STOPPED and not under_way
        self._saving()()
        self._source.prune()

    def error(self) -> DestinationError | None:
        """As Delivery says: it drained, but for lanes that stand."""
        if not self._draining or self._give_up() or not self._engine.standing:
            return None
        standing = self._engine.standing.items()
        key, lane = min(standing, key=lambda item: item[1].behind or self._engine.frontier)
        assert lane.closed is not None
        assert lane.behind is not None
        return undeliverable(
            self._source.reader.path,
            lane.closed,
            lane.behind.address,
            instead=self._instead,
            lanes=len(standing),
            topic=key[0],
        )

    def close(self) -> None:
        """As Delivery says."""
        with ExitStack() as closing:  # in the other order, all of them, whatever one raises
            closing.callback(self._dead.close)
            closing.callback(self._cluster.disconnect)
            closing.callback(self._committer.close)

    def progress(self) -> Progress:
        """As Delivery says."""
        engine, cluster, dead = self._engine, self._cluster, self._dead
        stalled = self._watch.now(time.monotonic())
        waits = self._watch.too_few or late(stalled) or self._held_up()
        state = engine.state.value
        if engine.state is State.SENDING and not cluster.reachable:
            state = State.CONNECTING.value
        elif engine.state is State.SENDING and engine.standing and engine.stopped_short:
            state = "blocked"
        return Progress(
            state=state,
            reachable=cluster.reachable,
            position=engine.position,
            committed=engine.committed,
            acknowledged=engine.acknowledged,
            skipped=engine.skipped,
            outstanding=engine.outstanding,
            error=cluster.trouble(engine.failure) or waits,
            dead_lettered=dead.set_aside,
            dropped=dead.dropped,
            standing=len(engine.standing),
            held_back=sum(lane.behind is not None for lane in engine.lanes.values()),
            topics=engine.acknowledged_by_topic,
            stalled=tuple(stalled),
        )

    def _low(self, key: LaneKey) -> int | None:
        lane = self._engine.lanes.get(key)
        low = None if lane is None else lane.low()
        return None if low is None else low.address

    def _held_up(self) -> str | None:
        """What keeps some lane from going on."""
        for key, lane in self._engine.lanes.items():
            if lane.closed is not None and lane.behind is not None:
                asked = lane.closed.passing or key in self._topics  # by itself, now and then
                until = "" if asked else f"; {self._again}"
                return _stands(key, "waits at", lane.behind.address, lane.closed) + until
        return None

    def _tell_standing(self) -> None:
        """Once for each lane that has come to stand. Of topics that are missing `topics` tells."""
        standing = self._engine.standing
        for key in standing.keys() - self._stood:
            lane = standing[key]
            if lane.closed is not None and lane.behind is not None and key not in self._topics:
                _log.warning(
                    "%s; %s",
                    _stands(key, "stands before", lane.behind.address, lane.closed),
                    self._again,
                    extra={"event": "lane_stands", "code": lane.closed.code},
                )
        self._stood = set(standing)

    # --- commands and events ------------------------------------------------------------------

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Connect):
                self._connect(careful=command.careful)
            elif isinstance(command, Commit):
                if command.position.address > self._engine.committed.address:
                    self._committer.want(command.position)
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
            refusal = Refusal(event.reason, event.code)
            if event.topic is not None:
                refusal = Refusal(f"topic {event.topic!r}: {event.reason}", event.code)
                self._topics.forbid(event.topic, refusal)
            reason = f"{refusal.reason}: {advice(refusal.code)}"
            if event.topic is None:
                reason = self._cluster.forbidden or reason
            else:
                self._named = reason
            self._do(engine.failed(reason, now_s=time.monotonic()))
        elif event.suspect:
            self._suspect(event)
        else:
            self._do(engine.failed(event.reason, now_s=time.monotonic()))

    def _suspect(self, event: Failed) -> None:
        """A request was refused: for records that are named, or that can be known by what the topic
        takes, or that have to be looked for."""
        engine, lane = self._engine, event.lane
        where = "a partition" if lane is None else lane_name(lane)
        lanes = engine.lanes.items()
        suspected = {lane[0]} if lane else {key[0] for key, each in lanes if each.outstanding}
        bounds = self._topic_settings.learn(suspected)
        if bounds:
            self._cluster.fit(bounds)
            _log.info("%s rejected a request: %s", where, event.reason)
            self._do(engine.again(event.reason, now_s=time.monotonic()))
            return
        what = "resending smaller groups to find the record"
        if event.named:
            what = f"{counted(len(event.named), 'record', ',')} of it will not be sent again"
        _log.info("%s rejected a request: %s; %s", where, event.reason, what)
        told = engine.suspect(
            event.reason, event.code, lane, named=event.named, now_s=time.monotonic()
        )
        self._do(told)

    def _set_aside(self, command: SetAside) -> None:
        try:
            self._dead.take(command.records, self._feed.records, self._feed.epoch)
        except SyncFailed:
            raise
        except StorageError as error:
            reason = self._named = f"no record can be set aside: {error}"
            self._do(self._engine.failed(reason, now_s=time.monotonic()))
            return
        self._engine.set_aside(aside.position.address for aside in command.records)
        self._do(self._feed.send())

    def _saving(self) -> Callable[[], None]:
        """What saves the notes, with what the lanes are known to hold by now."""
        passed = self._engine.committed.address >= self._known_end
        for key, lane in self._engine.lanes.items():
            note = self._notes.lanes.get(key)
            if passed and key in self._rerouted:
                self._rerouted.discard(key)
                lane.distrusted = False
            if note is not None:
                note.address = max(note.address, lane.last_address)
                note.offset = max(note.offset, lane.last_offset)
                note.distrusted = lane.distrusted
        return self._notes.saving()

    def _connect(self, *, careful: bool) -> None:
        self._cluster.connect(careful=careful)
        self._topics.forget()
        lanes = dict(self._notes.lanes)
        if not lanes or (self._has_read_back and not self._engine.in_doubt):
            self._do(self._engine.connected({}))
            return
        if not (self._reads_back or self._notes.clean):
            _log.warning(
                "what was under way is sent again, and may arrive twice: --no-read-back",
                extra={"event": "not_read_back"},
            )
        reader = self._cluster.reader(self._give_up)
        try:
            arrivals = read_back(
                reader,
                lanes,
                self._recogniser,
                clean=self._notes.clean,
                distrusts=self._engine.distrusts,
            )
        except ToldToStop:
            return
        except NotReachable as error:
            reason = self._cluster.unanswered(error)
            self._do(self._engine.failed(reason, now_s=time.monotonic()))
            return
        finally:
            reader.close()
        self._has_read_back = True
        self._notes.clean = False  # before anything is sent: a crash is no clean stop
        self._saving()()
        self._do(self._engine.connected(arrivals.held))
        self._topics.heard(arrivals)

    def _disconnect(self) -> None:
        engine = self._engine
        failed = (
            engine.backoff.attempts and not engine.over
        )  # otherwise a record was refused, or it stops
        if failed and engine.failure not in {None, self._named}:
            self._trouble.say(str(engine.failure), time.monotonic())
        self._cluster.disconnect()
        self._feed.forget()
