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
    sending     suspect                    backing_off  Commit, Disconnect; then carefully
    sending     nothing refused carefully  backing_off  Commit, Disconnect; then as before
    sending     refused at an address      backing_off  Commit, Disconnect; then up to there
    sending     all before it acknowledged failed       Commit, Disconnect
    any         refused, no address        failed       Commit, Disconnect
    connecting, backing_off: stop          stopped      Commit, Disconnect

Poison. The cluster refuses requests, not records, and reports innocent neighbours too. So after
a refusal (`suspect`) everything not acknowledged is sent once more *carefully*: one record a
request, each its own mark. That names the record (`refused`); then all before it is delivered,
and the engine stands with the cursor exactly at the record.

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

The cursor is the least address that no lane has acknowledged. Whoever drives this machine keeps
the clock, the log and the producer.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import NamedTuple, TypeAlias

__all__ = [
    "Command",
    "Commit",
    "Connect",
    "Disconnect",
    "Engine",
    "Lane",
    "LaneKey",
    "Mark",
    "Position",
    "State",
]

LaneKey: TypeAlias = tuple[str, int]
"""Topic and partition."""


class State(Enum):
    """Where the engine stands; the value is what status and logs say."""

    CONNECTING = "connecting"
    SENDING = "sending"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Position(NamedTuple):
    """A place in the log. ordinal: records before it, None in format 1."""

    address: int
    ordinal: int | None


class Mark(NamedTuple):
    """Records of one lane that one callback answers for: the first of them, the last (which
    carries it), and how many."""

    first: Position
    last_address: int
    records: int


class Connect(NamedTuple):
    """Make a producer, read back what arrived, then report `connected`. careful: one record a
    request, each with a mark of its own."""

    careful: bool


class Disconnect(NamedTuple):
    """Forget the producer and everything that it has not delivered."""


class Commit(NamedTuple):
    """Make the cursor durable here: everything before is acknowledged."""

    position: Position


Command: TypeAlias = Connect | Disconnect | Commit


@dataclass(slots=True)
class Lane:
    """One destination partition. last_address, last_offset: of the last mark that was
    acknowledged, -1 before there is one. opened: one was on this connection. distrusted: a hole
    was found in it."""

    outstanding: deque[Mark] = field(default_factory=deque)
    opened: bool = False
    distrusted: bool = False
    last_address: int = -1
    last_offset: int = -1

    def low(self) -> Position | None:
        """The first record that is sent and not acknowledged."""
        return self.outstanding[0].first if self.outstanding else None


