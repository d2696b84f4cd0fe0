"""The command line of the bridge: `python -m bridge`, also `aolog-bridge`.

Errors go to standard error in one line with their code; the exit status is one a class of error
(see aolog.errors). Never a traceback for what the user, the disk or the cluster did.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aolog.cli.completion import completion_of
from aolog.cli.failing import OUTPUT_CLOSED
from aolog.cli.output import OutputClosed
from aolog.errors import AologError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Group(click.Group):
    """Turns this project's errors into one line and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except AologError as error:
            _fail(error, as_json="--json" in sys.argv)
        except OutputClosed:
            sys.exit(OUTPUT_CLOSED)


def _fail(error: AologError, *, as_json: bool) -> NoReturn:
    if as_json:
        details = {k: v for k, v in error.details.items() if isinstance(v, str | int)}
        told = {"code": error.code, "message": str(error), **details}
        click.echo(json.dumps({"error": told}), err=True)
    else:
        click.echo(f"aolog-bridge: {error.code}: {error}", err=True)
    sys.exit(error.exit_status)


@click.group(cls=_Group, context_settings=_CONTEXT)
@click.version_option(package_name="aolog", prog_name="aolog-bridge")
def main() -> None:
    """Drain append-only logs to Kafka: in order, through outages, crashes and restarts.

    \b
    Examples:
      python -m bridge demo                     see it work, on a broker of its own
      python -m bridge run --log /var/lib/app/log --topic events --bootstrap-servers kafka:9092
    """


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


@main.command(short_help="Forward a log to a topic.")
@click.option("--log", "path", required=True, type=click.Path(), help="Directory of the log.")
@click.option("--topic", help="Topic for records that name none. Default: the log's own.")
@click.option("--bootstrap-servers", required=True, metavar="HOST:PORT[,...]", help="The cluster.")
@click.option("--drain", is_flag=True, help="End when all that is there now is acknowledged.")
@click.option("--cursor", default="bridge", show_default=True, help="Name of the cursor.")
@click.option(
    "--delivery", default="at_least_once", show_default=True,
    type=click.Choice(["at_least_once", "exactly_once"]),
    help="What is promised; exactly_once is in transactions.",
)  # fmt: skip  # options read best one a line
@click.option(
    "--cursor-topic", default="aolog-bridge-cursors", show_default=True, metavar="TOPIC",
    help="exactly_once: the compacted topic of cursor records; made if it is missing.",
)  # fmt: skip  # as above
@click.option(
    "--transaction-records", default=10_000, show_default=True, type=click.IntRange(1),
    help="exactly_once: a transaction is committed at so many records.",
)  # fmt: skip  # as above
@click.option(
    "--transaction-seconds", default=0.5, show_default=True, type=click.FloatRange(0.001, 30),
    help="exactly_once: or after so long. No consumer sees a record before.",
)  # fmt: skip  # as above
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
    delivery: str,
    cursor_topic: str,
    transaction_records: int,
    transaction_seconds: float,
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

    With --delivery exactly_once, records and the cursor are committed together in transactions,
    and consumers that read committed records see each of them once, whatever is killed. It is
    refused where the cluster does not isolate transactions.

    \b
    Examples:
      python -m bridge run --log LOG --topic events --bootstrap-servers kafka:9092
      python -m bridge run --log LOG --bootstrap-servers kafka:9092 --drain --json
      python -m bridge run --log LOG --topic t --bootstrap-servers k:9093 \\
          -X security.protocol=SSL -X ssl.ca.location=/etc/ssl/ca.pem
      python -m bridge run --log LOG --topic t --bootstrap-servers kafka:9092 \\
          --delivery exactly_once

    \b
    Exit status: 0 stopped or drained, 2 usage, 3 damaged cursor, 4 storage, 5 the log's cursor
    is in use, 6 the cluster refuses a record or us, 7 fenced: another bridge delivers this log,
    8 the cluster or its cursor topic does not do for exactly_once.
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
        delivery=delivery,
        cursor_topic=cursor_topic,
        transaction_records=transaction_records,
        transaction_seconds=transaction_seconds,
    )

    def stop(_signal: int, _frame: FrameType | None) -> None:
        forwarder.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with reporter(as_json=as_json, drain=drain) as report:
        forwarder.run(report, every_s=status_seconds)


@main.command(short_help="Watch an outage and a kill lose nothing.")
@click.argument("files", nargs=-1, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.option("--keep", type=click.Path(), help="Keep the log in this directory.")
def demo(files: tuple[str, ...], *, as_json: bool, keep: str | None) -> None:
    """Watch real records survive an outage and a kill on their way to an embedded broker.

    Appends the lines of FILES (by default the text of this Python's standard library) to a log,
    forwards them to a broker that goes down and comes back, kills the forwarding process once,
    reads everything back and compares. Nothing leaves this machine.

    \b
    Examples:
      python -m bridge demo
      python -m bridge demo /var/log/syslog

    Exit status 0 only if nothing is missing, repeated or out of order.
    """
    from bridge.demo import run_demo

    sys.exit(run_demo(files, as_json=as_json, keep=keep))


main.add_command(completion_of("aolog-bridge"))
