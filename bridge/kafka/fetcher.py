"""A consumer whose caller decides where to read: for `consume` and `bridge.pull`.

It never chooses an offset by itself: a partition is read from the offset that it is given, and an
offset that the partition does not have is reported, not replaced. It reads committed records only, and
commits nothing by itself. Partitions are given by the caller, or by Kafka's group protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from bridge.errors import DestinationError
from bridge.kafka.catalog import Place
from bridge.kafka.client import ALL_DOWN, DEFAULTS, consumer, group_protocol, words
from bridge.kafka.error_table import Kind, ends_reading, kind_of
from bridge.kafka.runs import ColumnConsumer, Run

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 -- a public name
_REFRESH_MS = 5_000
_ERRORS_KEPT = 100  # of one call of the client
_PROBE_S = 0.5  # while the cluster is away: short, so that a stop is noticed soon
_GROUPLESS = "aolog-bridge-reader"  # the client wants a name; nothing is joined or committed


class Fetched(NamedTuple):
    """What a call got."""

    messages: list[Any]  # confluent_kafka's, in the order of each partition
    ends: dict[Place, int]  # partitions that were read up to this offset, their end
    out_of_range: list[Place]  # they do not have the offset that they were to be read from
    away: str | None  # why the cluster did not answer; None if it did
    runs: Sequence[Run] = ()  # if runs were asked for: there are no `messages` then


class Fetcher:
    """Of one cluster. settings: librdkafka's. group: None to assign partitions by hand. One thread."""

    def __init__(
        self, servers: str, settings: Mapping[str, str], *, group: str | None = None
    ) -> None:
        joins = group is not None and group_protocol(settings) == "classic"
        joining = {"partition_assignment_strategy": "cooperative-sticky"} if joins else {}
        kept = {
            k: v for k, v in DEFAULTS.items() if not k.startswith(("queue.", "linger", "retry"))
        }
        self._groupless = group is None
        self._away: str | None = None
        # The client appends to it, and no Python runs for an error: what a signal's handler
        # raises inside a callback is lost, and the call ends with a SystemError.
        self._errors: deque[KafkaError] = deque(maxlen=_ERRORS_KEPT)
        self._paused = False
        self._consumer = consumer(
            ColumnConsumer,
            {
                **kept,
                # A full queue is filled again soon after it was emptied, not a second later.
                "fetch.queue.backoff.ms": 10,
                # A group shares out a partition that a topic got so soon, not after five minutes.
                "topic.metadata.refresh.interval.ms": _REFRESH_MS,
                **settings,
                "bootstrap.servers": servers,
                "log_level": 0,
                "error_cb": self._errors.append,
            },
            group or _GROUPLESS,
            auto_offset_reset="error",
            enable_partition_eof=True,
            enable_auto_offset_store=False,
            isolation_level="read_committed",
            **joining,  # the other protocol is incremental always
        )

    def subscribe(
        self,
        topics: Iterable[str],
        assigned: Callable[[list[Place]], None],
        revoked: Callable[[list[Place]], None],
    ) -> None:
        """Joins the group. The callbacks run inside `fetch` and `close`. assigned: these partitions
        are ours now; `assign` those that can be read. revoked: they are another member's as soon as
        the callback returns."""

        def on_assign(_: object, given: list[TopicPartition]) -> None:
            # Without a call of its own, the client would assign all of them by itself.
            self._consumer.incremental_assign([])
            assigned([(at.topic, at.partition) for at in given])

        def on_revoke(_: object, taken: list[TopicPartition]) -> None:
            revoked([(at.topic, at.partition) for at in taken])

        self._consumer.subscribe(
            list(topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke
        )

    def assign(self, offsets: Mapping[Place, int]) -> None:
        """Adds partitions, each to be read from its offset."""
        added = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self._consumer.incremental_assign(added)
        if not self._paused:  # one that was paused when it was removed still is
            self._consumer.resume(added)

    def unassign(self, places: Iterable[Place]) -> None:
        """Removes partitions that were assigned; what was fetched of them is dropped."""
        self._consumer.incremental_unassign([TopicPartition(*place) for place in places])

    def pause(self) -> None:
        """Fetches nothing more; `fetch` keeps the group's membership meanwhile."""
        self._paused = True
        self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Ends a `pause`. What the client fetched ahead is fetched again, so nothing is done without a pause."""
        if self._paused:
            self._paused = False
            self._consumer.resume(self._consumer.assignment())

    @property
    def step(self) -> int:
        """How many messages to fetch at once, as runs."""
        return self._consumer.step

    def fetch(self, messages: int, timeout_s: float, run_records: int | None = None) -> Fetched:
        """So many messages at most; waits so long for the first. run_records: of a run at most; None: no runs.
        Raises DestinationError if the cluster refuses."""
        try:
            runs, arrived = self._consumer.take(messages, timeout_s, run_records)
        except KafkaException as failure:
            raise DestinationError(words(failure)) from None
        found = Fetched([], {}, [], None, runs)
        while self._errors:
            if (reported := self._errors.popleft()).code() == ALL_DOWN:
                self._away = reported.str()
        for message in arrived:
            error = message.error()
            if error is None:
                found.messages.append(message)
                continue
            place = (message.topic() or "", message.partition() or 0)
            if error.code() == _END:
                found.ends[place] = message.offset() or 0
            elif kind_of(error.name()) is Kind.OFFSET_GONE:
                found.out_of_range.append(place)
            elif self._groupless and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # the client asks for a coordinator that nothing here needs
            elif ends_reading(error.name(), resets=True):
                raise DestinationError(words(KafkaException(error)))
            else:
                self._away = error.str()
        if self._away is not None and (found.messages or runs or found.ends or self._answers()):
            self._away = None
        return found._replace(away=self._away)

    def _answers(self) -> bool:
        try:
            self._consumer.list_topics(timeout=_PROBE_S)
        except KafkaException:
            return False
        return True

    def commit(self, offsets: Mapping[Place, int], note: str) -> None:
        """Commits to the group, with a text, and does not wait for the answer."""
        places = [TopicPartition(*place, offset, note) for place, offset in offsets.items()]
        self._consumer.commit(offsets=places, asynchronous=True)

    def close(self) -> None:
        """Leaves the group, and the cluster."""
        self._consumer.close()
