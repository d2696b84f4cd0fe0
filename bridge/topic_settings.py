"""Asks the cluster for a topic's settings, once it has refused a record for that topic.

One of the modules that speak to a Kafka cluster as a client; see `kafka`. A cluster that refuses
nothing is asked nothing. Without the right to describe a topic's settings (DescribeConfigs) its
bad records are found by sending smaller groups, which is slower.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported, not said so
    AdminClient,
    ConfigResource,
)

from bridge.admission import KNOWN_MS, bounds_of
from bridge.librdkafka import ANSWER_S, CLIENT_LOG, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.admission import Admission, Bounds

__all__ = ["TopicSettings"]

_log = logging.getLogger("bridge")


class TopicSettings:
    """Of one log's topics on one cluster; what it learns it tells the admission. settings:
    librdkafka's."""

    def __init__(self, settings: dict[str, Any], admission: Admission) -> None:
        self._settings = settings
        self._admission = admission
        self._asked_s: dict[str, float] = {}
        self._silent: set[str] = set()

    def forget(self) -> None:
        """Somebody may have changed a topic, or granted a right."""
        self._asked_s.clear()
        self._admission.forget()

    def learn(self, topics: Iterable[str]) -> list[Bounds]:
        """After a refusal: what these topics take, where that was not asked a short while ago. Takes
        as long as an answer may take; nothing where there is none."""
        now_s = time.monotonic()
        due = {t for t in topics if now_s - self._asked_s.get(t, float("-inf")) > KNOWN_MS / 1_000}
        if not due:
            return []
        self._asked_s.update(dict.fromkeys(due, now_s))
        kinds = {ConfigResource(ConfigResource.Type.TOPIC, topic): topic for topic in due}
        admin = AdminClient(
            self._settings, logger=CLIENT_LOG
        )  # gives up its questions when it goes
        found = []
        asked = admin.describe_configs(list(kinds), request_timeout=ANSWER_S)
        for resource, future in asked.items():
            topic = kinds[resource]
            try:
                told = future.result(ANSWER_S)
            except (KafkaException, FutureTimeoutError) as error:
                self._tell(topic, words(error) or "no answer")
                continue
            bounds = bounds_of({name: entry.value for name, entry in told.items()})
            self._admission.learn(topic, bounds, now_ms=int(time.time() * 1_000))
            found.append(bounds)
        return found

    def _tell(self, topic: str, why: str) -> None:
        """Once for each topic."""
        if topic not in self._silent:
            self._silent.add(topic)
            _log.info(
                "the settings of topic %r cannot be read (%s): records that it refuses are found by "
                "sending smaller groups; with the right DescribeConfigs they are known beforehand",
                topic,
                why,
            )
