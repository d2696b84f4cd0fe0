"""ForwarderOptions: how a log is forwarded, as one value, with its Waits. The supervisor and the command line build it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aolog import Record
from bridge.config.routing import Routing
from bridge.config.run_options import Delivery, Poison
from bridge.deliver.rate_limit import RateLimit
from bridge.kafka.client import ANSWER_S
from bridge.kafka.client_limits import LOG_BYTES_MAX, MESSAGE_BYTES_MAX, QUEUE_KBYTES
from bridge.kafka.connection import Terms
from bridge.kafka.identity import Identity
from bridge.kafka.topic_creation import CreateTopics

OPTIONS = (
    "delivery", "cursor_topic", "transaction_records", "transaction_seconds", "poison",
    "create_topics", "read_back", "records_per_second", "bytes_per_second", "prune",
)  # fmt: skip  # a list
"""Options with the same name in a configuration and on the command line."""


class Waits(NamedTuple):
    """How long a delivery waits, and for what, in seconds. Tests pass shorter ones."""

    answer_s: float = ANSWER_S
    idle_s: float = 0.2  # an idle wait: the longest delay of a signal or a due commit
    busy_s: float = 0.005  # while records are in flight: the delay of reading new ones
    # For a stalled disk; after that the delivery stands still too, so that the stall is visible.
    disk_s: float = 10.0
    topic_s: float = 30.0  # for a topic: one that is being created appears within seconds
    # Between two questions for a topic that is waited for,
    topic_pause_s: float = 0.2
    # that has been missing for long, or is refused,
    refused_pause_s: float = 10.0
    # or that is forbidden: asking for rights means sending a record, and perhaps a new connection.
    forbidden_pause_s: float = 60.0
    # Nothing is logged of a missing topic before a cluster that creates topics has created one.
    creation_s: float = 2.0
    # Between questions for topics in use, and for those of them that take nothing.
    reread_s: float = 60.0
    stuck_reread_s: float = 10.0
    silent_pause_s: float = 5.0  # between questions for a partition that does not answer
    silent_answer_s: float = 2.0  # for an answer while others are sent to; it may need a connection
    # After an unclean stop, between two looks for the last request of the process before; and at most.
    settle_s: float = 0.25
    settle_max_s: float = 5.0
    # Exactly once: for the first cursor record of a bridge that has fenced this one. It needs several
    # round trips.
    take_over_s: float = 5.0


USUAL = Waits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderOptions:
    """bridge.config.models describes and checks those that OPTIONS names; bridge.deliver.at_least_once and
    exactly_once say what is promised. until, view and keyless: for at_least_once."""

    bootstrap_servers: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # it has secrets
    cluster: str = ""  # the destination's name in the configuration
    topic: str | None = None  # for records that name none; by default the log's own
    routing: Routing | None = None  # rules, in place of topic
    create_topics: CreateTopics = "auto"
    delivery: Delivery = "at_least_once"
    read_back: bool = True
    cursor_topic: str = "aolog-bridge-cursors"
    transaction_records: int = 10_000
    transaction_seconds: float = 0.5
    poison: Poison = "stop"
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    shared_limit: RateLimit | None = None  # a limit that other logs share
    drain: bool = False  # end when the records that exist at the start are acknowledged
    until: int | None = None  # drain up to this address and no further
    prune: bool = False
    cursor: str = "bridge"
    max_in_flight_bytes: int = LOG_BYTES_MAX  # see in_flight_bytes
    commit_s: float = 1.0  # between commits of the cursor
    stop_s: float = 5.0  # how long a stop waits for acknowledgements
    view: Callable[[Record], Record] | None = None  # of replays: changes each record
    keyless: bytes | None = None  # of replays: the UUID that chooses partitions of keyless records
    waits: Waits = USUAL

    def __post_init__(self) -> None:
        replays = self.until is not None or self.view is not None or self.keyless is not None
        assert self.delivery == "at_least_once" or not replays

    @property
    def in_flight_bytes(self) -> int:
        """The bound of the keys and values that Kafka has not acknowledged; with exactly_once of the open
        transaction, and of what is read ahead for the next one. At least two of the largest records that the
        client takes: otherwise one in a partition that takes nothing would delay all others."""
        record_bytes_max = int(self.settings.get("message.max.bytes", MESSAGE_BYTES_MAX))
        return max(self.max_in_flight_bytes, 2 * record_bytes_max)

    def terms(self, identity: Identity | None) -> Terms:
        """How a delivery uses its cluster. identity: which one it has to be."""
        waits = self.waits
        return Terms(
            identity, self.create_topics, self.read_back, waits.answer_s, waits.take_over_s
        )

    def client_settings(self) -> dict[str, Any]:
        """`settings`; the size of the client's queue is in_flight_bytes, if they do not say."""
        return {QUEUE_KBYTES: str(-(-self.in_flight_bytes // 1024)), **self.settings}
