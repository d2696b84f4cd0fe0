"""Admission: which records a topic will certainly refuse, as far as that is known before they are sent.
Pure.

Kafka refuses requests, not records, and finding the refused record costs a connection or more. So what is
known is applied first: the client's own bounds on a record, the headers that it would alter, and the
topic's limits (`topic_settings` asks for them after a refusal). Only records that are certain to be refused
are named; all others are sent. Sizes are those of a record that is sent alone and uncompressed; if the client
compresses, only the client's bounds are certain. A topic's limits are used for ten minutes: somebody may
raise them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from aolog.format.native.speed import groups, total
from aolog.format.origin import HEADER_NAME, STAMP
from bridge.kafka.client_limits import are_altered, over_queue
from bridge.kafka.error_table import NUL_IN_HEADER, TOO_LARGE, row_of
from bridge.kafka.lane import LaneKey, Refusal, lane_name
from bridge.kafka.messages import Messages

INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
KNOWN_MS = 600_000  # somebody may raise a limit
_UNBOUNDED = (1 << 63) - 1
# The broker judges timestamps by its own clock, and this machine's may be wrong by hours. So a timestamp
# within a day of the bound is left to the broker.
_CLOCK_MS = 86_400_000
_CLIENT_BYTES = 36  # what librdkafka adds to key, value and headers for its bound (measured)
_BATCH_BYTES = 61  # a batch's header in Kafka's format 2
_RECORD_BYTES = 3  # attributes, and the two deltas of a record that is alone: a byte each
# Records with larger headers are left to the client and the broker: adding up the headers of every record
# costs more than sending it.
_NEAR_BYTES = 1 << 16


class Bounds(NamedTuple):
    """A topic's limits."""

    batch_bytes: int = _UNBOUNDED  # the largest batch by max.message.bytes
    segment_bytes: int = _UNBOUNDED  # by segment.bytes
    needs_key: bool = False
    before_ms: int = _UNBOUNDED  # of a timestamp from the broker's clock, as after_ms
    after_ms: int = _UNBOUNDED


def bounds_of(settings: Mapping[str, str | None]) -> Bounds:
    """From the cluster's names and values of a topic's settings."""

    def number(name: str) -> int:
        value = settings.get(name)
        return _UNBOUNDED if value is None else int(value)

    before_ms, after_ms = _UNBOUNDED, _UNBOUNDED
    if settings.get("message.timestamp.type") != "LogAppendTime":
        before_ms = number("message.timestamp.before.max.ms")
        after_ms = number("message.timestamp.after.max.ms")
        # Before Kafka 4 one setting bounds both, where these are unset.
        both_ms = number("message.timestamp.difference.max.ms")
        before_ms = both_ms if before_ms == _UNBOUNDED else before_ms
        after_ms = both_ms if after_ms == _UNBOUNDED else after_ms
    return Bounds(
        number("max.message.bytes"),
        number("segment.bytes"),
        "compact" in (settings.get("cleanup.policy") or "").split(","),
        before_ms,
        after_ms,
    )


