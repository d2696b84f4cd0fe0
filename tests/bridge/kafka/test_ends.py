"""Whether an end may have been requested twice, by how soon it was answered."""

from __future__ import annotations

import pytest

from bridge.kafka.ends import Ends

RETRY_S = 0.25


@pytest.mark.parametrize(
    ("seconds", "twice"),
    [
        ([0.0], False),
        ([0.18], False),
        ([0.19], True),
        ([9.0], True),
        ([0.01, 0.18], False),
        ([0.3, 0.01], True),
    ],
)
def test_an_end_that_was_answered_late_may_have_been_requested_twice(
    seconds: list[float], twice: bool
) -> None:
    ends = Ends(RETRY_S)
    for number, each in enumerate(seconds):
        ends.requested(10.0 * number)
        ends.answered(10.0 * number + each)
    assert ends.twice is twice
