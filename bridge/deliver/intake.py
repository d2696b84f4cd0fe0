"""Intake: the next batch of a log, with each record's lane, and a verdict for each that is not sent. Both
deliveries begin here; from here on they differ."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from aolog.read.batch import Batch
from aolog.record import Position
from bridge.deliver.log_source import READ_BYTES_MAX, LogSource
from bridge.deliver.partition_counts import PartitionCounts
from bridge.deliver.router import Router
from bridge.deliver.verdicts import Given, Judge
from bridge.kafka.lane import Refusal
from bridge.kafka.messages import Messages, messages_of

PartitionsOf: TypeAlias = Callable[[str], PartitionCounts | Refusal | None]


class Judged(NamedTuple):
    """A batch, and what was decided of its records."""

    batch: Batch
    messages: Messages
    given: Given


@dataclass(eq=False)
class Intake:
    """Of one log. Not thread-safe. Raises what Reader raises."""

    source: LogSource
    router: Router
    judge: Judge
    # Finds topics: how many partitions each has, for Router.route; None: not known yet.
    find: Callable[[Collection[str]], PartitionsOf | None]
    uuid: bytes  # in the stamps
    idle: bool = False  # whether the last read found nothing
    _batch: Batch | None = None  # read, while some of its topics are not known yet

    @property
    def waiting(self) -> bool:
        """Whether a batch was read, and waits for its topics."""
        return self._batch is not None

    def next(self, timeout_s: float, bytes_max: int = READ_BYTES_MAX) -> Judged | None:
        """The next batch; waits so long for one. None without one, or while its topics are not known: call again."""
        batch = self._batch or self.source.read_batch(timeout_s, bytes_max)
        self.idle = batch is None
        if batch is None:
            return None
        self._batch = batch
        messages = messages_of(batch, self.uuid)
        partitions_of = self.find(self.router.topics(messages))
        if partitions_of is None:
            return None
        self._batch = None
        lanes, refusals = self.router.route(batch, messages, partitions_of)
        lanes = self.judge.without_aside(messages.addresses, lanes)
        first = batch.frames[0]
        given = Given(
            messages.addresses,
            messages.sizes,
            lanes,
            first.position_of(first.skip).ordinal,
            self.judge.verdicts(refusals),
            messages.digests,
        )
        return Judged(batch, messages, given)

    def go_to(self, position: Position) -> None:
        """Reads again from there. Not if it is there: that would count the losses before it again."""
        self._batch, self.idle = None, False
        if position.address != self.source.position.address:
            self.source.go_to(position)
