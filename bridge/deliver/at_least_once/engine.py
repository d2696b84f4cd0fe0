"""The delivery engine of one log: a pure state machine. Events in; the driver does what the state asks.

    state       event                      next
    connecting  connected                  sending
    connecting  failed, to be tried again  backing_off
    sending     delivered                  sending
    sending     failed, to be tried again  backing_off
    sending     stop                       stopping
    backing_off tick, delay over           connecting
    stopping    all acknowledged, or late  stopped
    stopping    failed, to be tried again  stopped
    sending     suspect, one of several    backing_off  at once, carefully
    sending     suspect, a single record   backing_off  at once, poison
    sending     suspect, records named     backing_off  at once, poison
    sending     poison read, to be set by  sending      the driver sets `pending` aside
    sending     poison read, to stop       sending
    sending     tick, held lanes fill it   backing_off
    connecting, backing_off: stop          stopped

The driver of a connecting engine makes a producer, reads back what arrived, and reports `connected`. In
backing_off and stopped it drops the producer, and everything that is not acknowledged.

Lanes. Each destination partition is a lane, which keeps the order of the log. Few records carry a
delivery callback. It acknowledges a *mark*: its record, and those of its lane since the mark before.
This is sound because the producer is idempotent and gapless: a partition takes its records in order,
and none after the first that failed. Kafka checks the order only of producers that it knows: from a
new one it takes any request first, even the second after it refused the first (seen with Kafka 4).
So on each connection a single record *opens* a lane, and the rest waits for its acknowledgement. A
mark is entered here before its first record is sent, so the cursor cannot pass that record.

The cursor's position is the least address that no lane has acknowledged. A lane that takes no more
for now does not delay the others: the reader goes on, up to the `frontier`, the end of all that was
read, and comes back (`next_read`) when the lane has room. A lane is *held* when its oldest record was
sent more than HOLD_S ago and either nothing at all is acknowledged, or other lanes could flow. The
records of held lanes are counted apart; if they fill a window of their own, the connection is closed.

Poison. The cluster refuses requests, not records. So after a refusal (`suspect`) the lane, or every
lane that may be meant, is bisected (see Bisection), without pauses. A poison record is set aside,
durably, before the next record of its lane is sent: so a later record that has arrived proves that
the poison was dealt with. With poison "stop" the lane stops before it. Only a record's own fault is
poison (see error_table); any other fault stops the lane.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import Enum

from aolog.record import Position
from aolog.write.options import BATCH_BYTES
from bridge.deliver.at_least_once.batch_planner import MARK_EVERY, Planned, plan
from bridge.deliver.at_least_once.found import Copies, Found, compare, conclude
from bridge.deliver.at_least_once.lanes import UNBOUNDED, Lane, Lanes, least
from bridge.deliver.at_least_once.window import Window
from bridge.deliver.backoff import Backoff
from bridge.deliver.verdicts import Aside, Given
from bridge.kafka.client_limits import LOG_BYTES_MAX
from bridge.kafka.error_table import names_records
from bridge.kafka.lane import NO_PARTITION, LaneKey, Refusal

_BATCHES = 4  # at least so many make up all that is in flight


class State(Enum):
    """The value is the word in status and logs."""

    CONNECTING = "connecting"
    SENDING = "sending"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(eq=False)
class Engine:
    """See the module. Times are seconds of any clock that only grows. Not thread-safe."""

    frontier: Position  # the end of all that was read
    _: KW_ONLY
    now_s: InitVar[float]
    stop_s: float = 5.0  # how long a stop waits for acknowledgements
    outstanding_max: int = 50_000  # of lanes that flow, and once more for lanes that are held
    bytes_max: int = LOG_BYTES_MAX  # in flight; lanes that are held have at most half of it
    mark_every: int = MARK_EVERY
    until: int | None = None  # nothing is read from this address on
    in_doubt: bool = False  # records of an earlier connection, or process, may still arrive
    backoff: Backoff = field(default_factory=lambda: Backoff())  # noqa: PLW0108 -- replaced by tests
    state: State = field(default=State.BACKING_OFF, init=False)
    lanes: Lanes = field(default_factory=Lanes, init=False)
    acknowledged: int = field(default=0, init=False)
    skipped: int = field(default=0, init=False)
    failure: str | None = field(default=None, init=False)
    pending: list[Aside] = field(default_factory=list, init=False)  # to set aside, before all else
    copies: list[Copies] = field(default_factory=list, init=False)  # found, and did not count

    def __post_init__(self, now_s: float) -> None:
        self.window = Window(self.bytes_max)
        self._read_from = self.frontier
        self._until = UNBOUNDED if self.until is None else self.until
        self._retry_at_s = now_s
        self._stop_at_s = float("inf")

    # --- questions ----------------------------------------------------------------------------

    @property
    def wants_batch(self) -> bool:
        """Whether to read a batch, from `next_read` on."""
        lanes = self.lanes
        if (
            self.state is not State.SENDING
            or self.pending
            or lanes.records - lanes.held_records >= self.outstanding_max
            or lanes.bytes - lanes.held_bytes >= self.window.bytes
            or lanes.memory_bytes > self.bytes_max - self.bytes_max // _BATCHES
            # The rest is for the next batch, and for the requests into which the client copies records.
            or lanes.memory_bytes - lanes.held_memory_bytes > self.bytes_max // 2
        ):
            return False
        if self.catching_up:
            return True
        if self.frontier.address >= self._until:
            return False
        soon = [lane for lane in lanes.values() if lane.soon]
        if not soon:
            return True
        return all(lane.opened for lane in soon) and any(lane.flows for lane in lanes.values())

    @property
    def batch_bytes(self) -> int:
        """How large the next batch should be. For a bisected lane a batch is read for each group, so it is small; but
        a full frame's: the client names the refused records of a request only if there are several."""
        return BATCH_BYTES if self.careful else min(self.window.bytes, self.bytes_max // _BATCHES)

    @property
    def next_read(self) -> Position:
        """Where to read: the first record that a lane with room left in the log, or the frontier."""
        roomy = (lane for lane in self.lanes.values() if lane.room() > 0)
        return least((lane.waits_from for lane in roomy), self.frontier)

    @property
    def catching_up(self) -> bool:
        """Whether the next batch was read before, for other lanes."""
        return self.next_read.address < self.frontier.address

    @property
    def position(self) -> Position:
        """Everything before this is acknowledged: the cursor may be here."""
        lows = [lane.low() for lane in self.lanes.values()]
        return least([*lows, *(aside.position for aside in self.pending)], self.frontier)

    @property
    def unread(self) -> Position:
        """The first record that still has to be read; records in flight are in memory."""
        return least((lane.waits_from for lane in self.lanes.values()), self.frontier)

    @property
    def compares(self) -> bool:
        """Whether lanes are compared with what was read back."""
        return any(lane.found is not None for lane in self.lanes.values())

    @property
    def outstanding(self) -> int:
        """Records that were sent and are not acknowledged."""
        return self.lanes.records

    @property
    def over(self) -> bool:
        """Stopped for good."""
        return self.state is State.STOPPED

    @property
    def careful(self) -> bool:
        """Whether a lane is being bisected."""
        return any(lane.bisection for lane in self.lanes.values())

    @property
    def stopped_short(self) -> bool:
        """Whether nothing is left to do except in standing lanes."""
        return not self.outstanding and all(
            lane.waits_from is None or lane.standing for lane in self.lanes.values()
        )

    def seconds_to_tick(self, now_s: float) -> float:
        """How long until `tick` has something to do; endless if only events are awaited."""
        if self.state is not State.BACKING_OFF:
            return float("inf")
        return max(0.0, self._retry_at_s - now_s)

    # --- reading ------------------------------------------------------------------------------

    def begin(self) -> Position:
        """Where to read the next batch; `admit` or `nothing_read` follows."""
        self._read_from = self.next_read
        return self._read_from

    def nothing_read(self, read_to: Position) -> None:
        """There were no records from `begin` up to here, only seals or gaps."""
        self._apply(Planned(), read_to, now_s=0.0)

    def admit(self, given: Given, read_to: Position, *, now_s: float) -> Planned:
        """Decides what to send of a batch that was read from `begin` up to `read_to`. The records
        to send count as outstanding on return. The cursor will not pass the others either."""
        if given.addresses and given.addresses[-1] >= self._until:
            count = bisect_left(given.addresses, self._until)
            given = given._replace(addresses=given.addresses[:count], lanes=given.lanes[:count])
        if self.compares:
            compare(given, self.lanes, begin=self._read_from.address)
            self.copies += conclude(self.lanes, self.unread.address)
        planned = plan(
            given,
            self.lanes.__getitem__,
            begin=self._read_from.address,
            mark_every=self.mark_every,
        )
        self._apply(planned, read_to, now_s=now_s)
        return planned

    def _apply(self, planned: Planned, read_to: Position, *, now_s: float) -> None:
        assert self.state is State.SENDING
        if read_to.address > self._until:
            read_to = Position(self._until, None)
        begin, self._read_from = self._read_from, read_to
        self.frontier = max(self.frontier, read_to, key=lambda place: place.address)
        more = read_to if read_to.address < self.frontier.address else None
        for lane in self.lanes.values():
            waits_from = lane.waits_from
            if (
                waits_from is not None
                and begin.address <= waits_from.address < read_to.address
                and lane.room() > 0
            ):
                lane.waits_from = more
        for key, place in planned.left.items():
            self.lanes[key].leave(place)
        if self.compares:
            self.copies += conclude(self.lanes, self.unread.address)
        for key, (records, counted) in planned.skipped.items():
            self.skipped += records
            self.lanes[key].counted = counted
        for key, mark in planned.marks:
            self.lanes.send(key, mark._replace(sent_s=now_s))
        for stop in planned.stops:
            self.lanes[stop.lane].closed = stop.refusal
        for aside in planned.aside:
            lane = self.lanes[aside.lane]
            lane.sent_to = max(lane.sent_to, aside.position.address)
        self.pending += planned.aside

    def set_aside(self) -> None:
        """The pending records are in the dead-letter log, durably, or were counted as dropped."""
        self.backoff.reset()
        self.pending.clear()

    # --- lanes --------------------------------------------------------------------------------

    def found(self, key: LaneKey, found: Found) -> None:
        """The lane's partition was read back. Nothing is outstanding in it."""
        lane = self.lanes[key]
        lane.read_back(found)
        self.copies += conclude({key: lane}, self.unread.address)

    def forget_offsets(self, topic: str) -> None:
        """The topic is another one of the same name: offsets begin again. Nothing is outstanding."""
        for key, lane in self.lanes.items():
            if key[0] == topic:
                lane.last_offset = -1

    def start_over(self, topic: str) -> None:
        """What the topic's lanes hold, nothing outstanding, is void: records from the position on are sent again."""
        at = self.position
        for key in [key for key in self.lanes if key[0] == topic]:
            before = self.lanes[key]
            self.lanes[key] = Lane(acknowledged=before.acknowledged, counted=before.counted)
        if at.address < self.frontier.address:
            self.lanes[topic, NO_PARTITION].leave(at)  # so that they are read again
        self.in_doubt = True

    def close(self, key: LaneKey, refusal: Refusal) -> None:
        """Nothing is sent to the lane until it is opened; its records wait in the log."""
        self.lanes[key].closed = refusal

    def open(self, key: LaneKey) -> None:
        """The lane may be sent to again."""
        if key in self.lanes:
            self.lanes[key].closed = None

    def reopen(self) -> list[LaneKey]:
        """Retries the lanes that wait for somebody to act. Returns which."""
        found = [key for key, lane in self.lanes.items() if lane.closed and not lane.closed.passing]
        for key in found:
            self.open(key)
        return found

    # --- events -------------------------------------------------------------------------------

    def connected(self) -> None:
        """A producer is ready. What was read back is reported next (`found`)."""
        if self.state is not State.CONNECTING:
            return
        self.state = State.SENDING
        self.in_doubt = False
        self.failure = None

    def delivered(self, key: LaneKey, address: int, offset: int, *, now_s: float) -> None:
        """A mark was acknowledged, and with it all records before it in its lane."""
        lane = self.lanes.get(key)
        if lane is None or self.state not in {State.SENDING, State.STOPPING}:
            return
        was_held, sent_s = lane.held, now_s - lane.waits_s(now_s)
        under_way = self.lanes.bytes - self.lanes.held_bytes
        records, size = self.lanes.acknowledge(lane, address, offset, now_s=now_s)
        if records and not was_held:  # the wait of a held lane says nothing about the others
            self.window.acknowledged(size, under_way=under_way, sent_s=sent_s, now_s=now_s)
        self.acknowledged += records
        self.backoff.reset()
        self._finish_if_done(now_s)

    def suspect(
        self,
        reason: str,
        code: str,
        key: LaneKey | None = None,
        *,
        now_s: float,
        named: Collection[int] = (),
    ) -> Collection[int]:
        """A request was refused, of this lane or of an unknown one; or the client refused a record.
        named: the addresses of the records to blame. Without them only a request of one record shows
        which one. Returns the addresses of the records that are to blame, as far as that is known."""
        if self.over:
            return ()
        lane = None if key is None else self.lanes.get(key)
        was_in_doubt, alone = self.in_doubt, False
        if lane is not None and lane.records == 1:
            named = [lane.outstanding[0].first.address]
            alone = self.outstanding == 1
        if named:
            if lane is not None and lane.records > 1 and not lane.bisection:
                self.lanes.bisect(lane, names=True)  # few had a report: there may be more to name
            self.again(reason, now_s=now_s)
            if alone:  # it was refused, and nothing else was in flight
                self.in_doubt = was_in_doubt
        elif self.lanes.bisect(lane, names=names_records(code)):
            self.again(reason, now_s=now_s)
        else:
            self.failed(reason, now_s=now_s)
        return named

    def again(self, reason: str, *, now_s: float) -> None:
        """A request failed for a known reason: records without an acknowledgement are sent again, at once."""
        self.failed(reason, now_s=now_s)
        if self.state is State.BACKING_OFF:
            self.backoff.reset()
            self._retry_at_s = now_s

    def failed(self, reason: str, *, now_s: float) -> None:
        """Something failed that may succeed later: sends what is not acknowledged again, after a
        delay that grows, with jitter. A stop is not delayed."""
        if self.over:
            return
        self.failure = reason
        if self.state is State.STOPPING:
            self.state = State.STOPPED
            return
        self.in_doubt = self.in_doubt or self.outstanding > 0
        self.window.forget()
        self.lanes.forget()
        for aside in self.pending:
            self.lanes[aside.lane].leave(aside.position)
        self.pending.clear()
        self._retry_at_s = now_s + self.backoff.next_s()
        self.state = State.BACKING_OFF

    def stop(self, *, now_s: float) -> None:
        """Reads no more; what was sent may be acknowledged for `stop_s`."""
        if self.state in {State.CONNECTING, State.BACKING_OFF}:
            self.state = State.STOPPED
        elif self.state is State.SENDING:
            self.state = State.STOPPING
            self._stop_at_s = now_s + self.stop_s
            self._finish_if_done(now_s)

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        if self.state is State.BACKING_OFF and now_s >= self._retry_at_s:
            self.state = State.CONNECTING
        elif self.state is State.STOPPING:
            self._finish_if_done(now_s)
        elif self.state is State.SENDING:
            lanes = self.lanes
            lanes.hold_late(now_s)
            too_many = lanes.held_records > self.outstanding_max
            if too_many or lanes.held_memory_bytes > self.bytes_max // 2:
                self.failed("lanes that take nothing fill the client's queue", now_s=now_s)

    def _finish_if_done(self, now_s: float) -> None:
        if self.state is State.STOPPING and (not self.outstanding or now_s >= self._stop_at_s):
            self.state = State.STOPPED
