"""Topics into a log, each record once: what the file sinks read.

The log is one of `bridge.pull`: each record has its origin in a header, and at the start the log itself says
how far each partition has come. The group's committed offset only helps where the log has no position of a
partition, or where another member of the group went further. It is committed with the topic's id, and counts
for no other topic.

A topic that was made anew has another id, and begins at its first record. Records are appended after the
cluster has said once more that their topics have these ids: ids never come back. While a topic has none (the
embedded broker and Kafka before 2.8), its name counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

from aolog import Reader, Writer
from aolog.log.retention import Retention
from bridge.client.config import Options
from bridge.client.consumer import Consumer
from bridge.client.errors import ReceiveFailed
from bridge.client.files.file_sinks import day_of
from bridge.client.heartbeat import Heartbeat
from bridge.client.received import Received
from bridge.errors import Unanswered
from bridge.kafka.catalog import Catalog, Place
from bridge.kafka.consumed import LeftOut, Omissions
from bridge.pull.origin import HEADER_NAME, Origin, Source
from bridge.pull.positions import Mark, read_names, read_positions, save_positions

_log = logging.getLogger("bridge.files")
_SLABS = 4  # that are kept beside what the sink has not written
_LOOK_S = 5.0  # between looks at the topics' ids while nothing comes
_SAVE_S = 10.0  # between positions in the file: retention is slower
_NOTE = "aolog-topic:"  # and the topic's id, beside committed offsets


class LogTap:
    """Copies topics to a log. One thread calls it. Raises as Consumer and Writer do, and OSError."""

    def __init__(
        self,
        log: Path,
        options: Options,
        topics: Sequence[str],
        *,
        on_heartbeat: Callable[[Heartbeat], None] | None,
    ) -> None:
        self.omissions = Omissions()  # times that were left out
        settings = {**options.settings, "enable.auto.commit": "false"}
        self._options = options._replace(settings=settings)
        self._topics = topics
        self._on_heartbeat = on_heartbeat
        self._held: list[Received] = []  # received, and not appended: the cluster is away
        self._look_due_s = self._save_due_s = 0.0
        self._has_looked = False
        self._catalog = Catalog(settings["bootstrap.servers"], options.settings)
        with ExitStack() as stack:
            self._writer = Writer(log, retention=Retention(max_slabs=_SLABS, when_full="error"))
            stack.callback(self._writer.close)
            self._writer.sync()  # a process that was killed may not have
            self._path = str(log)
            self._positions = read_positions(self._path)
            self._ids = read_names(self._path)
            self._cluster = next((source.cluster for source in self._positions), "")
            self._mark: Mark | None = None
            try:
                self._look()
            except Unanswered as error:  # asked again before the first record is appended
                _log.warning("waiting: %s", error)
            self._consumer = self._connected()
            stack.callback(lambda: self._consumer.close())  # noqa: PLW0108 -- the present one
            self._open = stack.pop_all()

    def _connected(self) -> Consumer:
        consumer = Consumer(self._options, on_heartbeat=self._on_heartbeat, keeper=self)
        consumer.subscribe(self._topics)
        return consumer

    def step(self, timeout_ms: float) -> None:
        """Waits so long for records and appends them, durably."""
        records, failure, anew = self._held, None, set[str]()
        if not records:
            try:
                records = self._consumer.poll_records(timeout_ms)
            except ReceiveFailed as error:  # perhaps a topic that was made anew lacks the offset
                failure = error
        if records or failure or time.monotonic() >= self._look_due_s:
            try:
                anew = self._look()
            except Unanswered as error:
                if failure is not None:
                    raise failure from None
                if records and not self._held:
                    _log.warning("waiting: %s", error)
                self._held = records
                return
        if failure is not None and not anew:
            raise failure
        self._held = []
        self._append([record for record in records if record.topic not in anew])
        if anew:  # the old consumer has fetched from the middle, or cannot go on
            self._consumer.close()
            self._consumer = self._connected()
        elif records:
            try:
                self._consumer.commit()
            except ReceiveFailed as error:  # the log holds the positions
                _log.warning("offsets are not committed: %s", error)

    def _look(self) -> set[str]:
        """Which topics were made anew since the last look: their positions begin again."""
        self._look_due_s = time.monotonic() + _LOOK_S
        if not self._has_looked:  # once: a question about all topics
            self._cluster, self._has_looked = self._catalog.cluster_id(), True
        anew = set[str]()
        for name, topic in self._catalog.existing(self._topics).items():
            now, before = topic.id if topic.id.int else _id_of_name(name), self._id_of(name)
            if now == before:
                continue
            if before == _id_of_name(name):  # what was read without an id is of this topic
                begins = [
                    (s.partition, at) for s, at in self._positions.items() if s.topic_id == before
                ]
            else:
                _log.error("topic %s was made anew; it is read from its beginning", name)
                begins = [(each.number, 0) for each in topic.partitions]
                anew.add(name)
            self._positions |= {Source(self._cluster, now, each): at for each, at in begins}
            self._ids[name] = now
        return anew

    def _id_of(self, name: str) -> UUID:
        return self._ids.get(name) or _id_of_name(name)

    def _source(self, place: Place) -> Source:
        return Source(self._cluster, self._id_of(place[0]), place[1])

    def _append(self, records: list[Received]) -> None:
        before = self._mark
        for record in records:
            source = self._source((record.topic, record.partition))
            if record.offset < self._positions.get(source, 0):
                continue  # it is in the log
            address = self._writer.append(
                record.value,
                key=record.key,
                headers=(*record.headers, (HEADER_NAME, source.prefix + b"%d" % record.offset)),
                timestamp=self._time_us(record),
                topic=record.topic,
            )
            self._positions[source] = record.offset + 1
            self._mark = Mark(address, Origin(source, record.offset))
        if self._mark is not before:
            self._writer.sync()
            if time.monotonic() >= self._save_due_s:
                self._save()
                self._save_due_s = time.monotonic() + _SAVE_S

    def _save(self) -> None:
        with Reader(self._path) as reader:
            uuid = reader.topic_uuid
        if self._mark is not None and uuid is not None:
            save_positions(self._path, uuid, self._mark, self._positions, self._ids)

    def _time_us(self, record: Received) -> int | None:
        """None for no time, and for one outside the years 1 to 9999: then the time of append counts."""
        if record.timestamp is None:
            return None
        if day_of(1_000 * record.timestamp) is not None:
            return 1_000 * record.timestamp
        what = LeftOut(time_ms=record.timestamp)
        self.omissions.note(record.topic, record.partition, record.offset, what)
        return None

    # --- for the consumer ---------------------------------------------------------------------

    def note_of(self, topic: str) -> str:
        """What is committed beside offsets of the topic."""
        found = self._id_of(topic)
        return "" if found == _id_of_name(topic) else f"{_NOTE}{found}"

    def start_of(
        self, place: Place, committed: int, note: str, low: int | None, high: int | None
    ) -> int | None:
        """Where to begin in a partition that is assigned; None: as the committed offset and
        auto.offset.reset say. committed: the group's offset (negative: none), and the note beside it. low,
        high: its first offset and its end; None: there was no answer."""
        topic, partition = place
        mine = self.note_of(topic)
        is_others = bool(mine) and note.startswith(_NOTE) and note != mine
        wanted = self._positions.get(self._source(place))
        if wanted is None:
            return low if is_others else None
        counts = not is_others and (high is None or committed <= high)
        start = max(wanted, committed) if counts else wanted
        if high is not None and start > high:
            _log.error("%s/%d ends at %d and the log has come to %d: records were lost there, or the topic was"
                       " made anew; it is read from its beginning", topic, partition, high, wanted)  # fmt: skip  # one call
            self._positions[self._source(place)] = low or 0
            return low
        if low is not None and start < low:
            _log.error("%s/%d: %d offsets are gone before they were read: retention removed them",
                       topic, partition, low - start)  # fmt: skip  # one call
            return low
        return start

    def close(self) -> None:
        """Ends both."""
        self._open.close()


def _id_of_name(topic: str) -> UUID:
    """In place of the id that a topic does not have."""
    return uuid5(NAMESPACE_URL, topic)
