"""`replay`: sends a range of a log, or its dead letters, again."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from aolog.cli.option_groups import GroupedCommand
from aolog.cli.output import json_option, out
from aolog.errors import UsageError, counted
from bridge.cli.options import (
    PLACES,
    TOPIC,
    address_of,
    create_topics_option,
    of_cluster,
    read_back_option,
)
from bridge.cli.running import INTERRUPTED, on_signals
from bridge.errors import OtherCluster

if TYPE_CHECKING:
    from bridge.config.run_options import Poison
    from bridge.deliver.forwarder import Forwarder
    from bridge.deliver.forwarder_options import ForwarderOptions
    from bridge.kafka.topic_creation import CreateTopics
    from bridge.supervise.status import Overview


@click.command(
    cls=GroupedCommand,
    headings={
        "Records": "begin end dead cursor",
        "Destination": "topic bootstrap_servers file cluster settings create_topics",
        "Delivery": "poison read_back",
        "Output": "dry_run as_json",
    },
    epilog=f"""{PLACES}

\b
Examples:
  aolog-bridge replay LOG --from 2h-ago --to 1h-ago --bootstrap-servers k:9092
  aolog-bridge replay LOG --from 8192 --to 16384 --topic again --config b.toml
  aolog-bridge replay LOG --from 8192 --to 16384 --config b.toml --dry-run
  aolog-bridge replay LOG --dead-letter --config bridge.toml
  aolog-bridge replay REJECTED --dead-letter --bootstrap-servers kafka:9092

Exit status: 0 all was acknowledged, 2 usage, 3 the range has gaps, 5 another replay
of LOG runs, 6 records were refused, 130 and 143 interrupted, terminated, before all was sent.""",
)
@of_cluster
@click.option("--from", "begin", metavar="PLACE", help="Position of the first record.")
@click.option("--to", "end", metavar="PLACE", help="Position after the last record.")
@click.option(
    "--dead-letter", "dead", is_flag=True,
    help="Send the dead letters of LOG; or LOG is itself a dead-letter log, such as a Buffer's.",
)  # fmt: skip  # options read best one a line
@click.option(
    "--topic", type=TOPIC,
    help="Send every record to this topic, whatever topic it names. Without it, each goes where the"
    " configuration's routes, the record or its log say: a topic that `run` had as --topic must be"
    " given here again.",
)  # fmt: skip  # as above
@click.option(
    "--poison", default="stop", show_default=True, type=click.Choice(["stop", "drop"]),
    help="What to do with a record that the cluster refuses: stop its partition there, or count and"
    " drop it.",
)  # fmt: skip  # as above
@create_topics_option
@read_back_option
@click.option("--dry-run", is_flag=True, help="Show what of a range would be sent.")
@json_option
def replay(
    log: str,
    how: ForwarderOptions,
    *,
    begin: str | None,
    end: str | None,
    dead: bool,
    topic: str | None,
    poison: Poison,
    create_topics: CreateTopics | None,
    read_back: bool | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send a range of LOG again, or its dead letters to the topics that they were meant for.

    Records of a range go where the bridge sends them, or all to --topic. The result and --dry-run
    list the topics, with counts. The range must end at or before the bridge's cursor: the bridge
    itself sends what follows. Dead letters that are acknowledged are not sent by the next replay.
    """
    from bridge.deliver import replay

    if dead == (begin is not None or end is not None) or (begin is None) != (end is None):
        raise UsageError("give --from and --to, or --dead-letter")
    if dead and topic is not None:
        raise UsageError("dead letters go to the topics that they were meant for, not to --topic")
    if dead and dry_run:
        raise UsageError("--dry-run is for a range", hint="`aolog read` shows dead letters")
    if not how.bootstrap_servers:
        raise UsageError("name the cluster: --bootstrap-servers, or --config")
    how = replace(
        how,
        create_topics=create_topics or how.create_topics,
        read_back=how.read_back if read_back is None else read_back,
        poison=poison,
    )
    if begin is None or end is None:
        _replay_dead_letters(log, how, as_json=as_json)
        return
    first, after = (address_of(log, place, how) for place in (begin, end))
    if dry_run:
        routing = replay.route(topic, how.routing)
        topics = replay.count_by_topic(log, first, after, routing)
        _show_range(first, after, topics, as_json=as_json)
        return
    again = replay.replay_range(log, first, after, how, topic=topic)
    status = _run(log, again, as_json=as_json)
    replay.finished(log)
    where = f", from address {first} to {after}"
    what = counted(status.acknowledged, "record", ",")
    topics = again.acknowledged_by_topic
    _show_sent(status, what, where, topics, as_json=as_json, begin=first, end=after)
    again.check_whole()


def _replay_dead_letters(log: str, how: ForwarderOptions, *, as_json: bool) -> None:
    from bridge.deliver import replay

    letters = replay.replay_dead_letters(log, how)
    try:
        status = _run(log, letters, as_json=as_json)
    except OtherCluster:  # earlier dead letters were sent to another cluster
        replay.to_another_cluster(log, how.cursor)
        letters = replay.replay_dead_letters(log, how)
        status = _run(log, letters, as_json=as_json)
    what = counted(status.acknowledged, "dead letter", ",")
    _show_sent(status, what, "", letters.acknowledged_by_topic, as_json=as_json)
    letters.check_whole()


def _topics_in_words(topics: dict[str, int]) -> str:
    """Such as ': 3 to events, 1 without a topic'; '' without topics."""
    parts = [
        f"{count:,} to {topic}" if topic else f"{count:,} without a topic"
        for topic, count in sorted(topics.items(), key=lambda item: (-item[1], item[0]))
    ]
    return f": {', '.join(parts)}" if parts else ""


def _show_sent(
    status: Overview, what: str, where: str, topics: dict[str, int], *, as_json: bool, **more: int
) -> None:
    """The result."""
    if as_json:
        out.json({**status._asdict(), "records": status.acknowledged, "topics": topics, **more})
        return
    dropped = f"; {status.dropped:,} refused and dropped"
    were = "was" if status.acknowledged == 1 else "were"
    sent = f"{what} {were} sent again{where}{dropped if status.dropped else ''}"
    out.line(sent + _topics_in_words(topics))


def _show_range(begin: int, end: int, topics: dict[str, int], *, as_json: bool) -> None:
    records = sum(topics.values())
    if as_json:
        out.json({"begin": begin, "end": end, "records": records, "topics": topics})
    else:
        would = f"{counted(records, 'record')} from address {begin} to {end} would be sent"
        out.line(would + _topics_in_words(topics))


def _run(log: str, forwarder: Forwarder, *, as_json: bool) -> Overview:
    from bridge.cli.report import reporter
    from bridge.operate.log_lines import set_up
    from bridge.supervise.status import alone, overview

    set_up("json" if as_json else "auto", quiet=as_json)
    signals = on_signals(forwarder.stop)
    with reporter(as_json=as_json, stop=forwarder.stop) as report:
        status = forwarder.run(lambda status: report(overview([alone(log, "", status)])))
    whole = overview([alone(log, "", status)], stopped=True)
    if signals and not forwarder.drained(status):
        if not as_json:
            sent = counted(whole.acknowledged, "record", ",")
            click.echo(f"stopped: {sent} sent again, not all", err=True)
        sys.exit(INTERRUPTED + signals[-1])
    return whole
