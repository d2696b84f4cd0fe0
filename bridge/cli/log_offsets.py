"""What `offsets --log` prints: Kafka's offsets and the addresses of a log that was pulled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aolog.cli.output import out, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.pull.mapping import Mapped


def show_log_offsets(
    path: str,
    names: Sequence[str],
    partition: int | None,
    offset: int | None,
    address: int | None,
    *,
    as_json: bool,
) -> None:
    """names, partition: only these. offset: the addresses of this offset. address: the offset of this
    address. Neither: the first and the last record of each partition."""
    from bridge.pull.mapping import addresses_of, offset_at, partitions_of

    def wanted(one: Mapped) -> bool:
        return (not names or one.topic in names) and partition in {None, one.source.partition}

    if address is not None:
        one = offset_at(path, address)
        if one is None:
            raise click.ClickException(f"{path} has no pulled record from address {address} on")
        _show([one], as_json=as_json)
    elif offset is not None:
        _show([one for one in addresses_of(path, offset) if wanted(one)], as_json=as_json)
    else:
        found = [each for each in partitions_of(path) if wanted(each.first)]
        if as_json:
            for each in found:
                out.json({
                    **_place(each.first), "records": each.records,
                    "first": {"offset": each.first.offset, "address": each.first.address},
                    "last": {"offset": each.last.offset, "address": each.last.address},
                })  # fmt: skip  # one object
        else:
            head = ["TOPIC", "PARTITION", "FIRST", "ITS ADDRESS", "LAST", "ITS ADDRESS", "RECORDS"]
            out.line(table(head, [
                [first.topic, first.source.partition, first.offset, first.address, last.offset, last.address, records]
                for first, last, records in found
            ]))  # fmt: skip  # one table
    out.flush()


def _show(found: Sequence[Mapped], *, as_json: bool) -> None:
    if as_json:
        for one in found:
            out.json({**_place(one), "offset": one.offset, "address": one.address})
    else:
        rows = [[one.topic, one.source.partition, one.offset, one.address] for one in found]
        out.line(table(["TOPIC", "PARTITION", "OFFSET", "ADDRESS"], rows))


def _place(one: Mapped) -> dict[str, object]:
    cluster, topic_id, partition = one.source
    return {
        "topic": one.topic,
        "partition": partition,
        "cluster": cluster,
        "topic_id": str(topic_id),
    }
