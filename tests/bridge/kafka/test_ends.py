"""Whether an end may have been asked for twice: by how soon it was answered, or by counts."""

from __future__ import annotations

import pytest

from bridge.kafka.ends import Ends

RETRY_S = 0.25


def counted(*ends: int) -> list[dict[str, dict[str, int]]]:
    """Statistics of brokers that so many requests were sent to."""
    return [{"req": {"EndTxn": count, "Produce": 9}} for count in ends] + [{"req": {"Fetch": 1}}]


def asked(seconds: float) -> Ends:
    ends = Ends(RETRY_S)
    ends.asked(10.0)
    ends.answered(10.0 + seconds)
    return ends


@pytest.mark.parametrize(
    ("seconds", "sure"), [(0.0, True), (0.18, True), (0.19, False), (9.0, False)]
)
def test_what_is_answered_before_it_could_be_sent_again_was_asked_once(
    seconds: float, sure: bool
) -> None:
    assert asked(seconds).sure is sure


def test_one_that_was_slow_is_not_forgotten_for_a_later_that_was_not() -> None:
    ends = asked(0.3)
    ends.asked(20.0)
    ends.answered(20.01)
    assert not ends.sure


@pytest.mark.parametrize(
    ("sent", "once"), [((2,), False), ((1, 1), False), ((0, 1), True), ((), False)]
)
def test_else_the_requests_that_were_sent_are_counted(sent: tuple[int, ...], once: bool) -> None:
    ends = asked(0.3)
    ends.told(counted(*sent))
    assert ends.counts == 1
    assert ends.once() is once
    assert ends.sure is once


def test_counts_are_of_all_that_the_producer_ever_asked_for() -> None:
    ends = asked(0.01)
    ends.asked(20.0)
    ends.answered(20.5)
    ends.told(counted(2))
    assert ends.once()
    ends.asked(30.0)
    ends.answered(30.5)
    ends.told(counted(4))
    assert not ends.once()
