"""The delivery engine of one log: a pure state machine. Events in, commands out.

    state       event                      next         commands
    connecting  connected                  sending      -
    connecting  failed, to be tried again  backing_off  Commit, Disconnect
    sending     delivered                  sending      -
    sending     failed, to be tried again  backing_off  Commit, Disconnect
    sending     tick, commit due           sending      Commit
    sending     stop                       stopping     -
    backing_off tick, delay over           connecting   Connect
    stopping    all acknowledged, or late  stopped      Commit, Disconnect
    stopping    failed, to be tried again  stopped      Commit, Disconnect
    sending     suspect, one of several    backing_off  Commit, Disconnect; at once, carefully
    sending     suspect, a single record   backing_off  Commit, Disconnect; at once, poison
    sending     suspect, records named     backing_off  Commit, Disconnect; at once, poison
    sending     poison read, to be set by  sending      SetAside
    sending     poison read, to stop       sending      -
    sending     tick, held lanes fill it   backing_off  Commit, Disconnect
    connecting, backing_off: stop          stopped      Commit, Disconnect

Lanes. Each destination partition is a lane, in which the order of the log is kept. Not every
record carries a delivery callback: a *mark* does, and stands for its predecessors in the lane
since the mark before it. That is sound because the producer is idempotent and gapless: a
partition takes its records in order or takes none behind the first that failed, so delivered
after means delivered before. Kafka checks the order only of producers that it knows: from a new
one it takes any request first, also the second after it refused the first (seen with Kafka 4).
So on each connection a lane is *opened* by one record alone, and the rest waits until that is
acknowledged. Each mark is entered here before the first of its records is sent, so the cursor
cannot pass a record whatever becomes of it. A second proof is kept beside the first: offsets in
a partition only grow, so between two marks there must be at least as many offsets as records;
fewer means that one of them vanished. The lane is sent again from the cursor, and what it is
seen to hold is *distrusted*: what stands behind a hole does not vouch for what is before it.

Left behind. A lane that takes nothing more for now does not hold up the others (see partition_state): the
reader goes on (`read_to`, at most at the `frontier`, the end of all that was read) and comes
back (`next_read`) when the lane has room. A lane whose oldest record has been under way for
`hold_s` is *held*: if nothing at all is acknowledged, or if others would flow. What held lanes
have outstanding is counted apart, and if it fills a window of its own the connection is given
up, with all that the client has queued for them.

Poison. The cluster refuses requests, not records, and reports innocent neighbours too. So after
a refusal (`suspect`) the lane, or where it is not known each that may be meant, is sent again in
groups a fraction as large, one group at a time, until a group is one record: that one is poison.
Each record of a group has a report of its own: some refusals name their records (KIP-467; the
client passes that on if there are several). No pause is made on the way: each step is progress,
as is a record that is set aside. It is set aside, durably, before the next record of its lane is
sent: so a later record that has arrived proves that this one was dealt with. Where `poison` is
"stop", its lane stops before it. Only the record's own fault is poison (see error_table). Every
other fault stops the lane.

How much is under way at all, `window` says: it begins small on each connection and follows how
long what was sent has waited.

The cursor is the least address that no lane has acknowledged. Whoever drives this machine keeps
the clock, the log and the producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.deliver.at_least_once.commands import (
    Command,
    Commit,
    Connect,
    Disconnect,
    Planned,
    SetAside,
    State,
)
from bridge.deliver.at_least_once.partition_state import UNBOUNDED, Lane
from bridge.deliver.at_least_once.window import Window
from bridge.deliver.backoff import Backoff
from bridge.deliver.position import Aside, Poison, Position
from bridge.kafka.error_table import Kind, kind_of
from bridge.kafka.lane import LaneKey, Refusal

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable

__all__ = ["Engine"]

LOOK_S = 0.1  # how often lanes are looked through for one that is stuck


class Engine:
    """See the module. Times are seconds of any clock that only grows.

    in_doubt: whether records were under way when the connection before, or another process, was
    given up: they may arrive yet. until: from this address on nothing is read. outstanding_max,
    bytes_max: of lanes that flow, and once more of lanes that are held. window: how many bytes
    of lanes that flow may be under way now, bytes_max at most.
    """

    def __init__(
        self,
        start: Position,
        *,
        now_s: float,
        poison: Poison = "stop",
        commit_s: float = 1.0,
        stop_s: float = 5.0,
        backoff_s: float = 0.2,
        backoff_max_s: float = 30.0,
        hold_s: float = 1.0,
        outstanding_max: int = 50_000,
        bytes_max: int = 24 << 20,
        until: int | None = None,
        in_doubt: bool = False,
        entropy: random.Random | None = None,
    ) -> None:
        self.state = State.BACKING_OFF
        self.poison = poison
        self.committed = start
        self.read_to = start
        self.frontier = start
        self.lanes: dict[LaneKey, Lane] = {}
        self.outstanding = 0
        self.acknowledged = 0
        self.skipped = 0
        self.failure: str | None = None
        self.refusals: dict[int, Refusal] = {}
        self.aside: set[int] = set()
        self.in_doubt = in_doubt
        self._bytes = 0
        self._held = 0
        self._held_bytes = 0
        self._pending: dict[int, Aside] = {}
        self._commit_s = commit_s
        self._stop_s = stop_s
        self.backoff = Backoff(backoff_s, backoff_max_s, entropy)
        self._hold_s = hold_s
        self._outstanding_max = outstanding_max
        self._bytes_max = bytes_max
        self.window = Window(bytes_max)
        self.until = UNBOUNDED if until is None else until
        self._commit_due_s = now_s + commit_s
        self._look_due_s = now_s
        self._retry_at_s = now_s
        self._stop_at_s = float("inf")

    # --- what the driver asks -----------------------------------------------------------------

    @property
    def wants_batch(self) -> bool:
        """Whether more may be read, from `next_read` on, and sent."""
        if (
            self.state is not State.SENDING
            or self._pending
            or self.outstanding - self._held >= self._outstanding_max
            or self._bytes - self._held_bytes >= self.window.bytes
        ):
            return False
        if self.next_read.address < self.frontier.address:
            return True
        if self.frontier.address >= self.until:
            return False
        soon = [lane for lane in self.lanes.values() if lane.soon]
        if not soon:
            return True
        opening = any(not lane.opened for lane in soon)
        return not opening and any(lane.flows for lane in self.lanes.values())

    @property
    def next_read(self) -> Position:
        """From where to read: where a lane that has room was left behind, else where all ends."""
        places = [
            lane.behind
            for lane in self.lanes.values()
            if lane.behind is not None and lane.room() > 0
        ]
        return min(places, default=self.frontier, key=lambda place: place.address)

    @property
    def position(self) -> Position:
        """Everything before this is acknowledged: where the cursor may stand."""
        lows = [low for lane in self.lanes.values() if (low := lane.low()) is not None]
        lows += [aside.position for aside in self._pending.values()]
        return min(lows, default=self.frontier, key=lambda low: low.address)

    @property
    def acknowledged_by_topic(self) -> dict[str, int]:
        """How many records of each topic the cluster has acknowledged since the start."""
        found: dict[str, int] = {}
        for (topic, _), lane in sorted(self.lanes.items()):
            if lane.acknowledged:
                found[topic] = found.get(topic, 0) + lane.acknowledged
        return found

    @property
    def unread(self) -> Position:
        """From where records have still to be read: those that are under way are in memory."""
        places = [lane.behind for lane in self.lanes.values() if lane.behind is not None]
        return min(places, default=self.frontier, key=lambda place: place.address)

    @property
    def over(self) -> bool:
        """Stopped: no command will follow."""
        return self.state is State.STOPPED

    @property
    def careful(self) -> bool:
        """Whether a refusal is being looked for."""
        return any(lane.suspects for lane in self.lanes.values())

    @property
    def standing(self) -> dict[LaneKey, Lane]:
        """Lanes that stand until somebody acts."""
        return {
            key: lane
            for key, lane in self.lanes.items()
            if lane.closed is not None and not lane.closed.passing and lane.behind is not None
        }

    @property
    def stopped_short(self) -> bool:
        """Whether nothing is left to do but for lanes that stand."""
        return not self.outstanding and all(
            lane.behind is None or (lane.closed is not None and not lane.closed.passing)
            for lane in self.lanes.values()
        )

    def lane(self, key: LaneKey) -> Lane:
        """The lane, new if it was not known."""
        return self.lanes.setdefault(key, Lane())

    def distrusts(self, key: LaneKey) -> bool:
        """Whether what the lane is seen to hold proves nothing."""
        lane = self.lanes.get(key)
        return lane is not None and lane.distrusted

    # --- events -------------------------------------------------------------------------------

    def connected(self, resume: dict[LaneKey, int]) -> list[Command]:
        """A producer is there. resume: the last address that each lane is known to hold, from
        reading back; those records are not sent again."""
        if self.state is not State.CONNECTING:
            return []
        self.state = State.SENDING
        self.in_doubt = False
        self.failure = None
        for key, address in resume.items():
            self.note_held(key, address)
        return []

    def note_held(self, key: LaneKey, address: int) -> None:
        """The lane is known to hold everything of its own up to this address."""
        lane = self.lane(key)
        if not lane.distrusted:
            lane.last_address = max(lane.last_address, address)
            lane.clear()

    def close(self, key: LaneKey, refusal: Refusal) -> None:
        """Nothing is sent to the lane until it is opened; its records are left behind."""
        self.lane(key).closed = refusal

    def open(self, key: LaneKey) -> None:
        """The lane may be sent to again."""
        if key in self.lanes:
            self.lanes[key].closed = None

    def reopen(self) -> list[LaneKey]:
        """Somebody may have mended what lanes stand before: they are tried again. Which."""
        keys = [
            key
            for key, lane in self.lanes.items()
            if lane.closed is not None and not lane.closed.passing
        ]
        for key in keys:
            self.lanes[key].closed = None
        self.refusals.clear()
        return keys

    def begin(self) -> Position:
        """Reading begins, at `next_read`; `read` follows."""
        self.read_to = self.next_read
        return self.read_to

    def read(self, read_to: Position, planned: Planned, *, now_s: float) -> list[Command]:
        """A batch was read, from where `begin` said up to `read_to`, and is about to be sent
        as planned; what comes back is to be carried out before."""
        assert self.state is State.SENDING
        if read_to.address > self.until:
            read_to = Position(self.until, None)
        begin, self.read_to = self.read_to, read_to
        self.frontier = max(self.frontier, read_to, key=lambda place: place.address)
        self._leave(begin, read_to, planned.left)
        for key, (records, counted) in planned.skipped.items():
            self.skipped += records
            self.lane(key).counted = counted
        for key, mark in planned.marks:
            self.lane(key).send(mark._replace(sent_s=now_s))
            self.outstanding += mark.records
            self._bytes += mark.bytes
        asides = []
        for aside in planned.poison:
            lane = self.lane(aside.lane)
            if self.poison == "stop" or not aside.refusal.is_poison:
                lane.closed = aside.refusal
                continue
            lane.sent_to = max(lane.sent_to, aside.position.address)
            self._pending[aside.position.address] = aside
            asides.append(aside)
        return [SetAside(tuple(asides))] if asides else []

    def _leave(self, begin: Position, read_to: Position, left: dict[LaneKey, Position]) -> None:
        """Moves on where each lane was left behind."""
        for key in left:
            self.lane(key)
        more = read_to if read_to.address < self.frontier.address else None
        for key, lane in self.lanes.items():
            place = left.get(key)
            reached = (
                lane.behind is not None
                and begin.address <= lane.behind.address < read_to.address
                and lane.room() > 0
            )
            if reached:
                lane.behind = more
            if place is not None:  # before where it was, if its records went elsewhere then
                lane.leave(place)

    def set_aside(self, addresses: Iterable[int]) -> None:
        """They are kept elsewhere, durably, or were counted as dropped: done with."""
        self.backoff.reset()
        for address in addresses:
            self._pending.pop(address, None)
            self.refusals.pop(address, None)
            self.aside.add(address)

    def delivered(self, key: LaneKey, address: int, offset: int, *, now_s: float) -> list[Command]:
        """A mark was acknowledged, and with it all before it in its lane."""
        lane = self.lanes.get(key)
        if lane is None or self.state not in {State.SENDING, State.STOPPING}:
            return []
        if vanished := lane.vanished(address, offset):
            lane.distrusted = True
            return self.failed(
                f"{vanished} records before address {address} have no offset in {key[0]}/{key[1]}",
                now_s=now_s,
            )
        was_held, sent_s = lane.held, now_s - lane.waits_s(now_s)
        records, size = lane.acknowledge(address, offset, now_s=now_s)
        if records and not was_held:  # what a lane that was held has waited says nothing of others
            under_way = self._bytes - self._held_bytes
            self.window.acknowledged(size, under_way=under_way, sent_s=sent_s, now_s=now_s)
        self.outstanding -= records
        self._bytes -= size
        if was_held:
            self._held -= records
            self._held_bytes -= size
        self.acknowledged += records
        self.backoff.reset()
        return self._finish_if_done(now_s)

    def suspect(
        self,
        reason: str,
        code: str,
        key: LaneKey | None = None,
        *,
        now_s: float,
        named: Collection[int] = (),
    ) -> list[Command]:
        """A request of the lane was refused, or of one that is not known. named: the addresses of
        the records to blame; without them nothing tells but a request of one record."""
        if self.over:
            return []
        lane = None if key is None else self.lanes.get(key)
        if lane is not None and lane.records == 1:
            named = [lane.outstanding[0].first.address]
            if self.outstanding == 1:  # it was refused, and nothing else was under way
                self.outstanding = 0
        if named:
            self.refusals.update(dict.fromkeys(named, Refusal(reason, code)))
            return self.again(reason, now_s=now_s)
        meant = [lane] if lane is not None else self.lanes.values()
        under_way = [each for each in meant if each.outstanding]
        narrower = any(each.records > 1 for each in under_way)
        for each in under_way:
            each.suspect(names=kind_of(code) is Kind.NEIGHBOUR)
        return self.again(reason, now_s=now_s) if narrower else self.failed(reason, now_s=now_s)

    def refused(self, reason: str, code: str, address: int, *, now_s: float) -> list[Command]:
        """The record at this address is poison, though it was about to be sent."""
        if self.over:
            return []
        self.refusals[address] = Refusal(reason, code)
        return self.again(reason, now_s=now_s)

    def again(self, reason: str, *, now_s: float) -> list[Command]:
        """A request failed, and its cause is known now: sends what is not acknowledged again, without
        a pause."""
        commands = self.failed(reason, now_s=now_s)
        if self.state is State.BACKING_OFF:
            self.backoff.reset()
            self._retry_at_s = now_s
        return commands

    def failed(self, reason: str, *, now_s: float) -> list[Command]:
        """Something failed that may succeed later: all that is not acknowledged is sent again,
        after a delay that grows, with jitter."""
        if self.over:
            return []
        self.failure = reason
        return self._retry(now_s)

    def stop(self, *, now_s: float) -> list[Command]:
        """No more is read; what was sent may be acknowledged for a while yet."""
        if self.state in {State.CONNECTING, State.BACKING_OFF}:
            return self._end()
        if self.state is State.SENDING:
            self.state = State.STOPPING
            self._stop_at_s = now_s + self._stop_s
            return self._finish_if_done(now_s)
        return []

    def tick(self, now_s: float) -> list[Command]:
        """Time has passed."""
        if self.state is State.BACKING_OFF and now_s >= self._retry_at_s:
            self.state = State.CONNECTING
            return [Connect(careful=self.careful)]
        if self.state is State.STOPPING:
            return self._finish_if_done(now_s)
        if self.state is not State.SENDING:
            return []
        if now_s >= self._look_due_s:
            self._look_due_s = now_s + LOOK_S
            if self._look(now_s):
                return self.failed("lanes that take nothing fill the client's queue", now_s=now_s)
        if now_s >= self._commit_due_s:
            self._commit_due_s = now_s + self._commit_s
            position = self.position
            if position.address > self.committed.address:
                return [Commit(position)]
        return []

    @property
    def is_settled(self) -> bool:
        """Whether all that was read is acknowledged, and the cursor is durable there."""
        return self.committed.address >= self.frontier.address == self.position.address

    def commit_soon(self, *, now_s: float) -> None:
        """A commit is due."""
        self._commit_due_s = min(self._commit_due_s, now_s)

    def committed_at(self, position: Position) -> None:
        """The cursor is durable there."""
        self.committed = position
        if self.aside:
            self.aside = {address for address in self.aside if address >= position.address}

    def seconds_to_tick(self, now_s: float) -> float:
        """How long nothing is due."""
        if self.state is State.BACKING_OFF:
            return max(0.0, self._retry_at_s - now_s)
        return max(0.0, self._commit_due_s - now_s)

    # --- inside -------------------------------------------------------------------------------

    def _look(self, now_s: float) -> bool:
        """Holds lanes that would hold up the others; whether those that are held do so yet."""
        late, others = [], False
        for lane in self.lanes.values():
            if not lane.held and lane.waits_s(now_s) > self._hold_s:
                late.append(lane)
            else:
                others = others or lane.flows
        for lane in late:
            if others or lane.stuck_s(now_s) > self._hold_s:
                lane.hold()
                self._held += lane.records
                self._held_bytes += lane.bytes
        return self._held > self._outstanding_max or self._held_bytes > self._bytes_max

    def _retry(self, now_s: float) -> list[Command]:
        """Forgets the connection and sends again what is not acknowledged; a stop is not delayed
        by it."""
        if self.state is State.STOPPING:
            return self._end()
        commands: list[Command] = [Commit(self.position), Disconnect()]
        self.in_doubt = self.in_doubt or self.outstanding > 0
        self.outstanding = self._bytes = self._held = self._held_bytes = 0
        self.window.forget()
        for lane in self.lanes.values():
            if lane.outstanding and lane.closed is not None and lane.closed.is_poison:
                lane.closed = None  # the poison is after what has to be sent again
            lane.forget()
        for aside in self._pending.values():  # not set aside yet: to be read again
            self.lanes[aside.lane].leave(aside.position)
        self._pending.clear()
        self._retry_at_s = now_s + self.backoff.next_s()
        self.state = State.BACKING_OFF
        return commands

    def _end(self) -> list[Command]:
        commands: list[Command] = [Commit(self.position), Disconnect()]
        self.state = State.STOPPED
        return commands

    def _finish_if_done(self, now_s: float) -> list[Command]:
        if self.state is not State.STOPPING or (self.outstanding and now_s < self._stop_at_s):
            return []
        return self._end()
