"""Pulls units: plan, claim, read with assign and seek, append, finish.

Why claims in files: a claim ends with its process, and only then, which no session of Kafka's does; and
one directory says what is left. Why not a compacted topic: a claim there and a record in a log are two
systems, so a worker that lost its claim could still append. Why not share groups (KIP-932): they
deliver at least once, give no order and no seek, and drop a record after some attempts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

from aolog import Writer
from aolog.errors import StorageFull, UsageError
from bridge.errors import NoSuchTopic, Unanswered
from bridge.pull.frames import append_frame, fetch_runs
from bridge.pull.origin import Source, sources_of
from bridge.pull.positions import mark_units
from bridge.pull.pull_options import AGAIN_S, FETCH_S
from bridge.pull.units import Unit, Units

if TYPE_CHECKING:
    from bridge.kafka.catalog import Place, Topic
    from bridge.kafka.runs import Run
    from bridge.pull.puller import Puller

_IDLE_S = 1.0  # before the partitions' ends are asked for again, when all units are done


class UnitWork:
    """Of one pull, whose log is the worker's own. Raises UsageError, DestinationError, and what Writer
    raises."""

    def __init__(self, puller: Puller) -> None:
        self._puller, options = puller, puller.options
        assert options.root is not None
        assert options.units is not None
        self._anew = False  # a topic is gone, or was made anew: the next turn looks for it
        self._ends: dict[Source, int] | None = {} if options.drain else None
        self._sources: dict[Place, Source] = {}
        self._take(puller.topics.describe(puller.catalog))
        self._units = Units(options.root, options.path, options.units)
        self._writer = Writer(options.path)
        mark_units(options.path)
        puller.connect()
        self._next: dict[str, int] = {}

    def _must_leave(self) -> bool:
        """Whether to stop, or to connect anew."""
        return self._puller.renewed or self._puller.stopping or self._anew

    def _look(self) -> None:
        """The topics and partitions as they are now, without topics that are missing. A drain takes no other
        topics than at its start. Raises Unanswered, and in a drain NoSuchTopic."""
        self._anew = False
        if self._ends is not None:
            self._take(self._puller.catalog.topics({topic for topic, _ in self._sources}))
        elif (looked := self._puller.topics.look(self._puller.catalog)) is not None:
            self._take(looked[1].values())

    def _take(self, topics: Iterable[Topic]) -> None:
        """The partitions of these topics, and in a drain the ends of those that are new."""
        self._sources = sources_of(self._puller.cluster, topics)
        if self._ends is not None:
            new = {place: s for place, s in self._sources.items() if s not in self._ends}
            latest = self._latest(new)
            self._ends |= {source: latest[place] for place, source in new.items()}

    def positions(self) -> dict[str, int]:
        """Of the unit that is being read."""
        return self._next

    def checkpoint(self) -> None:
        """Each unit is durable, or left."""

    def close(self) -> None:
        """Releases the log, then every claim."""
        with closing(self._units):
            self._writer.close()

    def turn(self) -> bool:
        """Pulls each unit that can be claimed now. Whether all are done."""
        if self._puller.renewed:
            self._puller.fetcher.close()
            self._puller.connect()
        try:
            if self._anew or (self._ends is None and self._puller.looks()):
                self._look()
            first = self._puller.catalog.offsets(self._sources, "earliest")
            latest = {} if self._ends is not None else self._latest(self._sources)
        except Unanswered as error:
            self._wait("away", str(error))
            return False
        except NoSuchTopic as error:
            if self._ends is not None:
                raise
            self._anew = True
            self._wait("waiting", str(error))
            return False
        self._units.see({source: first[place] for place, source in self._sources.items()})
        self._units.refresh()
        left = 0
        for place, source in self._sources.items():
            end = latest[place] if self._ends is None else self._ends[source]
            for planned in self._units.left(source, place[0], end):
                if self._must_leave():
                    return False
                unit = self._units.claim(planned, self._writer.end)
                left += 1
                if unit is not None:
                    self._puller.state, self._puller.error = "pulling", None
                    self._pull(place, planned, unit)
                    left -= 1
                    self._puller.report()
        if left:  # by others
            self._wait("waiting", None)
        elif self._ends is None:
            self._wait("pulling", None, _IDLE_S)
        return left == 0 and self._ends is not None and not self._must_leave()

    def _pull(self, place: Place, planned: Unit, unit: Unit) -> None:
        """Reads what is left of a unit into the log, and finishes it; or leaves it, to stop or to
        connect anew."""
        began_s = time.monotonic()
        at, seen = unit.begin, 0
        if at < unit.end:
            self._puller.fetcher.assign({place: at})
            try:
                while at < unit.end and not self._must_leave():
                    arrived: list[Run] = []
                    for found in fetch_runs(self._puller.fetcher):
                        arrived += found.runs
                        self._puller.state = "pulling" if found.away is None else "away"
                        self._puller.error = found.away
                        if found.runs and found.runs[-1].offsets[-1] >= unit.end:
                            break
                    runs = [run.within(at, unit.end) for run in arrived]
                    runs = [run for run in runs if run.offsets]
                    if runs and not self._append(runs):
                        break  # left
                    seen += sum(len(run.offsets) for run in runs)
                    ends = [run.offsets[-1] + 1 for run in arrived]
                    at = min(unit.end, max(at, found.ends.get(place, 0), *ends))
                    if found.out_of_range:
                        at = self._skip(place, at, unit)
                    elif not arrived and self._puller.looks():
                        with suppress(Unanswered):  # the next fetch reports it
                            self._is_same(place)
                    self._next = {f"{place[0]}/{place[1]}": at}
                    self._puller.report()
            finally:
                self._puller.fetcher.unassign([place])
        self._when_there_is_room(self._writer.sync)
        if at < unit.end:
            self._units.leave(unit)
            return
        self._units.finish(unit, planned, seen, time.monotonic() - began_s)
        self._puller.units += 1

    def _append(self, runs: list[Run]) -> bool:
        """All of them, after the cluster has said once more that the topic has the id that is
        written. Waits while the cluster is silent or the disk is full. False if the unit
        is to be left before."""
        place = runs[0].place
        source = self._sources[place]
        while not self._must_leave():
            try:
                if not self._is_same(place):
                    return False
                break
            except Unanswered as error:
                self._wait("away", str(error))
        else:
            return False
        for run in runs:
            self._when_there_is_room(
                partial(append_frame, self._writer, source, run, self._puller.omissions)
            )
            self._puller.pulled += len(run.offsets)
        return True

    def _is_same(self, place: Place) -> bool:
        """Whether the topic has the id under which its units were planned. Otherwise units are left. Raises
        Unanswered."""
        topic = self._puller.catalog.existing([place[0]]).get(place[0])
        self._anew = topic is None or topic.id != self._sources[place].topic_id
        return not self._anew

    def _when_there_is_room(self, act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except StorageFull as error:
                if self._puller.stopping:  # the next holder goes on after what was appended
                    raise
                self._wait("full", str(error))
            else:
                return

    def _skip(self, place: Place, at: int, unit: Unit) -> int:
        """The cluster has deleted the unit's records from `at` on, or the topic: where the unit goes on. That
        is `at`, to find out again, if the cluster does not answer."""
        to = at
        try:
            if not self._is_same(place):
                return at
            first = self._puller.catalog.offsets([place], "earliest")[place]
        except NoSuchTopic:
            self._anew = True
            return at
        except Unanswered as error:
            self._wait("away", str(error))
        else:
            if first <= at:
                raise UsageError(f"{place[0]}/{place[1]} has no offset {at}")
            to = min(first, unit.end)
            self._when_there_is_room(self._writer.sync)
            self._puller.lose(place, at, to)
            self._units.lose(unit, to, self._writer.end)
        if to < unit.end:  # or its error would come while the next unit is read
            self._puller.fetcher.unassign([place])
            self._puller.fetcher.assign({place: to})
        return to

    def _latest(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._puller.catalog.offsets(places, "latest", committed_only=True)

    def _wait(self, state: str, error: str | None, wait_s: float = AGAIN_S) -> None:
        self._puller.state, self._puller.error = state, error
        self._puller.report()
        until_s = time.monotonic() + wait_s
        while not self._puller.stopping and time.monotonic() < until_s:
            time.sleep(min(FETCH_S, wait_s))
