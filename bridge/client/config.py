"""A client's configuration: hazdev-broker's JSON as text, a dictionary or a file, checked whole.

    {"Type": "ProducerConfig", "Properties": {"bootstrap.servers": "kafka:9092"}}

`KafkaProducerConfig` and `KafkaConsumerConfig` are the same as the names without `Kafka`. An
application's file is taken too: it has this table under `HazdevBrokerConfig`. Beyond hazdev-broker's
keys a table may have `HeartbeatInterval`, `Signing` and, for a producer, `Topics` (settings of single
topics). A setting may be `{"file": PATH}` or `{"env": NAME}`. Nothing here connects to anything.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_pascal

from aolog.errors import AologError
from aolog.write.validate import TOPIC_NAME
from bridge.client.connection import check_settings
from bridge.client.errors import (
    BrokenJSON,
    MissingTopic,
    NoDirectory,
    UnknownKey,
    WrongType,
    refuse,
)
from bridge.client.properties import IGNORED, REFUSED, RENAMED, Side, Translation, translate
from bridge.config.load import nearest, refuse_constant
from bridge.config.models import StrictTable
from bridge.config.names import check_servers
from bridge.config.settings import read_settings, read_text
from bridge.errors import WrongConfiguration

Given: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
Source: TypeAlias = "Given | Options"
TopicName: TypeAlias = Annotated[str, Field(pattern=f"^{TOPIC_NAME}$")]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
_ALWAYS_S = 1.0  # between heartbeats that are always sent: more of them would say no more
_log = logging.getLogger("bridge.client")
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|#[^\n]*|//[^\n]*")
_STRING_OR_SPARE_COMMA = re.compile(rf"{_STRING}|,(?=\s*[,}}\]])")


def _interval_s(written: float | None) -> float | None:
    """-1 disables heartbeats, and 0 sends or expects them always, as hazdev-broker's comments say."""
    return None if written is None or written < 0 else written or _ALWAYS_S


HeartbeatInterval: TypeAlias = Annotated[float | None, AfterValidator(_interval_s)]
TableT = TypeVar("TableT", bound="Table")


class Table(StrictTable):
    """A table of hazdev-broker's: its keys are written in PascalCase."""

    model_config = ConfigDict(alias_generator=to_pascal, validate_by_name=False)


class SigningTable(Table):
    """How records are signed or verified; see bridge/client/signing.py."""

    key_file: str = Field(min_length=1)
    key_id: str | None = Field(None, min_length=1)
    on_failure: Literal["raise", "drop"] = "raise"


class ClientTable(Table):
    """A producer's or a consumer's configuration."""

    type: Literal["ProducerConfig", "KafkaProducerConfig", "ConsumerConfig", "KafkaConsumerConfig"]
    properties: dict[str, Any]
    heartbeat_interval: HeartbeatInterval = Field(None, description="seconds")
    signing: SigningTable | None = None
    topics: dict[TopicName, dict[str, Any]] = Field({}, description="settings of single topics")


class _TopicTable(Table):
    type: Literal["TopicConfig"]
    properties: dict[str, Any]


class _Application(Table):
    """The file of an example program of hazdev-broker's."""

    hazdev_broker_config: ClientTable
    hazdev_broker_topic_config: _TopicTable | None = None
    named: list[TopicName] = Field([], validation_alias=AliasChoices("TopicList"))
    topic: TopicName | None = None


class Options(NamedTuple):
    """A checked configuration."""

    settings: dict[str, str]  # librdkafka's, without defaults
    topic_settings: dict[str, dict[str, str]]  # of single topics, in place of those
    is_sync: bool
    poll_records: int
    heartbeat_s: float | None
    signing: SigningTable | None
    topics: list[str]  # which the application's file names
    base: Path
    notices: list[str]


def load(source: Source, side: Side) -> Options:
    """The configuration of a client; logs its notices. A text that begins with `{`, `#` or `//` is JSON;
    every other text is a file's path. Raises WrongConfiguration or the class of the mistake."""
    if isinstance(source, Options):
        return source
    raw, notices, base, path = read_source(source)
    more: dict[str, Any] = {}
    topics: list[str] = []
    if isinstance(raw, Mapping) and "HazdevBrokerConfig" in raw:
        application = validated(_Application, raw, path)
        table = application.hazdev_broker_config
        topics = [*application.named, *([application.topic] if application.topic else [])]
        if application.hazdev_broker_topic_config is not None:
            more = application.hazdev_broker_topic_config.properties
    else:
        table = validated(ClientTable, raw, path)
    options = options_of(table, side, base, path, more=more, topics=topics, notices=notices)
    for notice in options.notices:
        _log.warning("%s", notice)
    return options


def read_source(source: Given) -> tuple[Any, list[str], Path, str | None]:
    """The value, notices, where relative paths begin, and the file's path. Raises BrokenJSON, and
    WrongConfiguration for a file that cannot be read."""
    if isinstance(source, Mapping):
        return source, [], Path.cwd(), None
    if not isinstance(source, str | os.PathLike):
        raise WrongType([f"a configuration is text, a dictionary or a path, not {source!r}"])
    path = None
    text = os.fspath(source)
    if not isinstance(source, str) or not text.lstrip().startswith(("{", "#", "//")):
        path = text
        try:
            text = read_text(Path(path))
        except OSError as error:
            raise WrongConfiguration([f"cannot be read: {error.strerror}"], path=path) from None
        except ValueError as error:
            raise BrokenJSON([str(error)], path=path) from None
    try:
        raw, notices = parse(text)
    except ValueError as error:
        raise BrokenJSON([f"is not JSON: {error}"], path=path) from None
    base = Path.cwd() if path is None else Path(path).absolute().parent
    return raw, notices, base, path


