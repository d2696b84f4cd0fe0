"""Forwarder: one log to one cluster. It opens the log, drives a delivery until the end, and reports.

`at_least_once` and `exactly_once` carry the records. One thread does everything, except for commits,
and for calls to the cluster that may block.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack

from aolog.read.reader import view_of
from aolog.record import Lag, Position, count_between
from aolog.storage.storage import Storage
from bridge.config.names import dead_letter_path
from bridge.config.routing import Routing
from bridge.deliver.at_least_once.driver import AtLeastOnce
from bridge.deliver.checkpoints import Checkpoints
from bridge.deliver.exactly_once.driver import ExactlyOnce
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.known_gaps import LossFile
from bridge.deliver.log_source import LogSource
from bridge.deliver.losses import LogLosses
from bridge.deliver.status import Status, done
from bridge.deliver.transform import Transforms
from bridge.errors import WrongSetting
from bridge.kafka.topic_names import is_topic_name

_RATE_S = 0.5  # the shortest time over which a rate is taken


class Forwarder:
    """Forwards a log until it is stopped; see ForwarderOptions for how, and for when it ends by itself.

    One thread calls it; other threads, and signal handlers, may call `stop` and `reopen`, and read `moved_s`:
    when its thread last showed that it does not hang. Raises what Reader raises, and WrongSetting."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: ForwarderOptions,
        *,
        storage: Storage | None = None,  # of the log
        drain_to: int | None = None,  # the log's end that an earlier forwarder drained to
        losses: LogLosses | None = None,  # of several forwarders of this log
    ) -> None:
        self._options = options
        self._source = LogSource(path, options, storage=storage, losses=losses)
        reader = self._source.reader
        self._stop_asked = self._reopen_asked = False
        self.moved_s = time.monotonic()
        try:
            checkpoints = _checkpoints_of(self._source, options)
            self._losses = LossFile(reader, options.cursor, self._source.storage)
            self._source.losses.continue_from(self._losses.gaps)
            self.was_cut_off = not checkpoints.clean  # the bridge before this one
            self.drain_to = until = options.until
            self._until_ordinal = None if until is None else self._source.ordinal_at(until)
            if options.drain:
                self.drain_to = reader.end() if drain_to is None else drain_to
            routing = options.routing or Routing(options.topic)
            routing.of_log(reader.topic)
            if routing.has_transforms:
                self._source.transforms = Transforms(routing)
            _check_default(routing.default)
            kind = AtLeastOnce if options.delivery == "at_least_once" else ExactlyOnce
            self._delivery: AtLeastOnce | ExactlyOnce = kind(
                self._source, checkpoints, options, routing=routing, give_up=self._asked_to_stop
            )
        except BaseException:
            self._source.close()
            raise
        self._begun_at = self._source.position.ordinal
        self._rate_from = (time.monotonic(), 0)
        self._rate = 0.0

    # --- life ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Asks it to end soon."""
        self._stop_asked = True

    def reopen(self) -> None:
        """Asks it to retry lanes that wait for somebody to act."""
        self._reopen_asked = True

    def run(self, report: Callable[[Status], None] | None = None, every_s: float = 1.0) -> Status:
        """Forwards until the end. Returns the last status.

        Raises Undeliverable if a drain could not deliver a record, with the cursor durable before it;
        with exactly_once also without a drain, and Fenced, NotIsolated, CursorTopicUnfit,
        CursorForeign and CursorDiverged."""
        delivery = self._delivery
        report_due_s = 0.0
        failure: BaseException | None = None
        try:
            while not delivery.engine.over:
                now_s = self.moved_s = time.monotonic()
                if self._stop_asked or (
                    self.drain_to is not None and delivery.drain(self.drain_to)
                ):
                    delivery.engine.stop(now_s=now_s)
                if self._reopen_asked:
                    self._reopen_asked = False
                    delivery.reopen()
                # Before the turn, which waits seconds for a cluster that does not answer.
                if report is not None and now_s >= report_due_s:
                    report_due_s = now_s + every_s
                    report(self.status())
                delivery.turn(now_s)
                self._losses.save()
            delivery.committer.finish()
            delivery.finish()
            self._source.prune()
            status = self.status()
            self._losses.save(at_once=True)
            if report is not None:
                report(status)
        except BaseException as error:  # noqa: BLE001 -- raised below: see bridge.kafka.client
            failure = error
        with ExitStack() as closing:  # in reverse order; each one, even if another raises
            closing.callback(self._source.close)
            closing.callback(delivery.dead.close)
            closing.callback(delivery.producer.close)
            closing.callback(delivery.committer.close)
        failure = failure or delivery.error()
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame
        return status

    def drained(self, status: Status) -> bool:
        """Whether a drain reached its end, by the last status."""
        return self.drain_to is None or status.position >= self.drain_to

    def check_whole(self) -> None:
        """After a drain: raises GapFound if it has passed gaps, which the next run does not report."""
        self._source.losses.check(self._source.reader.path)

    @property
    def acknowledged_by_topic(self) -> dict[str, int]:
        """How many records of each topic the cluster has acknowledged. Of a replay."""
        assert isinstance(self._delivery, AtLeastOnce)  # replays are
        return self._delivery.acknowledged_by_topic

    def _asked_to_stop(self) -> bool:
        self.moved_s = time.monotonic()
        return self._stop_asked

    # --- status -------------------------------------------------------------------------------

    def status(self) -> Status:
        """The present status."""
        delivery, engine, source = self._delivery, self._delivery.engine, self._source
        position, now_s = engine.position, time.monotonic()
        status = delivery.status()._replace(
            delivery=self._options.delivery,
            reachable=delivery.connection.reachable,
            position=position.address,
            committed=delivery.committer.committed.address,
            acknowledged=engine.acknowledged,
            skipped=engine.skipped,
            outstanding=engine.outstanding,
            dead_lettered=delivery.dead.set_aside,
            dropped=delivery.dead.dropped,
            filtered=0 if source.transforms is None else source.transforms.filtered,
        )
        since_s, before = self._rate_from
        if now_s - since_s >= _RATE_S:
            self._rate = (status.acknowledged - before) / (now_s - since_s)
            self._rate_from = (now_s, status.acknowledged)
        lag = self._lag(position)
        unread = delivery.unread
        if unread is not None and (self.drain_to is None or unread.address < self.drain_to):
            source.count_pruned(unread)
        return status._replace(
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            durable=source.reader.durable(),
            lost_records=source.losses.records,
            gaps=source.losses.gaps,
            rate=self._rate,
            ahead_records=self._ahead(position, done(status), lag.records),
            limited=source.rate_limit.limits(now_s),
        )

    def _lag(self, position: Position) -> Lag:
        """What is left to send, up to `until`."""
        reader, until = self._source.reader, self._options.until
        lag = view_of(reader).lag(position)
        if until is None:
            return lag
        if position.address >= until:
            return Lag(0, 0, 0.0)
        beyond = view_of(reader).lag(Position(until, self._until_ordinal))
        records = count_between(beyond.records, lag.records)
        return Lag(records, max(0, lag.bytes - beyond.bytes), lag.seconds)

    def _ahead(self, position: Position, dealt_with: int, lag_records: int | None) -> int:
        """Records after the position that are dealt with. Gaps, and other clusters' records, only make it too low."""
        at = position.ordinal
        if at is None or self._begun_at is None or lag_records is None:
            return 0
        return min(lag_records, max(0, dealt_with - (at - self._begun_at)))


