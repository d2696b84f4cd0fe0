"""What is open in a partition, as its first message says; against Kafka: test_left_open_kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.kafka.cursor_record import CursorName
from bridge.kafka.hanging_transactions import HangingTransactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.kafka.lane import LaneKey

LANE = ("t", 0)


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[Any], list[Any]]]:
    """What is found where a reader's looks give these keys, None for no message, and what it looked
    for; the transaction at offset 7 is open for so many looks at the ends."""

    def run(keys: list[bytes | None], *, open_for: int) -> tuple[list[Any], list[Any]]:
        name = CursorName(bytes(16), "c")
        left = HangingTransactions({"bootstrap.servers": "127.0.0.1:1"}, bool, name)
        looks: list[dict[LaneKey, int]] = []
        asked = 0

        def ends(_: object, lanes: list[LaneKey], isolation: Any) -> dict[LaneKey, int]:
            nonlocal asked
            if isolation.name == "READ_UNCOMMITTED":
                return dict.fromkeys(lanes, 9)
            asked += 1
            return dict.fromkeys(lanes, 7 if asked <= open_for else 9)

        def first(offsets: dict[LaneKey, int]) -> dict[LaneKey, Any]:
            if not offsets:
                return {}
            looks.append(offsets)
            key = keys[len(looks) - 1]
            seen = SimpleNamespace(key=lambda: key, offset=lambda: 7)
            return {} if key is None else dict.fromkeys(offsets, seen)

        monkeypatch.setattr(left, "_ends", ends)
        monkeypatch.setattr(left, "_first", first)
        return left.find([LANE], lambda message: message.key() == b"ours"), looks

    return run


def test_our_transaction_is_found_even_if_its_leader_does_not_return_it_at_once(
    find: Callable[..., Any],
) -> None:
    """A leader that has just begun does not say yet what is there."""
    found, looks = find([None, None, b"ours"], open_for=9)
    assert [message.key() for message in found] == [b"ours"]
    assert looks == [{LANE: 7}] * 3


def test_a_foreign_transaction_is_read_once_and_its_end_is_awaited(
    find: Callable[..., Any],
) -> None:
    found, looks = find([b"theirs"], open_for=4)
    assert (found, looks) == ([], [{LANE: 7}])


def test_a_foreign_transaction_that_stays_open_is_skipped(
    find: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.kafka.hanging_transactions._OTHERS_MAX_S", 0.2)
    assert find([b"theirs"], open_for=1 << 30) == ([], [{LANE: 7}])
