"""`consume`: prints the records of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aolog.cli.output import json_option, out
from aolog.errors import one_line
from bridge.cli.options import TOPIC, checked, settings_option
from bridge.client.buffer.file_provider import bytes_as_json
from bridge.pull.commands.topics import moment, servers_option

if TYPE_CHECKING:
    from bridge.config.settings import Setting
    from bridge.kafka.catalog import Catalog, Place
    from bridge.kafka.consumed import Omissions

_FETCH, _FETCH_S = 1_000, 0.2


@click.command
@click.argument("topic", type=TOPIC)
@servers_option
@click.option(
    "--from", "begin", metavar="PLACE", default="latest", show_default=True,
    help="earliest, latest, a time, a time ago (15m-ago), or an offset of one --partition.",
)  # fmt: skip  # options read best one a line
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--count", type=click.IntRange(1), help="End after this number of records.")
@click.option("--drain", is_flag=True, help="End at the ends of the partitions as they are now.")
@click.option(
    "--format", "style", type=click.Choice(["line", "value"]), default="line", show_default=True,
    help="line: topic/partition@offset, key, value. value: only the value, as it is, and a newline.",
)  # fmt: skip  # as above
@settings_option
@json_option
def consume(
    *, topic: str, servers: str, begin: str, partition: int | None, count: int | None, drain: bool,
    style: str, settings: dict[str, Setting], as_json: bool,
) -> None:  # fmt: skip  # as the options
    """Print the records of TOPIC as they come, until interrupted.

    It prints committed records only, joins no group and commits nothing. --json prints one object
    per record: topic, partition, offset, timestamp (ms; null: none), key, value, headers; bytes that
    are not UTF-8 are {"base64": ...}.

    \b
    Examples:
      aolog-bridge consume events --bootstrap-servers kafka:9092
      aolog-bridge consume t --bootstrap-servers k:9092 --from earliest --drain

    \b
    Exit status: 0 done, 2 usage, 6 no such topic, no answer, or refused,
    141 standard output was closed by its reader.
    """
    from bridge.kafka.catalog import Catalog
    from bridge.kafka.consumed import Omissions
    from bridge.kafka.fetcher import Fetcher

    values = checked(servers, settings)
    cluster = Catalog(servers, values)
    numbers = [p.number for p in cluster.topic(topic).partitions]
    if partition is not None and partition not in numbers:
        raise click.UsageError(f"topic {topic} has no partition {partition}")
    places = [(topic, n) for n in numbers if partition in {None, n}]
    offsets = _offsets(cluster, places, begin)
    ends = cluster.offsets(places, "latest", committed_only=True) if drain else {}
    left = {place for place in places if offsets[place] < ends.get(place, 0)}
    fetcher, omissions = Fetcher(servers, values), Omissions()
    try:
        fetcher.assign({p: offset for p, offset in offsets.items() if not drain or p in left})
        printed = 0
        while left or not drain:
            found = fetcher.fetch(min(_FETCH, (count or _FETCH + printed) - printed), _FETCH_S)
            if found.out_of_range:
                place = found.out_of_range[0]
                raise click.ClickException(f"{place[0]}/{place[1]} lost offset {offsets[place]}")
            for message in found.messages:
                place = (topic, message.partition())
                if not drain or message.offset() < ends[place]:
                    if as_json:
                        out.json(_json_of(message, omissions))
                    elif style == "value":
                        out.write((message.value() or b"") + b"\n")
                    else:
                        print_line(message)
                    printed += 1
                if drain and message.offset() >= ends[place] - 1:
                    left.discard(place)
            left -= {place for place, end in found.ends.items() if end >= ends.get(place, 0)}
            out.flush()
            if printed == count:
                return
    finally:
        fetcher.close()


def _offsets(cluster: Catalog, places: list[Place], begin: str) -> dict[Place, int]:
    if not begin.isdecimal():
        return cluster.offsets(places, moment(begin, "--from"))
    if len(places) != 1:
        raise click.UsageError("an offset needs a --partition")
    place, offset = places[0], int(begin)
    first, end = (cluster.offsets(places, each)[place] for each in ("earliest", "latest"))
    if not first <= offset <= end:
        raise click.UsageError(
            f"{place[0]}/{place[1]} has offsets from {first} to {end}, not {offset}"
        )
    return {place: offset}


def _json_of(message: Any, omissions: Omissions) -> dict[str, Any]:
    from bridge.client.received import received

    found = received(message, omissions)._asdict()
    del found["headers_left_out"]
    bytes_found = {name: bytes_as_json(found[name]) for name in ("key", "value")}
    headers = [[name, bytes_as_json(value)] for name, value in found["headers"]]
    return {**found, **bytes_found, "headers": headers}


def print_line(message: Any) -> None:
    """The place, the key and the value of the client's message."""
    key, value = (
        "-" if data is None else one_line(data.decode(errors="backslashreplace"))
        for data in (message.key(), message.value())
    )
    out.line(f"{message.topic()}/{message.partition()}@{message.offset()}  {key}  {value}")
