"""hazdev-broker's three programs, run by their own configuration files.

ProducerClient    directory ► Intake ► log ► the bridge ► topic
ConsumerClient    topics ► LogTap ► log ► CountedFiles ► files
ArchiveClient     topics ► LogTap ► log ► DailyFiles ► a file a day
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import quote

from bridge.client.files import file_system as files
from bridge.client.files.file_config import ArchiveClient, ConsumerClient, ProducerClient
from bridge.client.files.file_sinks import CountedFiles, DailyFiles
from bridge.client.files.intake import CURSOR
from bridge.client.files.log_tap import LogTap
from bridge.config.load import load

if TYPE_CHECKING:
    from bridge.client.files.file_config import FileClient
    from bridge.client.heartbeat import Heartbeat
    from bridge.config.models import Config

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


class TopicToFiles:
    """A ConsumerClient or an ArchiveClient. Raises as LogTap and the sinks do, and OSError."""

    def __init__(self, client: FileClient, table: ConsumerClient | ArchiveClient) -> None:
        self._client = client
        client.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = client.options
        if isinstance(table, ConsumerClient) and table.heartbeat_interval is not None:
            options = options._replace(heartbeat_s=table.heartbeat_interval)
        writes_beats = isinstance(table, ConsumerClient) and table.write_heartbeat_file
        with ExitStack() as stack:
            self.tap = LogTap(
                client.log, options, table.topic_list,
                on_heartbeat=self._write_heartbeat if writes_beats else None,
            )  # fmt: skip  # one call
            stack.callback(self.tap.close)
            self.sink: CountedFiles | DailyFiles
            if isinstance(table, ConsumerClient):
                self.sink = CountedFiles(
                    client.log, client.directory, messages=table.messages_per_file,
                    seconds=table.time_per_file, name=table.file_name,
                    extension=table.file_extension,
                )  # fmt: skip  # one call
            else:
                self.sink = DailyFiles(
                    client.log, client.directory, name=table.file_name,
                    extension=table.file_extension,
                )  # fmt: skip  # one call
            stack.callback(self.sink.close)
            self._open = stack.pop_all()

    def _write_heartbeat(self, beat: Heartbeat) -> None:
        name = f"{quote(beat.topic, safe='')}_{quote(beat.client_id, safe='')}"[:200]
        files.write(self._client.directory / f"{name}.heartbeat", beat.to_json())

    def step(self) -> None:
        """Waits a moment for records, and writes what is due."""
        self.tap.step(_LOOK_S * 1_000)
        self.sink.step()

    def close(self) -> None:
        """Ends. What is in the log and in no file is written by the next run."""
        self._open.close()
