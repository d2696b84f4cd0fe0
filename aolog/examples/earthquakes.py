"""Earthquakes, from a feed's messages to a picture:

    messages ► log `feed` ► by_network ► a log a network ► hourly ► Parquet ► earthquakes.svg

Each arrow between logs and Parquet is a run of the pipeline, and `by_network` and `hourly` are what
`--transform` names. Messages are made up (`sample`), or a file of one JSON object a line, as the
U.S. Geological Survey's feeds in GeoJSON have them under `features`.
"""

from __future__ import annotations

import json
import random
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import aolog
from aolog.cli.failing import CONTEXT_SETTINGS, Program
from aolog.cli.output import json_option, out, to_stderr
from aolog.errors import UsageError
from aolog.spark.session import in_our_words, session
from aolog.spark.transfer import Transfer, run_transfer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

# The parts of a message that the example reads.
_EVENT = """
    id string, properties struct<mag: double, place: string, time: bigint, net: string, type: string>
"""
_LATE = "7 days"  # how much later than others an event may come and still be counted, in streams

_BEGIN_MS = 1_517_356_800_000  # 2018-01-31, midnight UTC
_WEEK_MS = 7 * 86_400_000
# By network: its share of the events, and the least magnitude that it reports.
_NETWORKS = {
    "ak": (0.30, 0.5),
    "ci": (0.25, 0.2),
    "nc": (0.25, 0.2),
    "nn": (0.1, 0.1),
    "us": (0.1, 3.5),
}


class Example(NamedTuple):
    """messages: appended. events: of them, those with an id and a time, in the logs. hours: rows of
    counts, an hour and a network each. plot: path of the picture, None without matplotlib."""

    messages: int
    events: int
    hours: int
    plot: str | None


# --- messages -------------------------------------------------------------------------------


def sample(count: int, seed: int = 1) -> Iterator[bytes]:
    """Made-up messages in the form of a public feed of earthquakes, newest first: GeoJSON features with
    the members that the example reads. The same seed gives the same messages."""
    rng = random.Random(seed)  # noqa: S311 -- messages, not secrets
    times_ms = sorted((_BEGIN_MS + rng.randrange(_WEEK_MS) for _ in range(count)), reverse=True)
    for number, time_ms in enumerate(times_ms):
        (net,) = rng.choices([*_NETWORKS], [share for share, _ in _NETWORKS.values()])
        # Each unit of magnitude is ten times rarer.
        mag = round(_NETWORKS[net][1] + rng.expovariate(2.3), 2)
        place = f"{rng.randint(1, 60)}km {rng.choice('NESW')} of a town"
        about = {"mag": mag, "place": place, "time": time_ms, "net": net, "type": "earthquake"}
        event = {"type": "Feature", "properties": about, "id": f"{net}{38_000_000 + number}"}
        yield json.dumps(event, separators=(",", ":")).encode()


# --- transforms -----------------------------------------------------------------------------


