"""Topics: how many partitions, and so lanes, each has. Found and saved before the first record is sent.

A topic or partition that cannot be used closes its own lanes and no others: a topic that is missing
or forbidden its lane without a partition; a partition that does not answer, or cannot be read, its
own lane. Each is asked for again now and then, in a question so short that the client's queue does
not run dry meanwhile.

Topics in use are asked for again each minute, and sooner if they take nothing. A topic that is gone
ends the connection; the next connection finds it missing.

A topic that has grown. A record's partition depends on how many there are, and what a lane holds, it
holds of the records that were given to it. So the number changes only for records that nobody sent:
from the first address on that is past all of these:
    - what this process has read (the frontier), since it sends nothing else;
    - what the lanes are known to hold;
    - what the read-back found in the topic. A process before this one may have had records under way:
      they have arrived, and are found, or never will. A lane that was not read back to its end may
      hold any record of the log: then the address is past the log's end.
The old number, the new one and the address are durable before a record is sent past it. So a restart,
and the next growth, find each record where it was sent (see partition_counts).

A topic that was made anew has another id, if the cluster tells ids (Kafka 2.8). Its partitions are read
back from the beginning. What the old one acknowledged was delivered, and is not sent again; but if the
new one has fewer partitions, no lane holds what it held, and all after the position is sent to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from aolog.errors import counted
from bridge.deliver.at_least_once.deduplicate import Arrivals, Wanted, no_answer, read_back
from bridge.deliver.at_least_once.engine import Engine
from bridge.deliver.checkpoints import FROM_END, Checkpoint, Checkpoints
from bridge.deliver.forwarder_options import Waits
from bridge.deliver.intake import PartitionsOf
from bridge.deliver.partition_counts import PartitionCounts
from bridge.deliver.verdicts import Judge
from bridge.errors import Unanswered
from bridge.kafka.connection import Connection
from bridge.kafka.error_table import advice
from bridge.kafka.lane import NO_PARTITION, LaneKey, Refusal
from bridge.kafka.read_back import ReadBack
from bridge.kafka.stalls import ASK_WHY_S

_log = logging.getLogger("bridge")


class _Missing(NamedTuple):
    """A topic that cannot be used now. since_s, again_s: when it was first, and will be next asked for."""

    refusal: Refusal
    since_s: float
    again_s: float


@dataclass(eq=False)
class Topics:
    """The topics of one log's records on one cluster. Not thread-safe."""

    connection: Connection
    engine: Engine  # gets what is found out about lanes
    checkpoints: Checkpoints
    judge: Judge
    waits: Waits
    log_end: Callable[[], int]  # the address after the log's last record
    give_up: Callable[[], bool]  # called now and then in long questions; True ends them
    _partitions: dict[str, PartitionCounts] = field(default_factory=dict)
    _shrunk: dict[str, int] = field(default_factory=dict)  # made anew, with so many partitions
    _missing: dict[str, _Missing] = field(default_factory=dict)
    _logged: dict[str, Refusal] = field(default_factory=dict)  # why a topic waits, as it was logged
    _silent: dict[LaneKey, float] = field(default_factory=dict)  # when each is asked again
    _reread_s: dict[str, float] = field(default_factory=dict)  # when one in use was last asked for
    _reread_due_s: float = 0.0

    def connecting(self) -> None:
        """A new connection may find other partitions. Nothing is outstanding."""
        self._partitions.clear()
        for topic, partitions in self._shrunk.items():
            self.engine.start_over(topic)
            self.checkpoints.start_over(topic, partitions)
            self._silent = {key: at for key, at in self._silent.items() if key[0] != topic}
        self._shrunk.clear()

    def read_back(self) -> Arrivals:
        """What the lanes hold that were in use before. Raises Unanswered, ToldToStop."""
        checkpoints = self.checkpoints
        with closing(self.connection.reader(self.give_up)) as reader:
            return self._read_back(reader, dict(checkpoints.lanes), clean=checkpoints.clean)

    def partitions(self, topic: str) -> PartitionCounts | Refusal | None:
        """How many partitions of a found topic are in use, or why none; None: its lane is closed for that reason."""
        found = self._partitions.get(topic)
        if found is not None:
            return found
        lane = self.engine.lanes.get((topic, NO_PARTITION))
        is_closed = lane is not None and lane.closed is not None
        return None if is_closed else self._missing[topic].refusal

    def read_back_new(self, topics: Collection[str]) -> PartitionsOf:
        """Finds the topics that were never looked for, and reads back their partitions. Returns `partitions`, which
        knows them all. Raises Unanswered, and StorageError if the checkpoints cannot be saved."""
        for topic in sorted(set(topics) - self._partitions.keys() - self._missing.keys()):
            self._find(topic, time.monotonic())
        return self.partitions

    def read_back_again(self) -> None:
        """Asks again, if it is time to, for what could not be used, or was not read back to its end. Call it before
        deciding where to read: the lanes that it opens left records in the log. Raises as `read_back_new`."""
        now_s = time.monotonic()
        for topic in [t for t, missing in self._missing.items() if missing.again_s <= now_s]:
            self._find(topic, now_s)
        due = [key for key, again_s in self._silent.items() if again_s <= now_s]
        for key, lane in self.engine.lanes.items():
            if lane.found is not None and lane.is_unread:
                checkpoint = self.checkpoints.lanes[key]
                checkpoint.address = max(checkpoint.address, lane.last_address)  # first, as always
                checkpoint.offset = lane.found.end
                due += [key] if key not in self._silent else []
        if due:
            unseen = {topic for topic, _ in due} - self._partitions.keys() - self._missing.keys()
            for topic in sorted(unseen):
                self._find(topic, now_s)  # it may have fewer partitions now
            self._add(due, self.waits.silent_answer_s, {})
        self._reread(now_s)

    def __contains__(self, key: LaneKey) -> bool:
        """Whether this object has closed the lane, and will open it."""
        return key in self._silent or (key[1] == NO_PARTITION and key[0] in self._missing)

    def may_come(self, topic: str) -> bool:
        """Whether the topic was missing for so short a time that the cluster may be creating it."""
        missing = self._missing.get(topic)
        return (
            missing is not None
            and missing.refusal.passing
            and time.monotonic() - missing.since_s < self.waits.creation_s
        )

    def hurry(self) -> None:
        """Asks for everything at the next question: somebody may have created or allowed it."""
        self._missing = {topic: m._replace(again_s=0.0) for topic, m in self._missing.items()}
        self._silent = dict.fromkeys(self._silent, 0.0)
        self._reread_s.clear()
        self._reread_due_s = 0.0

    def forbid(self, topic: str, refusal: Refusal) -> None:
        """A record was refused because of its topic."""
        now_s = time.monotonic()
        self._partitions.pop(topic, None)
        self._close(topic, _Missing(refusal, now_s, now_s + self.waits.forbidden_pause_s))

    def apply(self, arrivals: Arrivals) -> None:
        """Opens the lanes that answered when they were read back, and closes the silent ones."""
        for key, found in arrivals.found.items():
            self.engine.found(key, found)
            if self._silent.pop(key, None) is not None:
                self.engine.open(key)
        again_s = time.monotonic() + self.waits.silent_pause_s
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
            self.engine.close(key, why)

    # --- topics -------------------------------------------------------------------------------

    def _find(self, topic: str, now_s: float) -> None:
        waits = self.waits
        since_s = self._missing[topic].since_s if topic in self._missing else now_s
        found = self.connection.partitions(topic)
        if isinstance(found, Refusal):
            if now_s - since_s > waits.topic_s:
                found = found._replace(passing=False)
            pause_s = waits.topic_pause_s if found.passing else waits.refused_pause_s
            self._close(topic, _Missing(found, since_s, now_s + pause_s))
            return
        self._use(topic, found)
        self._reread_s[topic] = now_s
        self._missing.pop(topic, None)
        self._logged.pop(topic, None)
        self.engine.open((topic, NO_PARTITION))

    def _close(self, topic: str, missing: _Missing) -> None:
        self._missing[topic] = missing
        if self._logged.get(topic) != missing.refusal and not self.may_come(topic):
            self._logged[topic] = missing.refusal
            why, what_to_do = missing.refusal.reason, advice(missing.refusal.code)
            _log.warning("records for %s wait: %s: %s", topic, why, what_to_do)
        key = (topic, NO_PARTITION)
        if self.judge.stops(missing.refusal):
            self.engine.close(key, missing.refusal)
        else:
            self.engine.open(key)  # the records name an impossible topic: they are set aside

    def _use(self, topic: str, partitions: int, answer_s: float | None = None) -> None:
        """Uses the topic's partitions, once that and where to read back each is durable. A topic that was
        missing may be a new one, so all its lanes are read back. Raises as `read_back_new`."""
        counts = self._counts(topic, partitions)
        lanes = [(topic, partition) for partition in range(counts.latest)]
        if topic not in self._missing:
            lanes = [key for key in lanes if key not in self.checkpoints.lanes]
        self._add(lanes, answer_s, {topic: counts})
        self._partitions[topic] = counts

    def _counts(self, topic: str, partitions: int) -> PartitionCounts:
        """How many partitions to use, of so many, and for which records; see the module."""
        counts = self.checkpoints.partitions.get(topic)
        if counts is None:
            return PartitionCounts.always(partitions)
        if partitions > counts.latest:
            begin = self._past(topic)
            _log.info(
                "topic %s has %s now, and had %d: the new ones are used for records from address %d on",
                topic, counted(partitions, "partition"), counts.latest, begin,
                extra={"event": "topic_grown"},
            )  # fmt: skip  # one call
            return counts.grown(begin, partitions)
        if partitions < counts.latest:
            with closing(self.connection.reader(self.give_up)) as reader:
                self._meet(reader, {topic})
            if topic not in self.checkpoints.ids:
                self._shrink(topic, partitions)
        return counts  # a broker that has not learnt of a growth gives a lower number

    def _past(self, topic: str) -> int:
        """An address after all records that may have been sent to the topic."""
        lanes = [lane for key, lane in self.engine.lanes.items() if key[0] == topic]
        held = max((lane.last_address for lane in lanes), default=-1) + 1
        sent = max((lane.seen_to for lane in lanes), default=-1) + 1
        is_whole = all(lane.found is None or lane.found.is_whole for lane in lanes)
        if not is_whole or any(key[0] == topic for key in self._silent):
            sent = self.log_end()
        return max(self.engine.frontier.address, held, sent)

    def _reread(self, now_s: float) -> None:
        """Asks for one of the topics in use, if it is time to. Raises Unanswered if it is gone."""
        if now_s < self._reread_due_s or not self.connection.reachable:
            return
        self._reread_due_s, waits = now_s + 1.0, self.waits
        lanes = self.engine.lanes.items()
        stuck = {key[0] for key, lane in lanes if lane.stuck_s(now_s) > ASK_WHY_S}
        for topic in self._partitions:
            pause_s = waits.stuck_reread_s if topic in stuck else waits.reread_s
            if now_s - self._reread_s.get(topic, float("-inf")) >= pause_s:
                break
        else:
            return
        self._reread_s[topic] = now_s
        try:
            partitions = self.connection.partitions(topic, waits.silent_answer_s)
        except Unanswered:  # sending the next record will find out more
            return
        if isinstance(partitions, Refusal):
            if partitions.passing:
                raise Unanswered(partitions.reason)
            return  # as above
        in_use = self._partitions[topic].latest
        if partitions < in_use and topic not in self.checkpoints.ids:  # it is asked once more
            raise Unanswered(f"a broker says that topic {topic!r} has fewer partitions now")
        if partitions != in_use:
            self._use(topic, partitions, waits.silent_answer_s)

    def _meet(self, reader: ReadBack, topics: Collection[str]) -> None:
        """Compares the topics' ids with those that were noted; see the module. Raises Unanswered."""
        checkpoints = self.checkpoints
        for topic, (found, partitions) in reader.identities(topics).items():
            known, counts = checkpoints.ids.get(topic), checkpoints.partitions.get(topic)
            if known != found and counts is not None and partitions < counts.latest:
                self._shrink(topic, partitions)
            if known not in {None, found}:
                _log.warning("topic %s was made anew: it is read back from its beginning", topic)
                self.engine.forget_offsets(topic)
            checkpoints.meet(topic, found)

    def _shrink(self, topic: str, partitions: int) -> None:
        """The topic was made anew with fewer partitions: ends the connection; the next one starts over."""
        self._shrunk[topic] = partitions
        raise Unanswered(f"topic {topic!r} was created again, with fewer partitions")

    # --- partitions ---------------------------------------------------------------------------

    def _add(
        self, keys: list[LaneKey], answer_s: float | None, partitions: dict[str, PartitionCounts]
    ) -> None:
        """Reads back lanes that were never used, or could not be before, and saves where to read
        back the new ones: from their ends. Lanes that do not answer are closed."""
        checkpoints = self.checkpoints
        known = checkpoints.lanes.keys() & set(keys)
        begin = 0 if checkpoints.lost else FROM_END
        lanes = {key: checkpoints.lanes.get(key) or Checkpoint(begin) for key in keys}
        arrivals = Arrivals({}, {})
        if keys:
            with closing(self.connection.reader(self.give_up, answer_s)) as reader:
                if checkpoints.lost and len(known) < len(keys) and reader.reads:
                    _log.warning("scanning %s from the earliest offset", keys[0][0])
                clean = not known and not checkpoints.lost
                arrivals = self._read_back(reader, lanes, clean=clean)
        for key in lanes.keys() - arrivals.found.keys() - arrivals.silent.keys():
            arrivals.silent[key] = no_answer("it does not exist yet")
        checkpoints.add({key: lanes[key] for key in arrivals.found}, partitions)
        self.apply(arrivals)

    def _read_back(
        self, reader: ReadBack, lanes: dict[LaneKey, Checkpoint], *, clean: bool
    ) -> Arrivals:
        topics = {topic for topic, _ in lanes}
        if clean:  # nothing is expected, so that an offset of another topic does no harm
            topics -= self.checkpoints.ids.keys()
        self._meet(reader, topics)
        known = self.engine.lanes
        held = {
            key: max(of.address, known[key].last_address if key in known else -1)
            for key, of in lanes.items()
        }
        since = self.engine.position.address
        wanted = Wanted(self.checkpoints.source, since, self.log_end(), held)
        return read_back(reader, lanes, wanted, self.waits, clean=clean)
