"""The bridge's configuration: every key, with its type, bounds, default and description.

`aolog-bridge check-config --schema` prints it as JSON schema. `load` reads a file and reports what is
wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationInfo,
    WithJsonSchema,
)

from aolog.errors import AologError
from aolog.storage.objects.url import bucket_url
from aolog.write.validate import TOPIC_NAME
from bridge.config.names import (
    FUNCTION_NAME,
    address_of,
    check_cursor,
    check_servers,
    load_function,
)
from bridge.config.routing import Rule
from bridge.config.run_options import OPTIONS, Delivery, LogFormat, Poison
from bridge.config.settings import (
    Setting,
    Stamps,
    exposures,
    is_reference,
    plain_values,
    read_settings,
    refused_keys,
    setting_of,
    stamps,
)
from bridge.errors import WrongConfiguration, WrongSetting

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,60}$"  # part of a cursor's name, so of a file's
_PATH = r"^[^\x00]*$"  # the system's rule
_TOPIC = f"^{TOPIC_NAME}$"
_AS_KEY = "http.token"  # the token is read as a setting of this name, which is a secret's


class StrictTable(BaseModel):
    """Takes no other keys and no other types than are written down."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


def _servers(value: object) -> object:
    if isinstance(value, list) and value and all(isinstance(v, str) and v for v in value):
        return ",".join(value)
    return value


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """Validates by a function that raises an error of ours."""

    def validate(value: str) -> str:
        try:
            check(value)
        except AologError as error:
            raise ValueError(str(error).removeprefix("bootstrap_servers: ")) from None
        return value

    return AfterValidator(validate)


def _base(info: ValidationInfo) -> Path:
    base: Path = (info.context or {}).get("base", Path())
    return base


def _take_settings(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, Mapping):
        return value
    found, problems = read_settings(value, _base(info))
    problems += [] if problems else _refused(found)
    if problems:
        raise ValueError("\n".join(problems))
    return found


def _refused(settings: dict[str, Setting]) -> list[str]:
    """What the Kafka client refuses, or the bridge for the sake of its guarantees."""
    from bridge.kafka.settings import check  # the client takes a while to import

    try:
        plain = plain_values(settings)
    except WrongSetting as error:
        return [str(error)]

    def refusal(part: Mapping[str, Any]) -> str | None:
        try:
            check(dict(part))
        except WrongSetting as error:
            return _without_secrets(str(error), settings)
        return None

    return [f"{key}: {said}" for key, said in refused_keys(plain, refusal).items()]


def _take_token(value: object, info: ValidationInfo) -> object:
    """As a setting of the client: from a file or the environment."""
    if value is None or isinstance(value, Setting):
        return value
    if isinstance(value, Mapping) and not is_reference(_AS_KEY, value):
        raise ValueError('should be {file = "..."} or {env = "..."}')
    found = setting_of(_AS_KEY, value, _base(info))
    if isinstance(found, str):
        raise ValueError(found)  # noqa: TRY004 -- the value is wrong, not its type
    return found


def _without_secrets(text: str, settings: dict[str, Setting]) -> str:
    for setting in settings.values():
        value = setting.value.get_secret_value()
        if value and (setting.secret or setting.source is not None):
            text = text.replace(value, "**********")
    return text


CursorName: TypeAlias = Annotated[str, _checked(check_cursor)]
_Shown: TypeAlias = Annotated[Setting, PlainSerializer(Setting.shown, str, "json")]


