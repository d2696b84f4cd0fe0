"""What a cluster has: topics, partitions, offsets, groups. For `topics`, `offsets`, and `bridge.pull`.

No question creates a topic (see `client`); `create` does, on purpose. Each other call asks the
cluster once and waits ANSWER_S at most. One thread.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported, not said so
    NewTopic,
    OffsetSpec,
)

from bridge.errors import DestinationError, NoSuchTopic, Unanswered
from bridge.kafka.client import (
    ANSWER_S,
    MOCK_CLUSTER,
    admin_client,
    away,
    broker_of,
    consumer,
    group_protocol,
    words,
)
from bridge.kafka.error_table import UNKNOWN_TOPIC, Fault, kind_of

When: TypeAlias = Literal["earliest", "latest"] | int
Place: TypeAlias = tuple[str, int]  # topic and partition
_T = TypeVar("_T")
_MAKING_S = 30.0  # creating a topic takes a controller's round; with three nodes, seconds
_NO_LEADER = KafkaError._NOENT  # noqa: SLF001 -- a public name; of no partition, as brokers restart
_AGAIN_S = 0.1
_REASONS_S = 0.05  # the client gives its reasons a moment after a failure


class Partition(NamedTuple):
    """A partition of a topic."""

    number: int
    leader: int  # a node's id; -1 for none
    replicas: list[int]  # nodes' ids, as in_sync
    in_sync: list[int]


class Topic(NamedTuple):
    """id: the cluster's; a topic that is created anew under the same name has another one."""

    name: str
    id: UUID
    is_internal: bool
    partitions: list[Partition]


