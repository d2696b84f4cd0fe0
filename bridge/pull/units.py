"""Work units of an archive: which ranges of offsets are done, and whose turn it is.

Unit K of a partition is the offsets [K * N, (K + 1) * N), for an N that the whole archive shares. What is
on disk:

- ROOT/.pull/units.json: N. Written once.
- ROOT/.pull/first.json: each partition's first offset when a worker first saw it, so what the cluster
  deletes later is of a unit that is not done. Its holder reports it: only a holder knows what it has.
- ROOT-events/NAME: the event log of the worker whose log is ROOT/NAME: one event for each finished unit,
  appended after the unit's records are durable. Together they say which units are done.
- ROOT/.pull/CLUSTER.TOPIC-ID.PARTITION.uK: the claim of a unit in progress: a file whose lock the worker
  holds. Each holder first adds a durable line: its log, and the address where it begins. So the next
  holder reads what earlier ones appended of the unit, and goes on after it, or after what they
  reported as lost. The file goes when the event is durable.

A worker that is killed releases the lock, and its unit is finished by another one. No step needs a
coordinator, but all workers share a file system.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from aolog import Reader, Writer
from aolog.errors import MALFORMED, AddressBeyondEnd, NotALog, UsageError
from aolog.storage.file import File
from aolog.storage.storage import Storage
from bridge.operate.unit_events import CLAIMS, UNITS_FILE, events_root
from bridge.pull.archive import lock_claim, lowest_starts, sync_last_slab, write_once
from bridge.pull.origin import Source, origin_of
from bridge.supervise.discovery import find_logs

_FIRST_FILE = "first.json"


class Unit(NamedTuple):
    """Offsets [begin, end) of a partition, all in unit `number` of it."""

    source: Source
    topic: str
    number: int
    begin: int
    end: int


class Units:
    """Of one archive, seen from the worker whose log is `path`. One thread. Raises UsageError before it
    changes anything for an archive that is not of units, or of another N."""

    def __init__(self, root: str, path: str, records: int) -> None:
        self._root, self._path, self._records = root, path, records
        self._events_root = events_root(root)
        _check(root, records, self._events_root)
        os.makedirs(self._events_root, 0o700, exist_ok=True)  # noqa: PTH103 -- a string, as roots are
        write_once(root, UNITS_FILE, json.dumps({"records": records}))
        _check(root, records, self._events_root)  # another worker may have been first
        self._done: dict[tuple[Source, int], int] = {}  # by unit: the offset up to which it is done
        self._firsts: dict[Source, int] = {}  # as in the file
        self._begins: dict[Source, int] = {}  # from there on: all offsets before it are done
        self._read_to: dict[str, int] = {}
        name = os.path.relpath(path, root).replace(os.sep, ".")
        self._writer = Writer(f"{self._events_root}/{name}", sync="never")
        self._claims: dict[tuple[Source, int], File] = {}
        self.refresh()

    def refresh(self) -> None:
        """Reads the events that other workers have added."""
        for path in find_logs(self._events_root).values():
            with contextlib.suppress(NotALog), Reader(path, self._read_to.get(path, "earliest")) as found:  # fmt: skip  # two contexts
                for record in found:
                    self._account(json.loads(record.value or b""))
                self._read_to[path] = found.tell()

    def _account(self, event: dict[str, Any]) -> None:
        source = Source(event["cluster"], UUID(event["topic-id"]), event["partition"])
        key = source, event["offset"] // self._records
        self._done[key] = max(self._done.get(key, 0), event["offset"] + event["length"])

    def see(self, firsts: Mapping[Source, int]) -> None:
        """Partitions as they are now, by their first offsets. The archive begins at the lowest that any
        worker has seen of each. Durable on return."""
        lower = {s: first for s, first in firsts.items() if first < self._firsts.get(s, first + 1)}
        if lower:
            starts = {source.file_name: first for source, first in lower.items()}
            lowest = lowest_starts(self._root, _FIRST_FILE, starts)
            lower = {source: lowest[source.file_name] for source in lower}
            self._firsts |= lower
            self._begins |= lower

    def left(self, source: Source, topic: str, end: int) -> Iterator[Unit]:
        """The units of a partition that are not done, of its offsets before `end`, in order; also of those
        that the cluster has deleted since a worker saw the partition."""
        first = self._begins[source]
        while (done := self._done.get((source, first // self._records), 0)) > first:
            first = done
        self._begins[source] = first
        for number in range(first // self._records, -(-end // self._records)):
            begin = max(first, number * self._records, self._done.get((source, number), 0))
            stop = min(end, (number + 1) * self._records)
            if begin < stop:
                yield Unit(source, topic, number, begin, stop)

    def claim(self, unit: Unit, address: int) -> Unit | None:
        """The part of the unit that is left, which is ours until `finish` or `leave`; None if
        another worker has it, or there is nothing left. address: the log's end. Durable on return."""
        path = self._claim_path(unit)
        file = lock_claim(self._root, path.name)
        if file is None:
            return None
        self._claims[unit.source, unit.number] = file
        self.refresh()
        begin = max(unit.begin, self._done.get((unit.source, unit.number), 0))
        if begin >= unit.end:  # finished since it was planned
            path.unlink()
            self.leave(unit)
            return None
        size = file.stat().size
        for line in file.pread(size, 0).splitlines():
            # ValueError: the line is torn by a power cut, and nothing was appended after it.
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                appended = self._appended(unit, told["log"], told["address"])
                begin = max(begin, appended, told.get("lost-to", 0))
        if begin >= unit.end:
            return unit._replace(begin=unit.end)
        self._add_line(unit, address)
        Storage().sync_directory(str(path.parent))
        return unit._replace(begin=begin)

    def lose(self, unit: Unit, end: int, address: int) -> None:
        """The rest of a claimed unit before the offset `end` is lost, and reported: no later holder reports
        it again. Its records must be durable. address: the log's end. Durable on return."""
        self._add_line(unit, address, {"lost-to": end})

    def _add_line(self, unit: Unit, address: int, more: Mapping[str, int] | None = None) -> None:
        file = self._claims[unit.source, unit.number]
        log = os.path.relpath(self._path, self._root)
        line = json.dumps({"log": log, "address": address, **(more or {})}).encode()
        size = file.stat().size
        file.pwrite_all([b"\n", line, b"\n"], size)  # after a torn line, a line of its own
        file.datasync()

    def _appended(self, unit: Unit, log: str, address: int) -> int:
        """The offset after the last record of the unit in a log from an address on, durable; 0 if
        there is none."""
        path, found = os.path.join(self._root, log), 0  # noqa: PTH118 -- strings, as roots are
        try:
            reader = Reader(path)
        except NotALog:  # it was killed before its first record
            return 0
        with reader:
            try:
                reader.seek(address)
            except AddressBeyondEnd:
                return 0
            for record in reader:
                origin = origin_of(record.headers)
                if origin is None or origin.source != unit.source:
                    continue
                if origin.offset // self._records == unit.number:
                    found = max(found, origin.offset + 1)
        if found:
            sync_last_slab(path)
        return found

    def finish(self, unit: Unit, planned: Unit, seen: int, duration_s: float) -> None:
        """The unit's records are durable: appends the event, durably, and releases the claim. planned: as
        it was before the claim. seen: records that were read.

        An event is of a finished unit, or of a part of one up to the partition's end. ts: ms since the
        epoch. status: late if another worker had begun it. [offset, offset + length): what it covers.
        offset-read: the offset after the last one that was read. duration: seconds."""
        now_ms = time.time_ns() // 1_000_000
        event = {
            "event": "unit", "ts": now_ms, "status": "done" if unit.begin == planned.begin else "late",
            "seen": seen, "topic": unit.topic, "partition": unit.source.partition,
            "offset": planned.begin, "length": unit.end - planned.begin, "offset-read": unit.end,
            "duration": round(duration_s, 6), "host": socket.gethostname(),
            "cluster": unit.source.cluster, "topic-id": str(unit.source.topic_id),
        }  # fmt: skip  # an event
        self._writer.append(json.dumps(event).encode(), timestamp=now_ms * 1_000)
        self._writer.sync()
        key = unit.source, unit.number
        self._done[key] = max(self._done.get(key, 0), unit.end)
        self._claim_path(unit).unlink()
        self.leave(unit)

    def leave(self, unit: Unit) -> None:
        """Another worker may go on with the unit. Its records must be durable."""
        self._claims.pop((unit.source, unit.number)).close()

    def close(self) -> None:
        """Releases all claims."""
        while self._claims:
            self._claims.popitem()[1].close()
        self._writer.close()

    def _claim_path(self, unit: Unit) -> Path:
        return Path(self._root, CLAIMS, f"{unit.source.file_name}.u{unit.number}")


def _check(root: str, records: int, events: str) -> None:
    file = Path(root, CLAIMS, UNITS_FILE)
    try:
        told = int(json.loads(file.read_text(encoding="utf-8"))["records"])
    except MALFORMED as error:
        raise UsageError(
            f"{file} does not say how many records a unit has: {error}",
            hint='bring it back from a copy: {"records": N}',
        ) from None
    except FileNotFoundError:
        for directory in (root, events):
            if found := find_logs(directory):
                raise UsageError(
                    f"{directory} has logs that were not filled by units ({min(found)})",
                    hint="give the units an archive of their own",
                ) from None
        return
    if told != records:
        raise UsageError(
            f"the units of {root} have {told} records, not {records}", hint=f"use --units {told}"
        )
    if not Path(events).is_dir():
        raise UsageError(
            f"{events} is missing: it says which units of {root} are done",
            hint="move it back, or begin a new archive",
        )
