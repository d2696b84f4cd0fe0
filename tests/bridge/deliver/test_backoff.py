"""Delays between tries."""

from __future__ import annotations

import random

from bridge.deliver.backoff import Backoff


def test_delays_double_up_to_the_maximum_and_are_short_again_after_a_success() -> None:
    backoff = Backoff(1.0, 5.0, random.Random(1))
    for _ in range(2):
        for longest_s in (1.0, 2.0, 4.0, 5.0, 5.0):
            assert longest_s / 2 <= backoff.next_s() <= longest_s
        backoff.reset()
