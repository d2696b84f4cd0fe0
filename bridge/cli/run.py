"""`run`: forward logs until told to stop, or until they are empty."""

from __future__ import annotations

from typing import Any

import click

from aolog.cli.parse import MODE
from bridge.cli.options import (
    NumberRange,
    create_topics_option,
    read_back_option,
    settings_of,
    topic_name,
)
from bridge.cli.running import run_many, run_one

__all__ = ["run"]


@click.command(short_help="Forward logs to topics.")
@click.option("--log", "path", type=click.Path(), help="Directory of one log.")
@click.option("--root", type=click.Path(), help="A tree of logs; new ones are found as they come.")
@click.option(
    "--config", "file", type=click.Path(), help="A file in TOML or JSON; options go over it."
)
@click.option(
    "--topic", callback=topic_name,
    help="Fallback topic; records that name a topic keep it. Default: the log's own.",
)  # fmt: skip  # options read best one a line
@click.option("--bootstrap-servers", metavar="HOST:PORT[,...]", help="The cluster.")
@click.option("--drain", is_flag=True, help="End when all that is there now is acknowledged.")
@click.option("--cursor", help="Name of the cursor.  [default: bridge]")
@click.option(
    "-X", "--set", "settings", multiple=True, metavar="KEY=VALUE", callback=settings_of,
    help="A setting of librdkafka, such as compression.type=zstd. Repeatable. The process list shows"
    " it; a secret is better given as sasl.password={file=PATH} (or {env=NAME}).",
)  # fmt: skip  # options read best one a line
@click.option(
    "--delivery", type=click.Choice(["at_least_once", "exactly_once"]),
    help="What is promised.  [default: at_least_once]",
)  # fmt: skip  # as above
@click.option(
    "--cursor-topic", metavar="TOPIC", callback=topic_name,
    help="exactly_once: the compacted topic of cursor records.  [default: aolog-bridge-cursors]",
)  # fmt: skip  # as above
@click.option(
    "--transaction-records", type=click.IntRange(1),
    help="exactly_once: a transaction is committed at so many records.  [default: 10000]",
)  # fmt: skip  # as above
@click.option(
    "--transaction-seconds", type=NumberRange(0.001, 30),
    help="exactly_once: or after so long. No consumer sees a record before.  [default: 0.5]",
)  # fmt: skip  # as above
@click.option(
    "--poison", type=click.Choice(["stop", "dead-letter", "drop"]),
    help="What becomes of a record that will never be taken: its lane stands before it, until"
    " SIGHUP or a restart (with exactly_once all of the log), it goes to LOG/dead-letter, or it is"
    " counted and passed. Records whose topic is missing or forbidden wait.  [default: stop]",
)  # fmt: skip  # as above
@create_topics_option
@read_back_option
@click.option(
    "--mode", type=MODE, help="Of a dead-letter log's directory that is created.  [default: 700]"
)
@click.option(
    "--records-per-second", type=NumberRange(0, min_open=True),
    help="No more of a log, on average.  [default: no bound]",
)  # fmt: skip  # as above
@click.option(
    "--bytes-per-second", type=NumberRange(0, min_open=True),
    help="As above, of keys and values.",
)  # fmt: skip  # as above
@click.option(
    "--total-records-per-second", type=NumberRange(0, min_open=True),
    help="No more of all logs together.",
)  # fmt: skip  # as above
@click.option("--total-bytes-per-second", type=NumberRange(0, min_open=True), help="As above.")
@click.option(
    "--commit-seconds", type=NumberRange(0.01),
    help="How often the cursor is committed.  [default: 1.0]",
)  # fmt: skip  # as above
@click.option(
    "--stop-seconds", type=NumberRange(0),
    help="How long a stop waits for acknowledgements that are under way.  [default: 5.0]",
)  # fmt: skip  # as above
@click.option(
    "--prune", is_flag=True, default=None, help="Remove slabs once every cursor has passed them."
)
@click.option(
    "--park-seconds", type=NumberRange(0),
    help="With many logs: how long an idle one stays connected.  [default: 30.0]",
)  # fmt: skip  # as above
@click.option(
    "--http", metavar="HOST:PORT",
    help="Serve /metrics, /healthz, /readyz and /status. Without HOST: on loopback.",
)  # fmt: skip  # as above
@click.option("--json", "as_json", is_flag=True, help="Status as one JSON object a line.")
@click.option(
    "--status-seconds", type=NumberRange(0.05),
    help="How often a status is told: with --json a line, on a terminal the live line. Log lines"
    " come when the state changes, and each minute.  [default: 1.0]",
)  # fmt: skip  # as above
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Of log lines.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run(
    *,
    path: str | None,
    root: str | None,
    file: str | None,
    drain: bool,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Forward logs to topics until stopped (SIGTERM, SIGINT), or with --drain until empty.

    Records keep their key, headers and timestamp. A header "aolog" names where each came from,
    by which a restart knows what has arrived already. The cursor passes acknowledged records
    only. An outage of any length is waited out, wrong credentials too. A partition or topic that
    takes nothing does not delay the others (with exactly_once it delays the whole log), and is
    named within 10 s. SIGHUP reads the configuration file again and retries partitions that a
    refused record stopped.

    States are connecting, draining, live, blocked and stopped; `status --help` says what they mean.

    With --delivery exactly_once, records and the cursor are committed together in transactions,
    and consumers that read committed records see each of them once, whatever is killed. It is
    refused where the cluster does not isolate transactions.

    \b
    Examples:
      aolog-bridge run --log LOG --topic events --bootstrap-servers kafka:9092
      aolog-bridge run --log LOG --bootstrap-servers kafka:9092 --drain --json
      aolog-bridge run --root LOGS --bootstrap-servers kafka:9092 --http :9100
      aolog-bridge run --config bridge.toml
      aolog-bridge run --log LOG --delivery exactly_once --config bridge.toml
      aolog-bridge run --log LOG --topic t --bootstrap-servers k:9093 \\
          -X security.protocol=SSL -X ssl.ca.location=/etc/ssl/ca.pem

    \b
    Exit status:
      0  stopped; with --drain: all that was there is acknowledged, or was set
         aside or dropped as --poison says
      2  usage; nothing was started
      3  a damaged cursor; with --drain: gaps of the log were passed by this run,
         all else is acknowledged
      4  storage: the disk, a permission; with --drain: a directory could not be
         listed, all else is as told above
      5  the log's cursor is in use
      6  drained, but for records that wait for a topic or a right, or that the
         cluster refuses; it refused something else, or is another one than the
         cursor is of
      7  fenced: another bridge delivers this log exactly once
      8  the cluster, or its cursor topic, does not do for exactly_once
      130, 143  with --drain: interrupted, or terminated, before that was done
      141  standard output was closed by its reader
    With many logs: the greatest of theirs.
    """
    given = {name: value for name, value in options.items() if value is not None and value != {}}
    if path is not None and root is not None:
        raise click.UsageError("name a --log or a --root, not both")
    if path is None and root is None and file is None:
        raise click.UsageError("name a --log, a --root or a --config")
    if file is None and "bootstrap_servers" not in given:
        raise click.UsageError("name the cluster: --bootstrap-servers")
    if path is not None and file is None:
        run_one(path, given, drain=drain, as_json=as_json, verbose=verbose)
        return
    if root is not None:
        given["root"] = root
    if path is not None:
        given["logs"] = [path]
    run_many(file, given, drain=drain, as_json=as_json, verbose=verbose)
