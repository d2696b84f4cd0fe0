"""How large a transaction may be: the table, and an hour with a slow link or a quota."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from bridge.deliver.exactly_once.transaction_size import BYTES_FIRST, TransactionSize

HOUR_S = 3_600.0
BYTES_MAX = 16 << 20
FENCED_S = 10.0  # how much later than its time-out a transaction is ended


@pytest.mark.parametrize(
    ("used", "took_s", "times"),
    [(1.0, 4.0, 2.0), (0.5, 4.0, 2.0), (0.4, 4.0, 1.0), (1.0, 10.0, 1.0), (1.0, 15.0, 1.0),
     (1.0, 16.0, 0.5), (0.1, 40.0, 0.5)],
)  # fmt: skip  # a table
def test_the_next_transaction_is_larger_after_a_fast_commit_and_smaller_after_a_slow_one(
    used: float, took_s: float, times: float
) -> None:
    size = TransactionSize(60.0, 0.5, BYTES_MAX)
    size.committed(int(used * BYTES_FIRST), took_s)
    assert size.bytes == times * BYTES_FIRST


def test_after_the_timeout_it_is_far_smaller_and_soon_grows_up_to_half_of_what_was_too_much() -> (
    None
):
    size = TransactionSize(60.0, 0.5, BYTES_MAX)
    assert not size.ended(BYTES_FIRST, 59.0)
    assert size.bytes == BYTES_FIRST
    assert size.ended(BYTES_FIRST, 61.0)
    found = [size.bytes]
    for _ in range(3):
        size.committed(size.bytes, 1.0)
        found.append(size.bytes)
    assert found[:3] == [BYTES_FIRST // 8, BYTES_FIRST // 4, BYTES_FIRST // 2]
    assert found[2] < found[3] < found[2] * 1.1


def test_no_transaction_holds_more_than_its_part_of_the_memory() -> None:
    size = TransactionSize(60.0, 0.5, BYTES_FIRST * 3)
    for _ in range(5):
        size.committed(size.bytes, 0.1)
    assert size.bytes == BYTES_FIRST * 3
    assert TransactionSize(60.0, 0.5, 1_000).bytes == 1_000


def test_a_small_transaction_that_an_outage_ended_sets_no_bound() -> None:
    size = TransactionSize(60.0, 0.5, BYTES_MAX)
    assert not size.ended(2_000, 75.0)
    for _ in range(7):
        size.committed(size.bytes, 1.0)
    assert size.bytes > BYTES_FIRST


def test_a_connection_that_breaks_begins_small_again() -> None:
    size = TransactionSize(60.0, 0.5, BYTES_MAX)
    for _ in range(5):
        size.committed(size.bytes, 0.1)
    assert not size.ended(100, 1.0)
    assert size.bytes == BYTES_FIRST


Accept = Callable[[float, int], float]
"""When the cluster has taken a request of so many bytes that was made then."""


def link(rate: float) -> Accept:
    return lambda now_s, size: now_s + size / rate


def quota(rate: float) -> Accept:
    """Kafka's: a request is taken at once, and its connection waits as long as ten seconds' rate is too
    high."""
    taken: deque[tuple[float, int]] = deque()
    muted_s = 0.0

    def accept(now_s: float, size: int) -> float:
        nonlocal muted_s
        now_s = max(now_s, muted_s)
        taken.append((now_s, size))
        while taken[0][0] < now_s - 10:
            taken.popleft()
        over = sum(each for _, each in taken) / 10 / rate - 1
        muted_s = now_s + max(0.0, over) * 10
        return now_s

    return accept


@pytest.mark.parametrize("rate", [1e3, 20e3, 300e3, 5e6])
@pytest.mark.parametrize("kind", [link, quota])
@pytest.mark.parametrize("timeout_s", [10.0, 60.0])
def test_whatever_the_cluster_takes_arrives_and_few_transactions_are_ended(
    timeout_s: float, kind: Callable[[float], Accept], rate: float
) -> None:
    size, accept = TransactionSize(timeout_s, 0.5, BYTES_MAX), kind(rate)
    now_s, arrived, ended = 0.0, 0, 0
    while now_s < HOUR_S:
        begin_s, left = now_s, size.bytes
        while left and now_s < begin_s + timeout_s:
            now_s = accept(now_s, min(left, 1_000_000))
            left -= min(left, 1_000_000)
        if now_s < begin_s + timeout_s:
            arrived += size.bytes
            now_s += 0.03
            size.committed(size.bytes, now_s - begin_s)
        else:
            now_s = begin_s + timeout_s + FENCED_S
            size.ended(size.bytes, now_s - begin_s)
            ended += 1
    assert arrived > 0.9 * rate * HOUR_S
    assert ended <= 10  # of 180 that would be ended if each were too large
