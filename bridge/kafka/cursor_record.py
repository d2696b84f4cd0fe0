"""The cursor record: how far a log was delivered, kept in the cluster itself. Pure.

    topic   compacted, one partition, shared by all logs (aolog-bridge-cursors)
    key     aolog-cursor:UUID:NAME              UUID of the log in hex, NAME of its cursor
    value   JSON: version, address, ordinal, uuid, epoch, owner, last

It is written in the same transaction as the records before it. `owner` is the process that wrote it: a
bridge that was fenced learns from it whether another one has taken over, or the cluster aborted a
transaction for its age. `last` is the address and timestamp of the last record before it: a log with
another record there was restored from a backup. A null value is a cursor that somebody deleted.
"""

from __future__ import annotations

import json
from typing import NamedTuple

_VERSION = 1


class CursorName(NamedTuple):
    """Which cursor of which log, and the names in the cluster that follow from it."""

    topic_uuid: bytes
    cursor: str

    def _name(self, kind: str) -> str:
        return f"aolog-{kind}:{self.topic_uuid.hex()}:{self.cursor}"

    @property
    def transactional_id(self) -> str:
        """One producer at a time may hold it: a later one fences the earlier."""
        return self._name("bridge")

    @property
    def key(self) -> bytes:
        """Of the cursor record."""
        return self._name("cursor").encode()

    @property
    def proof_key(self) -> bytes:
        """Of the record that is aborted, to prove that consumers do not see it."""
        return self._name("proof").encode()

    @property
    def keys(self) -> set[bytes]:
        """Of all its records in the cursor topic."""
        return {self.key, self.proof_key}


class CursorRecord(NamedTuple):
    """See the module, and aolog.format.cursor_copy. last: None in records of an older release."""

    address: int
    ordinal: int | None
    topic_uuid: bytes
    epoch: int
    owner: str
    last: tuple[int, int] | None = None


def encode_cursor(record: CursorRecord) -> bytes:
    """The record's value."""
    fields = record._asdict()
    uuid: bytes = fields.pop("topic_uuid")
    return json.dumps({"version": _VERSION, **fields, "uuid": uuid.hex()}).encode()


def decode_cursor(value: bytes) -> CursorRecord:
    """Raises ValueError for anything but a cursor record of this version."""
    try:
        fields = json.loads(value)
        version, ordinal, last = fields["version"], fields["ordinal"], fields.get("last")
        record = CursorRecord(
            int(fields["address"]),
            None if ordinal is None else int(ordinal),
            bytes.fromhex(fields["uuid"]),
            int(fields["epoch"]),
            str(fields["owner"]),
            None if last is None else (int(last[0]), int(last[1])),
        )
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a cursor record: {value[:80]!r}") from error
    if version != _VERSION or record.address < 0 or (record.ordinal or 0) < 0:
        raise ValueError(f"not a cursor record of this version: {value[:80]!r}")
    return record
