"""Dead letters: records that the destination will never take, in a log of their own.

    LOG/dead-letter/         of the cursor "bridge"; LOG/dead-letter-NAME/ of another
    a configured directory   of a Buffer

A record keeps its key, value, headers, timestamp and topic. Five headers are added at the end:

    aolog-reason         words              aolog-destination   TOPIC/PARTITION that it was for;
    aolog-code           Kafka's name                           -1 if that was not known
    aolog-origin         the stamp (bridge/kafka/stamp.py): log, epoch, address, timestamp; zeros
                         and the timestamp for a Buffer's message, which comes from no log
    aolog-refused-at     ISO 8601, UTC

A dead letter is durable before the cursor passes the record. After a crash the origin shows which
records were set aside: they are not set aside again, and not sent. Writing needs room: on a full disk
the record waits, and all of the log with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from aolog import Reader, Record, Writer
from aolog.errors import NotALog, StorageError, SyncFailed, UsageError, counted
from aolog.read.batch import Batch
from aolog.storage.storage import Storage
from aolog.write.validate import RECORD_BYTES_MAX
from bridge.config.names import dead_letter_path
from bridge.config.run_options import Poison
from bridge.deliver.log_source import LogSource
from bridge.deliver.verdicts import Aside, Judge
from bridge.kafka.lane import Refusal
from bridge.kafka.stamp import Stamp, decode_stamp, encode_stamp
from bridge.kafka.telemetry import REJECTED

_log = logging.getLogger("bridge")
_HEADERS = 5
ORIGIN = "aolog-origin"


class DeadLetter(NamedTuple):
    """A record of a dead-letter log. headers: its own, before it was set aside."""

    reason: str
    code: str
    origin: Stamp
    topic: str
    partition: int
    headers: tuple[tuple[str, bytes | None], ...]


def read_dead_letter(record: Record) -> DeadLetter | None:
    """The dead letter in a record; None if it is none."""
    added = dict(record.headers[-_HEADERS:])
    origin = added.get(ORIGIN)
    stamp = None if origin is None else decode_stamp([("aolog", origin)])
    if stamp is None:
        return None
    topic, _, partition = (added.get("aolog-destination") or b"/-1").decode().rpartition("/")
    return DeadLetter(
        (added.get("aolog-reason") or b"").decode(),
        (added.get("aolog-code") or b"").decode(),
        stamp,
        topic,
        int(partition),
        tuple(record.headers[:-_HEADERS]),
    )


def dead_letters(path: str, storage: Storage, since: int = 0) -> Iterator[DeadLetter | None]:
    """The dead letters in a log, in order; None for a record that is none. Nothing if there is no log
    yet. since: the address of the first to read. Raises what Reader raises."""
    try:
        reader = Reader(path, storage=storage)
    except NotALog:  # a crash before its first slab, or some directory
        return
    with reader:
        if reader.tell() < since <= reader.end():
            reader.seek(since)
        yield from map(read_dead_letter, reader)


def first_dead_letter(path: str, storage: Storage) -> DeadLetter | None:
    """None if there is no log, or if it holds something else. Raises what Reader raises."""
    return next(dead_letters(path, storage), None)


def end_of_dead_letters(path: str, storage: Storage) -> int:
    """The address after the last of them; 0 if there is no log."""
    try:
        with Reader(path, storage=storage) as reader:
            return reader.end()
    except NotALog:
        return 0


def require_dead_letters(path: str, storage: Storage) -> None:
    """Raises UsageError if a log exists there that holds something else. Changes nothing."""
    if None in islice(dead_letters(path, storage), 1):
        raise UsageError(
            "it is a log of something else: its first record is no dead letter",
            hint="name a directory of its own for dead letters",
            path=path,
        )


class DeadLetterLog:
    """Created with the first record, with the mode of the log that it is in, unless that is given. Raises what Writer
    raises; a record that is appended again is there once."""

    def __init__(self, path: str, storage: Storage, mode: int | None = None) -> None:
        self.path = path
        self._storage = storage
        self._mode = mode
        self._writer: Writer | None = None
        self._appended: set[object] = set()  # perhaps not durable

    def open(self) -> Writer:
        """Locks the log, before the first record too."""
        if self._writer is None:
            self._storage.make_directory(self.path, self._mode)
            self._writer = Writer(
                self.path,
                sync="never",
                flush_seconds=None,
                max_record_bytes=RECORD_BYTES_MAX,
                storage=self._storage,
            )
        return self._writer

    def append(
        self,
        record: Record,
        destination: tuple[str, int],
        refusal: Refusal,
        origin: bytes,
        *,
        identity: object,
    ) -> None:
        """In memory on return. destination: topic and partition. origin: its stamp. identity: of a record."""
        if identity in self._appended:
            return
        reason = refusal.reason.encode(errors="backslashreplace")  # another program's words
        now = datetime.now(UTC).isoformat(timespec="milliseconds").encode()
        topic, partition = destination
        self.open().append(
            record.value,
            key=record.key,
            headers=(
                *record.headers,
                ("aolog-reason", reason),
                ("aolog-code", refusal.code.encode()),
                (ORIGIN, origin),
                ("aolog-destination", f"{topic}/{partition}".encode()),
                ("aolog-refused-at", now),
            ),
            timestamp=record.timestamp,
            topic=record.topic,
        )
        self._appended.add(identity)

    def sync(self) -> None:
        """Everything appended is durable on return."""
        self.open().sync()
        self._appended.clear()

    def close(self) -> None:
        """Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class DeadLetters:
    """Sets records of a log aside. The dead-letter log is created with the first. uuid: in the stamps.
    poison: "drop" only counts and logs the records. since: the address of the first dead letter to read, of those
    from before. judge: knows what was set aside, also before. set_aside, dropped: how many records. Raises what
    Reader raises."""

    def __init__(self, source: LogSource, uuid: bytes, poison: Poison, since: int = 0) -> None:
        self.path = dead_letter_path(source.reader.path, source.cursor)
        self.set_aside = self.dropped = 0
        self._drop = poison == "drop"
        self._failed = ""
        self._uuid = uuid
        self._storage = source.storage
        self._end_of_epoch = lru_cache(source.end_of_epoch)
        self._log = DeadLetterLog(self.path, source.storage)
        self.judge = Judge(poison)
        if poison == "dead-letter":
            self.judge.aside |= self.known(source.position.address, since)

    def known(self, begin: int, since: int) -> set[int]:
        """Addresses from `begin` on of records that were set aside before. since: the address of the
        first dead letter to read. Raises what Reader raises."""
        origins = (
            letter.origin for letter in dead_letters(self.path, self._storage, since) if letter
        )
        own = (o for o in origins if o.topic_uuid == self._uuid and o.address >= begin)
        # Not of another epoch: then the log was cut short, and has another record there.
        return {o.address for o in own if o.address < self._end_of_epoch(o.epoch)}

    def take(self, asides: Sequence[Aside], batch: Batch) -> str | None:
        """Sets records of a batch aside, durably on return; or why the disk did not take them: then it may
        be called again with the same records. Raises SyncFailed."""
        if self._drop:
            self.dropped += len(asides)
        else:
            try:
                wanted, epoch = {a.position.address: a for a in asides}, batch.frames[0].epoch
                for record in batch:
                    if (aside := wanted.get(record.address)) is None:
                        continue
                    origin = encode_stamp(self._uuid, epoch, record.address, record.timestamp)
                    # Not the record: a transform may make another one when it is called again.
                    self._log.append(record, aside.lane, aside.refusal, origin, identity=origin)
                self._log.sync()
            except SyncFailed:
                raise
            except StorageError as error:
                if str(error) != self._failed:  # it is retried again and again
                    _log.warning("no record can be set aside in %s: %s", self.path, error)
                self._failed = str(error)
                return f"no record can be set aside: {error}"
            self.set_aside += len(asides)
            self._failed = ""
        for aside in asides:
            outcome = "dropped" if self._drop else "dead_lettered"
            REJECTED.labels(outcome, aside.refusal.code or "unknown").inc()
        first = asides[0]
        _log.warning(
            "%s %s from address %d on: %s",
            "dropped" if self._drop else "set aside",
            counted(len(asides), "record", ","),
            first.position.address,
            first.refusal.reason,
        )
        self.judge.set_aside(asides)
        return None

    def close(self) -> None:
        """Idempotent."""
        self._log.close()
