"""Recognising: which messages in Kafka are records of this log, and not of another past of it.

A stamp names a record by UUID, epoch and address. That is not always enough:

    a copy of the log         has its UUID and goes on by itself, perhaps to the same topic
    a restored backup         its log had records once that it has not now
    a power cut               the same, of records that were forwarded before they were synced
    files put back in place   (a snapshot, a copy over them): nothing in the log shows it, and its
                              writer gives addresses out again that were out before

So a message counts as arrived only if the log holds that very record: at its address, in its
epoch, with its timestamp, key and value. What lies before the cursor is not asked for; so little
is looked at, and of a lane mostly one record, the last.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from aolog import Reader
from aolog.errors import AddressBeyondEnd, AddressPruned
from bridge.kafka.origin import decode_stamp, stamped

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog import Record
    from aolog.storage.storage import Storage

__all__ = ["Claims", "Recogniser"]

_log = logging.getLogger("bridge")
CLAIMS_MAX = 100_000  # held in memory at once, some 20 MB


class _Claim(NamedTuple):
    """What a message says of its record. content: a hash of key and value in this process."""

    epoch: int
    timestamp_us: int | None
    content: int


class Recogniser:
    """Of one log. source: the UUID in its stamps. since: the address of the first record that
    may have to be sent. view: what became of each record before it was sent."""

    def __init__(
        self,
        path: str,
        storage: Storage,
        source: bytes,
        *,
        since: Callable[[], int],
        view: Callable[[Record], Record] | None = None,
    ) -> None:
        self.path = path
        self.storage = storage
        self.source = source
        self.since = since
        self.view = view

    def claims(self) -> Claims:
        """To be filled from one lane."""
        return Claims(self)


class Claims:
    """The messages of one lane that may be records of the log. `last` raises what Reader raises."""

    def __init__(self, of: Recogniser) -> None:
        self._of = of
        self._since = of.since()
        self._by_address: dict[int, set[_Claim]] = {}
        self._last: int | None = None

    def add(self, headers: object, key: bytes | None, value: bytes | None) -> None:
        """A message."""
        stamp = decode_stamp(headers)
        if stamp is None or stamp.topic_uuid != self._of.source or stamp.address < self._since:
            return
        claim = _Claim(stamp.epoch, stamp.timestamp_us, hash((key, value)))
        self._by_address.setdefault(stamp.address, set()).add(claim)
        if len(self._by_address) > CLAIMS_MAX:
            self._settle()

    def last(self) -> int | None:
        """The greatest address of the log's own; None if there is none."""
        self._settle()
        return self._last

    def _settle(self) -> None:
        claims, self._by_address = self._by_address, {}
        if self._last is not None:
            claims = {at: said for at, said in claims.items() if at > self._last}
        if not claims:
            return
        with Reader(self._of.path, storage=self._of.storage) as reader:
            greatest = max(claims)
            found = self._look(reader, {greatest: claims[greatest]})
            if found is None:
                _log.warning(
                    "the destination has records with this log's UUID that the log has not, at "
                    "address %d for one: it was copied or restored, or lost its end; they do not "
                    "count as its own",
                    greatest,
                )
                found = self._look(reader, claims)
        if found is not None:
            self._last = found

    def _look(self, reader: Reader, claims: dict[int, set[_Claim]]) -> int | None:
        """The greatest address at which the log holds what is claimed."""
        last, found = max(claims), None
        try:
            reader.seek(min(claims))
        except AddressBeyondEnd:
            return None
        except AddressPruned:
            reader.seek("earliest")
        while (batch := reader.read_batch(0)) is not None:  # a frame
            epoch = batch.frames[0].epoch
            for record in batch:
                if record.address in claims and self._said(record, epoch) in claims[record.address]:
                    found = record.address
            if record.address >= last:
                break
        return found

    def _said(self, record: Record, epoch: int) -> _Claim:
        if self._of.view is not None:
            record = self._of.view(record)
        return _Claim(epoch, stamped(record.timestamp), hash((record.key, record.value)))
