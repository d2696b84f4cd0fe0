"""Messages: the records of a batch as a producer takes them, column by column. Pure, but for the
first look for the compiled half.

An object a record, with a call or two each, costs more than producing it. So `_produce.c` makes the columns out of
those of the frames, if it could be compiled, and the frames have nothing but times, keys, values and one topic each.
Otherwise they are made of records.

`MessageRows` are some messages of a batch, one after the other, as the client takes them. The compiled half of
queueing.py reads their columns. Without it each is the arguments of one call of the client's, made when it is needed:
keeping thousands slows the garbage collector.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias, cast

from aolog import Record
from aolog.format.columns import BinaryColumn, lone
from aolog.format.origin import HEADER_NAME, STAMP, stamp_in
from aolog.read.batch import Batch, RecordFrame
from bridge.kafka.lane import LaneKey
from bridge.kafka.plugin import plugin
from bridge.kafka.stamp import digest, encode_stamp


class Messages(NamedTuple):
    """Columns of one length, in the order of the log."""

    addresses: array[int]
    topics: list[str | None]
    keys: list[bytes | None]
    values: list[bytes | None] | list[BinaryColumn]  # objects, or columns of bytes in order
    sizes: array[int]  # of value and key, in bytes
    times_ms: array[int]  # Kafka's timestamps
    stamps: bytes  # one after the other
    headers: list[list[tuple[str, bytes | None]]] | None = None  # the stamp last; None: no others
    firsts: Sequence[int] = ()  # the records before each column of values; () if they are objects

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.addresses)

    def take(self, indices: Iterable[int]) -> Messages:
        """The records at these indices."""
        at = list(indices)
        addresses, topics, keys, _, sizes, times_ms, _, headers, _ = self
        values = self.all_values()
        return Messages(
            array("q", [addresses[i] for i in at]),
            [topics[i] for i in at],
            [keys[i] for i in at],
            [values[i] for i in at],
            array("q", [sizes[i] for i in at]),
            array("q", [times_ms[i] for i in at]),
            b"".join(map(self.stamp, at)),
            None if headers is None else [headers[i] for i in at],
        )

    def stamp(self, i: int) -> bytes:
        """Of the record at i."""
        return stamp_in(self.stamps, i)

    def digests(self) -> list[int]:
        """What tells each message from all others, see stamp.digest."""
        stamps = map(self.stamp, range(self.records))
        return list(map(digest, stamps, self.keys, self.all_values()))

    def value(self, i: int) -> bytes | None:
        """Of the record at i, as an object."""
        if not self.firsts:
            return cast("bytes | None", self.values[i])
        number = bisect_right(self.firsts, i) - 1
        column, at = cast("BinaryColumn", self.values[number]), i - self.firsts[number]
        return column.part(at, at + 1).to_list()[0]

    def all_values(self) -> list[bytes | None]:
        """As objects."""
        if not self.firsts:
            return cast("list[bytes | None]", self.values)
        columns = cast("list[BinaryColumn]", self.values)
        return list(chain.from_iterable(map(BinaryColumn.to_list, columns)))


def messages_of(batch: Batch, source: bytes) -> Messages:
    """A whole batch. source: the UUID in the stamps."""
    frames, compiled = batch.frames, plugin()
    if frames[0].skip:  # only the first can be cut
        frames = [_without_skipped(frames[0]), *frames[1:]]
    as_read = type(batch) is Batch  # otherwise its records are not those of its frames
    if compiled is None or not as_read or not all(map(_is_plain, frames)):
        return _of_records(batch, source, frames[0].epoch)
    values = [frame.columns.values or lone(frame.columns.value) for frame in frames]
    *firsts, count = accumulate((frame.columns.records for frame in frames), initial=0)
    made = compiled.half.messages(frames, values, count, source)
    addresses, topics, keys, sizes, times_ms, stamps = made
    numbers = array("q", sizes), array("q", times_ms)
    return Messages(array("q", addresses), topics, keys, values, *numbers, stamps, None, firsts)


def milliseconds(timestamp_us: int | None) -> int:
    """Kafka's timestamp: rounded down. 0 makes the client use the present, for a record without one. Kafka cannot
    store a time before 1970, so that becomes its first millisecond, and only the stamp is exact."""
    if timestamp_us is None:
        return 0
    return max(1, timestamp_us // 1000)


def _without_skipped(frame: RecordFrame) -> RecordFrame:
    """The frame without the records before the reader's position."""
    columns, skip = frame.columns, frame.skip
    rest = columns.part(skip, columns.records)
    return frame._replace(address=frame.address + skip, skip=0, columns=rest)


def _is_plain(frame: RecordFrame) -> bool:
    """Whether its records have nothing but times, keys, values and one topic."""
    _, _, _, _, _, _, topics, headers = frame.columns
    return headers is None and topics is None and frame.timestamp_us is not None


def _of_records(records: Iterable[Record], source: bytes, epoch: int) -> Messages:
    records = list(records)
    addresses, times_us, topics, keys, values, headers = (
        list(map(attrgetter(name), records))
        for name in ("address", "timestamp", "topic", "key", "value", "headers")
    )
    sizes = [len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)]
    stamps = list(map(encode_stamp, repeat(source), repeat(epoch), addresses, times_us))
    times_ms = array("q", map(milliseconds, times_us))
    all_headers = None
    if any(headers):
        all_headers = [[*own, (HEADER_NAME, s)] for own, s in zip(headers, stamps, strict=True)]
    return Messages(
        array("q", addresses),
        topics,
        keys,
        values,
        array("q", sizes),
        times_ms,
        b"".join(stamps),
        all_headers,
    )


Callback: TypeAlias = "Callable[..., None] | None"
"""What the client calls when the record has arrived, or failed."""


@dataclass(slots=True)
class MessageRows:
    """The messages in [at, end). lanes, callbacks: of all of the batch; callbacks is None: no message has one."""

    messages: Messages
    lanes: list[LaneKey]
    at: int  # the next one
    end: int
    callbacks: list[Callback] | None
    # The address of each lane's last record, if that has a callback: then values need not be copied.
    last: dict[LaneKey, int] | None = None
    is_kept: bool = False  # the client reads the values where they are, see KeptValues

    def columns(self) -> tuple[Any, ...] | None:
        """What the compiled half takes before the range; None if it cannot."""
        _, _, keys, values, _, times_ms, stamps, headers, _ = self.messages
        if headers is not None:
            return None
        stamped = HEADER_NAME, STAMP.size, stamps
        return self.lanes, values, keys, self.callbacks, times_ms, stamped

    def calls(self, end: int) -> Iterator[tuple[Any, ...]]:
        """The arguments of the client's `produce` for each message in [at, end): topic, value, key, partition, callback,
        None, milliseconds, headers."""
        messages, begin, callbacks = self.messages, self.at, self.callbacks
        lanes = self.lanes[begin:end]
        stamped = ([(HEADER_NAME, messages.stamp(i))] for i in range(begin, end))
        return zip(
            map(itemgetter(0), lanes),
            map(messages.value, range(begin, end))
            if messages.firsts
            else messages.values[begin:end],
            messages.keys[begin:end],
            map(itemgetter(1), lanes),
            repeat(None) if callbacks is None else callbacks[begin:end],
            repeat(None),
            messages.times_ms[begin:end],
            stamped if messages.headers is None else messages.headers[begin:end],
            strict=False,
        )
