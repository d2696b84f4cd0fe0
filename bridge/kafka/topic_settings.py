"""Asks the cluster about topics after it refused a record, or acknowledged none for long: their
limits, their replicas in sync, and the bridge's rights to them.

A cluster that takes everything is asked nothing, and no question creates a topic. Without the right
DescribeConfigs, records that a topic refuses are found by sending smaller groups, which is slower.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported, not said so
    AclOperation,
    AdminClient,
    ConfigResource,
)

from bridge.kafka.admission import KNOWN_MS, Admission, Bounds, bounds_of
from bridge.kafka.client import admin_client, answers
from bridge.kafka.error_table import advice

_log = logging.getLogger("bridge")
_LOOK_PAUSE_S = 10.0
_ANSWER_S = 2.0  # nothing is sent meanwhile


class TopicSettings:
    """Of one log's topics on one cluster; `admission` gets their limits. settings: librdkafka's."""

    def __init__(self, settings: dict[str, Any], admission: Admission) -> None:
        self._settings = settings
        self._admission = admission
        self._asked_s: dict[str, float] = {}
        self._look_due_s = 0.0
        self._too_few: str | None = None

    def forget(self) -> None:
        """A topic may have been changed, or a right granted: asks again."""
        self._asked_s.clear()
        self._admission.forget()

    def learn(self, topics: Iterable[str]) -> list[Bounds]:
        """After a refusal: the limits of those topics that were not asked about for ten minutes. Waits
        two seconds at most for each; empty if there is no answer."""
        now_s = time.monotonic()
        due = {t for t in topics if now_s - self._asked_s.get(t, float("-inf")) > KNOWN_MS / 1_000}
        if not due:
            return []
        self._asked_s.update(dict.fromkeys(due, now_s))
        admin = admin_client(self._settings)
        found = []
        for topic, settings in _settings_of(admin, due).items():
            bounds = bounds_of(settings)
            self._admission.learn(topic, bounds, now_ms=int(time.time() * 1_000))
            found.append(bounds)
        return found

    def too_few_in_sync(self, topics: Collection[str], now_s: float) -> str | None:
        """Names a partition of these topics with too few replicas in sync, or None: the client retries such requests
        silently. Asks every ten seconds at most, and returns the last answer in between."""
        if now_s < self._look_due_s:
            return self._too_few
        self._look_due_s = now_s + _LOOK_PAUSE_S
        admin = admin_client(self._settings)
        settings = _settings_of(admin, topics)
        asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ANSWER_S)
        too_few = None
        for topic, found in answers(asked, _ANSWER_S).items():
            if topic not in settings:
                continue
            wanted = int(settings[topic]["min.insync.replicas"])
            for partition in found.partitions:
                if len(partition.isr) < min(wanted, len(partition.replicas)):
                    too_few = (
                        f"NOT_ENOUGH_REPLICAS: {topic}/{partition.id} has {len(partition.isr)} "
                        f"in sync, and min.insync.replicas={wanted}: {advice('NOT_ENOUGH_REPLICAS')}"
                    )
        if too_few not in {None, self._too_few}:
            _log.warning("%s", too_few)
        self._too_few = too_few
        return too_few

    def without_write(self, topics: Collection[str]) -> list[str]:
        """Those of these topics to which the bridge has no right Write, if the cluster tells that."""
        if not topics:
            return []
        admin = admin_client(self._settings)
        asked = admin.describe_topics(
            TopicCollection(list(topics)),
            include_authorized_operations=True,
            request_timeout=_ANSWER_S,
        )
        may = {topic: of.authorized_operations for topic, of in answers(asked, _ANSWER_S).items()}
        write = {AclOperation.WRITE, AclOperation.ALL}
        return sorted(topic for topic, rights in may.items() if rights and not write & set(rights))


def _settings_of(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Names and values of the settings of those topics that the cluster tells."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    asked = admin.describe_configs(resources, request_timeout=_ANSWER_S)
    return {
        resource.name: {name: entry.value for name, entry in found.items()}
        for resource, found in answers(asked, _ANSWER_S).items()
    }
