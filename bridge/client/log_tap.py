"""Topics into a log, each record once: what the file sinks read.

Each record of the log has its place in Kafka as its last header, and with the data it becomes durable.
At the start the log itself says how far each partition has come; the group's committed offset only helps
where the log has no record of a partition, or where another member of the group went further.

    header "aolog-kafka", little-endian:    0  i32  partition    4  i64  offset
"""

from __future__ import annotations

import logging
import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING

from aolog import Reader, Writer
from aolog.errors import NotALog
from aolog.log.retention import Retention
from bridge.client.consumer import Consumer
from bridge.client.errors import ReceiveFailed
from bridge.client.file_sinks import day_of
from bridge.kafka.consumed import LeftOut, Omissions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bridge.client.config import Options
    from bridge.client.heartbeat import Heartbeat
    from bridge.client.received import Received
    from bridge.kafka.catalog import Place

_log = logging.getLogger("bridge.files")
PLACE_HEADER = "aolog-kafka"
_PLACE = struct.Struct("<iq")
_SLABS = 4  # that are kept beside what the sink has not written


class LogTap:
    """Copies topics to a log. One thread calls it. omissions: times that were left out. Raises as Consumer
    and Writer do."""

    def __init__(
        self,
        log: Path,
        options: Options,
        topics: Sequence[str],
        *,
        on_heartbeat: Callable[[Heartbeat], None] | None,
    ) -> None:
        self.omissions = Omissions()
        self._next = _offsets_in(log)
        settings = {**options.settings, "enable.auto.commit": "false"}
        with ExitStack() as stack:
            self.consumer = Consumer(
                options._replace(settings=settings),
                on_heartbeat=on_heartbeat,
                starts=self._start_of,
            )
            stack.callback(self.consumer.close)
            self._writer = Writer(log, retention=Retention(max_slabs=_SLABS, when_full="error"))
            stack.callback(self._writer.close)
            self.consumer.subscribe(topics)
            self._open = stack.pop_all()

    def step(self, timeout_ms: float) -> int:
        """Waits so long for records and appends them, durably; how many."""
        records = self.consumer.poll_records(timeout_ms)
        appended = 0
        for record in records:
            place = (record.topic, record.partition)
            if record.offset < self._next.get(place, 0):
                continue  # it is in the log
            self._writer.append(
                record.value,
                key=record.key,
                headers=(
                    *record.headers,
                    (PLACE_HEADER, _PLACE.pack(record.partition, record.offset)),
                ),
                timestamp=self._time_us(record),
                topic=record.topic,
            )
            self._next[place] = record.offset + 1
            appended += 1
        if appended:
            self._writer.sync()
        if records:
            try:
                self.consumer.commit()
            except ReceiveFailed as error:  # the log holds the positions
                _log.warning("offsets are not committed: %s", error)
        return appended

    def _time_us(self, record: Received) -> int | None:
        """None for no time, and for one outside the years 1 to 9999: then the time of append counts."""
        if record.timestamp is None:
            return None
        if day_of(1_000 * record.timestamp) is not None:
            return 1_000 * record.timestamp
        what = LeftOut(time_ms=record.timestamp)
        self.omissions.note(record.topic, record.partition, record.offset, what)
        return None

    def _start_of(self, place: Place, committed: int, low: int, high: int) -> int | None:
        wanted = self._next.get(place)
        if wanted is None:
            return None
        topic, partition = place
        if wanted > high:
            _log.error("%s/%d ends at %d and the log has come to %d: the topic was made anew, and is read"
                       " from its begin", topic, partition, high, wanted)  # fmt: skip  # one call
            self._next[place] = low
            return low
        start = max(wanted, committed)
        if start < low:
            _log.error("%s/%d: %d offsets are gone before they were read: retention removed them",
                       topic, partition, low - start)  # fmt: skip  # one call
            return low
        return start

    def close(self) -> None:
        """Ends both."""
        self._open.close()


def _offsets_in(log: Path) -> dict[Place, int]:
    """By partition: the offset after the last record that the log holds."""
    found: dict[Place, int] = {}
    try:
        reader = Reader(log, protect=False)
    except NotALog:
        return found
    with reader:
        for record in reader:
            name, packed = record.headers[-1] if record.headers else ("", None)
            if name == PLACE_HEADER and packed is not None and record.topic is not None:
                partition, offset = _PLACE.unpack(packed)
                found[record.topic, partition] = offset + 1
    return found
