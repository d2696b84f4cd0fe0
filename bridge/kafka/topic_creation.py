"""Missing topics: created by the cluster, on purpose, or waited for.

No question to the cluster creates a topic (see `client`). The cluster is asked once more for a missing
topic, with creation allowed, as every Kafka producer does by default. It creates the topic if its own
auto.create.topics.enable is true and the bridge has the right Create, with its own number of partitions
and replication factor. So a cluster that forbids this keeps its setting, and the bridge needs no right to
read the brokers' settings.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import TopicMetadata  # type: ignore[attr-defined]  # not said so

from aolog.errors import counted
from bridge.errors import Unanswered
from bridge.kafka.client import ANSWER_S, AUTO_CREATE, lacking, made, words
from bridge.kafka.error_table import UNKNOWN_TOPIC, Kind, kind_of
from bridge.kafka.lane import Refusal

CreateTopics: TypeAlias = Literal["auto", "never"]

_log = logging.getLogger("bridge")
AGAIN_S = 10.0  # a cluster with too few brokers may be able to create the topic later


class TopicCreation:
    """Of the topics on one cluster. settings: librdkafka's. create_topics: "auto": the cluster creates
    missing topics if it allows that; "never": somebody else creates them. One thread."""

    def __init__(self, settings: dict[str, Any], create_topics: CreateTopics) -> None:
        self._settings = settings
        self._create_topics = create_topics
        self._asked_s: dict[str, float] = {}
        self._refused: dict[str, str] = {}

    def partitions(self, topic: str, metadata: TopicMetadata) -> int | Refusal:
        """How many partitions the topic has, or why it cannot be used, by the cluster's answer about it. `passing`: it
        is missing, and the cluster may have been asked to create it. Raises Unanswered."""
        error = metadata.error
        if error is None and metadata.partitions:
            self._found(topic, metadata)
            return len(metadata.partitions)
        if error is None or kind_of(error.name()) is Kind.TOPIC_MISSING:
            self._ask(topic)
            return Refusal(self._why_missing(topic), UNKNOWN_TOPIC, passing=True)
        if kind_of(error.name()) is Kind.POISON:
            return impossible_name(topic)
        if kind_of(error.name()) is Kind.TOPIC_FORBIDDEN:
            reason = lacking("Describe", topic, "it comes with Write; grant that")
            return Refusal(reason, error.name())
        raise Unanswered(f"topic {topic!r}: {error.str()}")

    def _ask(self, topic: str) -> None:
        """Asks the cluster, every ten seconds at most, to create the topic, and for what prevents that."""
        now_s, creates = time.monotonic(), self._create_topics != "never"
        if now_s - self._asked_s.get(topic, -AGAIN_S) < AGAIN_S:
            return
        if not creates and not _may_collide(topic):
            return
        self._asked_s[topic] = now_s
        self._refused.pop(topic, None)
        client = made(Producer, {**self._settings, AUTO_CREATE: creates})
        try:
            error = client.list_topics(topic, timeout=ANSWER_S).topics[topic].error
        except KafkaException as failure:
            refused = words(failure) if creates else None
        else:
            refused = _collision(topic, client) or (_refusal(error) if creates else None)
        if refused is not None:
            self._refused[topic] = refused

    def _found(self, topic: str, metadata: TopicMetadata) -> None:
        """Logs that the cluster has created the topic, if it was asked to."""
        self._refused.pop(topic, None)
        if self._asked_s.pop(topic, None) is None or self._create_topics == "never":
            return
        partitions = metadata.partitions.values()
        _log.warning(
            "topic %s was not there, and the cluster has created it, with %s and replication "
            "factor %d; --create-topics=never waits for a topic instead",
            topic,
            counted(len(partitions), "partition"),
            max(len(partition.replicas) for partition in partitions),
            extra={"event": "topic_created", "topic": topic},
        )

    def _why_missing(self, topic: str) -> str:
        text, refused = f"there is no topic {topic!r}", self._refused.get(topic)
        if self._create_topics == "never":
            text += ", and --create-topics=never creates none"
            return text if refused is None else f"{text}: {refused}"
        return text if refused is None else f"{text}, and the cluster did not create it: {refused}"


def _refusal(error: KafkaError | None) -> str | None:
    """Why the cluster does not create a topic, by its answer; None if it may."""
    kind = None if error is None else kind_of(error.name())
    if error is None or kind in {Kind.TOPIC_MISSING, Kind.WAITING}:
        return None  # it appears in a moment, or the cluster creates no topics by itself
    return "the right Create is missing" if kind is Kind.TOPIC_FORBIDDEN else error.str()


def _may_collide(topic: str) -> bool:
    return "." in topic or "_" in topic


def _collision(topic: str, client: Producer) -> str | None:
    """Kafka creates no two topics of one name in its metrics, which have _ for . (It does not say so.)
    None if there is no such topic, or no answer."""
    others: Iterable[str] = ()
    if _may_collide(topic):
        with suppress(KafkaException):
            others = client.list_topics(timeout=ANSWER_S).topics
    name = topic.replace(".", "_")
    for other in others:
        if other != topic and other.replace(".", "_") == name:
            return (
                f"its name collides with that of topic {other!r}, because Kafka's metrics have _ for . in "
                "a topic's name; send its records elsewhere with a route, or delete the other topic"
            )
    return None


def impossible_name(topic: str) -> Refusal:
    """Of a name that no topic can have."""
    return Refusal(f"{topic!r} is not a valid topic name", "TOPIC_EXCEPTION")
