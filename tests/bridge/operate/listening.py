"""Requests to a bridge in a process."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

from tests.bridge.processes import Process
from tests.waiting import wait_until


def get(at: tuple[str, int], path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{at[0]}:{at[1]}{path}", timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def where(process: Process) -> tuple[str, int]:
    """Where it says that it listens."""
    found: list[re.Match[str]] = []

    def said() -> bool:
        found.extend(re.finditer(r"listening on http://([\d.]+):(\d+)", process.stderr))
        return bool(found)

    wait_until(said)
    return found[0][1], int(found[0][2])