def _parsed(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    event = f.from_json(f.col("value").cast("string"), _EVENT)
    parsed = frame.withColumn("event", event).withColumn(
        "time", f.timestamp_millis("event.properties.time")
    )
    return parsed.where("event.id is not null and time is not null")


def by_network(frame: DataFrame) -> DataFrame:
    """Each event to the log of the network that reports it, with its id as key and its own time. Drops
    messages that are not events."""
    from pyspark.sql import functions as f

    net = f.col("event.properties.net")
    return _parsed(frame).select(
        f.col("event.id").alias("key"),
        "value",
        f.col("time").alias("timestamp"),
        f.when(net.rlike("^[a-z0-9]+$"), net).otherwise("other").alias("log"),
    )


def hourly(frame: DataFrame) -> DataFrame:
    """Counts and magnitudes by network and hour. A stream writes an hour once an event that is `_LATE`
    newer has come, and drops events of that hour that come afterwards."""
    from pyspark.sql import functions as f

    magnitude = f.col("event.properties.mag")
    return (
        _parsed(frame)
        .withWatermark("time", _LATE)
        .groupBy(f.window("time", "1 hour").alias("hour"), f.col("log").alias("network"))
        .agg(
            f.count("*").alias("events"),
            f.avg(magnitude).alias("magnitude_mean"),
            f.max(magnitude).alias("magnitude_max"),
        )
        .select(
            f.col("hour.start").alias("hour"),
            "network",
            "events",
            "magnitude_mean",
            "magnitude_max",
        )
    )


# --- the whole of it --------------------------------------------------------------------------


def run(spark: SparkSession, into: str, messages: Iterable[bytes]) -> Example:
    """Makes feed, logs, Parquet and picture below a new directory. Raises what the log and the pipeline
    raise."""
    count = 0
    with aolog.Writer(f"{into}/feed") as feed:
        for message in messages:
            feed.append(message)
            count += 1
    networks, table = f"{into}/networks", f"{into}/hourly"
    routed = run_transfer(spark, Transfer(f"{into}/feed", "aolog", networks, (by_network,)))
    counted = run_transfer(spark, Transfer(networks, "parquet", table, (hourly,)))
    rows = spark.read.parquet(table).orderBy("hour").collect()
    path = f"{into}/earthquakes.svg" if find_spec("matplotlib") else None
    if path is not None:
        plot(rows, path)
    return Example(count, routed.records_out, counted.records_out, path)


def plot(rows: Sequence[Any], path: str) -> None:
    """Draws the rows of `hourly`; the suffix of the path is the format. Raises UsageError without
    matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise UsageError("no module 'matplotlib'", hint="pip install matplotlib") from None
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    for name in sorted({row.network for row in rows}):
        hours = {row.hour: row.events for row in rows if row.network == name}
        label = f"{name} ({sum(hours.values()):,})"
        axes.scatter(list(hours), list(hours.values()), s=8, label=label)
    axes.set_ylabel("events in an hour")
    axes.legend(title="network")
    figure.savefig(path)


def _lines(path: str) -> Iterable[bytes]:
    try:
        return Path(path).read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="name a file of messages") from None


@click.command(
    cls=Program,
    context_settings=CONTEXT_SETTINGS,
    epilog="""\b
Examples:
  python -m aolog.examples.earthquakes --into quakes
  python -m aolog.examples.earthquakes --into quakes --file messages.ndjson

\b
The same, step by step:
  aolog append quakes/feed < messages.ndjson
  python -m aolog.spark.pipeline --from quakes/feed --to aolog:quakes/networks \\
      --transform aolog.examples.earthquakes:by_network
  python -m aolog.spark.pipeline --from quakes/networks --to parquet:quakes/hourly \\
      --transform aolog.examples.earthquakes:hourly""",
)
@click.option("--into", required=True, metavar="DIR", help="A new directory.")
@click.option("--events", default=2_000, show_default=True, help="How many messages to make up.")
@click.option("--file", "path", metavar="FILE", help="Messages: one JSON object a line.")
@json_option
def earthquakes(into: str, events: int, path: str | None, as_json: bool) -> None:  # noqa: FBT001 -- click passes by name
    """Earthquakes: parse JSON, route by network, count by hour, draw."""
    if Path(into).exists():
        raise UsageError(f"--into {into}: exists already", hint="name a new directory")
    messages = sample(events) if path is None else _lines(path)
    with session(tell=to_stderr) as spark, in_our_words():
        done = run(spark, into, messages)
    if as_json:
        out.json(done._asdict())
    else:
        out.line(
            f"{done.messages:,} messages, {done.events:,} events in {into}/networks, "
            f"{done.hours:,} rows in {into}/hourly, "
            + (done.plot or "no picture: pip install matplotlib")
        )


if __name__ == "__main__":
    earthquakes()
