"""Where partitions begin: under which id of their topic, with whose claim, and at which offset.

A partition waits while its topic does not exist, another process has its claim, or the cluster gives no
answer. It also waits for a moment if it ends before its position: not all nodes of a cluster learn at once
that a topic was made anew, so the id and the end may be of two topics.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from bridge.errors import DestinationError, NoSuchTopic, Unanswered
from bridge.pull.origin import Source, sources_of

if TYPE_CHECKING:
    from uuid import UUID

    from bridge.kafka.catalog import Place, Topic
    from bridge.pull.archive import Archive
    from bridge.pull.puller import Puller

_log = logging.getLogger("bridge")


class Begin(NamedTuple):
    """A partition whose claim is ours. end: of its committed records."""

    source: Source
    offset: int
    end: int


class Beginnings:
    """Of one pull."""

    def __init__(self, puller: Puller, archive: Archive) -> None:
        self._puller, self._options, self._archive = puller, puller.options, archive
        self._ids: dict[str, UUID] = {}
        self._since_s: dict[Source | str, float] = {}  # of partitions and topics that wait
        self.error: str | None = None  # why a partition waits, except for a claim

    def find(self, places: Iterable[Place]) -> tuple[dict[Place, Begin], set[Place]]:
        """Those that begin now, and those that wait; a partition that does not exist is in neither.
        Raises DestinationError for one that has lost records, and in a drain for a missing topic."""
        waiting, catalog = set(places), self._puller.catalog
        claimed: dict[Place, Source] = {}
        begun: dict[Place, Begin] = {}
        self.error = None
        try:
            topics = catalog.existing({topic for topic, _ in waiting})
            sources = self._sources(topics.values())
            there = waiting & sources.keys()
            claimed = {p: sources[p] for p in there if self._archive.claim(sources[p])}
            first = catalog.offsets(claimed, "earliest")
            end = catalog.offsets(claimed, "latest", committed_only=True)
        except (Unanswered, NoSuchTopic) as error:
            self.error = str(error)
        else:
            self._note_missing({topic for topic, _ in waiting}, topics.keys())
            if self._options.group is None or self._options.drain:  # or the group takes them away
                waiting -= {p for p in waiting - there if p[0] in topics}
            known = self._archive.next_offsets(claimed.values())
            for place, source in claimed.items():
                at = known.get(source, self._archive.start_of(source))
                offset = self._offset(place, source, at, first[place], end[place])
                if offset is not None:
                    begun[place] = Begin(source, offset, end[place])
        for place in claimed.keys() - begun.keys():  # another process may get an answer
            self._archive.release(claimed[place])
        return begun, waiting - begun.keys()

    def _sources(self, topics: Collection[Topic]) -> dict[Place, Source]:
        for topic in topics:
            if self._ids.setdefault(topic.name, topic.id) != topic.id:
                _log.warning("topic %s was made anew; it is pulled from its beginning", topic.name)
                self._ids[topic.name] = topic.id
        return sources_of(self._puller.cluster, topics)

    def _note_missing(self, topics: set[str], existing: Iterable[str]) -> None:
        for topic in existing:
            self._since_s.pop(topic, None)
        for topic in topics.difference(existing):
            error = NoSuchTopic(f"there is no topic {topic!r}")
            if self._options.drain:
                self._wait(topic, error)
            self.error = str(error)

    def _offset(
        self, place: Place, source: Source, at: int | None, first: int, end: int
    ) -> int | None:
        """Where the partition begins, never before `at`, or None if it waits. at: the position; None if
        there is none."""
        if at is None:
            return first
        if at > end:
            self._wait(source, DestinationError(
                f"{place[0]}/{place[1]} ends at {end}, and the archive has it up to {at}: the cluster has lost"
                " records, and will give their offsets to others",
                hint="pull the topic into a new archive",
            ))  # fmt: skip  # one call
            return None
        self._since_s.pop(source, None)
        if at >= first:
            return at
        self._puller.lose(place, at, first)
        return first if self._options.out_of_range == "earliest" else end

    def _wait(self, what: Source | str, error: DestinationError) -> None:
        """Raises the error once it has lasted."""
        now_s = time.monotonic()
        if now_s - self._since_s.setdefault(what, now_s) >= self._options.sure_s:
            raise error
        self.error = str(error)
