"""A thread of the writer's own ends when it is told to."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from aolog.write.ticker import Ticker
from tests.aolog.conftest import SOON_S, eventually, in_thread, values


class Ticked:
    """Its first tick waits until it is told to go on."""

    def __init__(self) -> None:
        self.ticks = 0
        self.go = threading.Semaphore(0)

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == 1:
            assert self.go.acquire(timeout=SOON_S)


FORGETFUL = """
import gc, sys, threading, time, aolog
gc.set_threshold(3, 10, 10)
class Cycle:
    pass
for i in range(12):
    gc.disable()
    writer = aolog.Writer(f"{sys.argv[1]}/{i}", flush_seconds=0.002, sync_seconds=0.003)
    for _ in range(4):
        writer.append(b"y")
        time.sleep(0.004)
    cycle = Cycle()
    cycle.writer, cycle.itself = writer, cycle
    writer.append(b"z")
    del writer, cycle
    gc.enable()
    time.sleep(0.05)  # its own thread collects it
gc.collect()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(20)
        assert not thread.is_alive(), thread.name
"""


def test_a_writer_that_its_own_thread_collects_is_closed_by_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORGETFUL, tmp_path], check=True, timeout=SOON_S)
    for log in tmp_path.iterdir():
        assert values(str(log)) == [b"y"] * 4 + [b"z"]


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
