"""`pull`: Kafka to a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.output import json_option, out
from aolog.cli.parse import DIRECTORY, SIZE
from aolog.errors import records_lost
from bridge.cli.options import checked, log_format_option, settings_option
from bridge.cli.report import LogLines
from bridge.cli.running import INTERRUPTED, on_signals
from bridge.pull.commands.topics import servers_option

if TYPE_CHECKING:
    from bridge.config.run_options import LogFormat
    from bridge.config.settings import Setting
    from bridge.pull.pull_options import PullStatus

_JSON_EVERY_S = 0.2


@click.command
@click.option(
    "--topic", "topics", multiple=True,
    help="A name, or a pattern that begins with ^, such as ^events-. Repeatable.",
)  # fmt: skip  # options read best one a line
@click.option(
    "--topics-file", type=click.Path(dir_okay=False, exists=True),
    help="A file of names and patterns, one a line; read again every 5 s, and on SIGHUP.",
)  # fmt: skip  # as above
@click.option("--log", "path", type=DIRECTORY, required=True, help="The log; it is created.")
@servers_option
@click.option("--drain", is_flag=True, help="End at the ends of the partitions as they are now.")
@click.option(
    "--group", metavar="NAME",
    help="Share the partitions with other processes of this group; needs --root. KIP-848's protocol:"
    " -X group.protocol=consumer.  [default: read all partitions]",
)  # fmt: skip  # options read best one a line
@click.option(
    "--root", type=DIRECTORY,
    help="With --group or --units: the directory of the logs of all processes.",
)  # fmt: skip  # as above
@click.option(
    "--units", type=click.IntRange(1), metavar="RECORDS",
    help="Share ranges of this number of offsets with other processes instead, for more processes"
    " than partitions; needs --root.",
)  # fmt: skip  # as above
@click.option(
    "--from", "begin", type=click.Choice(["earliest", "latest"]), default="earliest",
    show_default=True, help="Where a partition begins of which there is no record yet. latest: at the ends"
    " as they are at the first start; what appears later is pulled from its beginning.",
)  # fmt: skip  # as above
@click.option(
    "--out-of-range", type=click.Choice(["earliest", "latest", "fail"]), default="earliest",
    show_default=True, help="When the cluster has deleted records that were not pulled yet.",
)  # fmt: skip  # as above
@click.option(
    "--max-bytes", type=SIZE, metavar="SIZE",
    help="Largest size of the log, such as 10G: the pull waits for cursors that need the oldest slab."
    " WITHOUT A CURSOR THE ARCHIVE'S OLDEST RECORDS ARE DELETED.",
)  # fmt: skip  # as above
@settings_option
@log_format_option
@json_option
def pull(
    *, topics: tuple[str, ...], path: str, servers: str, settings: dict[str, Setting],
    as_json: bool, log_format: LogFormat, **options: Any,
) -> None:  # fmt: skip  # as the options
    """Write the records of topics to a log, each once, until terminated.

    Only committed records are written. Key, value, headers, timestamp and topic are kept; the header
    aolog-origin-kafka is added, with CLUSTER-ID/TOPIC-ID/PARTITION/OFFSET. A restart continues after
    the last record in the log, whatever the group's committed offsets are.

    \b
    Examples:
      aolog-bridge pull --topic t --log LOG --bootstrap-servers k:9092 --drain
      aolog-bridge pull --topic events --log ROOT/a --root ROOT --group archive \\
          --bootstrap-servers kafka:9092
      aolog-bridge pull --topic big --log ROOT/a --root ROOT --units 100000 \\
          --drain --bootstrap-servers kafka:9092

    \b
    Exit status:
      0  stopped by SIGINT or SIGTERM, or drained
      2  usage, or the log has records that were not pulled
      4  disk
      5  another process writes the log
      6  no such topic, no answer at the start, or the cluster refused
      130, 143  with --drain: interrupted, or terminated, before that was done
    """
    if not topics and options["topics_file"] is None:
        raise click.UsageError("name a --topic or a --topics-file")
    _check(path, options)
    from bridge.operate.log_lines import set_up
    from bridge.pull.pull_options import PullOptions
    from bridge.pull.puller import Puller

    values = checked(servers, settings)
    set_up(log_format)
    renewed = renewing(servers, settings)
    puller = Puller(PullOptions(servers, topics, path, values, renewed=renewed, **options))
    signals = on_signals(puller.stop, puller.reload)
    puller.run(report_pull(as_json=as_json))
    if options["drain"] and puller.status().state != "drained" and signals:
        sys.exit(INTERRUPTED + signals[-1])


def _check(path: str, options: dict[str, Any]) -> None:
    group, root, units = options["group"], options["root"], options["units"]
    if group is not None and units is not None:
        raise click.UsageError("name --group or --units, not both")
    if (root is None) != (group is None and units is None):
        raise click.UsageError("--root belongs to --group or --units")
    if units is not None:
        if options["max_bytes"] is not None or options["begin"] != "earliest":
            raise click.UsageError("--units goes with neither --max-bytes nor --from latest")
        if Path(root).resolve() not in Path(path).resolve().parents:
            raise click.UsageError(f"with --units the log is below {root}")


def renewing(servers: str, settings: dict[str, Setting]) -> Callable[[], dict[str, Any] | None]:
    """A function that looks at the files of secrets and certificates at most once a second. Returns the
    settings for the client when one has changed, otherwise None. Logs an error if they are wrong."""
    from bridge.config.load import load
    from bridge.supervise.reload import Rotation, read_again

    cluster = {"clusters.bootstrap_servers": servers, "clusters.settings": settings}
    config = load(None, {"logs": ["LOG"], **cluster})
    rotation = Rotation(config)

    def renewed() -> dict[str, Any] | None:
        nonlocal config
        if not rotation.due(config):
            return None
        new = read_again(config.read_again, config, what="a new file")
        if new is None:
            return None
        config = new
        return new.clusters[new.default_cluster].client_settings()

    return renewed


def report_pull(*, as_json: bool) -> Callable[[PullStatus], None]:
    """A function to call with each status: JSON lines on standard output, or log lines as those of `run`."""
    lines, due_s, last_state = LogLines(), 0.0, ""

    def report(status: PullStatus) -> None:
        nonlocal due_s, last_state
        if as_json:
            now_s = time.monotonic()
            if status.state != last_state or now_s >= due_s:
                last_state, due_s = status.state, now_s + _JSON_EVERY_S
                out.json(status._asdict())
                out.flush()
            return
        lost = f", {status.lost:,} offsets lost" if status.lost else ""
        deleted = "" if status.deleted == 0 else f", {records_lost(status.deleted)} deleted"
        units = f", {status.units:,} units" if status.units else ""
        left_out = f", {status.left_out:,} headers or times left out" if status.left_out else ""
        words = f"{status.pulled:,} pulled{units}{lost}{deleted}{left_out}"
        lines(status.state, words, status.error)

    return report
