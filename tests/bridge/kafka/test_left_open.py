"""What is open in a partition, as its first message says; against Kafka: test_left_open_kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.kafka import hanging_transactions
from bridge.kafka.cursor_record import CursorName
from bridge.kafka.lane import LaneKey


@pytest.mark.parametrize(
    ("keys", "open_for", "found"),
    [
        pytest.param([None, None, b"ours"], 9, [b"ours"], id="a leader that has just begun"),
        pytest.param([b"theirs"], 4, [], id="a foreign one that ends is awaited"),
        pytest.param([b"theirs"], 1 << 30, [], id="a foreign one that stays open is skipped"),
    ],
)
def test_our_open_transaction_is_found_and_a_foreign_one_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, keys: list[bytes | None], open_for: int, found: list[bytes]
) -> None:
    """keys: of the messages that the looks at the open transaction find, None for no message. open_for:
    so many looks at the ends."""
    monkeypatch.setattr(hanging_transactions, "OTHERS_MAX_S", 0.3)
    left = hanging_transactions.HangingTransactions({}, bool, CursorName(bytes(16), "c"))
    asked, looks = iter(range(1 << 31)), iter(keys)

    class Cluster:
        def __init__(self, *_: object) -> None: ...

        def offsets(
            self, lanes: list[LaneKey], _when: str, *, committed_only: bool
        ) -> dict[LaneKey, int]:
            is_open = committed_only and next(asked) < open_for
            return dict.fromkeys(lanes, 7 if is_open else 9)

    def first(offsets: dict[LaneKey, int]) -> dict[LaneKey, Any]:
        key = next(looks) if offsets else None
        seen = SimpleNamespace(key=lambda: key, offset=lambda: 7)
        return {} if key is None else dict.fromkeys(offsets, seen)

    monkeypatch.setattr(left, "_first", first)
    monkeypatch.setattr(hanging_transactions, "Catalog", Cluster)
    ours = left.find([("t", 0)], lambda message: message.key() == b"ours")
    assert [message.key() for message in ours] == found
