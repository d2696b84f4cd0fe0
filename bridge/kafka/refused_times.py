"""Timestamps that partitions have refused, and what that says about other records of them. Pure.

A partition refuses a timestamp that is too far before or after its leader's clock. That clock may differ from
this machine's by hours. So a record that was refused alone in its request shows which others will be refused:

    it was too old          all that are older
    it was too far ahead    all that are later by at least the time that has passed since
    the same, within 10 s   all that are as late, if by this machine's clock, too, they are more than a minute too
                              far ahead

A run of such records costs one connection, and not one for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aolog.format.native.speed import groups
from bridge.kafka.lane import LaneKey, Refusal, lane_name

if TYPE_CHECKING:
    from bridge.kafka.admission import Bounds
    from bridge.kafka.messages import Messages

INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
# The broker judges timestamps by its own clock, and this machine's may be wrong by hours. So a timestamp
# within a day of the bound is left to the broker.
CLOCK_MS = 86_400_000
_KNOWN_MS = 600_000  # somebody may raise the bound
# The last row above: how long ago, and how far ahead.
_MOMENT_MS, _FAR_MS = 10_000, 60_000
_LATEST_MS = (1 << 63) - 1


class _Refused(NamedTuple):
    """sent_ms: when the record was sent, or earlier."""

    time_ms: int
    sent_ms: int


class RefusedTimes:
    """Of one log and cluster: the last one of each partition. bounds_of: those of a topic, if they are known."""

    def __init__(self, bounds_of: Callable[[str], Bounds | None]) -> None:
        self._bounds_of = bounds_of
        self._by_lane: dict[LaneKey, _Refused] = {}

    def note(self, lane: LaneKey, time_ms: int, *, sent_ms: int) -> None:
        """The partition has refused a record for its timestamp. sent_ms: when it was sent."""
        self._by_lane[lane] = _Refused(time_ms, sent_ms)

    def forget(self) -> None:
        """Somebody may have changed a topic."""
        self._by_lane.clear()

    def refusals(
        self, messages: Messages, lanes: Sequence[LaneKey | None], now_ms: int
    ) -> dict[int, Refusal]:
        """By address. lanes: of the records."""
        found: dict[int, Refusal] = {}
        if not self._by_lane:
            return found
        by_lane = groups(list(lanes))
        for lane, refused in list(self._by_lane.items()):
            if not 0 <= now_ms - refused.sent_ms <= _KNOWN_MS:  # below 0: this clock was set back
                del self._by_lane[lane]
                continue
            at = by_lane.get(lane, [])
            times_ms = np.frombuffer(messages.times_ms, np.int64)[at]
            bad = _as_bad(times_ms, refused, self._bounds_of(lane[0]), now_ms)
            for n in np.flatnonzero(bad):
                reason = (
                    f"{INVALID_TIMESTAMP}: its timestamp is {times_ms[n]} ms, and {lane_name(lane)} has"
                    f" refused {refused.time_ms} ms"
                )
                found[messages.addresses[at[int(n)]]] = Refusal(reason, INVALID_TIMESTAMP)
        return found


def _as_bad(
    times_ms: np.ndarray, refused: _Refused, bounds: Bounds | None, now_ms: int
) -> np.ndarray:
    """Which of these times are certain to be refused; none if the refused one may have broken either bound."""
    before_ms, after_ms = (0, 0) if bounds is None else (bounds.before_ms, bounds.after_ms)
    waited_ms = now_ms - refused.sent_ms
    bad = np.zeros(len(times_ms), bool)
    if refused.time_ms >= refused.sent_ms + CLOCK_MS - before_ms:  # it is not too old
        bad = times_ms >= refused.time_ms + waited_ms
        if bounds is not None and waited_ms <= _MOMENT_MS:
            far_ms = min(now_ms + after_ms + _FAR_MS, _LATEST_MS)
            bad |= (times_ms >= refused.time_ms) & (times_ms > far_ms)
    elif refused.time_ms <= refused.sent_ms - CLOCK_MS + after_ms:  # it is not too far ahead
        bad = (times_ms > 0) & (times_ms <= refused.time_ms)  # 0: the client takes the present
    return bad
