"""`topics` and `offsets`: what a cluster has. Only --create and --to change it."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.output import json_option, out, table
from aolog.cli.parse import DIRECTORY
from aolog.errors import UsageError, counted
from aolog.read.start import parse_where
from bridge.cli.options import TOPIC, checked, pairs_of, settings_option
from bridge.pull.commands.log_offsets import show_log_offsets

if TYPE_CHECKING:
    from bridge.config.settings import Setting
    from bridge.kafka.catalog import Catalog, Place, When

servers_option = click.option(
    "--bootstrap-servers", "servers", metavar="HOST:PORT[,...]", required=True, help="The cluster."
)


def catalog_of(servers: str, settings: dict[str, Setting]) -> Catalog:
    """For questions to a cluster. Raises UsageError, WrongSetting; connects to nothing."""
    from bridge.kafka.catalog import Catalog

    return Catalog(servers, checked(servers, settings))


@click.command
@servers_option
@click.option("--topic", type=TOPIC, help="Describe this topic.")
@click.option("--create", metavar="TOPIC", type=TOPIC, help="Create this topic.")
@click.option(
    "--partitions", type=click.IntRange(1), help="With --create.  [default: the cluster's]"
)
@click.option(
    "--replication-factor", type=click.IntRange(1), help="With --create.  [default: the cluster's]"
)
@click.option(
    "--topic-config", "config", multiple=True, metavar="KEY=VALUE", callback=pairs_of,
    help="With --create: a setting of the topic, such as cleanup.policy=compact. Repeatable.",
)  # fmt: skip  # options read best one a line
@settings_option
@json_option
def topics(
    *, servers: str, topic: str | None, create: str | None, partitions: int | None,
    replication_factor: int | None, config: dict[str, str], settings: dict[str, Setting],
    as_json: bool,
) -> None:  # fmt: skip  # as the options
    """List topics, describe one, or create one.

    --json prints one object per topic: name, id, is_internal, partitions.

    \b
    Examples:
      aolog-bridge topics --bootstrap-servers kafka:9092
      aolog-bridge topics --bootstrap-servers kafka:9092 --topic events --json
      aolog-bridge topics --bootstrap-servers k:9092 --create t --partitions 6

    \b
    Exit status: 0 done, 2 usage, 6 no such topic, no answer, or refused.
    """
    if create is None and (partitions or replication_factor or config):
        raise click.UsageError("--partitions, --replication-factor, --topic-config need --create")
    if create is not None and topic is not None:
        raise click.UsageError("name a --topic or --create one, not both")
    cluster = catalog_of(servers, settings)
    if create is not None:
        found = [cluster.create(create, partitions or -1, replication_factor or -1, config)]
    else:
        found = cluster.topics(cluster.names() if topic is None else [topic])
    if as_json:
        for each in found:
            described = [p._asdict() for p in each.partitions]
            out.json({**each._asdict(), "id": str(each.id), "partitions": described})
    elif topic is not None or create is not None:
        rows = [
            [p.number, p.leader, _numbers(p.replicas), _numbers(p.in_sync)]
            for p in found[0].partitions
        ]
        out.line(f"{found[0].name}, id {found[0].id}")
        out.line(table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC"], rows))
    else:
        rows = [
            [each.name, len(each.partitions), len(each.partitions[0].replicas), each.id]
            for each in found
        ]
        out.line(table(["TOPIC", "PARTITIONS", "REPLICAS", "ID"], rows))


def _numbers(nodes: list[int]) -> str:
    return ",".join(str(node) for node in nodes)


@click.command
@click.option("--bootstrap-servers", "servers", metavar="HOST:PORT[,...]", help="The cluster.")
@click.option(
    "--log", "path", type=DIRECTORY,
    help="A log that was pulled, instead: which addresses have which offsets.",
)  # fmt: skip  # options read best one a line
@click.option("--offset", type=click.IntRange(0), help="With --log: the address of this offset.")
@click.option("--address", type=click.IntRange(0), help="With --log: the offset of this address.")
@click.option(
    "--topic", "names", multiple=True, type=TOPIC,
    help="Only this topic. Repeatable.  [default: all that are not internal]",
)  # fmt: skip  # options read best one a line
@click.option("--group", metavar="NAME", help="Also the group's committed offsets and its lag.")
@click.option(
    "--at", metavar="TIME", help="Also the offset at a time: 2026-01-31T12:00:00Z, or 15m-ago."
)
@click.option(
    "--to", metavar="PLACE",
    help="Set the group's offsets of one --topic: earliest, latest, a time, or an offset. The group"
    " must have no members.",
)  # fmt: skip  # options read best one a line
@click.option("--partition", type=click.IntRange(0), help="Only this partition of one --topic.")
@settings_option
@json_option
def offsets(
    *, servers: str | None, path: str | None, offset: int | None, address: int | None,
    names: tuple[str, ...], group: str | None, at: str | None, to: str | None,
    partition: int | None, settings: dict[str, Setting], as_json: bool,
) -> None:  # fmt: skip  # as the options
    """Show the offsets of partitions, and of a group: the first, the next, and the committed one.

    --json prints one object per partition: topic, partition, earliest, latest; with --at, at; with
    --group, committed and lag (null if the group has committed nothing). With --log: topic,
    partition, cluster, topic_id, records, first, last; with --offset or --address: offset, address.

    \b
    Examples:
      aolog-bridge offsets --bootstrap-servers kafka:9092 --topic events --json
      aolog-bridge offsets --bootstrap-servers kafka:9092 --group billing
      aolog-bridge offsets --bootstrap-servers k:1 --topic t --group g --to latest
      aolog-bridge offsets --log LOG --topic events --partition 3 --offset 1000

    \b
    Exit status: 0 done, 2 usage, 6 no such topic, no answer, or refused.
    """
    if path is not None:
        if any(each is not None for each in (servers, group, at, to)):
            raise click.UsageError("--log asks no cluster")
        if offset is not None and address is not None:
            raise click.UsageError("name an --offset or an --address, not both")
        show_log_offsets(path, names, partition, offset, address, as_json=as_json)
        return
    if servers is None:
        raise click.UsageError("name --bootstrap-servers, or a --log")
    if offset is not None or address is not None:
        raise click.UsageError("--offset and --address need a --log")
    if to is not None and (group is None or len(names) != 1):
        raise click.UsageError("--to needs a --group and one --topic")
    if partition is not None and len(names) != 1:
        raise click.UsageError("--partition needs one --topic")
    when = None if at is None else moment(at, "--at")
    if isinstance(when, str):
        raise click.UsageError("--at takes a time; earliest and latest are always shown")
    cluster = catalog_of(servers, settings)
    described = cluster.topics(names or cluster.names())
    places = [
        (topic.name, p.number)
        for topic in described
        for p in topic.partitions
        if (names or not topic.is_internal) and partition in {None, p.number}
    ]
    if not places and partition is not None:
        raise click.UsageError(f"topic {names[0]} has no partition {partition}")
    if to is not None and group is not None:
        if to.isdecimal():
            cluster.commit(group, dict.fromkeys(places, int(to)))
        else:
            cluster.commit(group, cluster.offsets(places, moment(to, "--to")))
    columns: dict[str, dict[Place, Any]] = {
        "earliest": dict(cluster.offsets(places, "earliest")),
        "latest": dict(cluster.offsets(places, "latest")),
    }
    if when is not None:
        columns["at"] = dict(cluster.offsets(places, when))
    if group is not None:
        committed = cluster.committed(group, places)
        columns["committed"] = dict(committed)
        columns["lag"] = {
            p: None if (c := committed[p]) is None else max(0, columns["latest"][p] - c)
            for p in places
        }
    _show(places, columns, as_json=as_json)


def moment(text: str, option: str) -> When:
    """earliest, latest, or a time in ms since 1970, as typed. Raises UsageError, which names the option."""
    with suppress(UsageError):
        start, ordinal = parse_where(text)
        if isinstance(start, datetime):
            return int(start.timestamp() * 1_000)
        if isinstance(start, str) and ordinal is None:
            return start
    raise click.UsageError(f"{option}: {text!r} is no time: use 2026-01-31T12:00:00Z, or 15m-ago")


def _show(places: list[Place], columns: dict[str, dict[Place, Any]], *, as_json: bool) -> None:
    if as_json:
        for place in places:
            values = {name: column[place] for name, column in columns.items()}
            out.json({"topic": place[0], "partition": place[1], **values})
    else:
        rows = [
            [*place, *("-" if (v := c[place]) is None else v for c in columns.values())]
            for place in places
        ]
        out.line(table(["TOPIC", "PARTITION", *(name.upper() for name in columns)], rows))
        if "lag" in columns:
            unread = sum(lag or 0 for lag in columns["lag"].values())
            out.line(f"lag: {counted(unread, 'record', ',')}")
