"""hazdev-broker's three programs, run by their own configuration files.

ProducerClient    directory ► Intake ► log ► the bridge ► topic
ConsumerClient    topics ► LogTap ► log ► CountedFiles ► files
ArchiveClient     topics ► LogTap ► log ► DailyFiles ► a file a day
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from urllib.parse import quote

from bridge.cli.running import beside, on_signals
from bridge.client.files import file_system as files
from bridge.client.files.file_config import (
    ArchiveClient,
    ConsumerClient,
    FileClient,
    ProducerClient,
)
from bridge.client.files.file_sinks import CountedFiles, DailyFiles
from bridge.client.files.intake import CURSOR, Intake
from bridge.client.files.log_tap import LogTap
from bridge.client.heartbeat import Heartbeat
from bridge.config.load import load
from bridge.config.models import Config
from bridge.supervise.supervisor import Supervisor

_LOOK_S = 0.2
# The bridge's own: it repeats until a record is acknowledged.
_BRIDGE_OWN = {"retries", "enable.idempotence", "delivery.timeout.ms", "bootstrap.servers"}


def bridge_config(client: FileClient, table: ProducerClient) -> Config:
    """The bridge that delivers the log of a ProducerClient. Raises WrongConfiguration."""
    given = client.options.settings
    over = {
        "logs": [str(client.log)],
        "topic": table.topic,
        "cursor": CURSOR,
        "poison": "dead-letter",
        "prune": True,
        "clusters.bootstrap_servers": given["bootstrap.servers"],
        "clusters.settings": {key: value for key, value in given.items() if key not in _BRIDGE_OWN},
    }
    return load(None, over)


def send(client: FileClient, table: ProducerClient) -> int:
    """Runs a ProducerClient until a signal comes. The exit status."""
    over = threading.Event()
    with closing(Intake(client, table)) as intake:
        supervisor = Supervisor(bridge_config(client, table))
        on_signals(supervisor.stop)

        def run() -> None:
            while not over.wait(_LOOK_S):
                intake.step()

        with beside(run, stop=over.set, on_end=supervisor.stop):
            return supervisor.run()


def receive(client: FileClient, table: ConsumerClient | ArchiveClient) -> None:
    """Runs a ConsumerClient or an ArchiveClient until a signal comes. What is in the log and in no file then is
    written by the next run. Raises as LogTap and the sinks do, and OSError."""
    stop = threading.Event()
    on_signals(stop.set)
    options = client.options
    client.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    on_heartbeat = None
    if isinstance(table, ConsumerClient):
        if table.heartbeat_interval is not None:
            options = options._replace(heartbeat_s=table.heartbeat_interval)
        if table.write_heartbeat_file:
            on_heartbeat = partial(_write_heartbeat, client.directory)
    with ExitStack() as stack:
        tap = LogTap(client.log, options, table.topic_list, on_heartbeat=on_heartbeat)
        stack.callback(tap.close)
        sink: CountedFiles | DailyFiles
        if isinstance(table, ConsumerClient):
            sink = CountedFiles(client, table)
        else:
            sink = DailyFiles(client, table)
        stack.callback(sink.close)
        while not stop.is_set():
            tap.step(_LOOK_S * 1_000)
            sink.step()


def _write_heartbeat(directory: Path, beat: Heartbeat) -> None:
    name = f"{quote(beat.topic, safe='')}_{quote(beat.client_id, safe='')}"[:200]
    files.write(directory / f"{name}.heartbeat", beat.to_json())
