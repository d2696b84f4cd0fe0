"""ForwarderOptions: how a log is forwarded, as one value. The supervisor and the command line build it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aolog.storage.storage import DIRECTORY_MODE
from bridge.deliver.log_delivery import AT_LEAST_ONCE
from bridge.deliver.waits import USUAL, Waits
from bridge.kafka.client_queue import LOG_BYTES_MAX, MESSAGE_BYTES_MAX, QUEUE_KBYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aolog import Record
    from bridge.config.routing import Routing
    from bridge.deliver.position import Poison, Position
    from bridge.deliver.rate_limit import RateLimit
    from bridge.kafka.topic_creation import CreateTopics

OPTIONS = (
    "delivery", "cursor_topic", "transaction_records", "transaction_seconds", "poison",
    "create_topics", "read_back", "mode", "records_per_second", "bytes_per_second", "prune",
)  # fmt: skip  # a list
"""Options with the same name in a configuration and on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderOptions:
    """bridge.config.models describes and checks those that OPTIONS names; bridge.deliver.at_least_once and
    exactly_once say what is promised.

    bootstrap_servers, settings: of the Kafka client. cluster: the destination's name in the configuration.
    topic: for records that name none; by default the log's own. routing: rules, in place of topic.
    shared_limit: a limit that other logs share.
    drain: end when the records that exist at the start are acknowledged. until: drain up to this
    address and no further (at_least_once).
    max_in_flight_bytes: see in_flight_bytes.
    cursor: its name. commit_s: between commits of the cursor. stop_s: how long a stop waits for
    acknowledgements.

    waits: how long a delivery waits. observe: gets each position where the cursor is durable, in the thread
    of the commits.

    For replays (at_least_once): view: changes each record before it is sent. keyless: the UUID that
    chooses the partition of records without a key, if not the log's.
    """

    bootstrap_servers: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # it has secrets
    cluster: str = ""
    topic: str | None = None
    routing: Routing | None = None
    create_topics: CreateTopics = "auto"
    delivery: str = AT_LEAST_ONCE
    read_back: bool = True
    cursor_topic: str = "aolog-bridge-cursors"
    transaction_records: int = 10_000
    transaction_seconds: float = 0.5
    poison: Poison = "stop"
    mode: int = DIRECTORY_MODE
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    shared_limit: RateLimit | None = None
    drain: bool = False
    until: int | None = None
    prune: bool = False
    cursor: str = "bridge"
    max_in_flight_bytes: int = LOG_BYTES_MAX
    commit_s: float = 1.0
    stop_s: float = 5.0
    view: Callable[[Record], Record] | None = None
    keyless: bytes | None = None
    waits: Waits = USUAL
    observe: Callable[[Position], None] = lambda _: None

    def __post_init__(self) -> None:
        replays = self.until is not None or self.view is not None or self.keyless is not None
        assert self.delivery == AT_LEAST_ONCE or not replays

    @property
    def in_flight_bytes(self) -> int:
        """The bound of the keys and values that Kafka has not acknowledged; with exactly_once of the open
        transaction, and of what is read ahead for the next one. At least two of the largest records that the
        client takes: otherwise one in a partition that takes nothing would delay all others."""
        record_bytes_max = int(self.settings.get("message.max.bytes", MESSAGE_BYTES_MAX))
        return max(self.max_in_flight_bytes, 2 * record_bytes_max)

    def client_settings(self) -> dict[str, Any]:
        """`settings`; the size of the client's queue is in_flight_bytes, if they do not say."""
        return {QUEUE_KBYTES: str(-(-self.in_flight_bytes // 1024)), **self.settings}
