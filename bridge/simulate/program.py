"""The program of the simulator: writes numbered records to a log or through a Buffer, until it is killed.

    python -m bridge.simulate.program '{"mode": ..., "log": ..., ...}'

Commands come as JSON lines on standard input: {"rate": PER_SECOND}, {"full": BOOL} (the disk),
{"crash": "append" | "flush" | "sync"}: it kills itself (SIGKILL) right after that step of one more
record. Reports go as JSON lines to standard output.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from aolog import AologError, Writer
from aolog.format.frame import Buffer as Bytes
from aolog.storage.storage import Storage
from aolog.storage.system import System
from bridge import Buffer, KafkaProvider
from bridge.client.buffer.provider import NotDelivered

TICK_S, REPORT_S = 0.02, 0.2
SLAB_BYTES = 64 << 10  # small, so that slabs fill and are pruned while one looks
VALUE_BYTES = 100
KEY = b"simulator"


class FullDisk(System):
    """The real system, whose disk is full while the button is pressed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def pwritev(self, fd: int, parts: Sequence[Bytes], offset: int) -> int:  # type: ignore[override]  # a method there, too
        """Writes, while there is room."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return System.pwritev(fd, parts, offset)


class Target(NamedTuple):
    """Where records go."""

    append: Callable[[bytes], object]  # in memory on return
    flush: Callable[[], bool]  # whether all that was appended is safe from a kill
    sync: Callable[[], object]  # all of it is safe from power loss


def target_of(given: dict[str, Any], storage: Storage) -> Target:
    """A log, which a bridge drains, or a Buffer in one of its four modes."""
    mode, path, topic = given["mode"], given["log"], given["topic"]
    if mode == "log":
        log = Writer(path, slab_bytes=SLAB_BYTES, flush_seconds=0.1, storage=storage)
        return Target(partial(log.append, key=KEY), lambda: log.flush() >= 0, log.sync)
    provider = KafkaProvider(given["servers"], settings={"max.in.flight": "1"})
    buffer = Buffer(
        provider, path, mode=mode, storage=storage, live_after_s=2.0, memory_messages=2_000
    )
    return Target(
        lambda value: buffer.send(topic, value, KEY),
        lambda: buffer.flush(0.05),
        lambda: buffer.flush(1.0),
    )


def report(**what: object) -> None:
    """One line; whole, also where a kill follows."""
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def main() -> None:
    """Until it is killed, or standard input ends."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    system = FullDisk()
    storage = Storage(system)
    target = target_of(given, storage)
    run, rate, number, owed = given["run"], float(given["rate"]), 0, 0.0
    safe, refused, trouble = 0, 0, None
    last_s = reported_s = time.monotonic()
    while True:
        while not commands.empty():
            command = commands.get()
            rate = float(command.get("rate", rate))
            system.is_full = bool(command.get("full", system.is_full))
            if "crash" in command:
                crash_after(command["crash"], target, run, number + 1)
        now_s = time.monotonic()
        owed = min(owed + rate * (now_s - last_s), max(rate, 1.0))
        last_s = now_s
        while owed >= 1:
            owed -= 1
            try:
                target.append(value_of(run, number + 1))
                number += 1
            except (AologError, NotDelivered) as error:
                refused, trouble, owed = refused + 1, str(error), 0.0
        if now_s - reported_s >= REPORT_S:
            reported_s = now_s
            try:
                safe, trouble = (number, None) if target.flush() else (safe, trouble)
            except (AologError, NotDelivered) as error:
                trouble = str(error)
            report(run=run, accepted=number, safe=safe, refused=refused, error=trouble)
        time.sleep(TICK_S)


def value_of(run: int, number: int) -> bytes:
    """Of a record."""
    return f"{run}:{number}:".encode().ljust(VALUE_BYTES, b".")


def crash_after(step: str, target: Target, run: int, number: int) -> None:
    """Writes one more record up to a step, reports that, and kills the process."""
    target.append(value_of(run, number))
    if step in {"flush", "sync"}:
        target.flush()
    if step == "sync":
        target.sync()
    report(run=run, crashed=step, number=number)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
