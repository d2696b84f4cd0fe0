"""Found: what a partition holds of a log, and how it is compared with the log. Pure.

After a crash, records may have arrived that no checkpoint shows. A stamp is no proof that they did: anybody
can copy a message, stamp included, into any partition; a log can be copied, put back from a backup, or
lose its end, and then other records get its addresses. So:

    A record has arrived if its partition holds the message that would be sent now: the partition that
    the router chooses now, with this stamp (UUID, epoch, address, timestamp), key and value.
    The records of a lane are compared in the log's order with the messages in the partition's order. The
    first record that is not found ends the comparison: it is sent, and so is every record of its lane
    after it, even if a message of that one was found.

Hence a message in another partition than its record's proves nothing, and one in the right partition
proves only itself: no record is passed over without a message of its own. Nothing is sent twice
without a cause either: the producer leaves no holes, so what it wrote is found in the log's order,
whatever others wrote in between. Records that were set aside are not expected. The causes of a hole,
and so of repeats, are outside: retention, compaction, or a topic that was made anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aolog.format.native.speed import groups
from bridge.deliver.at_least_once.lanes import Lane
from bridge.deliver.verdicts import Given
from bridge.kafka.lane import LaneKey


class Copies(NamedTuple):
    """Messages that carry stamps of the log and do not count as its records. offset, address: of the first."""

    lane: LaneKey
    messages: int
    offset: int
    address: int


class Found:
    """The messages of a partition that may be records of a lane after those that it is known to hold, in the
    partition's order."""

    def __init__(self, held: int = -1) -> None:
        self.held = held  # the lane is known to hold all its records up to this address; -1: none
        self.end = -1  # the offset after the last message that was read; -1: none was
        self.is_whole = True  # the partition ends there; if not, it is read on once all is compared
        self.greatest = -1  # of the addresses; -1 if there are none
        self.is_spent = False  # compared as far as it goes; if it is not whole, more has to be read
        self.addresses = array("Q")  # of the records that the messages claim to be
        self._offsets = array("q")
        self._digests = array("q")
        self._next = 0  # the first that is not compared
        self._copies = 0
        self._first_copy: tuple[int, int] | None = None  # its offset and address

    def add(self, offset: int, address: int, digest: int) -> None:
        """The next message. digest: see Messages.digests."""
        self.addresses.append(address)
        self._offsets.append(offset)
        self._digests.append(digest)
        self.greatest = max(self.greatest, address)

    def add_copies(self, messages: int, offset: int, address: int) -> None:
        """These messages do not count. offset, address: of the first."""
        first = offset, address
        self._copies += messages
        self._first_copy = min(first, self._first_copy or first)

    @property
    def is_compared(self) -> bool:
        """Whether no message is left."""
        return self._next == len(self.addresses)

    def take(self, digest: int) -> int | None:
        """The offset of the next message with this digest, or None. The messages before it are passed."""
        try:
            at = self._digests.index(digest, self._next)
        except ValueError:
            return None
        self._pass(at)
        self._next = at + 1
        return self._offsets[at]

    def copies(self, lane: LaneKey) -> Copies | None:
        """What did not count and was not told before. Passes the messages that are left."""
        self._pass(len(self.addresses))
        if self._first_copy is None:
            return None
        found = Copies(lane, self._copies, *self._first_copy)
        self._copies, self._first_copy = 0, None
        return found

    def _pass(self, to: int) -> None:
        if to > self._next:
            first = self._next
            self.add_copies(to - first, self._offsets[first], self.addresses[first])
        self._next = to


def compare(given: Given, lanes: Mapping[LaneKey, Lane], *, begin: int) -> None:
    """Notes which records of a batch have arrived, by what was found in their lanes. begin: where reading began."""
    digests: Sequence[int] | None = None
    for key, indices in groups(list(given.lanes)).items():
        lane = None if key is None else lanes.get(key)
        if lane is None or lane.found is None or lane.found.is_spent:
            continue
        if lane.waits_from is not None and lane.waits_from.address < begin:
            continue  # records that it left earlier in the log come first
        for i in indices:
            address = given.addresses[i]
            if lane.has(address):
                continue
            digests = given.digests() if digests is None else digests
            offset = lane.found.take(digests[i])
            if offset is None:
                lane.found.is_spent = True
                break
            lane.arrived(address)
            lane.last_offset = offset


def conclude(lanes: Mapping[LaneKey, Lane], unread: int) -> list[Copies]:
    """Ends the comparisons that are over, or need more of their partition. Returns what did not count.
    unread: no record before this address waits in the log."""
    copies = []
    for key, lane in lanes.items():
        found = lane.found
        if found is None:
            continue
        if not (found.is_spent or found.is_compared or found.greatest < unread):
            continue
        if (of_lane := found.copies(key)) is not None:
            copies.append(of_lane)
        found.is_spent = not found.is_whole
        if found.is_whole:
            lane.last_offset = max(lane.last_offset, found.end - 1)
            lane.found = None
    return copies
