"""A process of the simulator, which reports what it does."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import suppress
from typing import Any


class Child:
    """A process that reports JSON lines. It ends by itself when nobody reads them any more, so a
    simulator that is killed leaves no process."""

    def __init__(self, command: list[str]) -> None:
        self.last: dict[str, Any] = {}
        self.crashed: dict[str, Any] | None = None
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip  # one call
        self._reader = threading.Thread(target=self._read, daemon=True, name="reports")
        self._reader.start()

    def _read(self) -> None:
        """Until the process ends. Closes what it reads: nobody else knows when it is done."""
        assert self._process.stdout is not None
        with self._process.stdout as reports:
            for line in reports:
                if not line.endswith("\n"):  # the process was killed
                    break
                found = json.loads(line)
                if "crashed" in found:
                    self.crashed = found
                else:
                    self.last = found

    def tell(self, **what: object) -> None:
        """Sends a command."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it was killed a moment ago
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Kills it, and waits for its last report."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):  # what was not sent to it
            self._process.stdin.close()
        self._reader.join()
