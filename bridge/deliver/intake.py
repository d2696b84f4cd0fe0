"""Intake: the next batch of a log, with each record's lane, and a verdict for each that is not sent. Both
deliveries begin here; from here on they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bridge.deliver.log_source import READ_BYTES_MAX
from bridge.kafka.messages import Messages, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from aolog.read.batch import Batch
    from bridge.deliver.log_source import LogSource
    from bridge.deliver.partition_counts import PartitionCounts
    from bridge.deliver.position import Position
    from bridge.deliver.router import Router
    from bridge.deliver.verdicts import Judge, Verdict
    from bridge.kafka.lane import LaneKey, Refusal

    PartitionsOf: TypeAlias = Callable[[str], PartitionCounts | Refusal | None]


class Judged(NamedTuple):
    """The records of a batch, in order. lanes: None for a record that is not sent from here: it is for
    another cluster, or was set aside before. verdicts: by address. first_ordinal: of the first record, None
    if the log counts no records."""

    batch: Batch
    messages: Messages
    lanes: Sequence[LaneKey | None]
    verdicts: Mapping[int, Verdict]
    first_ordinal: int | None


class Intake:
    """Of one log. uuid: in the stamps. find: finds these topics, and returns how many partitions each has, as
    Router.route takes it; None if that is not known yet.

    idle: whether the last read found nothing. Not thread-safe. Raises what Reader raises.
    """

    def __init__(
        self,
        source: LogSource,
        router: Router,
        judge: Judge,
        find: Callable[[Collection[str]], PartitionsOf | None],
        *,
        uuid: bytes,
    ) -> None:
        self._source = source
        self._router = router
        self._judge = judge
        self._find = find
        self._uuid = uuid
        self._batch: Batch | None = None  # read, while some of its topics are not known yet
        self.idle = False

    @property
    def waiting(self) -> bool:
        """Whether a batch was read, and waits for its topics."""
        return self._batch is not None

    def next(self, timeout_s: float, bytes_max: int = READ_BYTES_MAX) -> Judged | None:
        """The next batch; waits so long for one. None if there is none, or while its topics are not known:
        then call again."""
        batch = self._batch or self._source.read_batch(timeout_s, bytes_max)
        self.idle = batch is None
        if batch is None:
            return None
        self._batch = batch
        messages = messages_of(batch, self._uuid)
        partitions_of = self._find(self._router.topics(messages))
        if partitions_of is None:
            return None
        self._batch = None
        lanes, refusals = self._router.route(batch, messages, partitions_of)
        return Judged(
            batch,
            messages,
            self._judge.without_aside(messages.addresses, lanes),
            self._judge.verdicts(refusals),
            _first_ordinal(batch),
        )

    def go_to(self, position: Position) -> None:
        """Reads again from there. Not if it is there: that would count the losses before it again."""
        self._batch, self.idle = None, False
        if position.address != self._source.position.address:
            self._source.go_to(position)


def _first_ordinal(batch: Batch) -> int | None:
    """How many records of the log are before the batch; None if the log counts none."""
    frame = batch.frames[0]
    return None if frame.ordinal is None else frame.ordinal + frame.skip
