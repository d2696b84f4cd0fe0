"""Exactly once: a pure state machine of one log's transactions. Events in; the driver does what
the state asks.

    state        event                           next
    connecting   found, not yet proven           proving
    connecting   found                           sending
    proving      proven                          sending
    proving      proven, perhaps asked twice     connecting
    sending      full, or its time is over       committing
    sending      hurried, something open         committing
    committing   committed                       sending
    committing   unanswered                      committing   the driver asks again
    committing   committed, perhaps asked twice  connecting
    sending      suspect                         connecting   then fewer records
    committing   suspect                         connecting   then fewer records
    sending      to be sent again at once        connecting
    committing   to be sent again at once        connecting
    committing   suspect after a stop            stopped
    sending      ended at a refused record       failed
    backing_off  tick                            connecting
    any          broken                          backing_off
    any          impossible                      failed
    sending      stop, something open            committing   then stopped
    sending      stop                            stopped
    committing   committed after a stop          stopped
    any          broken after a stop             stopped
    any          tick after a stop, late         stopped
    elsewhere    stop                            stopped

What the driver does in a state, when it is entered:

    connecting   makes a new producer, aborts what its predecessor has open, looks up the cursor record;
                 then reports `found`
    proving      shows that the cluster isolates transactions, with a cursor record of `position`; then
                 reports `proven`
    committing   commits what was sent, with a cursor record of `sent_to`; then reports `committed`
    backing_off, stopped, failed: drops the producer

With a new producer, and without one, it goes back to `position`, the committed one.

Why each record arrives once. A transaction holds records of the log from the committed position
on, in order, and the position after them as a record of the cursor topic. The cluster makes all of
it visible, or none. The cluster keeps the outcome of every transaction: a new connection first
aborts what a predecessor left open, and `found` then reports where the last committed transaction
ended. Sending begins there. The machine never guesses: after `broken` it connects again to learn
what was committed.

Nothing is aborted by name: a transaction that cannot be committed ends with its connection. Neither
is a producer used again that may have requested an end twice (a commit's, or one of the proof's):
the cluster may carry out the first request late, and would end the next transaction with it
(KIP-890). Kafka tells the two apart by the producer's epoch, which only a new connection changes.

Poison. The cluster refuses requests, not records, so a refusal makes the whole transaction
*suspect*. The machine connects again and tries an eighth of the records, until a refused
transaction holds one record alone (`alone`). Everything before that record is committed by then,
and nothing after it was touched. If the parts pass where the whole did not (the request was too
large for the topic), transactions stay small, and double with each one that passes. If the cluster
may name the records (KIP-467), the same records are first sent again, with a report on each. Records
that are named, or refused by the topic's settings, are set aside while the rest is sent (`again`).

A transaction is also bounded in bytes, by how fast the cluster takes them: see TransactionSize.

The local cursor follows the committed position and is never ahead of it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import Enum

from aolog.errors import counted
from aolog.record import Position, count_between
from bridge.deliver.backoff import Backoff
from bridge.deliver.exactly_once.transaction_size import TransactionSize
from bridge.kafka.client_limits import LOG_BYTES_MAX


class State(Enum):
    """Of the machine."""

    CONNECTING = "connecting"
    PROVING = "proving"
    SENDING = "sending"
    COMMITTING = "committing"
    BACKING_OFF = "backing_off"
    STOPPED = "stopped"
    FAILED = "failed"


NARROWING = 8  # each narrower try costs a connection, as much as several commits: see suspect
_FINAL = {State.STOPPED, State.FAILED}
_OPEN = {State.SENDING, State.COMMITTING}


@dataclass(eq=False)
class Transactions:
    """See the module. Times are seconds of any clock that only grows."""

    position: Position  # everything before it is committed
    _: KW_ONLY
    now_s: InitVar[float]
    records: int = 10_000  # in a transaction, at most
    seconds: float = 0.5  # how long it stays open, at most
    bytes_max: InitVar[int] = LOG_BYTES_MAX  # in a transaction
    timeout_s: InitVar[float] = 60.0  # after which the cluster ends it
    stop_s: float = 5.0  # how long a stop waits for a commit
    in_doubt: bool = False  # the cluster may have committed more than the local cursor says
    backoff: Backoff = field(default_factory=Backoff)
    state: State = field(default=State.BACKING_OFF, init=False)
    outstanding: int = field(default=0, init=False)  # records in the open transaction
    outstanding_bytes: int = field(default=0, init=False)  # their keys and values
    acknowledged: int = field(default=0, init=False)
    skipped: int = field(default=0, init=False)  # committed by processes before this one
    failure: str | None = field(default=None, init=False)
    suspected: int = field(default=0, init=False)  # so many after the position hold a refused one
    stopping: bool = field(default=False, init=False)

    def __post_init__(self, now_s: float, bytes_max: int, timeout_s: float) -> None:
        self.sent_to = self.position
        self.limit = self.records
        self.size = TransactionSize(timeout_s, self.seconds, bytes_max)
        self._first = 0  # address of the first record in the open transaction
        self._begun_s = 0.0  # when that was sent
        self._proven = False
        self._intact = False  # no request of this producer can arrive late: it may go on
        self._retry_at_s = now_s
        self._commit_due_s = self._stop_at_s = float("inf")

    # --- what the driver asks -----------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more records may be sent in this transaction."""
        return self.limit - self.outstanding if self.state is State.SENDING else 0

    @property
    def bytes_room(self) -> int:
        """How many more bytes; a transaction may always hold one record."""
        return self.size.bytes - self.outstanding_bytes

    def open_s(self, now_s: float) -> float:
        """How long ago the first record of the transaction was sent."""
        return now_s - self._begun_s

    @property
    def alone(self) -> list[int]:
        """The address of the transaction's only record; empty if it has none or several."""
        return [self._first] if self.outstanding == 1 else []

    @property
    def is_open(self) -> bool:
        """Whether a transaction is sent or committed, or may begin."""
        return self.state in _OPEN

    @property
    def intact(self) -> bool:
        """Whether everything that its producer began is committed, as far as the cluster says."""
        return self._intact and not self.in_doubt

    @property
    def over(self) -> bool:
        """Stopped or failed, for good."""
        return self.state in _FINAL

    def seconds_to_tick(self, now_s: float) -> float:
        """Until the next time-out; endless while the cluster's answer is awaited."""
        if self.state is State.BACKING_OFF:
            return max(0.0, self._retry_at_s - now_s)
        if self.state is not State.SENDING:
            return float("inf")
        return max(0.0, self._commit_due_s - now_s)

    # --- connecting ---------------------------------------------------------------------------

    def found(self, position: Position) -> None:
        """Nothing of a predecessor is open, and the last committed transaction ended at this
        position (the local cursor's, if there was none)."""
        if self.state is not State.CONNECTING:
            return
        passed = count_between(self.position.ordinal, position.ordinal) or 0
        if self._proven:  # otherwise this process has sent nothing
            self.acknowledged += passed
        else:
            self.skipped += passed
        self.position = self.sent_to = position
        self.in_doubt = False
        self._intact = True
        self.state = State.SENDING if self._proven else State.PROVING

    def proven(self, *, twice: bool = False) -> None:
        """The cluster isolates transactions. twice: as of committed, for the proof's transactions."""
        if self.state is not State.PROVING:
            return
        self._proven = True
        self._intact = self._intact and not twice
        self._go_on()

    # --- sending ------------------------------------------------------------------------------

    def sent(self, first: int, to: Position, records: int, size: int = 0, *, now_s: float) -> None:
        """The producer has taken records with so many bytes from the address `first` on, all before `to`."""
        assert self.state is State.SENDING
        assert 0 < records <= self.room
        if not self.outstanding:
            self._first, self._begun_s = first, now_s
            self._commit_due_s = now_s + self.seconds
        self.outstanding += records
        self.outstanding_bytes += size
        self.sent_to = to
        self._commit_if_due(now_s)

    def moved(self, to: Position) -> None:
        """The log has no more records before this position: seals and gaps were passed."""
        if self.state is State.SENDING:
            self.sent_to = to
            if not self.outstanding:
                self.position = to

    def end_at_refused(self, reason: str) -> None:
        """The record at the committed position can never be sent, and nothing passes it."""
        self.failure = reason
        self.state = State.FAILED

    def hurry(self) -> None:
        """No more records come for now: commits what is open without waiting for its time."""
        if self.state is State.SENDING and self.outstanding:
            self.state = State.COMMITTING

    # --- outcomes -----------------------------------------------------------------------------

    def committed(self, *, now_s: float, twice: bool = False) -> None:
        """The cluster has committed up to `sent_to`. twice: the client may have requested that twice."""
        if self.state is not State.COMMITTING:
            return
        self.size.committed(self.outstanding_bytes, self.open_s(now_s))
        self._intact = self._intact and not twice
        self.acknowledged += self.outstanding
        self.suspected = max(0, self.suspected - self.outstanding)
        if not self.suspected:
            self.limit = min(self.records, self.limit * 2)
        self.position = self.sent_to
        self.backoff.reset()
        self._forget_open()
        self.failure = None
        if self.stopping:
            self.state = State.STOPPED
        else:
            self._go_on()

    def unanswered(self, reason: str) -> None:
        """The cluster has not answered a commit yet."""
        self.failure = reason

    def suspect(self, reason: str, *, now_s: float, names: bool = False) -> None:
        """The cluster refused one of several records in the transaction, and nothing says which one.
        names: it may name the record if each has a report."""
        if not self.is_open:
            return
        if not self.outstanding:
            self.broken(reason, now_s=now_s)
            return
        whole = names and not self.suspected
        self.suspected = self.outstanding
        self.limit = self.suspected if whole else max(1, self.suspected // NARROWING)
        self._connect_again(reason)

    def again(self, reason: str, *, named: bool = False) -> None:
        """The transaction cannot be committed, and what the next one must leave out is known. named:
        from reports on its records; there may be more to name."""
        if not self.is_open:
            return
        self.suspected, self.limit = self.outstanding if named else 0, self.records
        self._connect_again(reason)

    def broken(self, reason: str, *, now_s: float) -> None:
        """The producer cannot be used any more. The next one looks up what became of its transaction."""
        if self.over:
            return
        self.failure = reason
        open_s = self.open_s(now_s)
        if self.outstanding and self.size.ended(self.outstanding_bytes, open_s):
            self.failure = (
                f"{reason}; the transaction of {counted(self.outstanding, 'record', ',')} was open for"
                f" {open_s:.0f} s, and the cluster ends one after {self.size.timeout_s:g} s: the next"
                f" one holds at most {self.size.bytes:,} bytes"
            )
        self.in_doubt = self.in_doubt or self.state is State.COMMITTING
        self._intact = False
        self._forget_open()
        self.state = State.STOPPED if self.stopping else State.BACKING_OFF
        self._retry_at_s = now_s + self.backoff.next_s()

    def impossible(self, reason: str) -> None:
        """No retry helps."""
        if self.over:
            return
        self.failure = reason
        self.in_doubt = self.in_doubt or self._proven
        self.state = State.FAILED

    # --- time ---------------------------------------------------------------------------------

    def stop(self, *, now_s: float) -> None:
        """Sends no more; commits what was sent, if that succeeds within `stop_s`."""
        if self.stopping or self.over:
            return
        self.stopping = True
        self._stop_at_s = now_s + self.stop_s
        self.hurry()
        if self.state is not State.COMMITTING:
            self.state = State.STOPPED

    def retry(self, *, now_s: float) -> None:
        """Tries at once: the cause of the failure may have been corrected."""
        self.backoff.reset()
        self._retry_at_s = min(self._retry_at_s, now_s)

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        if self.stopping and not self.over and now_s >= self._stop_at_s:
            self.in_doubt = self.in_doubt or self.state is State.COMMITTING
            self.state = State.STOPPED
        elif self.state is State.BACKING_OFF and now_s >= self._retry_at_s:
            self.state = State.CONNECTING
        elif self.state is State.SENDING:
            self._commit_if_due(now_s)

    # --- inside -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """With the next transaction, of this producer or of its next epoch."""
        self.state = State.SENDING if self._intact else State.CONNECTING

    def _connect_again(self, reason: str) -> None:
        """At once: the cluster answers, it only refused a record."""
        self.failure = reason
        self._intact = False
        self._forget_open()
        self.state = State.STOPPED if self.stopping else State.CONNECTING

    def _commit_if_due(self, now_s: float) -> None:
        is_full = self.outstanding >= self.limit or self.bytes_room <= 0
        if is_full or now_s >= self._commit_due_s:
            self.hurry()

    def _forget_open(self) -> None:
        self.outstanding = self.outstanding_bytes = 0
        self.sent_to = self.position
        self._commit_due_s = float("inf")