def parse(text: str) -> tuple[Any, list[str]]:
    """Of JSON as hazdev-broker's files have it: the value, and notices about repeated keys. Raises
    ValueError, which names line and column.

    A comment begins with `#` or `//` outside a string and ends with its line. A comma before another
    comma or a closing bracket does not count, as in json-simple: a last line may be commented out. A
    key that is repeated with an equal value counts once; of unequal values the last counts, and a
    notice says so."""
    notices: list[str] = []

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found and found[key] != value:
                notices.append(f"{key} is given more than once; the last value counts")
            found[key] = value
        return found

    plain = _STRING_OR_SPARE_COMMA.sub(_blanked, _STRING_OR_COMMENT.sub(_blanked, text))
    try:
        found = json.loads(plain, object_pairs_hook=table, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    return found, notices


def _blanked(match: re.Match[str]) -> str:
    """Spaces in place of what is no string, so that errors name the right column."""
    found = match[0]
    return found if found.startswith('"') else " " * len(found)


def validated(model: type[TableT], raw: object, path: str | None) -> TableT:
    """Raises an error with all problems."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        refuse([_problem(found) for found in error.errors(include_url=False)], path)
        raise AssertionError from error  # a ValidationError has errors


def _problem(found: Any) -> WrongConfiguration:
    names = [str(part) for part in found["loc"]]
    where = ".".join(names) or "the configuration"
    if found["type"] == "extra_forbidden":
        tables = (ClientTable, SigningTable, _TopicTable, _Application)
        known = [to_pascal(name) for table in tables for name in table.model_fields]
        return UnknownKey([f"{where}: unknown key{nearest(names[-1], known)}"])
    kind: type[WrongConfiguration] = WrongType
    message = found["msg"][0].lower() + found["msg"][1:]
    if found["type"] == "missing":
        kind, message = WrongConfiguration, "is missing"
    if names and names[0] in {"Topic", "TopicList"}:
        kind = MissingTopic
    return kind([f"{where}: {message}"])


def options_of(
    table: ClientTable,
    side: Side,
    base: Path,
    path: str | None,
    *,
    more: Mapping[str, Any] | None = None,
    topics: list[str] | None = None,
    notices: list[str] | None = None,
) -> Options:
    """A client's table, checked whole. more: properties of a TopicConfig. Raises as `load`."""
    problems: list[WrongConfiguration] = []
    wanted = "ProducerConfig" if side == "producer" else "ConsumerConfig"
    if table.type.removeprefix("Kafka") != wanted:
        problems.append(WrongType([f"Type: is {table.type}, and a {side} takes {wanted}"]))
    found: list[Translation] = []  # of all topics, then of each in table.topics
    for own in ({}, *table.topics.values()):
        plain, wrong = _plain({**table.properties, **(more or {}), **own}, base)
        found.append(translate(plain, side))
        problems += [*wrong, *found[-1].problems]
    done, *of_topics = found
    if side == "consumer" and table.topics:
        problems.append(UnknownKey(["Topics: only a producer has settings of single topics"]))
    problems += _lacking(done.settings, side)
    for each in found:  # what is wrong together may follow from a problem above
        refused = check_settings(each.settings, side)
        problems += [one for one in refused if not problems or isinstance(one, UnknownKey)]
    refuse(problems, path)
    topic_settings = {t: one.settings for t, one in zip(table.topics, of_topics, strict=True)}
    return Options(
        done.settings, topic_settings, done.is_sync, done.poll_records, table.heartbeat_interval,
        table.signing, topics or [], base, [*(notices or []), *done.notices],
    )  # fmt: skip  # one call


def _lacking(settings: Mapping[str, str], side: Side) -> list[WrongConfiguration]:
    problems = []
    if "bootstrap.servers" not in settings:
        problems.append(WrongConfiguration(["bootstrap.servers: is missing"]))
    else:
        try:
            check_servers(settings["bootstrap.servers"])
        except AologError as error:
            problems.append(WrongType([str(error).replace("_", ".", 1)]))
    if side == "consumer" and not settings.get("group.id"):
        problems.append(WrongConfiguration(["group.id: is missing"]))
    return problems


def _plain(given: Mapping[str, Any], base: Path) -> tuple[dict[str, str], list[WrongConfiguration]]:
    """Texts by key: lists of servers become one text, and references to secrets their value."""
    laid: dict[str, Any] = {}
    for name, value in given.items():
        key = name.removeprefix(":")  # as kafka-fast writes its keys
        if RENAMED.get(key, key) == "bootstrap.servers":
            laid[key] = _servers(value)
        elif key in REFUSED or key in IGNORED:
            laid[key] = ""  # its value does not matter, and may be a table
        else:
            laid[key] = value
    found, wrong = read_settings(laid, base)
    problems: list[WrongConfiguration] = [WrongType([text]) for text in wrong]
    return {key: setting.value.get_secret_value() for key, setting in found.items()}, problems


def _servers(value: object) -> object:
    """HOST:PORT by commas, of a list of those or of kafka-fast's `{"host": …, "port": …}`."""
    if not isinstance(value, list):
        return value
    named = [
        f"{each.get('host')}:{each.get('port')}" if isinstance(each, Mapping) else str(each)
        for each in value
    ]
    return ",".join(named)


def check_directory(path: Path, key: str) -> list[WrongConfiguration]:
    """What is wrong with a directory that has to exist."""
    if path.is_dir():
        return []
    what = "is not a directory" if path.exists() else "does not exist"
    return [NoDirectory([f"{key}: {path} {what}"])]
