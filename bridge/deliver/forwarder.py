"""Forwarder: one log to one cluster. The shell around a way of delivering.

It owns the log's reader with its cursor and the clock; `at_least_once` and `exactly_once` carry
the records. One thread does everything, but for commits, and calls to the cluster that may block.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog.read.reader import lag_from
from aolog.record import Lag
from aolog.storage.storage import DIRECTORY_MODE
from bridge.config.routing import Routing, is_topic_name
from bridge.deliver.at_least_once.delivery import AtLeastOnce
from bridge.deliver.checkpoints import Checkpoints
from bridge.deliver.dead_letter import dead_letter_path
from bridge.deliver.delivery import AT_LEAST_ONCE, EXACTLY_ONCE, Delivery
from bridge.deliver.exactly_once.delivery import ExactlyOnce
from bridge.deliver.log_source import LogSource
from bridge.deliver.rate_limit import RateLimit, RateLimits
from bridge.deliver.status import Status
from bridge.errors import WrongSetting

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aolog import Reader, Record
    from aolog.log.retention import Retention
    from aolog.storage.storage import Storage
    from bridge.deliver.delivery import Progress
    from bridge.deliver.losses import LogLosses
    from bridge.deliver.position import Poison, Position
    from bridge.kafka.topic_creation import CreateTopics

__all__ = ["DELIVERIES", "OPTIONS", "Forwarder"]

CURSOR = "bridge"
CURSOR_TOPIC = "aolog-bridge-cursors"
DELIVERIES = (AT_LEAST_ONCE, EXACTLY_ONCE)
OPTIONS = (
    "delivery", "cursor_topic", "transaction_records", "transaction_seconds", "poison",
    "create_topics", "read_back", "mode", "records_per_second", "bytes_per_second",
)  # fmt: skip  # a list
"""Options that are called the same in a configuration and on the command line."""


class Forwarder:
    """Forwards a log until it is told to stop, or with `drain` until what was there at the start
    is acknowledged.

    topic: for records that name none; the log's own if None. routing: in place of topic, where
    there are rules. poison: what becomes of a record that will never be taken: "stop": its lane
    stands before it, the others go on; "dead-letter": it goes to the log in LOG/dead-letter;
    "drop": it is counted, logged and passed. mode: of the dead-letter log's directory, if it is
    created. prune_delivered: removes slabs that the cursor and
    every other protecting cursor have passed, or of them what retention lets go. until: it drains
    up to this address and no further. records_per_second, bytes_per_second: it is not sent faster,
    on average; shared_pace: nor than all whose pace it is together. view, keyless: see Feed.
    create_topics: "auto": a topic that is missing is created where the cluster allows it, with the
    cluster's own defaults, and that is said; "never": it is waited for. read_back: at_least_once:
    reads what has arrived behind a crash or a lost connection; without, which needs no right to
    read, what was under way is sent again and may arrive twice.
    storage: where the log is, if not in the system's files. cluster: what the configuration calls the
    destination. drain_to: with `drain`, what was the end where an earlier one began; it goes by that.
    losses: counts what cannot be delivered, also for forwarders of this log before and after.

    delivery: what is promised whatever is killed, and for how long an outage lasts.
    "at_least_once": nothing is lost, each partition keeps the order of the log, and what arrived
    before a crash is found again by its stamp and not sent twice. "exactly_once": read_committed
    consumers see each record once, in order, without exception; the cluster must isolate
    transactions (this is tried at each start) and has a compacted topic of one partition,
    cursor_topic, created if it is missing, unless create_topics is "never". Up to transaction_records go into a transaction, and it
    is committed after transaction_seconds: no consumer sees a record before. With poison="stop" all
    stands before a record that will never be taken; no `until`, `view` or `keyless` is to be had.

    Raises what Reader and `check` raise, and WrongSetting.
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
        poison: Poison = "stop",
        mode: int = DIRECTORY_MODE,
        prune_delivered: bool | Retention = False,
        records_per_second: float | None = None,
        bytes_per_second: float | None = None,
        shared_pace: RateLimit | None = None,
        until: int | None = None,
        view: Callable[[Record], Record] | None = None,
        keyless: bytes | None = None,
        delivery: str = AT_LEAST_ONCE,
        cursor_topic: str = CURSOR_TOPIC,
        create_topics: CreateTopics = "auto",
        read_back: bool = True,
        transaction_records: int = 10_000,
        transaction_seconds: float = 0.5,
        storage: Storage | None = None,
        cluster: str = "",
        drain_to: int | None = None,
        losses: LogLosses | None = None,
    ) -> None:
        if delivery not in DELIVERIES:
            raise WrongSetting(
                f"no delivery {delivery!r}", hint="use one of " + ", ".join(DELIVERIES)
            )
        if delivery == EXACTLY_ONCE and any((until is not None, view, keyless)):
            raise WrongSetting(
                "exactly_once sends a log from its cursor to its end", hint="use at_least_once"
            )
        own = RateLimit(records_per_s=records_per_second, bytes_per_s=bytes_per_second)
        self._source = LogSource(
            path,
            cursor=cursor,
            prune_delivered=prune_delivered,
            pace=RateLimits(own, shared_pace),
            mode=mode,
            storage=storage,
            losses=losses,
        )
        reader = self._source.reader
        self._stop_asked = self._reopen_asked = False
        self.moved_s = time.monotonic()  # when its thread last showed that it does not hang
        self._delivery_name = delivery
        try:
            notes = Checkpoints.load(
                reader.path, cursor, self._source.storage, topic_uuid=reader.topic_uuid,
                begun=reader.has_cursor_position,
            )  # fmt: skip  # one call, one place
            _check_notes(notes, delivery)
            if _is_unused(notes, reader, dead_letter_path(reader.path, cursor)):
                notes.cluster.forget()  # nothing was passed, or sent: another misses nothing
            notes.cluster.call(cluster)
            self.drain_to = self._until = until
            self._until_ordinal = None if until is None else self._source.ordinal_at(until)
            if drain:
                self.drain_to = reader.end() if drain_to is None else drain_to
            routing = routing or Routing(topic)
            routing.of_log(reader.topic)
            _check_default(routing.default)
            self._delivery: Delivery
            if delivery == EXACTLY_ONCE:
                self._delivery = ExactlyOnce(
                    self._source,
                    notes,
                    routing=routing,
                    bootstrap_servers=bootstrap_servers,
                    settings=settings or {},
                    cursor_topic=cursor_topic,
                    records=transaction_records,
                    seconds=transaction_seconds,
                    commit_s=commit_s,
                    stop_s=stop_s,
                    poison=poison,
                    create_topics=create_topics,
                    give_up=self._asked_to_stop,
                )
            else:
                self._delivery = AtLeastOnce(
                    self._source,
                    notes,
                    routing=routing,
                    bootstrap_servers=bootstrap_servers,
                    settings=settings or {},
                    commit_s=commit_s,
                    stop_s=stop_s,
                    poison=poison,
                    until=until,
                    view=view,
                    keyless=keyless,
                    create_topics=create_topics,
                    reads_back=read_back,
                    give_up=self._asked_to_stop,
                )
        except BaseException:
            self._source.close()
            raise
        self._begun_at = self._source.position.ordinal
        self._rate_from = (time.monotonic(), 0)
        self._rate = 0.0

    # --- life ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Asks it to end soon; safe in a signal handler."""
        self._stop_asked = True

    def reopen(self) -> None:
        """Asks for lanes that stand to be tried again; safe in a signal handler, and from another
        thread."""
        self._reopen_asked = True

    @property
    def stop_asked(self) -> bool:
        """Whether it ended, or will, before its time."""
        return self._stop_asked

    def run(self, report: Callable[[Status], None] | None = None, every_s: float = 1.0) -> Status:
        """Forwards until the end; the last status. Raises Undeliverable where it was to drain and
        a lane stands, with the cursor durable up to there; with exactly_once wherever it stands,
        and Fenced, NotIsolated, CursorTopicUnfit, CursorForeign and CursorDiverged."""
        delivery = self._delivery
        report_due_s = 0.0
        try:
            while not delivery.over:
                now_s = self.moved_s = time.monotonic()
                if self._stop_asked or self._drained():
                    delivery.stop(now_s)
                if self._reopen_asked:
                    self._reopen_asked = False
                    delivery.reopen()
                delivery.turn(now_s)
                if report is not None and time.monotonic() >= report_due_s:
                    report_due_s = time.monotonic() + every_s
                    report(self.status())
            delivery.finish()
            status = self.status()
            if report is not None:
                report(status)
        finally:
            try:
                delivery.close()
            finally:
                self._source.close()
        error = delivery.error()
        if error is not None:
            raise error
        return status

    def drained(self, status: Status) -> bool:
        """Of the last status: whether it came to where it was to drain."""
        return self.drain_to is None or status.position >= self.drain_to

    def check_whole(self) -> None:
        """After a drain: raises GapFound if gaps of the log were passed on the way. What could
        not be read was not delivered; the cursor is behind it, so the next run says nothing."""
        self._source.losses.check(self._source.reader.path)

    @property
    def acknowledged_by_topic(self) -> dict[str, int]:
        """How many records of each topic the cluster has acknowledged (at_least_once only)."""
        return dict(self._delivery.progress().topics or {})

    def _drained(self) -> bool:
        return self.drain_to is not None and self._delivery.drain(self.drain_to)

    def _asked_to_stop(self) -> bool:
        self.moved_s = time.monotonic()
        return self._stop_asked

    # --- what there is to say -----------------------------------------------------------------

    def status(self) -> Status:
        """How things stand."""
        progress = self._delivery.progress()
        now_s = time.monotonic()
        since_s, before = self._rate_from
        if now_s - since_s >= 0.5:
            self._rate = (progress.acknowledged - before) / (now_s - since_s)
            self._rate_from = (now_s, progress.acknowledged)
        lag = self._lag(progress.position)
        unread = self._delivery.unread
        if unread is not None and (self.drain_to is None or unread.address < self.drain_to):
            self._source.count_pruned(unread)
        return Status(
            state=progress.state,
            reachable=progress.reachable,
            position=progress.position.address,
            committed=progress.committed.address,
            acknowledged=progress.acknowledged,
            skipped=progress.skipped,
            outstanding=progress.outstanding,
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            lost_records=self._source.losses.records,
            gaps=self._source.losses.gaps,
            error=progress.error,
            rate=self._rate,
            dead_lettered=progress.dead_lettered,
            dropped=progress.dropped,
            standing=progress.standing,
            held_back=progress.held_back,
            delivery=self._delivery_name,
            ahead_records=self._ahead(progress, lag.records),
            stalled=progress.stalled,
        )

    def _lag(self, position: Position) -> Lag:
        """What is left to send: from the position to `until`."""
        reader, until = self._source.reader, self._until
        lag = lag_from(reader, *position)
        if until is None:
            return lag
        if position.address >= until:
            return Lag(0, 0, 0.0)
        beyond = lag_from(reader, until, self._until_ordinal)
        records = None
        if lag.records is not None and beyond.records is not None:
            records = max(0, lag.records - beyond.records)
        return Lag(records, max(0, lag.bytes - beyond.bytes), lag.seconds)

    def _ahead(self, progress: Progress, lag_records: int | None) -> int:
        """What was done with, less what lies up to the position. Records that gaps took, or that
        are another cluster's, make it less than it is, never more."""
        at = progress.position.ordinal
        if at is None or self._begun_at is None or lag_records is None:
            return 0
        done = progress.acknowledged + progress.skipped + progress.dead_lettered + progress.dropped
        return min(lag_records, max(0, done - (at - self._begun_at)))


def _is_unused(notes: Checkpoints, reader: Reader, dead_letters: str) -> bool:
    """Whether the cursor has passed nothing, and nothing was sent or set aside for it. (Exactly once
    notes no lanes.)"""
    return (
        (reader.ordinal == 0 or not reader.has_cursor_position)
        and not notes.lanes
        and notes.clean
        and notes.delivery == AT_LEAST_ONCE
        and not notes.storage.exists(dead_letters)
    )


def _check_default(topic: str | None) -> None:
    """A default that can be no topic is refused before anything is sent: else each record would be
    to blame for it."""
    if topic is not None and not is_topic_name(topic):
        raise WrongSetting(
            f"records that name no topic would go to {topic!r}, which no topic can be called",
            hint="name another with --topic",
        )


def _check_notes(notes: Checkpoints, delivery: str) -> None:
    """What was under way when the other kind of delivery was cut off, only that kind can find."""
    if not notes.clean and notes.delivery != delivery:
        raise WrongSetting(
            f"this cursor's last bridge delivered {notes.delivery} and was cut off: what it had "
            "under way may have arrived",
            hint=f"run it once more with --delivery {notes.delivery}, stop it in good order, and "
            "change then",
        )
