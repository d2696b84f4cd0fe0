"""KeptValues: values that the client reads where they are, in the batch, so that none is copied. Not thread-safe.

The client may read a value until its message is answered for. It answers for the messages of a lane in order, so a
batch can go once each of its lanes has an acknowledgement of its last record. When the connection ends, they can go
if the client has answered for all of its messages, or has ended. Whatever is dropped in another way stays in
memory for good: that is a leak, but no record ever arrives with other bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.kafka.lane import LaneKey

VALUE_BYTES_MIN = 512  # on average: copying a shorter value costs less than keeping it (measured)


class Held:
    """The values of a batch. release: gives them back. bytes: their size."""

    def __init__(self, release: Callable[[], object], size: int) -> None:
        self.release, self.bytes = release, size


class KeptValues:
    """Of one connection after the other. bytes_max: more is copied. So a lane that takes nothing, while others do,
    costs no more than this in addition to what is in flight."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        # With the last address of each lane that is not acknowledged.
        self._batches: list[tuple[Held, dict[LaneKey, int]]] = []

    @property
    def room(self) -> int:
        """How many more bytes may be kept."""
        return self._bytes_max - self.bytes

    def add(self, held: Held, last: dict[LaneKey, int]) -> None:
        """These values are about to be queued. last: the address of each lane's last record."""
        self._batches.append((held, last))
        self.bytes += held.bytes

    def acknowledged(self, lane: LaneKey, address: int) -> None:
        """The client has answered for all records of the lane up to this one."""
        is_over = False
        for _, last in self._batches:
            if last.get(lane, address + 1) <= address:
                del last[lane]
                is_over = is_over or not last
        if is_over:
            over = [held for held, last in self._batches if not last]
            self._batches = [batch for batch in self._batches if batch[1]]
            self._release(over)

    def end(self, *, answered: bool) -> None:
        """The connection has ended. answered: whether the client reads no value any more."""
        held = [held for held, _ in self._batches]
        self._batches = []
        if answered:
            self._release(held)
        else:
            self.bytes = 0

    def _release(self, batches: list[Held]) -> None:
        for held in batches:
            self.bytes -= held.bytes
            held.release()
