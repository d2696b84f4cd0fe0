"""`offsets --log`: Kafka's offsets and the addresses of a log that was pulled. Its own records say both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from aolog import Reader
from aolog.cli.output import out, table
from bridge.pull.origin import Source, origin_of


class _Mapped(NamedTuple):
    """A pulled record: where it is from, and where it is."""

    topic: str
    source: Source
    offset: int
    address: int


def show_log_offsets(
    path: str,
    names: Sequence[str],
    partition: int | None,
    offset: int | None,
    address: int | None,
    *,
    as_json: bool,
) -> None:
    """names, partition: only these. offset: of each partition the record at this offset, or at the next
    greater one. address: the record at this address, or the next one. Neither: the first and the last
    record of each partition. Reads the whole log, except for an address. Raises what Reader.seek raises."""
    with Reader(path) as reader:
        if address is not None:
            reader.seek(address)
            one = next(_mapped(reader), None)
            if one is None:
                raise click.ClickException(f"{path} has no pulled record from address {address} on")
            _show([one], as_json=as_json)
            return
        by_source: dict[Source, tuple[_Mapped, _Mapped, int]] = {}  # the first, the last, how many
        for one in _mapped(reader):
            if (names and one.topic not in names) or partition not in {None, one.source.partition}:
                continue
            if offset is None or one.offset >= offset:
                first, last, records = by_source.get(one.source, (one, one, 0))
                by_source[one.source] = (min(first, one), max(last, one), records + 1)
    found = sorted(by_source.values())
    if offset is not None:
        _show([first for first, _, _ in found], as_json=as_json)
    elif as_json:
        for first, last, records in found:
            out.json({
                **_place(first), "records": records,
                "first": {"offset": first.offset, "address": first.address},
                "last": {"offset": last.offset, "address": last.address},
            })  # fmt: skip  # one object
    else:
        head = ["TOPIC", "PARTITION", "FIRST", "ITS ADDRESS", "LAST", "ITS ADDRESS", "RECORDS"]
        out.line(table(head, [
            [first.topic, first.source.partition, first.offset, first.address, last.offset, last.address,
             records]
            for first, last, records in found
        ]))  # fmt: skip  # one table


def _mapped(reader: Reader) -> Iterator[_Mapped]:
    """Records that were not pulled are skipped."""
    for record in reader:
        origin = origin_of(record.headers)
        if origin is not None:
            yield _Mapped(record.topic or "", origin.source, origin.offset, record.address)


def _show(found: Sequence[_Mapped], *, as_json: bool) -> None:
    if as_json:
        for one in found:
            out.json({**_place(one), "offset": one.offset, "address": one.address})
    else:
        rows = [[one.topic, one.source.partition, one.offset, one.address] for one in found]
        out.line(table(["TOPIC", "PARTITION", "OFFSET", "ADDRESS"], rows))


def _place(one: _Mapped) -> dict[str, object]:
    cluster, topic_id, partition = one.source
    return {
        "topic": one.topic,
        "partition": partition,
        "cluster": cluster,
        "topic_id": str(topic_id),
    }
