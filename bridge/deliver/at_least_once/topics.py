"""Topics: how many partitions, and so lanes, each has. Found and saved before the first record is sent.

A topic or partition that cannot be used closes its own lanes and no others: a topic that is missing
or forbidden its lane without a partition; a partition that does not answer, or cannot be read, its
own lane. Each is asked for again now and then, in a question so short that the client's queue does
not run dry meanwhile.

Topics in use are asked for again each minute, and sooner if they take nothing. A topic that is gone
ends the connection; the next connection finds it missing. A topic that has grown goes on with its old
number of partitions until nothing is in flight: otherwise records of one key could change their
order, and a restart would look for records in the wrong lanes. So reading pauses, for ten seconds at
most, until all that was read is acknowledged and the cursor is durable there.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import counted
from bridge.deliver.at_least_once.deduplicate import Arrivals, Deduplicator, no_answer, read_back
from bridge.deliver.checkpoints import FROM_END, Checkpoint, Checkpoints
from bridge.deliver.delivery import (
    REREAD_S,
    SILENT_ANSWER_S,
    STUCK_REREAD_S,
    TOPIC_PAUSE_S,
    TOPIC_WAIT_S,
)
from bridge.kafka.client import ANSWER_S, NotReachable
from bridge.kafka.error_table import advice
from bridge.kafka.lane import NO_PARTITION, Refusal
from bridge.kafka.stalls import ASK_WHY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bridge.deliver.at_least_once.engine import Engine
    from bridge.deliver.committer import Committer
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.producer import Cluster

_log = logging.getLogger("bridge")
REFUSED_PAUSE_S = 10.0  # and for one that has been missing for long
FORBIDDEN_PAUSE_S = 60.0  # asking for rights means sending a record, and perhaps a new connection
SILENT_PAUSE_S = 5.0
# A cluster that creates topics has created one by then: until then nothing is logged.
CREATION_S = 2.0
SETTLE_S = 10.0  # how long reading pauses for new partitions, each minute


class _Missing(NamedTuple):
    """A topic that cannot be used now. since_s: when it was first asked for. again_s: when it will be
    asked for again."""

    refusal: Refusal
    since_s: float
    again_s: float


class Topics:
    """The topics of one log's records on one cluster. give_up: called now and then in long questions;
    True ends them. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        checkpoints: Checkpoints,
        committer: Committer,
        *,
        deduplicator: Deduplicator,
        give_up: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._checkpoints = checkpoints
        self._committer = committer
        self._deduplicator = deduplicator
        self._give_up = give_up
        self._partitions: dict[str, int] = {}
        self._missing: dict[str, _Missing] = {}
        self._logged: dict[str, Refusal] = {}  # why a topic waits, as it was logged
        self._silent: dict[LaneKey, float] = {}  # when each is asked again
        self._reread_s: dict[str, float] = {}  # when topics in use were last asked for
        self._reread_due_s = 0.0
        self._grown: dict[str, int] = {}  # the new number of partitions
        self._settle_until_s = 0.0

    def forget(self) -> None:
        """A new connection may find other partitions."""
        self._partitions.clear()
        self._grown.clear()

    def partitions(self, topic: str) -> int | Refusal | None:
        """Of a topic that was looked for: how many partitions are in use, or why it cannot be used;
        None if its lane is closed for that reason."""
        found = self._partitions.get(topic)
        if found is not None:
            return found
        lane = self._engine.lanes.get((topic, NO_PARTITION))
        is_closed = lane is not None and lane.closed is not None
        return None if is_closed else self._missing[topic].refusal

    def look(self, topics: Collection[str]) -> None:
        """Finds the topics that were never looked for. Raises NotReachable, and StorageError if the
        checkpoints cannot be saved."""
        for topic in set(topics) - self._partitions.keys() - self._missing.keys():
            self._find(topic, time.monotonic())

    def look_again(self) -> None:
        """Asks again for what could not be used, if it is time to. Call it before deciding where to
        read, because the lanes that it opens left records in the log. Raises as `look`."""
        now_s = time.monotonic()
        for topic in [t for t, missing in self._missing.items() if missing.again_s <= now_s]:
            self._find(topic, now_s)
        silent = [key for key, again_s in self._silent.items() if again_s <= now_s]
        if silent:
            self._add(silent, SILENT_ANSWER_S, {})
        self._reread(now_s)
        if self._grown and self._has_settled():
            self._use_new_partitions()

    def _has_settled(self) -> bool:
        """Whether all that was read is acknowledged, and the cursor is durable there. If only the
        latter is missing, a commit is due."""
        end = self._engine.frontier.address
        if self._engine.position.address < end:
            return False
        self._committer.hurry()
        return self._committer.committed.address >= end

    @property
    def settles(self) -> bool:
        """Whether reading pauses until all that was read is acknowledged."""
        return bool(self._grown) and time.monotonic() < self._settle_until_s

    def __contains__(self, key: LaneKey) -> bool:
        """Whether this object has closed the lane, and will open it."""
        return key in self._silent or (key[1] == NO_PARTITION and key[0] in self._missing)

    def may_come(self, topic: str) -> bool:
        """Whether the topic was missing for so short a time that the cluster may be creating it."""
        missing = self._missing.get(topic)
        return (
            missing is not None
            and missing.refusal.passing
            and time.monotonic() - missing.since_s < CREATION_S
        )

    def hurry(self) -> None:
        """Asks for everything at the next look: somebody may have created or allowed it."""
        self._missing = {topic: m._replace(again_s=0.0) for topic, m in self._missing.items()}
        self._silent = dict.fromkeys(self._silent, 0.0)
        self._reread_s.clear()
        self._reread_due_s = 0.0

    def forbid(self, topic: str, refusal: Refusal) -> None:
        """A record was refused because of its topic."""
        now_s = time.monotonic()
        self._partitions.pop(topic, None)
        self._close(topic, _Missing(refusal, now_s, now_s + FORBIDDEN_PAUSE_S))

    def apply(self, arrivals: Arrivals) -> None:
        """Opens the lanes that answered when they were read back, and closes the silent ones."""
        for key, address in arrivals.held.items():
            if address >= 0:
                self._engine.note_held(key, address)
            if self._silent.pop(key, None) is not None:
                self._engine.open(key)
        again_s = time.monotonic() + SILENT_PAUSE_S
        new = {key: why for key, why in arrivals.silent.items() if key not in self._silent}
        for key, why in new.items():
            if why.passing:
                _log.warning(
                    "partition %s/%d is unavailable; its records wait in the log: %s",
                    *key, why.reason,
                )  # fmt: skip  # one call
        for reason in {why.reason for why in new.values() if not why.passing}:
            _log.warning("records wait: %s", reason, extra={"event": "topic_unreadable"})
        for key, why in arrivals.silent.items():
            self._silent[key] = again_s
            self._engine.close(key, why)

    # --- topics -------------------------------------------------------------------------------

    def _find(self, topic: str, now_s: float) -> None:
        since_s = self._missing[topic].since_s if topic in self._missing else now_s
        found = self._cluster.partitions(topic)
        if isinstance(found, Refusal):
            if now_s - since_s > TOPIC_WAIT_S:
                found = found._replace(passing=False)
            pause_s = TOPIC_PAUSE_S if found.passing else REFUSED_PAUSE_S
            self._close(topic, _Missing(found, since_s, now_s + pause_s))
            return
        partitions = self._in_use(topic, found)
        self._use(topic, partitions)
        self._reread_s[topic] = now_s
        if partitions < found:
            self._grow(topic, partitions, found, now_s)
        self._missing.pop(topic, None)
        self._logged.pop(topic, None)
        self._engine.open((topic, NO_PARTITION))

    def _close(self, topic: str, missing: _Missing) -> None:
        self._missing[topic] = missing
        if self._logged.get(topic) != missing.refusal and not self.may_come(topic):
            self._logged[topic] = missing.refusal
            why, what_to_do = missing.refusal.reason, advice(missing.refusal.code)
            _log.warning("records for %s wait: %s: %s", topic, why, what_to_do)
        key = (topic, NO_PARTITION)
        if missing.refusal.is_poison and self._engine.poison != "stop":
            self._engine.open(key)  # the records name an impossible topic: they are set aside
        else:
            self._engine.close(key, missing.refusal)

    def _in_use(self, topic: str, partitions: int) -> int:
        """How many partitions to use. If a lane has acknowledged records that the cursor has not
        passed, as many as before: with others, a restart would look for those records in other lanes,
        and take missing ones for delivered."""
        before = self._checkpoints.partitions.get(topic)
        if before is None:  # saved by 0.1.0
            before = sum(name == topic for name, _ in self._checkpoints.lanes)
        position = self._engine.position.address
        lanes = self._engine.lanes.items()
        ahead = any(name == topic and lane.last_address >= position for (name, _), lane in lanes)
        return before if ahead and 0 < before < partitions else partitions

    def _use(self, topic: str, partitions: int) -> None:
        """Uses so many partitions, once that and where to read back each is durable. A topic that was
        missing may be a new one, so all its lanes are read back: the old one's offsets are too high."""
        lanes = [(topic, partition) for partition in range(partitions)]
        if topic not in self._missing:
            lanes = [key for key in lanes if key not in self._checkpoints.lanes]
        self._add(lanes, ANSWER_S, {topic: partitions})
        self._partitions[topic] = partitions

    def _reread(self, now_s: float) -> None:
        """Asks for one of the topics in use, if it is time to. Raises NotReachable if it is gone."""
        if now_s < self._reread_due_s or not self._cluster.reachable:
            return
        self._reread_due_s = now_s + 1.0
        lanes = self._engine.lanes.items()
        stuck = {key[0] for key, lane in lanes if lane.stuck_s(now_s) > ASK_WHY_S}
        for topic in self._partitions:
            pause_s = STUCK_REREAD_S if topic in stuck else REREAD_S
            if now_s - self._reread_s.get(topic, float("-inf")) >= pause_s:
                break
        else:
            return
        self._reread_s[topic] = now_s
        try:
            partitions = self._cluster.partitions(topic, SILENT_ANSWER_S)
        except NotReachable:  # sending the next record will find out more
            return
        if isinstance(partitions, Refusal):
            if partitions.passing:
                raise NotReachable(partitions.reason)
            return  # as above
        in_use = self._partitions[topic]
        if partitions < in_use:
            raise NotReachable(f"topic {topic!r} was created again, with fewer partitions")
        if partitions > in_use:
            self._grow(topic, in_use, partitions, now_s)

    def _grow(self, topic: str, in_use: int, partitions: int, now_s: float) -> None:
        if self._grown.get(topic) != partitions:
            _log.info(
                "topic %s has %s now, and %d of them in use: the others are used once all that was "
                "read is delivered",
                topic, counted(partitions, "partition"), in_use,
                extra={"event": "topic_grown"},
            )  # fmt: skip  # one call
        self._grown[topic] = partitions
        lanes = self._engine.lanes.values()
        if not any(lane.closed is not None and lane.waits_from is not None for lane in lanes):
            self._settle_until_s = now_s + SETTLE_S

    def _use_new_partitions(self) -> None:
        for topic, partitions in list(self._grown.items()):
            self._use(topic, partitions)
            del self._grown[topic]
            _log.info("topic %s: %s in use", topic, counted(partitions, "partition"))

    # --- partitions ---------------------------------------------------------------------------

    def _add(self, keys: list[LaneKey], answer_s: float, partitions: dict[str, int]) -> None:
        """Reads back lanes that were never used, or could not be before, and saves where to read
        back the new ones: from their ends. Lanes that do not answer are closed."""
        checkpoints = self._checkpoints
        known = checkpoints.lanes.keys() & set(keys)
        begin = 0 if checkpoints.lost else FROM_END
        lanes = {key: checkpoints.lanes.get(key) or Checkpoint(begin) for key in keys}
        arrivals = Arrivals({}, {})
        if keys:
            with closing(self._cluster.reader(self._give_up)) as reader:
                if checkpoints.lost and len(known) < len(keys) and reader.reads:
                    _log.warning("scanning %s from the earliest offset", keys[0][0])
                clean = not known and (checkpoints.clean or not checkpoints.lost)
                arrivals = read_back(
                    reader, lanes, self._deduplicator, clean=clean, answer_s=answer_s
                )
        for key in lanes.keys() - arrivals.held.keys() - arrivals.silent.keys():
            arrivals.silent[key] = no_answer("it does not exist yet")
        checkpoints.add({key: lanes[key] for key in arrivals.held}, partitions)
        self.apply(arrivals)