class Cluster(StrictTable):
    """A Kafka cluster."""

    bootstrap_servers: Annotated[
        str,
        BeforeValidator(_servers),
        _checked(check_servers),
        Field(description="HOST:PORT; several separated by commas, or as a list"),
        WithJsonSchema(
            {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        ),
    ]
    settings: Annotated[
        dict[str, _Shown],
        BeforeValidator(_take_settings),
        Field(
            description='settings of librdkafka; secrets as {file = "..."} or {env = "..."};'
            " paths begin at the configuration's directory"
        ),
        WithJsonSchema({"type": "object"}),
    ] = {}
    cursor: CursorName | None = Field(None, description="name of its cursor in each log")

    def client_settings(self) -> dict[str, Any]:
        """For the client, with secrets."""
        return plain_values(self.settings)

    def read_again(self) -> Cluster:
        """With what the files of its settings hold now. Raises ValueError, as the client refuses some."""
        settings = {}
        for key, setting in self.settings.items():
            try:
                settings[key] = setting.read_again()
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        if refused := _refused(settings):
            raise ValueError("; ".join(refused))
        return self.model_copy(update={"settings": settings})


def _pattern(description: str) -> Any:
    return Field(None, min_length=1, description=description + " (*, ?, [...])")


class Route(StrictTable):
    """Records that match all given patterns go where the other keys say."""

    log: str | None = _pattern("the log's path below the root, or its path in `logs`")
    log_topic: str | None = _pattern("the log's own topic")
    record_topic: str | None = _pattern("the topic that the record names")
    cluster: str | None = Field(None, description="a name in `clusters`")
    topic: str | None = Field(None, pattern=_TOPIC, description="instead of the record's topic")
    partition: Annotated[
        Annotated[Literal["key", "round-robin"], Tag("_word")]
        | Annotated[int, Field(ge=0, lt=2**31), Tag("_number")],
        Discriminator(lambda given: "_number" if type(given) is int else "_word"),
        Field(description="by the record's key, in turn, or always this one"),
    ] = "key"

    transform: Annotated[str, Field(pattern=FUNCTION_NAME), _checked(load_function)] | None = Field(
        None, description="module:function that changes or filters the records"
    )
    transform_takes: Literal["records", "arrow"] = Field(
        "records", description="what the transform is called with: a record, or an Arrow batch"
    )

    def rule(self) -> Rule:
        """For routing."""
        same = self.model_dump(exclude={"transform_takes"})
        return Rule(**same, takes_arrow=self.transform_takes == "arrow")


def _option(name: str, **bounds: Any) -> Any:
    """A key that is an option of `run`, too."""
    option = OPTIONS[name]
    return Field(option.default, description=option.about, **bounds)


class Archive(StrictTable):
    """Archives of the logs in an object store, which are kept while the bridge runs."""

    url: Annotated[str, _checked(bucket_url)] = Field(
        description="each log is archived below it, by its name below the root, or by the last part of its"
        " path; credentials as the provider's own tools find them"
    )
    ship_seconds: float = Field(
        300.0,
        ge=1,
        description="a full slab is archived at once; what the growing one has, after this",
    )
    max_bytes: int | None = Field(
        None,
        ge=1,
        description="total of an archive as it is stored: above it, its oldest slabs are deleted",
    )
    max_age_seconds: float | None = Field(
        None, gt=0, description="an archive's slabs with only older records are deleted"
    )


class Config(StrictTable):
    """Everything that `aolog-bridge run` uses."""

    clusters: dict[Annotated[str, Field(pattern=_NAME)], Cluster] = Field(
        min_length=1, description="the Kafka clusters, by name"
    )
    cluster: str | None = Field(
        None, description="default cluster, for records that no route sends elsewhere"
    )
    root: str | None = Field(
        None, min_length=1, pattern=_PATH, description="directory tree of logs; new logs are found"
    )
    logs: list[Annotated[str, Field(min_length=1, pattern=_PATH)]] = Field(
        [], description="single logs"
    )
    include: list[str] = Field(["*"], description="logs below the root: patterns of their paths")
    exclude: list[str] = Field([], description="patterns of logs to leave out")
    routes: list[Route] = Field([], description="the first route that matches decides")
    topic: str | None = Field(
        None, pattern=_TOPIC, description="fallback topic, for records that name none"
    )
    cursor: CursorName = Field("bridge", description="name of the default cluster's cursor")
    delivery: Delivery = _option("delivery")
    cursor_topic: str = _option("cursor_topic", pattern=_TOPIC)
    transaction_records: int = _option("transaction_records", ge=1)
    transaction_seconds: float = _option("transaction_seconds", ge=0.001, le=30)
    poison: Poison = _option("poison")
    create_topics: Literal["auto", "never"] = Field(
        "auto", description="create missing topics, if the cluster allows that, or never"
    )
    read_back: bool = Field(
        True, description="at_least_once: after a crash, read what arrived, or send it again"
    )
    records_per_second: float | None = _option("records_per_second", gt=0)
    bytes_per_second: float | None = _option("bytes_per_second", gt=0)
    total_records_per_second: float | None = _option("total_records_per_second", gt=0)
    total_bytes_per_second: float | None = _option("total_bytes_per_second", gt=0)
    archive: Archive | None = Field(None, description="archives in an object store")
    max_in_flight_bytes: int = _option("max_in_flight_bytes", ge=1 << 20)
    prune: bool = Field(False, description="delete slabs that every cursor has passed")
    scrub_seconds: float | None = _option("scrub_seconds", gt=0)
    scrub_bytes_per_second: float = _option("scrub_bytes_per_second", gt=0)
    commit_seconds: float = _option("commit_seconds", ge=0.01)
    stop_seconds: float = _option("stop_seconds", ge=0)
    status_seconds: float = _option("status_seconds", ge=0.05)
    park_seconds: float = _option("park_seconds", ge=0)
    rescan_seconds: float = Field(5.0, ge=0.1, description="interval between scans of the tree")
    active_max: int = Field(64, ge=1, description="logs that are connected at once")
    slice_seconds: float = Field(10.0, ge=0.1, description="a log's turn while others wait")
    http: Annotated[str, _checked(address_of)] | None = _option("http")
    http_token: Annotated[
        _Shown | None,
        BeforeValidator(_take_token),
        Field(description='for actions, and for other interfaces than loopback: {file = "..."}'),
        WithJsonSchema({"type": "object"}),
    ] = None
    http_hosts: list[str] = Field([], description="names in the Host header that are accepted")
    log_max_bytes: int | None = Field(
        None, ge=1, description="what the writer keeps of each log, so that the time to it is shown"
    )
    log_format: LogFormat = _option("log_format")

    def stamps(self) -> Stamps:
        """Of the files of all clusters' settings."""
        return {
            path: stamp
            for cluster in self.clusters.values()
            for path, stamp in stamps(cluster.settings).items()
        }

    def read_again(self) -> Config:
        """With what the files of the clusters' settings hold now; nothing else changes. Raises
        WrongConfiguration."""
        clusters, problems = {}, []
        for name, cluster in self.clusters.items():
            try:
                clusters[name] = cluster.read_again()
            except ValueError as error:
                problems.append(f"clusters.{name}.settings: {error}")
        if problems:
            raise WrongConfiguration(problems)
        return self.model_copy(update={"clusters": clusters})

    @property
    def default_cluster(self) -> str:
        """The cluster of records that no route sends elsewhere."""
        return self.cluster or next(iter(self.clusters))

    @property
    def rules(self) -> list[Rule]:
        """For routing, in order."""
        return [route.rule() for route in self.routes]

    def cursor_of(self, cluster: str) -> str:
        """The name of this cluster's cursor in each log."""
        named = self.clusters[cluster].cursor
        if named is not None:
            return named
        return self.cursor if cluster == self.default_cluster else f"{self.cursor}.{cluster}"

    def exposures(self) -> list[str]:
        """For each secret that others on this machine can read: its key, how, and what to do."""
        token = {} if self.http_token is None else {"http_token": self.http_token}
        return exposures(token) + [
            f"clusters.{name}.settings.{found}"
            for name, cluster in self.clusters.items()
            for found in exposures(cluster.settings)
        ]

    def shown(self) -> dict[str, Any]:
        """As JSON, with secrets masked."""
        shown = self.model_dump(mode="json")
        for name, cluster in shown["clusters"].items():
            cluster["cursor"] = self.cursor_of(name)
        return {**shown, "cluster": self.default_cluster}