class Engine:
    """See the module. Times are seconds of any clock that only grows.

    in_doubt: whether records were under way when the connection before, or another process, was
    given up: they may arrive yet.
    """

    def __init__(
        self,
        start: Position,
        *,
        now_s: float,
        commit_s: float = 1.0,
        stop_s: float = 5.0,
        backoff_s: float = 0.2,
        backoff_max_s: float = 30.0,
        outstanding_max: int = 100_000,
        in_doubt: bool = False,
        entropy: random.Random | None = None,
    ) -> None:
        self.state = State.BACKING_OFF
        self.committed = start
        self.read_to = start
        self.lanes: dict[LaneKey, Lane] = {}
        self.outstanding = 0
        self.acknowledged = 0
        self.failure: str | None = None
        self.failed_at: int | None = None
        self.careful_to: int | None = None
        self.in_doubt = in_doubt
        self.attempts = 0
        self._commit_s = commit_s
        self._stop_s = stop_s
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._outstanding_max = outstanding_max
        self._entropy = entropy or random.Random()  # noqa: S311 -- jitter, no secret
        self._commit_due_s = now_s + commit_s
        self._retry_at_s = now_s
        self._stop_at_s = float("inf")

    # --- what the driver asks -----------------------------------------------------------------

    @property
    def wants_batch(self) -> bool:
        """Whether more may be read and sent."""
        for bound in (self.failed_at, self.careful_to):
            if bound is not None and self.read_to.address >= bound:
                return False
        return self.state is State.SENDING and self.outstanding < self._outstanding_max

    @property
    def position(self) -> Position:
        """Everything before this is acknowledged: where the cursor may stand."""
        lows = [low for lane in self.lanes.values() if (low := lane.low()) is not None]
        return min(lows, default=self.read_to, key=lambda low: low.address)

    @property
    def over(self) -> bool:
        """Stopped or failed: no command will follow."""
        return self.state in {State.STOPPED, State.FAILED}

    def opened(self, key: LaneKey) -> bool:
        """Whether more than one record may be sent to the lane."""
        lane = self.lanes.get(key)
        return lane is not None and lane.opened

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
        if self.failed_at is None:
            self.failure = None
        for key, address in resume.items():
            self.note_held(key, address)
        return self._stand()

    def note_held(self, key: LaneKey, address: int) -> None:
        """The lane is known to hold everything of its own up to this address."""
        lane = self.lanes.setdefault(key, Lane())
        if not lane.distrusted:
            lane.last_address = max(lane.last_address, address)

    def holds(self, key: LaneKey, address: int) -> bool:
        """Whether the record has arrived already, before a crash or a new connection."""
        lane = self.lanes.get(key)
        return lane is not None and address <= lane.last_address

    def read(self, read_to: Position, marks: list[tuple[LaneKey, Mark]]) -> None:
        """A batch was read up to `read_to` and is about to be sent, in lanes cut into marks."""
        assert self.state is State.SENDING
        for key, mark in marks:
            self.lanes.setdefault(key, Lane()).outstanding.append(mark)
            self.outstanding += mark.records
        self.read_to = read_to

    def stands(self, *, now_s: float) -> list[Command]:
        """To be asked after a batch of which nothing was left to send."""
        return self._reached(now_s)

    def delivered(self, key: LaneKey, address: int, offset: int, *, now_s: float) -> list[Command]:
        """A mark was acknowledged, and with it all before it in its lane."""
        lane = self.lanes.get(key)
        if lane is None or self.state not in {State.SENDING, State.STOPPING}:
            return []
        done = list(takewhile(lambda mark: mark.last_address <= address, lane.outstanding))
        records = sum(mark.records for mark in done)
        if records and lane.last_offset >= 0 and 0 <= offset < lane.last_offset + records:
            vanished = lane.last_offset + records - offset
            lane.distrusted = True
            return self.failed(
                f"{vanished} records before address {address} have no offset in {key[0]}/{key[1]}",
                now_s=now_s,
            )
        for _ in done:
            lane.outstanding.popleft()
        lane.opened = True
        lane.last_address = max(lane.last_address, address)
        lane.last_offset = max(lane.last_offset, offset)
        self.outstanding -= records
        self.acknowledged += records
        self.attempts = 0
        return self._reached(now_s) or self._finish_if_done(now_s)

    def suspect(self, reason: str, *, now_s: float) -> list[Command]:
        """Something among what was sent was refused; nothing says which record."""
        if self.over:
            return []
        self.careful_to = self.read_to.address if self.outstanding else None
        return self.failed(reason, now_s=now_s)

    def failed(self, reason: str, *, now_s: float) -> list[Command]:
        """Something failed that may succeed later: all that is not acknowledged is sent again,
        from the cursor, after a delay that grows, with jitter."""
        if self.over:
            return []
        self.failure = reason
        return self._retry(now_s, at_once=False)

    def refused(self, reason: str, address: int | None, *, now_s: float) -> list[Command]:
        """The record at this address will never be taken: all before it is delivered, then the
        engine stands. Without an address nothing will be taken: it stands at once."""
        if self.over:
            return []
        self.failure = reason
        self.careful_to = None
        if address is None:
            self.failed_at = None
            return self._end(State.FAILED)
        self.failed_at = address if self.failed_at is None else min(address, self.failed_at)
        return self._stand() or self._retry(now_s, at_once=True)

    def stop(self, *, now_s: float) -> list[Command]:
        """No more is read; what was sent may be acknowledged for a while yet."""
        if self.state in {State.CONNECTING, State.BACKING_OFF}:
            return self._end(State.STOPPED)
        if self.state is State.SENDING:
            self.state = State.STOPPING
            self._stop_at_s = now_s + self._stop_s
            return self._finish_if_done(now_s)
        return []

    def tick(self, now_s: float) -> list[Command]:
        """Time has passed."""
        if self.state is State.BACKING_OFF and now_s >= self._retry_at_s:
            self.state = State.CONNECTING
            return [Connect(careful=self.careful_to is not None)]
        if self.state is State.STOPPING:
            return self._finish_if_done(now_s)
        if self.state is State.SENDING and now_s >= self._commit_due_s:
            self._commit_due_s = now_s + self._commit_s
            if self.position.address > self.committed.address:
                return [Commit(self.position)]
        return []

    def committed_at(self, position: Position) -> None:
        """The cursor is durable there."""
        self.committed = position

    def seconds_to_tick(self, now_s: float) -> float:
        """How long nothing is due."""
        if self.state is State.BACKING_OFF:
            return max(0.0, self._retry_at_s - now_s)
        return max(0.0, self._commit_due_s - now_s)

    # --- inside -------------------------------------------------------------------------------

    def _rewind(self) -> None:
        """Everything from the cursor on is to be read again."""
        self.read_to = self.position
        self.in_doubt = self.in_doubt or self.outstanding > 0
        self.outstanding = 0
        for lane in self.lanes.values():
            lane.outstanding.clear()
            lane.opened = False
            lane.last_offset = -1  # offsets may not follow on: others write there too

    def _retry(self, now_s: float, *, at_once: bool) -> list[Command]:
        """Forgets the connection and comes back from the cursor; a stop is not delayed by it."""
        if self.state is State.STOPPING:
            return self._end(State.STOPPED)
        commands: list[Command] = [Commit(self.position), Disconnect()]
        self._rewind()
        delay = 0.0
        if not at_once:
            delay = min(self._backoff_max_s, self._backoff_s * 2**self.attempts)
            self.attempts = min(self.attempts + 1, 32)
        self._retry_at_s = now_s + delay * self._entropy.uniform(0.5, 1.0)
        self.state = State.BACKING_OFF
        return commands

    def _reached(self, now_s: float) -> list[Command]:
        """What follows where a bound is reached that was set by a refusal."""
        if self.careful_to is not None and self.position.address >= self.careful_to:
            self.careful_to = None  # nothing was refused this time: on at full speed
            return self._retry(now_s, at_once=True)
        return self._stand()

    def _stand(self) -> list[Command]:
        """Ends before a refused record once everything before it is acknowledged."""
        if self.failed_at is None or self.position.address < self.failed_at:
            return []
        return self._end(State.FAILED)

    def _end(self, state: State) -> list[Command]:
        commands: list[Command] = [Commit(self.position), Disconnect()]
        self.state = state
        return commands

    def _finish_if_done(self, now_s: float) -> list[Command]:
        if self.state is not State.STOPPING or (self.outstanding and now_s < self._stop_at_s):
            return []
        return self._end(State.STOPPED)
