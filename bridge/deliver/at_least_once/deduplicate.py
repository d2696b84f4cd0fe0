"""What arrived before a crash: the bridge reads it back, and does not send it again.

A message in Kafka is a duplicate if the log holds exactly its record: at its address, in its epoch,
with its timestamp, key and value. The stamp alone (UUID, epoch, address) is not enough:

    a copy of the log         has the same UUID, and may go on to the same topic
    a restored backup         the log once had records that it no longer has
    a power cut               the same, for records that were forwarded before they were synced
    files put back in place   (a snapshot, a copy over them): the writer uses addresses and an epoch
                              that it used before

Records before the cursor are not compared, so mostly one record of a lane is read: the last.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog import Reader
from aolog.errors import AddressBeyondEnd, AddressPruned
from aolog.read.gaps import reported_elsewhere
from bridge.deliver.checkpoints import FROM_END
from bridge.kafka.client import ANSWER_S, NoAnswer, Refused
from bridge.kafka.consumed import stamp_of
from bridge.kafka.lane import Refusal
from bridge.kafka.stamp import stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog import Record
    from aolog.storage.storage import Storage
    from bridge.deliver.checkpoints import Checkpoint
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.read_back import ReadBack

_log = logging.getLogger("bridge")
CLAIMS_MAX = 100_000  # in memory at once, about 20 MB
SETTLE_S = 0.25  # after an unclean stop the last request of the process before may still arrive
SETTLE_MAX_S = 5.0


class _Claim(NamedTuple):
    """The record that a message claims to be. content: a hash of key and value in this process."""

    epoch: int
    timestamp_us: int | None
    content: int


class Deduplicator:
    """Finds the records of one log among the messages of a lane. It raises what Reader raises.

    source: the UUID in the log's stamps. since: the address of the first record that may have to be
    sent. view: changes each record before it is sent.
    """

    def __init__(
        self,
        path: str,
        storage: Storage,
        source: bytes,
        *,
        since: Callable[[], int],
        view: Callable[[Record], Record] | None = None,
    ) -> None:
        self._path = path
        self._storage = storage
        self._source = source
        self._since = since
        self._view = view

    def last(self, messages: Iterable[Any]) -> int | None:
        """The greatest address at which the log holds a record of these messages of a lane; None if there
        is none. messages: the client's."""
        since = self._since()
        last: int | None = None
        claims: dict[int, set[_Claim]] = {}
        for message in messages:
            stamp = stamp_of(message)
            if stamp is None or stamp.topic_uuid != self._source or stamp.address < since:
                continue
            content = hash((message.key(), message.value()))
            claim = _Claim(stamp.epoch, stamp.timestamp_us, content)
            claims.setdefault(stamp.address, set()).add(claim)
            if len(claims) > CLAIMS_MAX:
                last, claims = self._greater(claims, last), {}
        return self._greater(claims, last)

    def _greater(self, claims: dict[int, set[_Claim]], last: int | None) -> int | None:
        """The greatest claimed address after `last` at which the log holds the record, or `last`."""
        if last is not None:
            claims = {address: of for address, of in claims.items() if address > last}
        if not claims:
            return last
        with Reader(self._path, on_gap=reported_elsewhere, storage=self._storage) as reader:
            greatest = max(claims)
            found = self._greatest_held(reader, {greatest: claims[greatest]})
            if found is None:
                _log.warning(
                    "the destination has records with this log's UUID that the log does not have, "
                    "for example at address %d: it was copied or restored, or lost its end; they "
                    "do not count as delivered",
                    greatest,
                )
                found = self._greatest_held(reader, claims)
        return last if found is None else found

    def _greatest_held(self, reader: Reader, claims: dict[int, set[_Claim]]) -> int | None:
        """The greatest address at which the log holds the claimed record."""
        last, found = max(claims), None
        try:
            reader.seek(min(claims))
        except AddressBeyondEnd:
            return None
        except AddressPruned:
            reader.seek("earliest")
        while (batch := reader.read_batch(0)) is not None:  # a frame
            epoch = batch.frames[0].epoch
            for record in batch:
                if (
                    record.address in claims
                    and self._claim_of(record, epoch) in claims[record.address]
                ):
                    found = record.address
            if record.address >= last:
                break
        return found

    def _claim_of(self, record: Record, epoch: int) -> _Claim:
        if self._view is not None:
            record = self._view(record)
        return _Claim(epoch, stamped(record.timestamp), hash((record.key, record.value)))


