"""A thread of the writer's own ends when it is told to."""

from __future__ import annotations

import threading

from aolog.ticker import Ticker
from tests.aolog.conftest import SOON_S, eventually, in_thread


class Ticked:
    """Its first tick waits until it is told to go on."""

    def __init__(self) -> None:
        self.ticks = 0
        self.go = threading.Semaphore(0)

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == 1:
            assert self.go.acquire(timeout=SOON_S)


def test_all_threads_end_where_a_signal_came_before_the_first_was_known() -> None:
    ticked = Ticked()
    ticker = Ticker(ticked.tick, "test")
    ticker.wake()
    eventually(lambda: ticked.ticks == 1)
    first = ticker._thread
    ticker._thread = None  # as KeyboardInterrupt leaves it, which ends the wait in Thread.start
    ticker.wake()
    eventually(lambda: ticked.ticks == 2)
    second = ticker._thread
    assert first is not None
    assert second is not None
    ticker._thread = first
    stopping = in_thread(ticker.stop)
    second.join(SOON_S)
    ticked.go.release()
    stopping.result()
    assert not first.is_alive()
    assert not second.is_alive()
