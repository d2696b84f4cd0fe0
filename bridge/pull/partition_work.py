"""Pulls partitions: fetch, append, sync, note how far; and what happens when partitions come and go.

Invariants:
- A record is appended only by the holder of its partition's claim, and only if it is not before the
  partition's next offset. That offset only grows.
- A batch is appended after the cluster has said once more that its topics have the ids that are
  written: ids never come back, so no record gets the id of another topic of the same name. A topic that has
  another id was made anew: its partitions begin again.
- Before a claim is released, everything is durable. Claims are held for the partitions of `_sources`,
  and for no others: a claim without records to come would keep other processes waiting.

While the log is full, nothing is fetched, but the group is still polled, so membership is kept. Any
unexpected error ends the pull; the next start reads from the log how far it got.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from aolog import Reader, Retention, Writer
from aolog.errors import NotALog, StorageFull, UsageError, records_lost
from bridge.errors import Unanswered
from bridge.pull.archive import Archive
from bridge.pull.beginnings import Beginnings
from bridge.pull.frames import append_frame, fetch_runs
from bridge.pull.origin import Origin, Source, clusters_of, sources_of
from bridge.pull.positions import Mark, read_positions, save_positions
from bridge.pull.pull_options import AGAIN_S, FETCH_S, SYNC_S

if TYPE_CHECKING:
    from bridge.kafka.catalog import Place, Topic
    from bridge.kafka.runs import Run
    from bridge.pull.puller import Puller

_log = logging.getLogger("bridge")


class PartitionWork:
    """Of one pull. Raises UsageError, DestinationError, and what Writer raises."""

    def __init__(self, puller: Puller) -> None:
        self._puller, options = puller, puller.options
        described = puller.topics.describe(puller.catalog)
        self._names = {topic.name for topic in described}
        places = sources_of(puller.cluster, described)
        if options.group is not None:
            puller.catalog.check_group(options.group)
        self._ends: dict[Source, int] = {}  # where a drain ends, and "latest" begins
        if options.drain or options.begin == "latest":
            ends = puller.catalog.offsets(places, "latest", committed_only=True)
            self._ends = {source: ends[place] for place, source in places.items()}
        self._positions = read_positions(options.path)  # refuses a log with other records
        self._first, _ = self._look_at_log()
        self._archive = Archive(options.root or options.path, options.path)
        self._check_group(list(places))
        if options.begin == "latest":
            self._archive.begin_at(self._ends)
        retention = Retention(max_bytes=options.max_bytes, when_full="error")
        # checkpoint syncs sooner. Not "never": a reader's cursor would not wait for what it passes.
        self._writer = Writer(options.path, retention=retention, sync_seconds=2 * SYNC_S)
        if options.max_bytes is not None:
            _log.warning(
                "%s is bounded: when it has %d bytes, the archive's oldest records that no cursor needs"
                " are deleted",
                options.path, options.max_bytes,
            )  # fmt: skip  # one call
        self._beginnings = Beginnings(puller, self._archive)
        self._next: dict[Place, int] = {}  # of the partitions that are ours
        self._sources: dict[Place, Source] = {}  # the same ones
        self._waiting = set() if options.group is not None else set(places)
        self._read_to: dict[Place, int] = {}
        self._revoked_now: set[Place] = set()  # during the present fetch
        self._held: list[Run] = []  # fetched, and not appended yet
        self._mark: Mark | None = None
        self._saved: Mark | None = None
        self._joined = options.group is None
        self._again_due_s = 0.0
        self._sync_due_s = time.monotonic() + SYNC_S
        puller.connect()
        if options.group is not None:
            self._subscribe()

    def positions(self) -> dict[str, int]:
        """The next offsets by topic/partition."""
        return {f"{topic}/{number}": at for (topic, number), at in sorted(self._next.items())}

    def close(self) -> None:
        """Releases the log, then every claim."""
        with closing(self._archive):
            self._writer.close()

    def turn(self) -> bool:
        """One round. Whether it has drained."""
        if self._is_drained():
            return True
        puller = self._puller
        if puller.renewed:
            self._connect_anew()
        now_s = time.monotonic()
        if self._waiting and now_s >= self._again_due_s:
            self._again_due_s = now_s + AGAIN_S
            self._add(list(self._waiting))
        if not puller.options.drain and puller.state != "away" and puller.looks():
            self._look()
        is_enough = self._is_read if puller.options.drain else None
        for found in fetch_runs(puller.fetcher, is_enough):
            self._held += found.runs  # now: the next step may take partitions away
            self._read_to |= found.ends
            self._drop_revoked()
        puller.state, puller.error = "pulling", None
        if self._waiting:
            puller.state, puller.error = "waiting", self._beginnings.error
        if found.away is not None:
            puller.state, puller.error = "away", found.away
        self._append_held()
        self._restart([place for place in found.out_of_range if place in self._sources])
        if time.monotonic() >= self._sync_due_s:
            self.checkpoint()
        return False

    def _drop_revoked(self) -> None:
        """What one fetch returned of a partition that was revoked in it may be from before. If the
        partition came back in the same fetch, it begins again after what was appended."""
        places, self._revoked_now = self._revoked_now, set()
        if places:
            back = [p for p in places if p in self._sources or p in self._waiting]
            self._remove(list(places))
            self._add(back)

    def _connect_anew(self) -> None:
        """Goes on after what was appended. Waits while the log is full: leaving a group needs
        everything durable."""
        self.checkpoint()
        if self._mark != self._saved:
            return
        self._puller.fetcher.close()
        self._held.clear()
        self._revoked_now.clear()
        self._read_to.clear()  # what was held is before these ends
        self._puller.connect()
        if self._puller.options.group is None:
            self._puller.fetcher.assign(self._next)
        else:
            self._joined = False
            self._subscribe()

    def _subscribe(self) -> None:
        self._puller.fetcher.subscribe(self._names, self._assigned, self._revoked)

    def _append_held(self) -> None:
        """Appends what is held; or it is held still, and fetching is paused."""
        try:
            if self._held:
                self._check_ids()
            while self._held:
                self._append(self._held[0])
                del self._held[0]
        except StorageFull as error:
            self._hold("full", str(error))
        except Unanswered as error:
            self._hold("away", str(error))
        else:  # or what was held is another process's now
            self._puller.fetcher.resume()

    def _hold(self, state: str, error: str) -> None:
        self._puller.state, self._puller.error = state, error
        self._puller.fetcher.pause()
        time.sleep(FETCH_S)

    def _check_ids(self) -> None:
        """The topics of what is held still have the ids under which it is written. What was fetched of
        others is dropped, and they begin again."""
        topics = self._puller.catalog.existing({run.place[0] for run in self._held})
        places = {run.place for run in self._held} & self._sources.keys()
        self._restart([p for p in places if p[0] not in topics or self._is_anew(p, topics)])

    def _is_anew(self, place: Place, topics: Mapping[str, Topic]) -> bool:
        """Whether a partition of ours is of a topic that was made anew since it began."""
        return place[0] in topics and topics[place[0]].id != self._sources[place].topic_id

    def _append(self, run: Run) -> None:
        """Those that are in the archive already, or whose partition is another process's now, are
        dropped."""
        place = run.place
        source = self._sources.get(place)
        if source is None:
            return
        fresh = run.within(self._next[place], run.offsets[-1] + 1)
        if fresh.offsets:
            taken = self._not_skipped(fresh)
            if taken.offsets:
                first = append_frame(self._writer, source, taken, self._puller.omissions)
                last = taken.offsets[-1]
                self._mark = Mark(first + len(taken.offsets) - 1, Origin(source, last))
            self._next[place] = fresh.offsets[-1] + 1
            self._puller.pulled += len(taken.offsets)
            self._puller.skipped += len(fresh.offsets) - len(taken.offsets)

    def _not_skipped(self, run: Run) -> Run:
        if run.headers is None or not self._puller.options.skip_clusters:
            return run
        skip = {cluster.encode() for cluster in self._puller.options.skip_clusters}
        return run.chosen([not skip & clusters_of(headers or ()) for headers in run.headers])

    def checkpoint(self) -> None:
        """Makes all of the log durable, then reports how far it got: in a file, and to the group."""
        self._sync_due_s = time.monotonic() + SYNC_S
        mark = self._mark
        if mark is None or mark == self._saved:
            return
        try:
            self._writer.sync()
        except StorageFull as error:
            self._hold("full", str(error))
            return
        self._positions |= {source: self._next[p] for p, source in self._sources.items()}
        first, uuid = self._look_at_log()
        assert uuid is not None  # without headers nothing was appended
        save_positions(self._puller.options.path, uuid, mark, self._positions)
        self._count_deleted(first)
        self._saved = mark
        if self._puller.options.group is not None:
            at = {place: self._next[place] for place in self._sources}
            self._puller.fetcher.commit(at, self._archive.note())

    def _is_drained(self) -> bool:
        if not self._puller.options.drain or not self._joined or self._waiting or self._held:
            return False
        return self._is_read()

    def _is_read(self) -> bool:
        """Whether there is nothing more to fetch for a drain: it is all held, or appended."""
        return all(
            max(at, self._read_to.get(place, 0)) >= self._ends[self._sources[place]]
            for place, at in self._next.items()
        )

    # --- partitions come and go -------------------------------------------------------------

    def _look(self) -> None:
        """Takes topics and partitions that have come, and leaves topics that are not wanted any more. A
        topic that was made anew begins again."""
        try:
            looked = self._puller.topics.look(self._puller.catalog)
        except Unanswered:
            return  # the next fetch reports it
        if looked is None:
            return
        names, topics = set(looked[0]), looked[1]
        come, gone = names - self._names, self._names - names
        if come or gone:
            _log.info("topics that came: %s; that went: %s", sorted(come), sorted(gone))
        self._names = names
        self._restart([place for place in self._sources if self._is_anew(place, topics)])
        if self._puller.options.group is None:
            self._remove([p for p in (*self._sources, *self._waiting) if p[0] in gone])
            places = {(t.name, p.number) for t in topics.values() for p in t.partitions}
            self._add(places - self._sources.keys() - self._waiting)
        elif come or gone:
            self._subscribe()

    def _check_group(self, places: list[Place]) -> None:
        if self._puller.options.group is not None:
            notes = self._puller.catalog.notes(self._puller.options.group, places)
            self._archive.check_notes(self._puller.options.group, notes)

    def _assigned(self, places: list[Place]) -> None:
        self._joined = True
        with suppress(Unanswered):  # and then it cannot begin, either
            self._check_group(places)
        self._add(places)

    def _revoked(self, places: list[Place]) -> None:
        self._revoked_now |= set(places)
        self._remove(places)

    def _add(self, places: Collection[Place]) -> None:
        """Begins those that can begin; others wait, and are tried again."""
        if not places:
            return
        begun, waiting = self._beginnings.find(places)
        self._waiting = (self._waiting - set(places)) | waiting
        if not begun:
            return
        for begin in begun.values():
            self._ends.setdefault(begin.source, begin.end)
        self._sources |= {place: begin.source for place, begin in begun.items()}
        offsets = {place: begin.offset for place, begin in begun.items()}
        self._next |= offsets
        self._puller.fetcher.assign(offsets)

    def _remove(self, places: list[Place]) -> None:
        """Makes what was appended durable, then leaves the partitions to others."""
        if not places:
            return
        mine = [place for place in places if place in self._sources]
        self._waiting -= set(places)
        self._held = [run for run in self._held if run.place not in places]
        for place in places:
            self._read_to.pop(place, None)
        if self._mark != self._saved:
            self.checkpoint()
            if self._mark != self._saved:
                raise UsageError("the log is full, and its partitions are given to others")
        self._puller.fetcher.unassign(mine)
        for place in mine:
            self._archive.release(self._sources.pop(place))
            del self._next[place]

    def _restart(self, places: list[Place]) -> None:
        if places:
            self._remove(places)
            self._add(places)

    def _look_at_log(self) -> tuple[int | None, bytes | None]:
        """The ordinal of the first record, and the log's UUID."""
        try:
            with Reader(self._puller.options.path) as reader:
                return reader.ordinal, reader.topic_uuid
        except NotALog:  # it has no record yet
            return 0, None

    def _count_deleted(self, first: int | None) -> None:
        """Says what `max_bytes` has removed since the last time."""
        before, self._first = self._first, first
        if first == before or self._puller.options.max_bytes is None:  # `prune` asks every cursor
            return
        puller = self._puller
        known = None not in (first, before, puller.deleted)
        new = (first or 0) - (before or 0)
        puller.deleted = (puller.deleted or 0) + new if known else None
        _log.error(
            "%s: max-bytes has deleted the archive's oldest records: %s",
            self._puller.options.path, records_lost(new if known else None),
        )  # fmt: skip  # one call
