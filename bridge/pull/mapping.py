"""From Kafka's offsets to a log's addresses, and back: the log's own records say both."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog import Reader
from bridge.pull.origin import Source, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class Mapped(NamedTuple):
    """A pulled record: where it is from, and where it is."""

    topic: str
    source: Source
    offset: int
    address: int


class PartitionMap(NamedTuple):
    """Of one partition: its records with the least and the greatest offset, and their number."""

    first: Mapped
    last: Mapped
    records: int


def partitions_of(path: str) -> list[PartitionMap]:
    """Of all partitions in a log. Reads all of it. Records that were not pulled are skipped."""
    found: dict[Source, PartitionMap] = {}
    with Reader(path) as reader:
        for one in _mapped(reader):
            known = found.get(one.source, PartitionMap(one, one, 0))
            found[one.source] = PartitionMap(
                min(known.first, one, key=_offset), max(known.last, one, key=_offset), known.records + 1
            )  # fmt: skip  # one value
    return sorted(found.values())


def addresses_of(path: str, offset: int) -> list[Mapped]:
    """Of each partition in a log its record at this offset, or, where the log has none, at the next
    greater one. Reads all of the log."""
    found: dict[Source, Mapped] = {}
    with Reader(path) as reader:
        for one in _mapped(reader):
            if one.offset >= offset:
                found[one.source] = min(found.get(one.source, one), one, key=_offset)
    return sorted(found.values())


def offset_at(path: str, address: int) -> Mapped | None:
    """The pulled record at an address, or the next one after it; None if there is none. Raises what Reader.seek
    raises."""
    with Reader(path) as reader:
        reader.seek(address)
        return next(_mapped(reader), None)


def _mapped(reader: Reader) -> Iterator[Mapped]:
    for record in reader:
        origin = origin_of(record.headers)
        if origin is not None:
            yield Mapped(record.topic or "", origin.source, origin.offset, record.address)


def _offset(one: Mapped) -> int:
    return one.offset
