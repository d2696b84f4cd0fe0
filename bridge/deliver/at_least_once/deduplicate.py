"""Reads back what arrived before a crash, so that it is not sent again. What of it counts: see `found`.

Messages before the cursor, and before what a lane is known to hold, are passed over, so mostly few
messages of a lane are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from bridge.deliver.at_least_once.found import Found
from bridge.deliver.checkpoints import FROM_END, Checkpoint
from bridge.deliver.forwarder_options import Waits
from bridge.errors import ReadForbidden, Unanswered
from bridge.kafka.consumed import stamp_of
from bridge.kafka.error_table import NO_READ
from bridge.kafka.lane import LaneKey, Refusal
from bridge.kafka.read_back import ReadBack
from bridge.kafka.stamp import digest, encode_stamp

FOUND_MAX = 1 << 20  # messages in memory at once, 24 bytes each; more of a partition is read later
FOUND_MIN = 1_000  # of a lane


class Arrivals(NamedTuple):
    """What was read back."""

    found: dict[LaneKey, Found]  # of each lane that answered
    silent: dict[LaneKey, Refusal]  # why: the leader is away or silent, or Read is missing


class Wanted(NamedTuple):
    """Which messages may be records that would be sent."""

    source: bytes  # the UUID in the log's stamps
    since: int  # the address of the first record that is not acknowledged
    end: int  # the address after the log's last record
    held: Mapping[LaneKey, int]  # each lane is known to hold all its records up to there

    def add(self, message: Any, found: Found) -> None:
        """Adds the client's message to what was found, if it may be one."""
        found.end = (message.offset() or 0) + 1
        stamp = stamp_of(message)
        if (
            stamp is not None
            and stamp.topic_uuid == self.source
            and stamp.address >= self.since
            and stamp.address > found.held
        ):
            if stamp.address >= self.end:  # nothing that is read will ever decide it
                found.add_copies(1, found.end - 1, stamp.address)
                return
            of = digest(encode_stamp(*stamp), message.key(), message.value())
            found.add(found.end - 1, stamp.address, of)


class _Questions:
    """Asks leaders about lanes. A leader that did not answer, and a topic that the bridge may not
    read, are not asked again: their other lanes are silent at once. leaders: by topic, none if it does not
    exist. Raises Unanswered."""

    def __init__(self, reader: ReadBack, lanes: Iterable[LaneKey]) -> None:
        self.silent: dict[LaneKey, Refusal] = {}
        topics = sorted({topic for topic, _ in lanes})
        self.leaders = {topic: reader.leaders(topic) for topic in topics}
        self._away = {-1: no_answer("no broker leads it")}
        self._unreadable: dict[str, Refusal] = {}

    def ask(self, lane: LaneKey, question: Callable[[], None]) -> bool:
        """Whether the question was answered; otherwise the lane is silent."""
        leader = self.leaders[lane[0]].get(lane[1], -1)
        why = self._unreadable.get(lane[0]) or self._away.get(leader)
        if why is None:
            try:
                question()
            except ReadForbidden as error:
                why = self._unreadable[lane[0]] = Refusal(str(error), NO_READ)
            except Unanswered as error:
                why = self._away[leader] = no_answer(error)
            else:
                return True
        self.silent[lane] = why
        return False


def no_answer(reason: object) -> Refusal:
    """Why a lane is silent: its leader does not answer now."""
    return Refusal(str(reason), "LEADER_NOT_AVAILABLE", passing=True)


def read_back(
    reader: ReadBack,
    lanes: Mapping[LaneKey, Checkpoint],
    wanted: Wanted,
    waits: Waits,
    *,
    clean: bool,
) -> Arrivals:
    """What the partitions of these lanes hold of the log. Moves the checkpoints on where nothing was found.

    clean: nothing was in flight when the process before stopped; otherwise this waits until its last
    request has arrived. Lanes of topics that do not exist are missing in the answer. Raises Unanswered, and
    ToldToStop."""
    questions = _Questions(reader, lanes)
    lanes = {key: checkpoint for key, checkpoint in lanes.items() if questions.leaders[key[0]]}
    most = max(FOUND_MIN, FOUND_MAX // max(1, len(lanes)))
    found = {key: Found(wanted.held[key]) for key in lanes}
    seen: dict[LaneKey, int] = {}
    readable: set[str] = set()

    def look(key: LaneKey, checkpoint: Checkpoint) -> None:
        first, end = reader.ends(key)
        of_lane = found[key]
        if end == seen.get(key) or not of_lane.is_whole:
            return
        if checkpoint.offset != FROM_END:
            begin = max(min(max(checkpoint.offset, of_lane.end), end), first)
            with closing(reader.messages(key, begin, end)) as messages:
                for message in messages:
                    wanted.add(message, of_lane)
                    if len(of_lane.addresses) >= most and of_lane.end < end:
                        of_lane.is_whole = False
                        break
        elif key[0] not in readable:  # or the first crash would find out
            reader.check_readable(key, end)
            readable.add(key[0])
        seen[key] = end

    settle_until_s = time.monotonic() + waits.settle_max_s
    while True:
        before = dict(seen)
        for key, checkpoint in lanes.items():
            questions.ask(key, partial(look, key, checkpoint))
        if clean or seen == before or time.monotonic() > settle_until_s:
            break
        time.sleep(waits.settle_s)
    silent = questions.silent
    for key in lanes.keys() - silent.keys():
        if lanes[key].offset == FROM_END or not found[key].addresses:
            lanes[key].offset = seen[key]
    return Arrivals({key: of for key, of in found.items() if key not in silent}, silent)
