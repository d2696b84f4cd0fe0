"""`run`: forward logs until told to stop, or until they are empty."""

from __future__ import annotations

import logging
import signal
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["run"]


def _settings(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


@click.command(short_help="Forward a log to a topic.")
@click.option("--log", "path", required=True, type=click.Path(), help="Directory of the log.")
@click.option("--topic", help="Topic for records that name none. Default: the log's own.")
@click.option("--bootstrap-servers", required=True, metavar="HOST:PORT[,...]", help="The cluster.")
@click.option("--drain", is_flag=True, help="End when all that is there now is acknowledged.")
@click.option("--cursor", default="bridge", show_default=True, help="Name of the cursor.")
@click.option(
    "-X", "--set", "settings", multiple=True, metavar="KEY=VALUE", callback=_settings,
    help="A setting of librdkafka, such as compression.type=zstd. Repeatable.",
)  # fmt: skip  # options read best one a line
@click.option(
    "--commit-seconds", default=1.0, show_default=True, type=click.FloatRange(0.01),
    help="How often the cursor is committed.",
)  # fmt: skip  # as above
@click.option(
    "--stop-seconds", default=5.0, show_default=True, type=click.FloatRange(0),
    help="How long a stop waits for acknowledgements that are under way.",
)  # fmt: skip  # as above
@click.option("--prune", is_flag=True, help="Remove slabs once every cursor has passed them.")
@click.option("--json", "as_json", is_flag=True, help="Status as one JSON object a line.")
@click.option(
    "--status-seconds", default=1.0, show_default=True, type=click.FloatRange(0.05),
    help="How often the status is told.",
)  # fmt: skip  # as above
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run(
    path: str,
    topic: str | None,
    bootstrap_servers: str,
    *,
    drain: bool,
    cursor: str,
    settings: dict[str, str],
    commit_seconds: float,
    stop_seconds: float,
    prune: bool,
    as_json: bool,
    status_seconds: float,
    verbose: bool,
) -> None:
    """Forward a log to a topic until stopped (SIGTERM, SIGINT), or with --drain until empty.

    Records keep their key, headers and timestamp. A header "aolog" names where each came from,
    by which a restart knows what has arrived already. The cursor passes acknowledged records
    only. An outage of any length is waited out.

    \b
    Examples:
      python -m bridge run --log LOG --topic events --bootstrap-servers kafka:9092
      python -m bridge run --log LOG --bootstrap-servers kafka:9092 --drain --json
      python -m bridge run --log LOG --topic t --bootstrap-servers k:9093 \\
          -X security.protocol=SSL -X ssl.ca.location=/etc/ssl/ca.pem

    \b
    Exit status: 0 stopped or drained, 2 usage, 3 damaged cursor, 4 storage, 5 the log's cursor
    is in use, 6 the cluster refuses a record or us.
    """
    from bridge.forwarder import Forwarder
    from bridge.kafka import check
    from bridge.report import reporter

    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("bridge.librdkafka").setLevel(logging.INFO if verbose else logging.CRITICAL)
    check(settings)
    forwarder = Forwarder(
        path,
        topic=topic,
        bootstrap_servers=bootstrap_servers,
        settings=settings,
        cursor=cursor,
        drain=drain,
        commit_s=commit_seconds,
        stop_s=stop_seconds,
        prune_delivered=prune,
    )

    def stop(_signal: int, _frame: FrameType | None) -> None:
        forwarder.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with reporter(as_json=as_json, drain=drain) as report:
        forwarder.run(report, every_s=status_seconds)
