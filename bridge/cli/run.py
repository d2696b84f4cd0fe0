"""`run`: forwards logs until it is stopped, or until they are empty. Its options are here.

Most options are keys of the configuration: their descriptions and defaults are in
bridge.config.run_options, their bounds in bridge.config.models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from aolog.cli.option_groups import GroupedCommand
from aolog.cli.parse import DIRECTORY, SIZE
from bridge.cli.options import TOPIC, create_topics_option, read_back_option, settings_of
from bridge.config.run_options import OPTIONS


def _token(_: click.Context, __: click.Parameter, path: str | None) -> dict[str, str] | None:
    return None if path is None else {"file": str(Path(path).absolute())}


def _configuration_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each key of the configuration in OPTIONS. The configuration checks its value."""
    for name, option in reversed(OPTIONS.items()):
        kind = click.Choice(option.kind) if isinstance(option.kind, tuple) else option.kind
        default = "" if option.default is None else f"  [default: {option.default}]"
        about = f"{option.about[0].upper()}{option.about[1:]}.{default}"
        command = click.option("--" + name.replace("_", "-"), type=kind, help=about)(command)
    return command


@click.command(
    cls=GroupedCommand,
    headings={
        "Logs": "path root file drain cursor prune park_seconds scrub_seconds"
        " scrub_bytes_per_second",
        "Destination": "bootstrap_servers topic settings create_topics",
        "Delivery": "delivery max_in_flight_bytes read_back commit_seconds stop_seconds cursor_topic"
        " transaction_records transaction_seconds",
        "Rejected records": "poison",
        "Rate limits": "records_per_second bytes_per_second total_records_per_second"
        " total_bytes_per_second",
        "Status and log lines": "http http_token http_hosts log_max_bytes as_json status_seconds log_format verbose",
    },
)
@click.option("--log", "path", type=DIRECTORY, help="Directory of one log.")
@click.option("--root", type=DIRECTORY, help="Directory tree of logs; new logs are found.")
@click.option(
    "--config", "file", type=click.Path(), help="A file in TOML or JSON; options override it."
)
@click.option(
    "--topic", type=TOPIC,
    help="Fallback topic; records that name a topic keep it. Default: the log's own"
    " (aolog append --topic).",
)  # fmt: skip  # options read best one a line
@click.option("--bootstrap-servers", metavar="HOST:PORT[,...]", help="The cluster.")
@click.option(
    "--drain", is_flag=True, help="End when every record that is in the logs now is acknowledged."
)
@click.option("--cursor", help="Name of the cursor.  [default: bridge]")
@click.option(
    "-X", "--set", "settings", multiple=True, metavar="KEY=VALUE", callback=settings_of,
    help="A setting of librdkafka, such as compression.type=zstd. Repeatable. The process list shows"
    " it; write a secret as sasl.password={file=PATH} (or {env=NAME}).",
)  # fmt: skip  # options read best one a line
@create_topics_option
@read_back_option
@click.option(
    "--prune", is_flag=True, default=None, help="Delete slabs that every cursor has passed."
)
@click.option(
    "--http-token-file", "http_token", type=click.Path(), callback=_token,
    help="File with the token that allows the page to pause, resume and retry; needed to listen on"
    " another interface than loopback.",
)  # fmt: skip  # as above
@click.option(
    "--http-host", "http_hosts", multiple=True, metavar="NAME",
    help="A name of this server in the Host header, besides localhost. Repeatable.",
)  # fmt: skip  # as above
@click.option(
    "--log-max-bytes", type=SIZE, metavar="SIZE",
    help="What the writer keeps of each log, Retention(max_bytes=...): the page and /metrics show the"
    " time until then.",
)  # fmt: skip  # as above
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print the status as one JSON object a line: the overview of /status.",
)  # fmt: skip  # as above
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages.")
@_configuration_options
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

    Records keep their key, headers and timestamp. The header "aolog" names the log and the address
    of each record; after a restart the bridge finds by it what has arrived. The cursor passes
    acknowledged records only. The bridge waits during an outage of any length, and while
    credentials are wrong. A partition or topic that takes nothing does not delay the others (with
    exactly_once it delays the whole log), and is named within 10 s.
    SIGHUP reads the configuration file again and retries partitions that a refused record stopped.

    With --log and without --config, the first failure of the log ends the command. Otherwise a log
    that fails is tried again, with increasing delays, and does not stop the others. A lack of file
    descriptors is always waited out.

    States are connecting, draining, limited, live, blocked and stopped; `status --help` says what they mean.

    With --delivery exactly_once, records and the cursor are committed in one transaction.
    Consumers that read committed records see each record once, whatever is killed. The bridge
    refuses a cluster that does not isolate transactions.

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
      0  stopped; with --drain: every record is acknowledged, or was written to
         the dead-letter log or dropped as --poison says
      2  usage; nothing was started
      3  a damaged cursor; with --drain: this run passed gaps of the log; every
         other record is acknowledged
      4  storage: the disk, a permission; with --drain: a directory could not be
         listed, all else is as described above
      5  the log's cursor is in use
      6  drained except for records that wait for a topic (after 30 s) or a right,
         or that the cluster refuses; the cluster refused something else; the
         cursor belongs to another cluster
      7  fenced: another bridge delivers this log exactly once
      8  the cluster, or its cursor topic, is unfit for exactly_once
      130, 143  with --drain: interrupted, or terminated, before that was done
      141  standard output was closed by its reader
    With many logs: the greatest of their statuses.
    """
    given = {
        name: value
        for name, value in {**options, "root": root}.items()
        if value is not None and value not in ({}, ())
    }
    if path is not None and root is not None:
        raise click.UsageError("name a --log or a --root, not both")
    if path is None and root is None and file is None:
        raise click.UsageError("name a --log, a --root or a --config")
    if file is None and "bootstrap_servers" not in given:
        raise click.UsageError("name the cluster: --bootstrap-servers")
    if "http_hosts" in given:
        given["http_hosts"] = list(given["http_hosts"])
    if path is not None:
        given["logs"] = [path]
    from bridge.cli.running import run_bridge  # not for --help

    run_bridge(
        file, given, drain=drain, as_json=as_json, verbose=verbose,
        fail_fast=path is not None and file is None,
    )  # fmt: skip  # one call