class Arrivals(NamedTuple):
    """held: the last address that each lane holds. silent: lanes of which nothing is known, and why:
    the leader is away or does not answer, or the bridge may not read."""

    held: dict[LaneKey, int]
    silent: dict[LaneKey, Refusal]


class _Questions:
    """Asks leaders about lanes. A leader that did not answer, and a topic that the bridge may not
    read, are not asked again: their other lanes are silent at once. Raises NotReachable."""

    def __init__(self, reader: ReadBack, lanes: Iterable[LaneKey]) -> None:
        self.silent: dict[LaneKey, Refusal] = {}
        self._leaders = {topic: reader.leaders(topic) for topic in {topic for topic, _ in lanes}}
        self._away = {-1: no_answer("no broker leads it")}
        self._unreadable: dict[str, Refusal] = {}

    def exists(self, lane: LaneKey) -> bool:
        """Whether the partition exists."""
        return lane[1] in self._leaders[lane[0]]

    def ask(self, lane: LaneKey, question: Callable[[], None]) -> bool:
        """Whether the question was answered; otherwise the lane is silent."""
        leader = self._leaders[lane[0]].get(lane[1], -1)
        why = self._unreadable.get(lane[0]) or self._away.get(leader)
        if why is None:
            try:
                question()
            except NoAnswer as error:
                why = self._away[leader] = no_answer(error)
            except Refused as error:
                why = self._unreadable[lane[0]] = Refusal(str(error), error.code)
            else:
                return True
        self.silent[lane] = why
        return False


def no_answer(reason: object) -> Refusal:
    """Why a lane is silent: its leader does not answer now."""
    return Refusal(str(reason), "LEADER_NOT_AVAILABLE", passing=True)


def read_back(
    reader: ReadBack,
    lanes: dict[LaneKey, Checkpoint],
    deduplicator: Deduplicator,
    *,
    clean: bool,
    answer_s: float = ANSWER_S,
) -> Arrivals:
    """What each lane holds of the log. Moves the checkpoints on.

    clean: nothing was in flight when the process before stopped; otherwise this waits until its last
    request has arrived. Partitions that do not exist hold nothing, and are not silent. answer_s: the
    limit for each question. Raises NotReachable, and ToldToStop.
    """
    questions = _Questions(reader, lanes)
    lanes = {key: checkpoint for key, checkpoint in lanes.items() if questions.exists(key)}
    from_end = {key for key, checkpoint in lanes.items() if checkpoint.offset == FROM_END}
    held = {key: checkpoint.address for key, checkpoint in lanes.items()}
    seen: dict[LaneKey, int] = {}
    readable: set[str] = set()

    def look(key: LaneKey, checkpoint: Checkpoint) -> None:
        first, end = reader.ends(key, answer_s)
        if end == seen.get(key):
            return
        if key not in from_end:
            begin = max(min(checkpoint.offset, end), first)  # past the end: the topic is a new one
            own = None
            if begin < end:
                with closing(reader.messages(key, begin, end)) as messages:
                    own = deduplicator.last(messages)
            held[key] = max(held[key], -1 if own is None else own)
            checkpoint.address = held[key]  # first: another thread may save
            checkpoint.offset = max(begin, end - 1)
        elif key[0] not in readable:  # or the first crash would find out
            reader.check_readable(key, end, answer_s)
            readable.add(key[0])
        seen[key] = end

    settle_until_s = time.monotonic() + SETTLE_MAX_S
    while True:
        before = dict(seen)
        for key, checkpoint in lanes.items():
            questions.ask(key, partial(look, key, checkpoint))
        if clean or seen == before or time.monotonic() > settle_until_s:
            break
        time.sleep(SETTLE_S)
    silent = questions.silent
    for key in from_end - silent.keys():
        lanes[key].offset = seen[key]
    return Arrivals({key: held[key] for key in lanes if key not in silent}, silent)
