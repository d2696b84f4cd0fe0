"""What is asked of clusters to which no log is forwarded now: no delivery asks it.

Whether they answer: a parked log has no connection, so each cluster with parked logs has one, for all of them.

Whether they can deliver exactly once, while there is no log: the delivery of a log proves its cluster when it
begins. Without a log nothing would, and a bridge whose cluster is unfit would be live until the first log
comes. So each cluster is proved at the start with a cursor of no log: one record in the cursor topic, always
of the same key. The first log ends this.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple

from aolog.errors import AologError
from bridge.deliver.backoff import Backoff
from bridge.deliver.log_lines import naming
from bridge.deliver.trouble import TroubleLog
from bridge.errors import CursorTopicUnfit, DestinationError, NotIsolated
from bridge.kafka.cluster_watch import ClusterWatch
from bridge.kafka.cursor_record import CursorName, CursorRecord
from bridge.kafka.events import Broke, Found, Impossible, Proven
from bridge.kafka.transactional_producer import TransactionalProducer
from bridge.supervise.cluster_options import ClusterOptions

_log = logging.getLogger("bridge.supervisor")
_NO_LOG = bytes(16)  # in place of a log's UUID
_WAIT_S = 0.5  # for an event
_CLOSE_S = 2.0  # a call that takes longer is abandoned


class _Watched(NamedTuple):
    options: ClusterOptions
    watch: ClusterWatch
    log: TroubleLog


class ParkedLogs:
    """By cluster. For the supervisor's thread; `cluster` may be called by any."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def cluster(self, name: str) -> ClusterWatch | None:
        """The watch of a cluster; None if no log of it was parked."""
        found = self._watched.get(name)
        return None if found is None else found.watch

    def look(self, options: Mapping[str, ClusterOptions], parked: set[str], now_s: float) -> None:
        """Asks clusters with parked logs whether they answer, and waits for none. options: of all clusters. parked:
        those with parked logs. A cluster that had one is asked until its options change."""
        for name, (of, watch, _) in list(self._watched.items()):
            if options.get(name) != of:
                watch.close()
                del self._watched[name]
        for name in parked & options.keys() - self._watched.keys():
            base = options[name].base
            watch = ClusterWatch(base.bootstrap_servers, base.settings)
            self._watched[name] = _Watched(options[name], watch, TroubleLog())
        for name, (_, watch, log) in self._watched.items():
            watch.look(now_s)
            with naming(name):
                if watch.reachable:
                    log.over()
                elif name in parked and watch.trouble is not None:
                    log.say(watch.trouble, now_s, what="no parked log can send")

    def close(self) -> None:
        """Ends the connections."""
        for _, watch, _ in self._watched.values():
            watch.close()


class _Proof:
    """Of one cluster, in a thread of its own. unfit: why it cannot deliver exactly once, or why that cannot be found
    out; None if it can, and until that is known."""

    def __init__(self, of: ClusterOptions) -> None:
        self.of = of
        self.unfit: str | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="aolog-bridge-proof", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        backoff = Backoff()
        while not self.ended.is_set():
            try:
                self.unfit = self._found(backoff)
            except Exception as error:  # noqa: BLE001 -- for example, no descriptor is free: it is tried again
                self._failed(error)
                self.ended.wait(backoff.next_s())
            else:
                return

    def _found(self, backoff: Backoff) -> str | None:
        options = self.of.base
        producer = TransactionalProducer(
            options.bootstrap_servers,
            options.client_settings(),
            CursorName(_NO_LOG, options.cursor),
            options.cursor_topic,
            self.ended.is_set,
            options.terms(None),
        )
        record = CursorRecord(0, None, _NO_LOG, 0, producer.owner)
        try:
            producer.open(0)
            while not self.ended.is_set():
                for event in producer.happened(_WAIT_S):
                    if isinstance(event, Found):
                        producer.prove(record)
                    elif isinstance(event, Broke):
                        self.ended.wait(backoff.next_s())
                        producer.open(0)
                    elif isinstance(event, Impossible):
                        return _unfit(event.error)
                    elif isinstance(event, Proven):
                        return None
        except DestinationError as error:
            return _unfit(error)
        finally:
            producer.close()
        return None

    def _failed(self, error: Exception) -> None:
        said = f"whether it can deliver exactly once is not known: {error!r}"
        if said != self.unfit:
            bug = None if isinstance(error, AologError) else error
            event = {"event": "proof_failed"}
            _log.warning("%s: %s", self.of.base.bootstrap_servers, said, extra=event, exc_info=bug)
        self.unfit = said


def _unfit(error: DestinationError) -> str | None:
    """Another bridge without logs may have fenced this one, which shows nothing."""
    return str(error) if isinstance(error, NotIsolated | CursorTopicUnfit) else None


class StartProofs:
    """By cluster. For the supervisor's thread; `unfit` may be called by any."""

    def __init__(self) -> None:
        self._begun: dict[str, _Proof] = {}

    def look(self, options: Mapping[str, ClusterOptions]) -> None:
        """Proves these clusters, and waits for none. One that is not among them, or has other options now, is
        forgotten."""
        wanted = {n: each for n, each in options.items() if each.base.delivery == "exactly_once"}
        for name, proof in list(self._begun.items()):
            if wanted.get(name) != proof.of:
                proof.ended.set()
                del self._begun[name]
        for name in wanted.keys() - self._begun.keys():
            self._begun[name] = _Proof(wanted[name])

    def unfit(self) -> str | None:
        """A cluster that cannot deliver exactly once, as a sentence; None if there is none, as far as is known."""
        found = [(name, proof.unfit) for name, proof in list(self._begun.items())]
        return next((f"cluster {name}: {why}" for name, why in found if why is not None), None)

    def close(self) -> None:
        """Ends the proofs."""
        proofs = list(self._begun.values())
        self.look({})
        for proof in proofs:
            proof.thread.join(_CLOSE_S)
