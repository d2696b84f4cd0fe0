"""How far one log got: for each partition the offset after its last record in the log.

The log is the truth. `LOG/pull-positions.json` saves reading all of it: positions up to an address. The
file is written after the log is durable up to that address, and is believed only if the log has
the record that it names at the address that it names. Otherwise, and without it, the whole log is read.
Either way the records after that address are read. So a crash at any point costs time, not exactness.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from aolog import Reader
from aolog.errors import MALFORMED, AddressBeyondEnd, AddressPruned, NotALog, UsageError
from bridge.operate.unit_events import ORDER_FILE, POSITIONS_FILE
from bridge.pull.origin import Origin, Source, origin_of


class Mark(NamedTuple):
    """The last record that positions account for."""

    address: int
    origin: Origin


def read_positions(path: str) -> dict[Source, int]:
    """The next offset of each partition of which the log has records; empty if there is no log.
    Raises UsageError for a log of units, which has no positions, or with a record that was not pulled,
    and what Reader raises."""
    if Path(path, ORDER_FILE).exists():
        raise UsageError(f"{path} is filled by units", hint="use --units, or name another log")
    try:
        reader = Reader(path)
    except NotALog:  # or a file, which Writer refuses
        return {}
    positions: dict[Source, int] = {}
    with reader:
        saved = _saved(reader, path)
        if saved is not None:
            address, positions = saved
            with suppress(AddressPruned):  # retention has removed it: all that is left is after it
                reader.seek(address + 1)
        else:
            reader.seek("earliest")
        for record in reader:
            found = origin_of(record.headers)
            if found is None:
                raise UsageError(
                    f"{path} has a record at address {record.address} that was not pulled from Kafka",
                    hint="give the archive a log of its own",
                )
            source, offset = found
            positions[source] = max(positions.get(source, 0), offset + 1)
    return positions


def mark_units(path: str) -> None:
    """The log has records of units from now on."""
    Path(path, ORDER_FILE).touch(mode=0o600)


def read_names(path: str) -> dict[str, UUID]:
    """The ids of topics by name, as `save_positions` got them; empty without a usable file."""
    try:
        told = json.loads(Path(path, POSITIONS_FILE).read_text(encoding="utf-8"))
        return {str(name): UUID(found) for name, found in told["names"].items()}
    except (OSError, *MALFORMED):
        return {}


def save_positions(
    path: str,
    uuid: bytes,
    mark: Mark,
    positions: Mapping[Source, int],
    names: Mapping[str, UUID] | None = None,
) -> None:
    """Replaces the file. The log must be durable up to the mark. A file that is lost with the power
    costs time at the next start. names: the topics' ids."""
    source, offset = mark.origin
    told = {
        "log": uuid.hex(),
        "address": mark.address,
        "origin": [source.cluster, str(source.topic_id), source.partition, offset],
        "positions": [
            [each.cluster, str(each.topic_id), each.partition, position]
            for each, position in sorted(positions.items())
        ],
        "names": {name: str(found) for name, found in (names or {}).items()},
    }
    file = Path(path, POSITIONS_FILE)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(told, indent=1), encoding="utf-8")
    draft.replace(file)


def _saved(reader: Reader, path: str) -> tuple[int, dict[Source, int]] | None:
    """The address up to which the file accounts for the log, and the positions there; None unless the log
    has the record that the file names, or retention has removed it."""
    try:
        told = json.loads(Path(path, POSITIONS_FILE).read_text(encoding="utf-8"))
        *source, offset = told["origin"]
        mark = Mark(int(told["address"]), Origin(_source(*source), int(offset)))
        positions = {_source(*each): int(position) for *each, position in told["positions"]}
        uuid = str(told["log"])
    except (OSError, *MALFORMED):
        return None
    if reader.topic_uuid is None or reader.topic_uuid.hex() != uuid:
        return None
    try:
        reader.seek(mark.address)
    except AddressBeyondEnd:
        return None
    except AddressPruned:
        return mark.address, positions
    record = reader.read()
    if record is None or (record.address, origin_of(record.headers)) != mark:
        return None
    return mark.address, positions


def _source(cluster: str, topic_id: str, partition: int) -> Source:
    return Source(cluster, UUID(topic_id), int(partition))
