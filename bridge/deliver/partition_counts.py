"""PartitionCounts: how many partitions of a topic are in use, for which records. Pure.

The router chooses a record's partition by their number. So the number never changes for a record that
was sent, or may have been: what a lane is known to hold is known of the records that this number gives
it. A topic that grows is used with its new number from an address on that nothing sent has reached (see
at_least_once.topics); the records before that address keep the old one. Each growth is one step more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple


class PartitionCounts(NamedTuple):
    """steps: (address, partitions from there on; the first counts before it, too). Both numbers increase."""

    steps: tuple[tuple[int, int], ...]

    @classmethod
    def always(cls, partitions: int) -> PartitionCounts:
        """The same number for all records."""
        return cls(((0, partitions),))

    @classmethod
    def parsed(cls, saved: Any) -> PartitionCounts:
        """As it was `saved`. Raises an error of aolog.errors.MALFORMED."""
        if isinstance(saved, int):
            return cls.always(saved)
        steps = tuple((int(address), int(partitions)) for address, partitions in saved)
        if not steps or any(one >= two for one, two in pairwise(steps)):
            raise ValueError("numbers of partitions without order")
        return cls(steps)

    @property
    def saved(self) -> int | list[tuple[int, int]]:
        """For JSON: one number is saved as releases before saved it."""
        return self.latest if len(self.steps) == 1 else list(self.steps)

    @property
    def latest(self) -> int:
        """How many partitions the topic has; it may have more that are not in use."""
        return self.steps[-1][1]

    def grown(self, address: int, partitions: int) -> PartitionCounts:
        """With another number from this address on, or from the last step if that is later: nothing after it was sent."""
        last = self.steps[-1][0]
        kept = self.steps if address > last else self.steps[:-1]
        return PartitionCounts((*kept, (max(address, last), partitions)))

    def parts(self, addresses: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Ranges [begin, end) of indices of these increasing addresses, each with its number."""
        cuts = [0, *(bisect_left(addresses, at) for at, _ in self.steps[1:]), len(addresses)]
        for (begin, end), (_, partitions) in zip(pairwise(cuts), self.steps, strict=True):
            if begin < end:
                yield begin, end, partitions