def _checkpoints_of(source: LogSource, options: ForwarderOptions) -> Checkpoints:
    """Raises WrongSetting if a delivery of the other kind was cut off: only that finds what it had in flight."""
    reader, cursor = source.reader, source.cursor
    checkpoints = Checkpoints.load(
        reader.path,
        cursor,
        source.storage,
        topic_uuid=reader.topic_uuid,
        begun=reader.has_cursor_position,
    )
    if not checkpoints.clean and checkpoints.delivery != options.delivery:
        raise WrongSetting(
            f"this cursor's last bridge delivered {checkpoints.delivery} and was cut off: records "
            "that it had in flight may have arrived",
            hint=f"run it once more with --delivery {checkpoints.delivery}, stop it in good order, "
            "and change then",
        )
    # The cursor has passed nothing, and nothing was sent or set aside. (exactly_once has no lanes here.)
    is_unused = (
        (reader.ordinal == 0 or not reader.has_cursor_position)
        and not checkpoints.lanes
        and checkpoints.clean
        and checkpoints.delivery == "at_least_once"
        and not source.storage.exists(dead_letter_path(reader.path, cursor))
    )
    if is_unused:
        checkpoints.cluster.forget()  # another cluster misses nothing
    checkpoints.cluster.call(options.cluster)
    return checkpoints


def _check_default(topic: str | None) -> None:
    """Raises WrongSetting for a default that no topic can have: otherwise each record would be blamed for it."""
    if topic is not None and not is_topic_name(topic):
        raise WrongSetting(
            f"records that name no topic would go to {topic!r}, which no topic can be called",
            hint="name another with --topic",
        )