class Catalog:
    """Of one cluster. settings: librdkafka's. All methods raise DestinationError: no answer, or a refusal."""

    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        self._servers = servers
        self._away: str | None = None  # which broker cannot be reached, and why
        own = {"bootstrap.servers": servers, "error_cb": self._on_error}
        self._settings = {**settings, **own}
        self._admin = admin_client(self._settings)
        self._is_kafka = False  # as far as it was asked

    def _on_error(self, error: KafkaError) -> None:
        if broker_of(error.str()) is not None:
            self._away = away(error.str(), self._servers)

    def cluster_id(self) -> str:
        """The cluster's id. Needs no controller and no right."""
        found = self._metadata().cluster_id
        if not found:
            raise DestinationError(
                f"{self._servers} has no cluster id", hint="use Kafka 0.10.1 or later"
            )
        return str(found)

    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(self._metadata().topics)

    def topics(self, names: Iterable[str]) -> list[Topic]:
        """Describes these topics. Raises NoSuchTopic for a missing one."""
        wanted = list(dict.fromkeys(names))
        if wanted:
            self._refuse_embedded()
        found = self.existing(wanted)
        for name in wanted:
            if name not in found:
                raise self._no_such_topic(name)
        return list(found.values())

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of these topics that exist, by name; none on the embedded broker, which has no ids."""
        wanted = list(dict.fromkeys(names))
        if not wanted or self._is_embedded():
            return {}
        asked = self._admin.describe_topics(TopicCollection(wanted), request_timeout=ANSWER_S)
        found = {}
        for name in wanted:
            with suppress(NoSuchTopic):
                found[name] = self._topic(name, self._answer(asked[name], topic=name))
        return found

    def topic(self, name: str) -> Topic:
        """Describes one topic. Raises NoSuchTopic for a missing one."""
        return self.topics([name])[0]

    def create(
        self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> Topic:
        """Creates a topic, and describes it. -1: the cluster's default. Raises DestinationError if it exists."""
        self._refuse_embedded()
        topic = NewTopic(name, partitions, replication_factor, config=dict(config))
        made = self._admin.create_topics(
            [topic], operation_timeout=_MAKING_S, request_timeout=_MAKING_S
        )
        self._answer(made[name])
        until_s = time.monotonic() + _MAKING_S
        while not (found := self.existing([name])) and time.monotonic() < until_s:
            time.sleep(_AGAIN_S)  # the node that was asked has not learnt of it yet
        return found[name] if found else self.topic(name)

    def offsets(
        self, places: Iterable[Place], when: When, *, committed_only: bool = False
    ) -> dict[Place, int]:
        """The offset of each partition: earliest, latest, or of the first record with this timestamp
        (ms since the epoch) or a later one; then the end if there is none. committed_only: the latest
        offset is where the first open transaction begins. Raises NoSuchTopic for a missing partition."""
        specs: Any = OffsetSpec  # its methods have no types
        if isinstance(when, int):
            spec = specs.for_timestamp(when)
        else:
            spec = specs.earliest() if when == "earliest" else specs.latest()
        asked = {TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
        found = {
            (at.topic, at.partition): int(self._answer(future, topic=at.topic).offset)
            for at, future in answers.items()
        }
        if OFFSET_INVALID in found.values():  # so says the client where a leader was silent
            raise Unanswered(f"{self._servers}: no answer from the leader of a partition")
        beyond = [place for place, offset in found.items() if offset < 0]
        return found | (self.offsets(beyond, "latest") if isinstance(when, int) else {})

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, int | None]:
        """The group's committed offset of each partition; None if there is none."""
        wanted = list(places)
        by_place = {(at.topic, at.partition): at.offset for at in self._committed(group, wanted)}
        return {p: by_place[p] if by_place.get(p, -1) >= 0 else None for p in wanted}

    def notes(self, group: str, places: Iterable[Place]) -> set[str]:
        """The texts that were committed with the group's offsets of these partitions."""
        return {at.metadata for at in self._committed(group, list(places)) if at.metadata}

    def _committed(self, group: str, places: list[Place]) -> list[TopicPartition]:
        """Asks as a consumer: the admin client ends the process where a node answers that it does not coordinate
        the group (https://github.com/confluentinc/librdkafka/issues/5040)."""
        if not places:
            return []
        with closing(consumer(Consumer, self._settings, group)) as asking:

            def ask() -> list[TopicPartition]:
                try:
                    return asking.committed([TopicPartition(*p) for p in places], timeout=ANSWER_S)
                except KafkaException as error:
                    raise self._failed(error) from None

            try:
                return self._of_group(ask)
            except Unanswered as error:
                unanswered = error
        self._describe_group(group)  # names a right that is missing, which the consumer does not
        raise unanswered

    def _describe_group(self, group: str) -> Any:
        ask = partial(self._admin.describe_consumer_groups, [group], request_timeout=ANSWER_S)
        return self._of_group(lambda: self._answer(ask()[group]))

    def check_group(self, group: str) -> None:
        """Raises DestinationError if the group has members of another protocol than the settings'."""
        found = self._describe_group(group)
        theirs = found.type.name.lower()
        if found.members and theirs not in {group_protocol(self._settings), "unknown"}:
            raise DestinationError(
                f"group {group!r} uses Kafka's {theirs} group protocol",
                hint=f"use -X group.protocol={theirs}, or another group",
            )

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Sets the group's committed offsets. Raises DestinationError before any change if the
        group has members, since they would commit over it, or an offset is not in its partition."""
        described = self._describe_group(group)
        if described.state not in {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}:
            raise DestinationError(
                f"group {group!r} is {described.state.name.lower()} and has"
                f" {len(described.members)} members",
                hint="stop its members, then set its offsets",
            )
        first, end = self.offsets(offsets, "earliest"), self.offsets(offsets, "latest")
        for place, offset in offsets.items():
            if not first[place] <= offset <= end[place]:
                raise DestinationError(
                    f"{place[0]}/{place[1]} has offsets from {first[place]} to {end[place]},"
                    f" and {offset} is outside",
                    hint="choose an offset in that range",
                )
        wanted = ConsumerGroupTopicPartitions(
            group, [TopicPartition(*place, offset) for place, offset in offsets.items()]
        )
        ask = partial(self._admin.alter_consumer_group_offsets, [wanted], request_timeout=ANSWER_S)
        for at in self._of_group(lambda: self._answer(ask()[group])).topic_partitions:
            if at.error is not None:
                raise self._failed(KafkaException(at.error))

    def _topic(self, name: str, found: Any) -> Topic:
        number = urlsafe_b64decode(f"{found.topic_id}==")
        partitions = [
            Partition(
                each.id,
                -1 if each.leader is None else each.leader.id,
                [node.id for node in each.replicas],
                [node.id for node in each.isr],
            )
            for each in found.partitions
        ]
        return Topic(name, UUID(bytes=number), found.is_internal, partitions)

    def _refuse_embedded(self) -> None:
        """Raises DestinationError for the embedded broker. It has no controller: other questions fail
        after five seconds, and the client does not say why."""
        if self._is_embedded():
            raise DestinationError(
                f"{self._servers} is the embedded broker, which cannot answer this",
                hint="use a Kafka: `aolog-bridge cluster` runs one. The embedded broker only takes records, and"
                " prints those of the topics that it was started with",
            )

    def _is_embedded(self) -> bool:
        if not self._is_kafka:
            self._metadata()
        return not self._is_kafka

    def _metadata(self) -> Any:
        try:
            found = self._admin.list_topics(timeout=ANSWER_S)
        except KafkaException as error:
            raise self._failed(error) from None
        self._is_kafka = not str(found.cluster_id).startswith(MOCK_CLUSTER)
        return found

    def _of_group(self, ask: Callable[[], _T]) -> _T:
        """The answer of a group's coordinator, which may need a moment to load its groups."""
        until_s = time.monotonic() + ANSWER_S
        while True:
            try:
                return ask()
            except Unanswered:
                if time.monotonic() > until_s:
                    raise
            time.sleep(_AGAIN_S)

    def _answer(self, future: Future[_T], *, topic: str = "") -> _T:
        """topic: that the question is about, if it is about one. The question has a time-out of its own."""
        try:
            return future.result()
        except KafkaException as error:
            raise self._failed(error, topic) from None

    def _no_such_topic(self, topic: str) -> NoSuchTopic:
        return NoSuchTopic(
            f"there is no topic {topic!r} on {self._servers}",
            hint="`aolog-bridge topics` lists the topics",
        )

    def _failed(self, error: KafkaException, topic: str = "") -> DestinationError:
        if topic and error.args[0].name() == UNKNOWN_TOPIC:
            return self._no_such_topic(topic)
        reason: KafkaError = error.args[0]
        waits = kind_of(reason.name()).fault is Fault.CLUSTER or reason.code() == _NO_LEADER
        kind = Unanswered if waits else DestinationError
        self._admin.poll(_REASONS_S)
        if kind is Unanswered and self._away is not None:
            hint = "check the address; and security.protocol, if the listener expects SASL or TLS"
            return Unanswered(f"no broker answers: {self._away}", hint=hint)
        return kind(f"{self._servers}: {words(error)}")
