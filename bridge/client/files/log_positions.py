"""How far a log has come in each partition, for the topics as they are now and not for their names.

LOG/kafka-positions.json has, as of an address of the log, the id of each topic and the next offset of
each partition. From that address on, each record of the log has its own place in Kafka:

    header "aolog-kafka", little-endian:    0  i32  partition    4  i64  offset

A topic that was made anew has another id. Its positions begin at 0, in the file, durably, before its first
record is appended; so no record counts for another topic of its name. Without the file (an earlier
release wrote none), and while a topic has no id in it (the embedded broker and Kafka before 2.8 have
none), the name counts. Nothing here asks Kafka.
"""

from __future__ import annotations

import json
import logging
import struct
from typing import TYPE_CHECKING
from uuid import UUID

from aolog import Reader
from aolog.errors import MALFORMED, AddressBeyondEnd, AddressPruned, NotALog
from bridge.client.files import file_system as files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aolog.record import Record
    from bridge.kafka.catalog import Place, Topic

_log = logging.getLogger("bridge.files")
PLACE_HEADER = "aolog-kafka"
_PLACE = struct.Struct("<iq")
_FILE = "kafka-positions.json"
_BYTES_MAX = 64 << 20  # a million partitions


def place_header(partition: int, offset: int) -> tuple[str, bytes]:
    """The last header of a record in the log."""
    return PLACE_HEADER, _PLACE.pack(partition, offset)


class LogPositions:
    """Of one log, whose writer the caller is. next: the offset after the last record of each partition
    that has one. ids: of topics; one that was not asked for yet has none. Raises as Reader does, and
    OSError."""

    def __init__(self, log: Path) -> None:
        self._directory = log
        self.next: dict[Place, int] = {}
        self.ids: dict[str, UUID] = {}
        try:
            reader = Reader(log, protect=False)
        except NotALog:
            return  # it has no record yet
        with reader:
            self._load(reader)
            for record in reader:
                self._note(record)

    def _load(self, reader: Reader) -> None:
        """Takes the file, and goes to its address."""
        path = self._directory / _FILE
        if not files.size_of(path):
            return
        try:
            found = json.loads(files.read(path, _BYTES_MAX))
            address = int(found["address"])
            topics = {str(name): dict(topic) for name, topic in found["topics"].items()}
            ids = {name: UUID(topic["id"]) for name, topic in topics.items() if topic["id"]}
            offsets = {
                (name, int(number)): int(offset)
                for name, topic in topics.items()
                for number, offset in topic["next"].items()
            }
            reader.seek(address)
        except AddressPruned:
            pass  # what was pruned meanwhile is before later records, or was committed
        except (AddressBeyondEnd, *MALFORMED) as error:
            _log.error(
                "%s is not used: %s; a topic that was made anew may not be recognised", path, error
            )
            return
        self.ids, self.next = ids, offsets

    def _note(self, record: Record) -> None:
        name, packed = record.headers[-1] if record.headers else ("", None)
        if name == PLACE_HEADER and packed is not None and record.topic is not None:
            partition, offset = _PLACE.unpack(packed)
            self.next[record.topic, partition] = offset + 1

    def meet(self, topics: Mapping[str, Topic], address: int) -> set[str]:
        """The topics as they are now. Returns the names of those that were made anew: they begin again.
        address: the log's end; everything before it is durable."""
        new = {
            name: topic
            for name, topic in topics.items()
            if topic.id.int and self.ids.get(name) != topic.id
        }
        anew = new.keys() & self.ids.keys()
        for name, topic in new.items():
            if name in anew:
                _log.error("topic %s was made anew; it is read from its beginning", name)
                self.next = {place: at for place, at in self.next.items() if place[0] != name}
                self.next |= {(name, partition.number): 0 for partition in topic.partitions}
            elif any(place[0] == name for place in self.next):
                _log.warning(
                    "%s has positions in topic %s without its id: if it was made anew since, its first"
                    " records are missing; from now on its id counts",
                    self._directory, name,
                )  # fmt: skip  # one call
            self.ids[name] = topic.id
        if new:
            self.save(address)
        return anew

    def save(self, address: int) -> None:
        """Replaces the file, durably. Everything before the address is durable."""
        topics: dict[str, dict[str, object]] = {}
        for name in sorted(self.ids.keys() | {topic for topic, _ in self.next}):
            found = self.ids.get(name)
            own = {str(p): at for (topic, p), at in sorted(self.next.items()) if topic == name}
            topics[name] = {"id": None if found is None else str(found), "next": own}
        text = json.dumps({"address": address, "topics": topics}, indent=1)
        files.write(self._directory / _FILE, text.encode())
        files.sync_directory(self._directory)
