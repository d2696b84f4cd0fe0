"""Topics: into how many lanes each is cut, found and noted before the first record is sent.

What is not there yet closes its lanes and no others: a topic that is missing or not ours its
lane without a partition, a partition that does not answer, or may not be read, its own. It is
asked for again now and then, in a question short enough that the client's queue does not run dry
meanwhile.

Topics in use are asked for again each minute, and sooner where they take nothing. One that is gone
ends the connection; the next one finds it missing. One that has grown goes on with as many partitions
as it had until nothing is under way: otherwise records of one key could change their order, and a
restart would look for records in lanes to which they were not sent. So reading pauses, for ten seconds
at most, until all that was read is acknowledged and the cursor is durable there.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import counted
from bridge.deliver.at_least_once.arrivals import Arrivals, forbidden, read_back, silence
from bridge.deliver.checkpoints import Checkpoint, Checkpoints
from bridge.kafka.client import NoAnswer, NotReachable, Refused
from bridge.kafka.error_table import UNKNOWN_TOPIC, advice
from bridge.kafka.lane import NO_PARTITION, Refusal
from bridge.kafka.stalls import ASK_WHY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bridge.deliver.at_least_once.engine import Engine
    from bridge.deliver.at_least_once.recognise import Recogniser
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.producer import Cluster
    from bridge.kafka.read_back import ReadBack

__all__ = ["TOPIC_PAUSE_S", "TOPIC_WAIT_S", "Topics"]

_log = logging.getLogger("bridge")
TOPIC_WAIT_S = 30.0  # a topic that is being created appears within seconds
TOPIC_PAUSE_S = 0.2  # before one that is waited for is asked for again
REFUSED_PAUSE_S = 10.0  # and one that is missing for long
FORBIDDEN_PAUSE_S = 60.0  # asking for rights means to send a record, and a new connection if not
SILENT_PAUSE_S = 5.0
REREAD_S = 60.0  # topics in use
STUCK_REREAD_S = 10.0  # those that take nothing
SETTLE_S = 10.0  # how long reading pauses for new partitions, each minute
SILENT_ANSWER_S = 2.0  # a question may need a connection first; what is queued goes on meanwhile


class _Missing(NamedTuple):
    """A topic that cannot be used now. since_s: when it was first asked for."""

    refusal: Refusal
    since_s: float
    again_s: float


class Topics:
    """The topics of one log's records on one cluster.

    recogniser: of the log. give_up: asked now and then.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        notes: Checkpoints,
        *,
        recogniser: Recogniser,
        give_up: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._notes = notes
        self._recogniser = recogniser
        self._give_up = give_up
        self._partitions: dict[str, int] = {}
        self._missing: dict[str, _Missing] = {}
        self._silent: dict[LaneKey, float] = {}
        self._reread_s: dict[str, float] = {}  # when topics in use were last asked for
        self._reread_due_s = 0.0
        self._grown: dict[str, int] = {}  # how many partitions those have that use fewer
        self._settle_until_s = 0.0

    def forget(self) -> None:
        """A new connection may find other partitions."""
        self._partitions.clear()
        self._grown.clear()

    def partitions(self, topic: str) -> int | None:
        """How many a topic that was found has; else None."""
        return self._partitions.get(topic)

    def refusal(self, topic: str) -> Refusal:
        """Why a topic that was looked for cannot be used."""
        return self._missing[topic].refusal

    def look(self, topics: Collection[str]) -> None:
        """Finds those that were never looked for. Raises NotReachable, and StorageError where the
        notes cannot be saved."""
        for topic in set(topics) - self._partitions.keys() - self._missing.keys():
            self._find(topic, time.monotonic())

    def look_again(self) -> None:
        """Asks for what was missing, where it is time to. As `look`; to be called before it is
        decided from where to read, since what is found was left behind."""
        now_s = time.monotonic()
        for topic in [t for t, missing in self._missing.items() if missing.again_s <= now_s]:
            self._find(topic, now_s)
        silent = [key for key, again_s in self._silent.items() if again_s <= now_s]
        if silent:
            self._ask_again(silent)
        self._reread(now_s)
        self._settle(now_s)

    @property
    def settles(self) -> bool:
        """Whether nothing more is to be read until all that was read is acknowledged."""
        return bool(self._grown) and time.monotonic() < self._settle_until_s

    def __contains__(self, key: LaneKey) -> bool:
        """Whether the lane is closed here, and so is opened here."""
        return key in self._silent or (key[1] == NO_PARTITION and key[0] in self._missing)

    def hurry(self) -> None:
        """Somebody may have made, or allowed, what was missing: it is asked for at once."""
        self._missing = {topic: m._replace(again_s=0.0) for topic, m in self._missing.items()}
        self._silent = dict.fromkeys(self._silent, 0.0)
        self._reread_s.clear()
        self._reread_due_s = 0.0

    def forbid(self, topic: str, refusal: Refusal) -> None:
        """A record was refused for all of the topic."""
        now_s = time.monotonic()
        self._partitions.pop(topic, None)
        self._close(topic, _Missing(refusal, now_s, now_s + FORBIDDEN_PAUSE_S))

    def heard(self, arrivals: Arrivals) -> None:
        """What reading back has found: lanes that did not answer, or may not be read, stay
        closed."""
        for key in arrivals.held:
            if self._silent.pop(key, None) is not None:
                self._engine.open(key)
        again_s = time.monotonic() + SILENT_PAUSE_S
        new = {key: why for key, why in arrivals.silent.items() if key not in self._silent}
        for key, why in new.items():
            if why.passing:
                _log.warning("%s/%d is not there, its records wait: %s", *key, why.reason)
        for reason in {why.reason for why in new.values() if not why.passing}:
            _log.warning("records wait: %s", reason, extra={"event": "topic_unreadable"})
        for key, why in arrivals.silent.items():
            self._silent[key] = again_s
            self._engine.close(key, why)

    # --- inside -------------------------------------------------------------------------------

    def _reread(self, now_s: float) -> None:
        """Asks for one of the topics in use, if it is time to. Raises NotReachable where it is gone."""
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
        except NotReachable:  # the next record finds out more
            return
        if partitions == 0:
            raise NotReachable(self._cluster.missing(topic))
        in_use = self._partitions[topic]
        if partitions < in_use:
            raise NotReachable(f"topic {topic!r} has been made anew, with fewer partitions")
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
        if not any(lane.closed is not None and lane.behind is not None for lane in lanes):
            self._settle_until_s = now_s + SETTLE_S

    def _settle(self, now_s: float) -> None:
        """Takes new partitions into use, where nothing is under way."""
        engine = self._engine
        if not self._grown or engine.position.address < engine.frontier.address:
            return
        if not engine.is_settled:
            engine.commit_soon(now_s=now_s)
            return
        for topic, partitions in list(self._grown.items()):
            self._note(topic, partitions)
            self._partitions[topic] = partitions
            del self._grown[topic]
            _log.info("topic %s: %s in use", topic, counted(partitions, "partition"))

    def _find(self, topic: str, now_s: float) -> None:
        since_s = self._missing[topic].since_s if topic in self._missing else now_s
        try:
            found = self._cluster.partitions(topic)
            partitions = self._in_use(topic, found)
        except Refused as error:
            refusal, pause_s = Refusal(str(error), error.code), REFUSED_PAUSE_S
            partitions = 0
        else:
            waited = now_s - since_s > TOPIC_WAIT_S
            refusal = Refusal(self._cluster.missing(topic), UNKNOWN_TOPIC, passing=not waited)
            pause_s = REFUSED_PAUSE_S if waited else TOPIC_PAUSE_S
        if not partitions:
            self._close(topic, _Missing(refusal, since_s, now_s + pause_s))
            return
        if topic in self._missing:
            self._shorten(topic)
        self._note(topic, partitions)
        self._partitions[topic] = partitions
        self._reread_s[topic] = now_s
        if partitions < found:
            self._grow(topic, partitions, found, now_s)
        self._missing.pop(topic, None)
        self._engine.open((topic, NO_PARTITION))

    def _close(self, topic: str, missing: _Missing) -> None:
        before = self._missing.get(topic)
        if before is None or before.refusal != missing.refusal:
            why, what_to_do = missing.refusal.reason, advice(missing.refusal.code)
            _log.warning("records for %s wait: %s: %s", topic, why, what_to_do)
        self._missing[topic] = missing
        key = (topic, NO_PARTITION)
        if missing.refusal.is_poison and self._engine.poison != "stop":
            self._engine.open(key)  # the name is the records' own: they are set aside
        else:
            self._engine.close(key, missing.refusal)

    def _in_use(self, topic: str, partitions: int) -> int:
        """Into how many lanes the topic's records are cut. Where one has records that the cursor
        has not passed, as many as they were cut into: in a topic that has grown since, they would
        be looked for in other lanes, and missing ones be taken for held."""
        noted = self._notes.partitions.get(topic)
        if noted is None:  # notes of an earlier version
            noted = sum(name == topic for name, _ in self._notes.lanes)
        position = self._engine.position.address
        lanes = self._engine.lanes.items()
        ahead = any(name == topic and lane.last_address >= position for (name, _), lane in lanes)
        return noted if ahead and 0 < noted < partitions else partitions

    def _note(self, topic: str, partitions: int) -> None:
        """Before a lane is first used it is durable from where to read it back, and into how many
        lanes the topic's records are cut."""
        notes = self._notes
        before = notes.partitions.get(topic)
        if before != partitions:
            notes.partitions[topic] = partitions
            try:
                notes.save()
            except BaseException:
                if before is None:
                    del notes.partitions[topic]
                else:
                    notes.partitions[topic] = before
                raise
        new = [key for p in range(partitions) if (key := (topic, p)) not in notes.lanes]
        if new:
            self._ask(new, None)

    def _shorten(self, topic: str) -> None:
        """A topic that was missing may be a new one: offsets that were noted of the old one would
        hide from reading back what arrives now."""
        noted = [key for key in self._notes.lanes if key[0] == topic]
        if not noted:
            return
        reader = self._cluster.reader(self._give_up)
        try:
            for key in noted:
                note = self._notes.lanes[key]
                try:
                    _, end = reader.ends(key, SILENT_ANSWER_S)
                except (NoAnswer, Refused):
                    end = 0
                note.offset = min(note.offset, end)
        finally:
            reader.close()

    def _ask_again(self, keys: list[LaneKey]) -> None:
        """What lies in lanes that did not answer before."""
        known = {key: note for key in keys if (note := self._notes.lanes.get(key)) is not None}
        new = [key for key in keys if key not in known]
        if new:
            self._ask(new, SILENT_ANSWER_S)
        if known:
            reader = self._cluster.reader(self._give_up)
            try:
                self.heard(self._read_back(reader, known, SILENT_ANSWER_S, clean=False))
            finally:
                reader.close()

    def _ask(self, new: list[LaneKey], answer_s: float | None) -> None:
        """Notes lanes that were never used."""
        notes = self._notes
        reader = self._cluster.reader(self._give_up)
        found: dict[LaneKey, Checkpoint] = {}
        held: dict[LaneKey, int] = {}
        silent: dict[LaneKey, Refusal] = {}
        away = {-1: silence("no broker leads it")}
        readable: set[str] = set()
        unreadable: dict[str, Refusal] = {}
        try:
            leaders = {topic: reader.leaders(topic) for topic in {key[0] for key in new}}
            for key in new:
                leader = leaders[key[0]].get(key[1], -1)
                if (why := unreadable.get(key[0]) or away.get(leader)) is not None:
                    silent[key] = why
                    continue
                try:
                    first, end = reader.ends(key, answer_s)
                    if key[0] not in readable:  # else the first crash would find the right missing
                        reader.check_readable(key, end, answer_s)
                        readable.add(key[0])
                except NoAnswer as error:
                    away[leader] = silent[key] = silence(error)
                except Refused as error:
                    unreadable[key[0]] = silent[key] = forbidden(error)
                else:
                    found[key] = Checkpoint(first if notes.lost else end)
            if notes.lost and found and reader.reads:
                _log.warning("reading %s back from its begin", new[0][0])
                held, more = self._read_back(reader, found, answer_s, clean=notes.clean)
                silent.update(more)
        finally:
            reader.close()
        answered = {key: note for key, note in found.items() if key not in silent}
        if answered:
            was_clean, notes.clean = notes.clean, False
            notes.lanes.update(answered)
            try:
                notes.save()
            except BaseException:
                notes.clean = was_clean
                for key in answered:
                    del notes.lanes[key]
                raise
        for key, address in held.items():
            if key in answered:
                self._engine.note_held(key, address)
        self.heard(Arrivals(dict.fromkeys(answered, -1), silent))

    def _read_back(
        self, reader: ReadBack, lanes: dict[LaneKey, Checkpoint], answer_s: float | None, *,
        clean: bool,
    ) -> Arrivals:  # fmt: skip  # as a call
        arrivals = read_back(
            reader,
            lanes,
            self._recogniser,
            clean=clean,
            distrusts=self._engine.distrusts,
            answer_s=answer_s,
        )
        for key, address in arrivals.held.items():
            self._engine.note_held(key, address)
        return arrivals
