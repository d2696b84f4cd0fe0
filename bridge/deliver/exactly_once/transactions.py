"""Exactly once: a pure state machine of one log's transactions. Events in, commands out.

    state        event                           next         commands
    connecting   found, not yet proven           proving      Prove
    connecting   found                           sending      -
    proving      proven                          sending      -
    proving      proven, perhaps asked twice     connecting   Connect
    sending      full, or its time is over       committing   Commit
    committing   committed                       sending      -
    committing   unanswered                      committing   Commit
    committing   committed, perhaps twice        connecting   Connect
    sending      failed                          aborting     Abort
    committing   failed                          backing_off  Save, Disconnect
    committing   failed after a stop             aborting     Abort
    sending      suspect                         aborting     Abort; then fewer records
    committing   suspect                         aborting     Abort; then fewer records
    sending      to be sent again at once        aborting     Abort
    committing   to be sent again at once        aborting     Abort
    aborting     unanswered                      aborting     Abort
    aborting     aborted                         backing_off  -
    aborting     aborted, one record suspected   settling     Settle
    sending      refused, nothing open           settling     Settle
    sending      refused, something open         committing   Commit; then settling
    settling     settled: passed                 sending      -
    settling     settled: passed, had aborted    connecting   Connect
    settling     settled: stood before           failed       Save, Disconnect
    backing_off  tick                            connecting   Connect
    any          broken                          backing_off  Save, Disconnect
    any          impossible                      failed       Save, Disconnect
    sending      hurried, something open         committing   Commit
    sending      stop, something open            committing   Commit; then stopped
    sending      stop                            stopped      Save, Disconnect
    committing   committed after a stop          stopped      Save, Disconnect
    aborting     stop                            aborting     -
    aborting     aborted after a stop            stopped      Save, Disconnect
    any          tick after a stop, late         stopped      Save, Disconnect
    elsewhere    stop                            stopped      Save, Disconnect

Why each record arrives once. A transaction holds records of the log from the committed position
on, in order, and the position behind them as a record of the cursor topic: the cluster makes all
of it visible or none. Whatever happened to a transaction, its outcome stands in the cluster:
`found` says where the last one that was committed ended, after everything that a predecessor had
open was ended, and sending begins there. Nothing here guesses: what is neither committed nor
aborted for certain (`broken`) is looked up by connecting again.

Nor is a producer used on that has aborted, or that may have asked twice for an end (a commit's, or
one of the proof's; see `ends`): whose connection broke, say. The request that was not answered may
be carried out late, and would end the next transaction (KIP-890; Kafka tells them apart by the
producer's epoch, which the client keeps); and what it takes back of an aborted one it numbers
again, where the cluster may take it for what it has. So it connects again, which gives it another
epoch.

Poison. The cluster refuses requests, not records, so a refusal makes the whole transaction
*suspect*: it is aborted, and an eighth of the records are tried, until what is refused is one record
alone (`Settle`). Everything before it is committed then. What is beyond it is not touched. Where
the parts pass and the whole did not (requests too large for a topic that takes each of their
records), transactions stay small and double with each that passes. Where the cluster may name the
records (KIP-467), the same ones are first tried again, with a report on each; and where they are
named, or the topic's settings tell, they are set aside as the rest is sent (`again`).

The local cursor (`Save`) follows the committed position and is never ahead of it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bridge.deliver.backoff import Backoff

if TYPE_CHECKING:
    import random

    from bridge.deliver.position import Position

__all__ = [
    "Abort",
    "Command",
    "Commit",
    "Connect",
    "Disconnect",
    "Prove",
    "Save",
    "Settle",
    "State",
    "Transactions",
]


class State(Enum):
    """Where the machine stands."""

    CONNECTING = "connecting"
    PROVING = "proving"
    SENDING = "sending"
    COMMITTING = "committing"
    ABORTING = "aborting"
    SETTLING = "settling"
    BACKING_OFF = "backing_off"
    STOPPED = "stopped"
    FAILED = "failed"


class Connect(NamedTuple):
    """Make a producer, end what a predecessor has open, look up the cursor record, then report
    `found`."""


class Prove(NamedTuple):
    """Show that the cluster isolates transactions, with a cursor record of this position, then
    report `proven`."""

    position: Position


class Commit(NamedTuple):
    """Commit what was sent, with a cursor record of this position; then report `committed`.
    again: the same commit was not answered."""

    position: Position
    again: bool


class Abort(NamedTuple):
    """Abort what was sent and go back to this position; then report `aborted`."""

    position: Position


class Settle(NamedTuple):
    """The record there will never be taken, and all before it is committed: keep it elsewhere,
    drop it, or stand. Then report `settled`."""

    position: Position
    reason: str


class Disconnect(NamedTuple):
    """Forget the producer; go back to the committed position."""


class Save(NamedTuple):
    """Make the local cursor durable there."""

    position: Position


Command: TypeAlias = Connect | Prove | Commit | Abort | Settle | Disconnect | Save

NARROWING = 8  # an abort costs a connection, as much as some commits: see suspect
_RESTING = {State.STOPPED, State.FAILED}
_OPEN = {State.SENDING, State.COMMITTING}


class Transactions:
    """See the module. Times are seconds of any clock that only grows.

    records, seconds: how much, and for how long, one transaction takes up at most. in_doubt:
    whether the cluster may have committed more than this machine, or the local cursor, knows of.
    """

    def __init__(
        self,
        start: Position,
        *,
        now_s: float,
        records: int = 10_000,
        seconds: float = 0.5,
        save_s: float = 1.0,
        stop_s: float = 5.0,
        backoff_s: float = 0.2,
        backoff_max_s: float = 30.0,
        in_doubt: bool = False,
        entropy: random.Random | None = None,
    ) -> None:
        self.state = State.BACKING_OFF
        self.position = start
        self.saved = start
        self.sent_to = start
        self.outstanding = 0
        self.acknowledged = 0
        self.failure: str | None = None
        self.failed_at: Position | None = None
        self.limit = records
        self.suspected = 0  # so many records from the committed position on hold a refused one
        self.stopping = False
        self.in_doubt = in_doubt
        self._first: Position | None = None
        self._proven = False
        self._intact = False  # nothing of the producer's can come late: it may go on
        self._records = records
        self._seconds = seconds
        self._save_s = save_s
        self._stop_s = stop_s
        self.backoff = Backoff(backoff_s, backoff_max_s, entropy)
        self._save_due_s = now_s + save_s
        self._retry_at_s = now_s
        self._commit_due_s = float("inf")
        self._stop_at_s = float("inf")

    # --- what the driver asks -----------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more records may be sent in this transaction."""
        return self.limit - self.outstanding if self.state is State.SENDING else 0

    @property
    def intact(self) -> bool:
        """Whether all that its producer ever began is committed, as far as the cluster says."""
        return self._intact and not self.in_doubt

    @property
    def over(self) -> bool:
        """Stopped or failed: no command will follow."""
        return self.state in _RESTING

    def seconds_to_tick(self, now_s: float) -> float:
        """How long nothing is due."""
        if self.state is State.BACKING_OFF:
            return max(0.0, self._retry_at_s - now_s)
        if self.state is not State.SENDING:  # the cluster is asked: its answer is waited for
            return float("inf")
        return max(0.0, min(self._save_due_s, self._commit_due_s) - now_s)

    # --- connecting ---------------------------------------------------------------------------

    def found(self, position: Position, *, now_s: float) -> list[Command]:
        """Nothing of a predecessor is open, and the last transaction that was committed ended
        here (or there was none, and the local cursor stands here)."""
        if self.state is not State.CONNECTING:
            return []
        before = self.position
        self.position = self.sent_to = position
        self.in_doubt = False
        if self._proven and None not in {before.ordinal, position.ordinal}:
            self.acknowledged += max(0, (position.ordinal or 0) - (before.ordinal or 0))
        self._intact = True
        if not self._proven:
            self.state = State.PROVING
            return [Prove(position)]
        return self._send_on(now_s)

    def proven(self, *, now_s: float, twice: bool = False) -> list[Command]:
        """The cluster isolates transactions. twice: the client may have asked more than once for
        the end of one of those that proved it."""
        if self.state is not State.PROVING:
            return []
        self._proven = True
        self._intact = self._intact and not twice
        return self._go_on(now_s)

    # --- sending ------------------------------------------------------------------------------

    def sent(self, first: Position, to: Position, records: int, *, now_s: float) -> list[Command]:
        """Records from `first` on were handed to the producer, all that lie before `to`."""
        assert self.state is State.SENDING
        assert 0 < records <= self.room
        if not self.outstanding:
            self._first = first
            self._commit_due_s = now_s + self._seconds
        self.outstanding += records
        self.sent_to = to
        return self._commit_if_due(now_s)

    def moved(self, to: Position) -> None:
        """Up to there the log has no more records: seals and gaps were passed."""
        if self.state is State.SENDING:
            self.sent_to = to
            if not self.outstanding:
                self.position = to

    def refused(self, reason: str, at: Position) -> list[Command]:
        """The record there can never be sent; all before it was."""
        if self.state is not State.SENDING:
            return []
        self.failure, self.failed_at = reason, at
        self.moved(at)
        return self._commit() if self.outstanding else self._settle()

    def hurry(self) -> list[Command]:
        """No more comes for now: what is open need not wait until its time is over."""
        return self._commit() if self.state is State.SENDING and self.outstanding else []

    # --- what became of it --------------------------------------------------------------------

    def committed(self, *, now_s: float, twice: bool = False) -> list[Command]:
        """The cluster has committed what `Commit` asked for. twice: the client may have asked for
        it more than once."""
        if self.state is not State.COMMITTING:
            return []
        self._intact = self._intact and not twice
        self.acknowledged += self.outstanding
        self.suspected = max(0, self.suspected - self.outstanding)
        if not self.suspected:
            self.limit = min(self._records, self.limit * 2)
        self.position = self.sent_to
        self.backoff.reset()
        self._forget_open()
        if self.failed_at is None:
            self.failure = None
        if self.stopping:
            return self._end(State.STOPPED)
        if self.failed_at is not None:
            return self._settle()
        return self._go_on(now_s)

    def unanswered(self, reason: str) -> list[Command]:
        """The cluster has not said yet what became of a commit or an abort: ask again."""
        self.failure = reason
        if self.state is State.COMMITTING:
            return [Commit(self.sent_to, again=True)]
        return [Abort(self.position)] if self.state is State.ABORTING else []

    def failed(self, reason: str, *, now_s: float) -> list[Command]:
        """The transaction cannot be committed, but the next one may."""
        if self.state not in _OPEN:
            return []
        if self.state is State.COMMITTING and not self.stopping:  # who knows how far that came
            return self.broken(reason, now_s=now_s)
        self.failure = reason
        self.failed_at = None  # it is found again
        return self._abort(now_s, at_once=False)

    def suspect(self, reason: str, *, now_s: float, names: bool = False) -> list[Command]:
        """Something in the transaction was refused; nothing says which record. names: it may be
        said where each record has a report."""
        if self.state not in _OPEN or not self.outstanding:
            return self.failed(reason, now_s=now_s)
        self.failure = reason
        self.failed_at = self._first if self.outstanding == 1 else None
        whole = names and not self.suspected
        self.suspected = self.outstanding
        self.limit = self.suspected if whole else max(1, self.suspected // NARROWING)
        return self._abort(now_s, at_once=True)

    def again(self, reason: str, *, now_s: float, named: bool = False) -> list[Command]:
        """The transaction cannot be committed, and what the next one must leave out is known. named:
        by reports on its records; there may be more to name."""
        if self.state not in _OPEN:
            return []
        self.failure, self.failed_at = reason, None
        self.suspected, self.limit = self.outstanding if named else 0, self._records
        return self._abort(now_s, at_once=True)

    def aborted(self, *, now_s: float) -> list[Command]:
        """Nothing of the transaction will ever be seen."""
        if self.state is not State.ABORTING:
            return []
        if self.stopping:
            return self._end(State.STOPPED)
        if self.failed_at is not None:
            return self._settle()
        self.state = State.BACKING_OFF
        return self.tick(now_s)

    def settled(self, behind: Position | None, *, now_s: float) -> list[Command]:
        """What `Settle` asked for is done, durably: go on behind the record. None: stand."""
        if self.state is not State.SETTLING:
            return []
        if behind is None:
            return self._end(State.FAILED)
        self.position = self.sent_to = behind
        self.backoff.reset()
        self.failed_at = self.failure = None
        self.suspected = 0
        self.limit = self._records
        return self._go_on(now_s)

    def broken(self, reason: str, *, now_s: float) -> list[Command]:
        """The producer is of no more use, and what became of its transaction is not known."""
        if self.over:
            return []
        self.failure = reason
        self.failed_at = None
        self.in_doubt = self.in_doubt or self.state is State.COMMITTING
        self._intact = False
        self._forget_open()
        if self.stopping:
            return self._end(State.STOPPED)
        self._back_off(now_s, at_once=False)
        self.state = State.BACKING_OFF
        return [Save(self.position), Disconnect()]

    def impossible(self, reason: str) -> list[Command]:
        """No retry will help."""
        if self.over:
            return []
        self.failure = reason
        self.in_doubt = self.in_doubt or self._proven
        return self._end(State.FAILED)

    # --- time ---------------------------------------------------------------------------------

    def stop(self, *, now_s: float) -> list[Command]:
        """No more is sent; what was sent may be committed for a while yet."""
        if self.stopping or self.over:
            return []
        self.stopping = True
        self._stop_at_s = now_s + self._stop_s
        if self.state is State.SENDING and self.outstanding:
            return self._commit()
        if self.state in {State.COMMITTING, State.ABORTING}:
            return []
        return self._end(State.STOPPED)

    def retry(self, *, now_s: float) -> None:
        """Somebody may have corrected what it waits for: it is tried at once."""
        self.backoff.reset()
        self._retry_at_s = min(self._retry_at_s, now_s)

    def tick(self, now_s: float) -> list[Command]:
        """Time has passed."""
        if self.stopping and not self.over and now_s >= self._stop_at_s:
            self.in_doubt = self.in_doubt or self.state is State.COMMITTING
            return self._end(State.STOPPED)
        if self.state is State.BACKING_OFF and now_s >= self._retry_at_s:
            return self._connect()
        if self.state is State.SENDING:
            return self._commit_if_due(now_s) or self._save_if_due(now_s)
        return []

    # --- inside -------------------------------------------------------------------------------

    def _send_on(self, now_s: float) -> list[Command]:
        self.state = State.SENDING
        return self._save_if_due(now_s)

    def _go_on(self, now_s: float) -> list[Command]:
        """With the next transaction, of this producer or of its next epoch."""
        return self._send_on(now_s) if self._intact else self._connect()

    def _connect(self) -> list[Command]:
        self.state = State.CONNECTING
        return [Connect()]

    def _commit_if_due(self, now_s: float) -> list[Command]:
        due = self.outstanding >= self.limit or now_s >= self._commit_due_s
        return self._commit() if self.outstanding and due else []

    def _commit(self) -> list[Command]:
        self.state = State.COMMITTING
        return [Commit(self.sent_to, again=False)]

    def _abort(self, now_s: float, *, at_once: bool) -> list[Command]:
        self._forget_open()
        self._intact = False
        self._back_off(now_s, at_once=at_once)
        self.state = State.ABORTING  # also on the way to a stop: consumers wait for what is open
        return [Abort(self.position)]

    def _settle(self) -> list[Command]:
        assert self.failed_at is not None
        self.position = self.sent_to = self.failed_at
        self.state = State.SETTLING
        return [Settle(self.failed_at, self.failure or "")]

    def _back_off(self, now_s: float, *, at_once: bool) -> None:
        delay = 0.0
        if not at_once:
            delay = self.backoff.next_s()
        self._retry_at_s = now_s + delay

    def _forget_open(self) -> None:
        self.outstanding = 0
        self.sent_to = self.position
        self._first = None
        self._commit_due_s = float("inf")

    def _save_if_due(self, now_s: float) -> list[Command]:
        if now_s < self._save_due_s:
            return []
        self._save_due_s = now_s + self._save_s
        if self.position.address <= self.saved.address:
            return []
        return [Save(self.position)]

    def saved_at(self, position: Position) -> None:
        """The local cursor is durable there."""
        self.saved = position

    def _end(self, state: State) -> list[Command]:
        self.state = state
        return [Save(self.position), Disconnect()]
