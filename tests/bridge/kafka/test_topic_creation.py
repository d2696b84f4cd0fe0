"""Why a topic is missing, by a cluster that answers some questions only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.kafka import topic_creation
from bridge.kafka.lane import Refusal
from bridge.kafka.topic_creation import TopicCreation

MISSING: Any = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})


class _NamesNoOthers:
    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        if topic is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(topics={topic: MISSING})


def test_no_answer_about_other_topics_is_no_reason_why_this_one_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_creation, "made", lambda *_: _NamesNoOthers())
    found = TopicCreation({}, "auto").partitions("a.b", MISSING)
    assert isinstance(found, Refusal)
    assert found.reason == "there is no topic 'a.b'"
