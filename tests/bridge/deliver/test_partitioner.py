"""By key, by address, or always one partition; and memory is bounded."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bridge.config.routing import (
    Destination,
    PartitionRule,
    Routing,
    partition_of,
    partition_of_address,
)
from bridge.deliver import router
from bridge.deliver.router import Router, lanes_by_topic
from bridge.kafka.admission import Admission
from bridge.kafka.lane import LaneKey

UUID = bytes(range(16))
_KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=9)), min_size=1, max_size=40)


def new_router() -> Router:
    return Router(Routing(), Admission(1 << 20, 1 << 16, compresses=False), UUID)


@given(keys=_KEYS, rule=st.sampled_from(["key", "round-robin", 2]), partitions=st.integers(1, 7))
def test_each_record_goes_where_its_key_its_address_or_the_rule_says(
    keys: list[bytes | None], rule: PartitionRule, partitions: int
) -> None:
    def alone(key: bytes | None, address: int) -> int:
        if rule == "key":
            return partition_of(key, UUID, partitions)
        return partition_of_address(address, partitions) if rule == "round-robin" else rule

    to = Destination("t", rule)
    addresses = range(800, 800 + len(keys))
    spread = new_router()
    for _ in range(2):  # remembered
        assert spread.lanes(to, partitions, keys, addresses) == [
            ("t", alone(key, address)) for key, address in zip(keys, addresses, strict=True)
        ]


def test_the_number_of_remembered_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "_KEYS_REMEMBERED", 100)
    monkeypatch.setattr(router, "partition_of", lambda *_: 0)  # it remembers keys itself
    spread, to = new_router(), Destination("t", "key")
    keys = [b"key %d" % number for number in range(1_000)]
    unknown = [sys.getrefcount(key) for key in keys]
    for i in range(0, 1_000, 50):
        spread.lanes(to, 8, keys[i : i + 50], range(50))
        known = [sys.getrefcount(key) for key in keys]
        assert 0 < sum(map(operator.gt, known, unknown)) <= 150


@given(topics=st.lists(st.sampled_from([None, "a", "b"]), max_size=30))
def test_each_topic_is_asked_for_once_and_each_record_gets_its_lane(
    topics: list[str | None],
) -> None:
    asked: list[str | None] = []

    def lanes_of(
        topic: str | None, keys: Sequence[bytes | None], addresses: Sequence[int]
    ) -> list[LaneKey | None]:
        asked.append(topic)
        assert list(keys) == [b"%d" % address for address in addresses]
        return [None if topic is None else (topic, address) for address in addresses]

    keys = [b"%d" % i for i in range(len(topics))]
    found = lanes_by_topic(topics, keys, range(len(topics)), lanes_of)
    assert list(found) == [None if t is None else (t, i) for i, t in enumerate(topics)]
    assert sorted(map(str, asked)) == sorted(map(str, set(topics)))
