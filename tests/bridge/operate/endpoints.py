"""An endpoint with one log, and requests to it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aolog.errors import UsageError
from aolog.storage.storage import Storage
from bridge.deliver.seek import Moved
from bridge.deliver.status import Status
from bridge.operate.access import Access
from bridge.operate.endpoint import serving
from bridge.operate.monitor import Monitor
from bridge.supervise.status import LogStatus
from bridge.supervise.turns import Phase

TOKEN = "0123456789abcdef"
STATUS = Status(
    state="sending", reachable=True, position=9, committed=9, acknowledged=10, skipped=2,
    outstanding=1, lag_records=5, lag_bytes=90, lag_seconds=2.5, lost_records=3, gaps=1,
    error=None, rate=3.0, dead_lettered=6, dropped=7, durable=8,
)  # fmt: skip  # one value
LOG = LogStatus(
    log="a", path="/nowhere/a", cluster="main", phase=Phase.RUNNING, state="draining",
    acknowledged=10, skipped=2, lost_records=3, gaps=1, dead_lettered=6, dropped=7, restarts=4,
    silent_s=0.1, error=None, code=None, status=STATUS, filtered=8,
)  # fmt: skip  # one value


class Recorded:
    """Controls that remember what was asked of them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def control(self, action: str, log: str, cluster: str) -> None:
        if log != "a":
            raise UsageError(f"there is no log {log!r}", hint="see /status")
        self.calls.append((action, log, cluster))

    def seek(self, log: str, cluster: str, to: str, *, dry_run: bool) -> Moved:
        if to == "nowhere":
            raise UsageError("'nowhere' is not a valid position", hint="a time")
        self.calls.append((f"seek to {to}{', dry' if dry_run else ''}", log, cluster))
        return Moved("bridge", 100, 40, forgot=True, done=not dry_run, records=6)


@contextmanager
def served(where: str = "127.0.0.1:0", **given: Any) -> Iterator[tuple[str, int]]:
    access = Access(where, given.pop("token", None), given.pop("hosts", ()))
    with serving(access, Monitor(lambda: [LOG], Storage()), **given) as at:
        yield at


def ask(
    at: tuple[str, int], path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", at[1], timeout=10)
    try:
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def is_answered(at: tuple[str, int]) -> bool:
    try:
        return ask(at, "/healthz")[0] == 200
    except OSError:  # the connection was closed
        return False
