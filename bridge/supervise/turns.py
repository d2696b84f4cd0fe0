"""When logs run: a pure state machine of each log, and whose turn it is. Events in; the supervisor starts and
stops runs as the phases and the schedule ask.

    phase     event                     next
    queued    start                     running
    running   end, of itself            queued
    running   end, its turn is over     queued
    running   end, other options        queued
    running   end, idle                 parked
    running   end, idle, but it grew    queued
    running   end, to be paused         paused
    running   end, to stop              done
    running   end, drained              done
    running   end, the log is gone      done
    running   end, a failure            waiting
    running   end, failed, and paused   paused
    running   end, a lasting failure    standing
    waiting   tick, the pause is over   queued
    waiting   retry                     queued
    standing  retry                     queued
    parked    it grew                   queued
    parked    other options             queued
    queued    pause                     paused
    parked    pause                     paused
    waiting   pause                     paused
    standing  pause                     paused
    paused    resume                    queued
    queued    stop                      done
    parked    stop                      done
    paused    stop                      done

A failure that only an operator ends is a lasting one. In a drain, and for a single log, each failure is, and a
run that ends of itself has drained. A log that waits or stands at a stop keeps its failure.

What `schedule` asks for:

    log                                          action
    idle for park_s                              watch
    watched, and still idle                      park
    watched, and no longer idle                  unwatch
    idle, others are queued                      watch
    its turn is over, others are queued          turn
    queued, and fewer than active_max run        start

A log's growth is watched before it is parked, so that none is missed. Of those that may end for others, the
idle ones end first, then those that have run longest; those that were queued first start first.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from bridge.deliver.backoff import Backoff

if TYPE_CHECKING:
    from bridge.supervise.worker import Worker


class Phase:
    """What the supervisor does with a log; `phase` in status."""

    QUEUED = "queued"
    RUNNING = "running"
    PARKED = "parked"
    PAUSED = "paused"
    WAITING = "waiting"
    STANDING = "standing"
    DONE = "done"
    REMOVED = "removed"


Ending: TypeAlias = Literal["stop", "gone", "turn", "park", "pause", "reload"]
"""Why a run was asked to end. After "gone" its outcome is GONE."""


class Outcome(Enum):
    """Of a run."""

    ENDED = "as it was asked to, or of itself"
    FAILED = "it failed, and may succeed later"
    LOCKED = "another bridge has the cursor"
    LASTING = "it failed, until an operator acts"
    GONE = "the log is gone"


class Timing(NamedTuple):
    """Seconds."""

    look_s: float = 0.2  # delay before growth, a due retry or a turn's end is noticed
    retry_s: float = 1.0  # the first pause after a failure
    retry_max_s: float = 60.0  # the longest one
    locked_s: float = 2.0  # the pause while another bridge has the cursor
    good_s: float = 60.0  # after a run of this length, pauses begin anew
    step_s: float = 10.0  # a run without a delivery may take this long, also if its turn is shorter


class Turns:
    """Of one log and cluster; see the module. Times are seconds of any clock that only grows. One thread uses it;
    any may read `phase`, and that of the run sets `ending` and `is_open`, and calls `reported` and `went_well`."""

    def __init__(self, timing: Timing, *, drains: bool = False) -> None:
        self.phase = Phase.QUEUED
        self.since_s = 0.0  # when the phase began, or the log was queued
        self.ending: Ending | None = None  # of the present run
        self.grew = False  # since the present run began
        self.is_open = False  # the present run has opened the log
        self.reported_s = 0.0  # when it last reported
        self.idle_s: float | None = None  # since when it has nothing to do
        self.moved = False  # it has delivered something
        self.watched_s: float | None = None  # since when the log's growth is noticed
        self.retry_at_s = 0.0
        self.restarts = 0  # after failures
        self._timing = timing
        self.drains = drains  # whether a run that ends of itself is the last one
        self._backoff = Backoff(timing.retry_s, timing.retry_max_s)

    def start(self, now_s: float) -> None:
        """A run begins."""
        self.phase, self.since_s, self.reported_s = Phase.RUNNING, now_s, now_s
        self.ending = self.idle_s = None
        self.grew = self.is_open = self.moved = False

    def reported(self, now_s: float, *, idle: bool, moved: bool) -> None:
        """The run goes on. idle: it has nothing to do. moved: it has delivered something."""
        self.reported_s, self.moved = now_s, moved
        if not idle:
            self.idle_s = None
        elif self.idle_s is None:
            self.idle_s = now_s

    def is_over(self, now_s: float, slice_s: float) -> bool:
        """Whether a run has had its turn of so many seconds."""
        return now_s - self.since_s > (slice_s if self.moved else max(slice_s, self._timing.step_s))

    def went_well(self) -> None:
        """Something was delivered: the next pause is the first one again."""
        self._backoff.reset()

    def end(self, outcome: Outcome, now_s: float) -> None:
        """The run has ended."""
        ending, self.ending = self.ending, None
        ran_s, self.since_s = now_s - self.since_s, now_s
        if outcome is Outcome.GONE:
            self.phase = Phase.DONE
        elif ending == "pause":
            self.phase = Phase.PAUSED
        elif outcome is Outcome.LASTING:
            self.phase = Phase.STANDING
        elif outcome is not Outcome.ENDED:
            if ran_s > self._timing.good_s:
                self._backoff.reset()
            locked = outcome is Outcome.LOCKED
            self.retry_at_s = now_s + (self._timing.locked_s if locked else self._backoff.next_s())
            self.restarts += 1
            self.phase = Phase.WAITING
        elif ending == "stop" or (self.drains and ending in {None, "park"}):
            self.phase = Phase.DONE
        elif ending == "park" and not self.grew:
            self.phase = Phase.PARKED
        else:
            self.phase = Phase.QUEUED

    def tick(self, now_s: float) -> bool:
        """Time has passed. Whether the log was queued."""
        due = self.phase == Phase.WAITING and now_s >= self.retry_at_s
        return due and self._queue(now_s)

    def grow(self, now_s: float) -> bool:
        """The log may have grown. Whether it was queued."""
        self.grew = True
        return self.phase == Phase.PARKED and self._queue(now_s)

    def reconfigure(self) -> None:
        """The options are others; a run is ended apart. A parked log is queued: its servers may be others."""
        if self.phase == Phase.PARKED:
            self.phase = Phase.QUEUED

    def retry(self) -> bool:
        """Whether the log is queued at once, before others, after a failure: its cause may be gone."""
        if self.phase not in {Phase.STANDING, Phase.WAITING}:
            return False
        self._backoff.reset()
        self.phase = Phase.QUEUED
        return True

    def pause(self) -> None:
        """No run begins until `resume`; a run is ended apart."""
        if self.phase not in {Phase.RUNNING, Phase.DONE}:
            self.phase = Phase.PAUSED

    def resume(self, now_s: float) -> None:
        """Ends a pause."""
        if self.phase == Phase.PAUSED:
            self._queue(now_s)
        elif self.ending == "pause":  # the run goes on to its end, and the next one begins
            self.ending = "turn"

    def stop(self) -> bool:
        """Nothing begins any more; a run is ended apart. Whether the log is done."""
        if self.phase not in {Phase.QUEUED, Phase.PARKED, Phase.PAUSED}:
            return False
        self.phase = Phase.DONE
        return True

    def stand(self) -> None:
        """A drained log has lost records: that is its failure."""
        self.phase = Phase.STANDING

    def _queue(self, now_s: float) -> bool:
        self.phase, self.since_s = Phase.QUEUED, now_s
        return True


class Limits(NamedTuple):
    """Of the configuration."""

    active_max: int  # how many run at once
    slice_s: float  # a turn
    park_s: float | None  # how long a log is idle before it is parked; None: it stays


class Schedule(NamedTuple):
    """See the module. park, turn: runs to end."""

    unwatch: list[Worker]
    watch: list[Worker]
    park: list[Worker]
    turn: list[Worker]
    start: list[Worker]


def schedule(
    running: Sequence[Worker], queued: Sequence[Worker], limits: Limits, now_s: float
) -> Schedule:
    """Whose turn it is. Reads their `turns` only."""
    found = Schedule([], [], [], [], [])
    staying = [each for each in running if each.turns.ending is None]
    if limits.park_s is not None:
        for each in staying:
            turns = each.turns
            if not turns.is_open:  # it may find nothing to do; it is watched since before
                continue
            if turns.idle_s is None:
                found.unwatch.extend([each] if turns.watched_s is not None else ())
            elif turns.watched_s is None:
                found.watch.extend([each] if now_s - turns.idle_s >= limits.park_s else ())
            elif turns.reported_s > turns.watched_s:
                found.park.append(each)
    staying = [each for each in staying if each not in found.park]
    short = len(queued) - (limits.active_max - len(staying))
    over = [
        each
        for each in staying
        if each.turns.idle_s is not None or each.turns.is_over(now_s, limits.slice_s)
    ]
    over.sort(key=lambda each: (each.turns.idle_s is None, each.turns.since_s))
    for each in over[: max(0, short)]:
        if each.turns.idle_s is None:
            found.turn.append(each)
        elif each.turns.watched_s is None and each not in found.watch:
            found.watch.append(each)
    room = max(0, limits.active_max - len(running))
    found.start.extend(sorted(queued, key=lambda each: each.turns.since_s)[:room])
    return found
