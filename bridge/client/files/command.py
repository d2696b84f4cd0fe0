"""`files`: hazdev-broker's file clients, by their own configuration files."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import click

from bridge.cli.options import log_format_option

if TYPE_CHECKING:
    from bridge.config.run_options import LogFormat

_log = logging.getLogger("bridge.files")


@click.command
@click.argument("config", type=click.Path())
@log_format_option
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages.")
def files(*, config: str, log_format: LogFormat, verbose: bool) -> None:
    """Run one of hazdev-broker's file clients until stopped (SIGTERM, SIGINT). CONFIG is its JSON file.

    \b
    ProducerClient  each line of each file in a directory becomes a message
    ConsumerClient  messages become files of at most so many messages or seconds
    ArchiveClient   messages are appended to a file a day, UTC

    A log is in between, so that an outage, a crash or a full disk loses and repeats nothing. A file is
    archived or deleted when Kafka has acknowledged all of it. Files that are still being written are
    left alone; a file that cannot be sent goes to PoisonDirectory.

    \b
    Examples:
      aolog-bridge files producerclient.config
      aolog-bridge files archiveclient.config --log-format json

    \b
    Exit status:
      0  stopped
      2  the configuration is wrong; nothing was started
      3  damage, or a signature that is forged or missing
      4  storage: the disk, a permission
      5  another process runs with the same log
      6  the cluster refused something
    """
    from bridge.client.files import file_clients
    from bridge.client.files.file_config import ProducerClient, load_file_client
    from bridge.operate.log_lines import set_up

    client = load_file_client(config)
    set_up(log_format, verbose=verbose)
    for notice in client.options.notices:
        _log.warning("%s", notice)
    if isinstance(client.table, ProducerClient):
        sys.exit(file_clients.send(client, client.table))
    file_clients.receive(client, client.table)