class Admission:
    """For one log and cluster. bytes_max: the client's bound on a record, message.max.bytes. queue_kbytes:
    the size of its queue. compresses: whether the client compresses. times: timestamps that were refused;
    `refusals` does not know the partitions that it concerns."""

    def __init__(self, bytes_max: int, queue_kbytes: int, *, compresses: bool) -> None:
        self._bytes_max = bytes_max
        self._queue_kbytes = queue_kbytes
        self._near_bytes = min(_near(bytes_max), queue_kbytes * 1024)
        self._compresses = compresses
        self._bounds: dict[str, tuple[Bounds, int]] = {}  # and until when they are used
        self.times = RefusedTimes(lambda topic: self._bounds.get(topic, (None, 0))[0])

    def learn(self, topic: str, bounds: Bounds, *, now_ms: int) -> None:
        """A topic's limits, from the cluster."""
        self._bounds[topic] = bounds, now_ms + KNOWN_MS

    def forget(self) -> None:
        """A topic may have been changed."""
        self._bounds.clear()
        self.times.forget()

    def refusals(
        self, messages: Messages, topic_of: Callable[[str | None], str | None], *, now_ms: int
    ) -> dict[int, Refusal]:
        """By address. topic_of: the destination of records that name a topic, or none; None: of another cluster."""
        found: dict[int, Refusal] = {}
        if total(messages.sizes)[1] > self._near_bytes:
            found = self._too_large(messages)
        if messages.headers is not None:
            found = _altered(messages.addresses, messages.headers) | found
        for topic, (_, until_ms) in list(self._bounds.items()):
            if now_ms >= until_ms:
                del self._bounds[topic]
        if self._bounds:
            for named in set(messages.topics):
                topic_here = topic_of(named)
                if topic_here in self._bounds:
                    bounds, _ = self._bounds[topic_here]
                    at = [i for i, each in enumerate(messages.topics) if each == named]
                    found = self._refused_by(topic_here, bounds, messages, at, now_ms) | found
        return found

    def _too_large(self, messages: Messages) -> dict[int, Refusal]:
        found = {}
        for i, size in enumerate(messages.sizes):
            if size <= self._near_bytes:
                continue
            reason = over_queue(size - len(messages.keys[i] or b""), self._queue_kbytes)
            if size + _CLIENT_BYTES + _headers_bytes(messages, i) > self._bytes_max:
                reason = f"it has {size} bytes, over message.max.bytes={self._bytes_max}"
            if reason is not None:
                found[messages.addresses[i]] = Refusal(f"{TOO_LARGE}: {reason}", TOO_LARGE)
        return found

    def _refused_by(
        self, topic: str, bounds: Bounds, messages: Messages, at: Sequence[int], now_ms: int
    ) -> dict[int, Refusal]:
        refused = [*_by_key(bounds, messages, at), *_by_time(bounds, messages, at, now_ms)]
        if not self._compresses:
            refused += _by_size(bounds, messages, at)
        return {
            messages.addresses[i]: Refusal(f"{code}: {reason} of topic {topic!r}", code)
            for i, code, reason in refused
        }


def _altered(
    addresses: Sequence[int], headers: Sequence[Sequence[tuple[str, bytes | None]]]
) -> dict[int, Refusal]:
    refusal = Refusal(f"{NUL_IN_HEADER}: {row_of(NUL_IN_HEADER).reads}", NUL_IN_HEADER)
    return {addresses[i]: refusal for i, each in enumerate(headers) if are_altered(each)}


_Refused: TypeAlias = "Iterator[tuple[int, str, str]]"
"""Index, code and reason of each."""


def _by_key(bounds: Bounds, messages: Messages, at: Sequence[int]) -> _Refused:
    if bounds.needs_key:
        for i in at:
            if messages.keys[i] is None:
                yield i, "INVALID_RECORD", "it has no key, against cleanup.policy=compact"


def _by_time(bounds: Bounds, messages: Messages, at: Sequence[int], now_ms: int) -> _Refused:
    times_ms = np.frombuffer(messages.times_ms, np.int64)[at]
    given = times_ms > 0  # otherwise the client takes the present
    for past_ms, bound_ms, name in (
        (now_ms - times_ms, bounds.before_ms, "before"),
        (times_ms - now_ms, bounds.after_ms, "after"),
    ):
        for n in np.flatnonzero(given & (past_ms - _CLOCK_MS > bound_ms)):
            i = at[int(n)]
            reason = f"its timestamp, {messages.times_ms[i]} ms, is against message.timestamp."
            yield i, INVALID_TIMESTAMP, f"{reason}{name}.max.ms={bound_ms}"


def _by_size(bounds: Bounds, messages: Messages, at: Sequence[int]) -> _Refused:
    bytes_max, setting, code = min(
        (bounds.batch_bytes, "max.message.bytes", TOO_LARGE),
        (bounds.segment_bytes, "segment.bytes", "RECORD_LIST_TOO_LARGE"),
    )
    near = _near(bytes_max)
    for i in at:
        if messages.sizes[i] > near and (size := _batch_bytes(messages, i)) > bytes_max:
            yield i, code, f"it takes {size} bytes, over {setting}={bytes_max}"


