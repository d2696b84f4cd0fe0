"""Waiting in tests: for a condition, for a call in a thread, and for another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
SOON_S = 60.0  # a generous bound for what must happen soon; nothing waits for it when all is well


def wait_until(condition: Callable[[], object], seconds: float = SOON_S) -> None:
    """Fails unless the condition comes true soon."""
    until_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until_s, "did not come true"
        time.sleep(0.002)


def in_thread(call: Callable[[], object]) -> Call:
    """The call, begun in a thread of its own."""
    return Call(call)


class Call:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self.error = error

    def waits(self, for_s: float = 0.15) -> bool:
        """Whether it is still under way after a while."""
        self._thread.join(for_s)
        return self._thread.is_alive()

    def result(self, within_s: float = SOON_S) -> Any:
        """What it returned or raised, soon."""
        assert not self.waits(within_s), "hangs"
        if self.error is not None:
            raise self.error
        return self._result


class Child:
    """A Python process that runs `code` and answers in lines. SIGKILLed at the end."""

    def __init__(self, code: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def line(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def say(self, line: str) -> None:
        """A line for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> list[str]:
        """SIGKILL; what it said that was not read yet, whole lines only."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.stdout is not None
        out = self.process.stdout.read()  # communicate() passes over what `line` has in its buffer
        self.process.wait()
        return [line.decode() for line in out.split(b"\n")[:-1]]

    def wait(self) -> tuple[str, str]:
        """Its output and errors, once it has ended well."""
        out, err = self.process.communicate(timeout=SOON_S)
        assert self.process.returncode == 0, err.decode()
        return out.decode(), err.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def statuses_until_end(
    statuses: Callable[[], list[Any]], alive: Callable[[], bool], seconds: float
) -> Iterator[Any]:
    """The statuses as they come, until it has ended or so many seconds are over."""
    seen = 0
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        was_alive = alive()
        for status in statuses()[seen:]:
            seen += 1
            yield status
        if not was_alive:
            return
        time.sleep(0.01)
