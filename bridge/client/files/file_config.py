"""Configuration files of hazdev-broker's three file clients, checked whole.

They run unchanged. `LogDirectory` (where the log is, by default a hidden directory below the input or
output directory) and `PoisonDirectory` are ours. Relative paths begin at the file's directory. A logging
configuration for Log4J, and PollTimeout, are ignored with a notice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field

from bridge.client.config import (
    ClientTable,
    HeartbeatInterval,
    Options,
    Seconds,
    Table,
    TopicName,
    check_directory,
    options_of,
    read_source,
    validated,
)
from bridge.client.errors import WrongType, refuse
from bridge.errors import WrongConfiguration

FilePath: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
NamePart: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00/]*$", max_length=100)]
_LOG, _POISON = ".aolog", ".poison"


class _Common(Table):
    file_extension: NamePart
    hazdev_broker_config: ClientTable
    log_directory: FilePath | None = None
    log4j_config_file: str | None = Field(None, alias="Log4JConfigFile")
    poll_timeout: float | None = Field(None, description="seconds; ignored")


class ProducerClient(_Common):
    """A directory's files, line by line, to a topic."""

    type: Literal["ProducerClient"]
    input_directory: FilePath
    archive_directory: FilePath | None = Field(None, description="without it files are deleted")
    poison_directory: FilePath | None = None
    time_per_file: Annotated[float, Field(ge=0)] = Field(0, description="seconds between files")
    heartbeat_interval: HeartbeatInterval = None
    topic: TopicName


class ConsumerClient(_Common):
    """Topics to files of so many messages, or of so many seconds."""

    type: Literal["ConsumerClient"]
    output_directory: FilePath
    file_name: NamePart = ""
    messages_per_file: int = Field(1, ge=1)
    time_per_file: Seconds | None = Field(None, description="seconds")
    heartbeat_interval: HeartbeatInterval = None
    write_heartbeat_file: bool = False
    topic_list: list[TopicName] = Field(min_length=1)


class ArchiveClient(_Common):
    """Topics to a file for each day."""

    type: Literal["ArchiveClient"]
    output_directory: FilePath
    file_name: NamePart = ""
    topic_list: list[TopicName] = Field(min_length=1)


class FileClient(NamedTuple):
    """A checked configuration. directory: input or output."""

    table: ProducerClient | ConsumerClient | ArchiveClient
    options: Options
    directory: Path
    log: Path
    archive: Path | None
    poison: Path


_KINDS: dict[str, type[ProducerClient | ConsumerClient | ArchiveClient]] = {
    kind.__name__: kind for kind in (ProducerClient, ConsumerClient, ArchiveClient)
}


def load_file_client(path: str) -> FileClient:
    """Raises WrongConfiguration or the class of the mistake. Creates nothing."""
    raw, notices, base, _ = read_source(Path(path))
    kind = _KINDS.get(str(raw.get("Type"))) if isinstance(raw, dict) else None
    if kind is None:
        raise WrongType([f"Type: is none of {', '.join(_KINDS)}"], path=path)
    table = validated(kind, raw, path)
    side: Literal["producer", "consumer"] = (
        "producer" if isinstance(table, ProducerClient) else "consumer"
    )
    options = options_of(table.hazdev_broker_config, side, base, path, notices=notices)
    if table.log4j_config_file is not None:
        options.notices.append("Log4JConfigFile is ignored: use --log-format")
    if table.poll_timeout is not None:
        options.notices.append("PollTimeout is ignored: records are written as they come")
    problems: list[WrongConfiguration] = []
    archive = None
    if isinstance(table, ProducerClient):
        directory = base / table.input_directory
        if table.archive_directory is not None:
            archive = base / table.archive_directory
            problems += check_directory(archive, "ArchiveDirectory")
        problems += check_directory(directory, "InputDirectory")
    else:
        directory = base / table.output_directory
        if isinstance(table, ConsumerClient) or directory.exists():
            problems += check_directory(directory, "OutputDirectory")
    refuse(problems, path)
    log = directory / _LOG if table.log_directory is None else base / table.log_directory
    named = table.poison_directory if isinstance(table, ProducerClient) else None
    poison = directory / _POISON if named is None else base / named
    return FileClient(table, options, directory, log, archive, poison)
