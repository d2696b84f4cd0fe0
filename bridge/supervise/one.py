"""One forwarder seen as a supervisor's tasks are: for the same endpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bridge.deliver.status import NOTHING
from bridge.supervise.status import LogStatus, Phase, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.deliver.forwarder import Forwarder
    from bridge.deliver.status import Status

__all__ = ["One"]


class One:
    """Keeps the forwarder's last status. `look` may be called from any thread."""

    def __init__(self, path: str, forwarder: Forwarder) -> None:
        self._path = path
        self._forwarder = forwarder
        self._status: Status | None = None

    def through(self, report: Callable[[Status], None]) -> Callable[[Status], None]:
        """Reports as `report`, and keeps it."""

        def keep(status: Status) -> None:
            self._status = status
            report(status)

        return keep

    def look(self) -> list[LogStatus]:
        """How it stands."""
        status = self._status
        state = "connecting" if status is None else state_of(status)
        return [
            LogStatus(
                log=self._path,
                path=self._path,
                cluster="main",
                phase=Phase.DONE if state == "stopped" else Phase.RUNNING,
                state=state,
                **(NOTHING if status is None else status.counted()),
                lost_records=0 if status is None else status.lost_records,
                gaps=0 if status is None else status.gaps,
                restarts=0,
                silent_s=time.monotonic() - self._forwarder.moved_s,
                error=status.error if status else None,
                code=None,
                status=status,
            )
        ]
