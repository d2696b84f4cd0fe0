"""Which cluster the servers lead to, asked once for all logs that have nothing to send.

Of thousands of logs most are so when the process starts, and fall asleep without a connection
each. That the servers are another cluster's would be seen with the next record only; so one
question is asked for all of them, beside everything else.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

from bridge.kafka.identity import Identity
from bridge.kafka.read_back import ReadBack

if TYPE_CHECKING:
    import queue

    from bridge.supervise.options import Plan

__all__ = ["Meeting"]

_log = logging.getLogger("bridge.supervisor")
_PAUSE_S = 60.0
_TOPIC = "__consumer_offsets"  # any will do, and this one is nobody's: the answer has the id


class Meeting:
    """One cluster's, from now on, in a thread of its own.

    told: where it is put at its end. patient: whether it asks until there is an answer, once a
    minute. found: the cluster's id, "" where it has none, None where there is no answer. heard: set
    by whoever was told.
    """

    def __init__(self, plan: Plan, told: queue.SimpleQueue[object], *, patient: bool) -> None:
        self.plan = plan
        self.found: str | None = None
        self.heard = False
        self._begun_s = time.monotonic()
        self._told = told
        self._patient = patient
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=f"meeting {plan.cluster}", daemon=True).start()

    def stop(self) -> None:
        """It asks no more."""
        self._stopped.set()

    @property
    def servers(self) -> str:
        """Which are asked."""
        return str(self.plan.options["bootstrap_servers"])

    @property
    def is_old(self) -> bool:
        """Whether the servers may lead elsewhere by now."""
        return self.found is not None and time.monotonic() - self._begun_s > _PAUSE_S

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.found = self._ask()
            if self.found is not None or not self._patient:
                break
            self._stopped.wait(_PAUSE_S)
        self._told.put(self)

    def _ask(self) -> str | None:
        identity = Identity()
        settings = {"bootstrap.servers": self.servers, **self.plan.options["settings"]}
        try:
            with closing(ReadBack(settings, self._stopped.is_set, identity)) as reader:
                reader.leaders(_TOPIC)
                return identity.known
        except Exception as error:  # noqa: BLE001 -- whoever has something to send is told why
            _log.debug("%s: which cluster it is, is not known: %s", self.plan.cluster, error)
        return None