def _near(bytes_max: int) -> int:
    """Records whose key and value are no larger than this are not measured."""
    return bytes_max - min(_NEAR_BYTES, bytes_max // 2)


def _batch_bytes(messages: Messages, i: int) -> int:
    """The size of a batch with this record alone, as the broker counts it."""
    key = messages.keys[i]
    key_bytes = 0 if key is None else len(key)
    value_bytes = messages.sizes[i] - key_bytes
    headers = None if messages.headers is None else messages.headers[i]
    record = (
        _RECORD_BYTES
        + (1 if key is None else _varint_bytes(key_bytes))
        + _varint_bytes(value_bytes)
        + messages.sizes[i]
        + _varint_bytes(1 if headers is None else len(headers))
        + _headers_bytes(messages, i)
    )
    return _BATCH_BYTES + _varint_bytes(record) + record


def _headers_bytes(messages: Messages, i: int) -> int:
    if messages.headers is None:
        return 2 + len(HEADER_NAME) + STAMP.size
    return sum(
        _varint_bytes(len(name.encode()))
        + len(name.encode())
        + (1 if value is None else _varint_bytes(len(value)) + len(value))
        for name, value in messages.headers[i]
    )


def _varint_bytes(number: int) -> int:
    """The size of a count, as Kafka writes it: signed, seven bits a byte."""
    return max(1, ((number << 1).bit_length() + 6) // 7)


# --- timestamps that were refused -----------------------------------------------------------

# The last row below: how long ago, and how far ahead.
_MOMENT_MS, _FAR_MS = 10_000, 60_000


class _RefusedTime(NamedTuple):
    """sent_ms: when the record was sent, or earlier."""

    time_ms: int
    sent_ms: int


class RefusedTimes:
    """Timestamps that partitions have refused, and what that says about their other records. Of one log and cluster: the
    last one of each partition. bounds_of: those of a topic, if they are known.

    A partition refuses a timestamp that is too far before or after its leader's clock. That clock may differ from
    this machine's by hours. So a record that was refused alone in its request shows which others will be refused:

        it was too old          all that are older
        it was too far ahead    all that are later by at least the time that has passed since
        the same, within 10 s   all that are as late, if by this machine's clock, too, they are more than a minute too
                                  far ahead

    A run of such records costs one connection, and not one for each record.
    """

    def __init__(self, bounds_of: Callable[[str], Bounds | None]) -> None:
        self._bounds_of = bounds_of
        self._by_lane: dict[LaneKey, _RefusedTime] = {}

    def note(self, lane: LaneKey, time_ms: int, *, sent_ms: int) -> None:
        """The partition has refused a record for its timestamp. sent_ms: when it was sent."""
        self._by_lane[lane] = _RefusedTime(time_ms, sent_ms)

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
            if not 0 <= now_ms - refused.sent_ms <= KNOWN_MS:  # below 0: this clock was set back
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
    times_ms: np.ndarray, refused: _RefusedTime, bounds: Bounds | None, now_ms: int
) -> np.ndarray:
    """Which of these times are certain to be refused; none if the refused one may have broken either bound."""
    before_ms, after_ms = (0, 0) if bounds is None else (bounds.before_ms, bounds.after_ms)
    waited_ms = now_ms - refused.sent_ms
    bad = np.zeros(len(times_ms), bool)
    if refused.time_ms >= refused.sent_ms + _CLOCK_MS - before_ms:  # it is not too old
        bad = times_ms >= refused.time_ms + waited_ms
        if bounds is not None and waited_ms <= _MOMENT_MS:
            far_ms = min(now_ms + after_ms + _FAR_MS, _UNBOUNDED)
            bad |= (times_ms >= refused.time_ms) & (times_ms > far_ms)
    elif refused.time_ms <= refused.sent_ms - _CLOCK_MS + after_ms:  # it is not too far ahead
        bad = (times_ms > 0) & (times_ms <= refused.time_ms)  # 0: the client takes the present
    return bad
