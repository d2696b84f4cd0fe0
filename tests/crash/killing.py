"""SIGKILL at a random moment, after a child has begun, and how often that was done."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.aolog.conftest import ROOT, SOON_S
from tests.crash.ledger import Ledger

__all__ = ["LONG_FACTOR", "Killer"]

LONG_FACTOR = 60  # how many logs `--long` does each to, instead of one: thousands of kills


def holds_a_lock(pid: int) -> bool:
    """Whether the system has not freed the locks of a process that has ended: once in some hundred
    kills on a busy machine it takes it milliseconds longer."""
    with Path("/proc/locks").open(encoding="ascii") as locks:
        return any(line.split()[4] == str(pid) for line in locks)


class Killer:
    """Starts children on one log, and kills them. log_path: of the log. kills: how many so far;
    the next child's run."""

    def __init__(self, directory: Path, role: str, *, ledger: Path, seed: int = 1) -> None:
        self.log_path = str(directory / "log")
        self.ledger = Ledger(ledger)
        self.role = role
        self.kills = 0
        self.rng = random.Random(f"{role}/{seed}")

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """A child that has begun; killed at the end of the block, or before."""
        fd = self.ledger.open()
        said = len(self.ledger.words())
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.children", self.role, self.log_path,
                 str(self.kills), str(fd)],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, pass_fds=[fd],
                stderr=subprocess.PIPE,
            )  # fmt: skip  # one thing, a line or two
        finally:
            os.close(fd)
        try:
            until = time.monotonic() + SOON_S
            while len(self.ledger.words()) == said:  # from here on it is in our code
                assert process.poll() is None, process.communicate()[1].decode()
                assert time.monotonic() < until
                time.sleep(0.001)
            yield process
        finally:
            ended = process.poll()
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
            assert ended is None, f"ended by itself: {errors.decode()}"
            while holds_a_lock(process.pid):
                time.sleep(0.001)
            self.kills += 1

    def kill_one(self) -> None:
        """One child, killed while it opens the log, or, every other one, once it has said that
        something is kept and a little later."""
        kept = self.ledger.kept()
        with self.running() as process:
            if self.kills % 2 == 0:
                until = time.monotonic() + SOON_S
                while self.ledger.kept() == kept:
                    assert process.poll() is None, "ended by itself"
                    assert time.monotonic() < until
                    time.sleep(0.001)
            time.sleep(0.1 * self.rng.random())
