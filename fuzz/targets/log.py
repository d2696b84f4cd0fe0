"""log: random histories of a writer, its readers, cursors and retention, against a list.

After any steps: flushed records are read in order, at the addresses that `append` returned. Of the records
in memory at a kill a prefix survives, or none. Synced records survive a power cut; no other record comes
back changed or in another order. A cursor continues exactly. Pruned records are counted.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import aolog
from aolog.log.retention import prune
from aolog.maintenance.verify import verify
from aolog.record import Record
from fuzz.check import Mismatch
from fuzz.machine import MACHINES
from fuzz.shapes import CODECS
from fuzz.ways import WAYS

if TYPE_CHECKING:
    from fuzz.disk import Disk
    from fuzz.machine import Machine
    from fuzz.target import Case

__all__ = ["LogTarget"]

_STEPS = [
    *["append"] * 3, *["append_many"] * 2, "append_arrow", *["flush"] * 2, "sync", "read", "commit",
    "prune", "reopen", "kill", "kill", "rotate",
]  # fmt: skip  # weights
_SLAB_BYTES = (8193, 8700, 12_000)


class LogTarget:
    """See the module."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def draw(self, rng: random.Random) -> Case:
        """Options of the writer, and what is done."""
        options = {
            "slab_bytes": rng.choice(_SLAB_BYTES),
            "batch_bytes": rng.choice([0, 100, 2000, 64 << 10]),
            "compression": rng.choice(["none", *CODECS]),
        }
        steps = [
            [rng.choice(_STEPS), rng.randrange(6), rng.randrange(1 << 16)]
            for _ in range(rng.choice([3, 10, 30]))
        ]
        machine = rng.choice(["real", "simulated", "simulated"])
        return {"machine": machine, "options": options, "steps": steps}

    def run(self, case: Case) -> str:
        """Carries out the steps, then reads everything in every way."""
        machine = MACHINES[case.get("machine", "real")](self._disk)
        history = _History(machine, case["options"])
        try:
            for what, n, seed in case["steps"]:
                history.step(what, n, random.Random(seed))
            history.step("reopen", 0, random.Random(0))
            history.finish()
        finally:
            history.close()
        kills, slabs = min(history.kills, 3), min(history.slabs(), 4)
        ends = "power cuts" if history.power_went else "kills"
        return f"{kills} {ends}, {slabs} slabs, {'pruned' if history.gone else 'whole'}"


class _History:
    """taken: the records that were appended and not lost to a crash, pruned ones included. flushed: how
    many of them must exist. synced: the same after a power cut. gone: how many were pruned. passed: how
    many are before the cursor, which is at `cursor_at`."""

    def __init__(self, machine: Machine, options: dict[str, Any]) -> None:
        self.machine = machine
        self.path = machine.path
        self.options = options
        # Random bytes do not shrink; the same ones a few times do.
        self.repeat = 1 if options.get("compression", "none") == "none" else 9
        self.taken: list[Record] = []
        self.flushed = self.synced = self.gone = self.kills = self.passed = self.cursor_at = 0
        self.power_went = False
        self.highest = -1
        self.writer: aolog.Writer | None = self.open()

    def open(self) -> aolog.Writer:
        return aolog.Writer(
            self.path,
            flush_seconds=None,
            sync="never",
            storage=self.machine.storage,
            **self.options,
        )

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    def slabs(self) -> int:
        return sum(name.endswith(".slab") for name in self.machine.storage.list_names(self.path))

    def step(self, what: str, n: int, rng: random.Random) -> None:
        writer = self.writer
        assert writer is not None
        if what not in _STEPS:
            raise ValueError(f"no step {what!r}")
        if what == "append":
            for _ in range(n + 1):
                self.append(writer, rng)
        elif what == "append_many":
            values = [rng.choice([None, rng.randbytes(rng.randrange(40))]) for _ in range(3 * n)]
            values = [value and value * self.repeat for value in values]
            addresses = writer.append_many(values).tolist()
            for address, value in zip(addresses, values, strict=True):
                self.take(Record(address, None, None, value, (), None))
        elif what == "append_arrow" and "arrow" in WAYS:
            self.append_arrow(writer, n, rng)
        elif what in {"flush", "sync"}:
            end = writer.flush() if what == "flush" else writer.sync()
            if end != writer.end:
                raise Mismatch(f"{what} said {end}, the end is {writer.end}")
            self.flushed = len(self.taken)
            self.synced = self.flushed if what == "sync" else self.synced
        elif what == "rotate":
            size = self.options["slab_bytes"] - 8192 + 100
            for _ in range(2):  # the second gets a slab of its own
                value = bytes(size)
                self.take(Record(writer.append(value), None, None, value, (), None))
        elif what == "read":
            self.check(n)
        elif what == "commit":
            self.commit(n)
        elif what == "prune":
            prune(self.path, self.machine.storage, aolog.Retention(max_slabs=n + 1))
            self.note_gone()
        elif what == "reopen":
            self.writer = None
            writer.close()
            self.flushed = self.synced = len(self.taken)
            self.writer = self.open()
        elif what == "kill":
            self.kill(writer, rng)

    def append(self, writer: aolog.Writer, rng: random.Random) -> None:
        value = rng.choice([None, b"", rng.randbytes(rng.choice([1, 30, 500]))])
        value = value and value * self.repeat
        key = rng.choice([None, None, b"", rng.randbytes(4)])
        headers = rng.choice([(), (), (("h", None), ("é", b"\0"))])
        stamp = rng.choice([None, 0, rng.randrange(-(1 << 62), 1 << 62)])
        topic = rng.choice([None, None, "t", "other"])
        address = writer.append(value, key=key, headers=headers, timestamp=stamp, topic=topic)
        self.take(Record(address, stamp, key, value, headers, topic))

    def append_arrow(self, writer: aolog.Writer, n: int, rng: random.Random) -> None:
        import pyarrow as pa

        values = [rng.choice([None, rng.randbytes(rng.randrange(30))]) for _ in range(n + 2)]
        values = [value and value * self.repeat for value in values]
        keys = [rng.choice([None, b"k"]) for _ in values]
        batch = pa.RecordBatch.from_pydict(
            {"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())}
        ).slice(rng.randrange(2))
        rows = batch.to_pylist()
        for address, row in zip(writer.append_arrow(batch).tolist(), rows, strict=True):
            self.take(Record(address, None, row["key"], row["value"], (), None))

    def take(self, record: Record) -> None:
        if record.address <= self.highest:
            raise Mismatch(f"address {record.address} after {self.highest}")
        self.highest = record.address
        self.taken.append(record)

    def kill(self, writer: aolog.Writer, rng: random.Random) -> None:
        self.writer = None
        power_went = self.machine.crash(writer, rng)
        self.power_went |= power_went
        self.kills += 1
        if not self.machine.storage.exists(self.path) or not self.slabs():
            if self.synced > self.gone:
                raise Mismatch(f"{self.synced} records were synced, and there is no log")
            found = []
        else:
            found = self.read("iteration")
        wanted = self.taken[self.gone :]
        if power_went:
            there = {record.address for record in found}
            lost = [r for r in wanted[: max(0, self.synced - self.gone)] if r.address not in there]
            if lost:
                raise Mismatch(f"{lost} were synced and are lost")
            wanted = [record for record in wanted if record.address in there]
        elif self.gone + len(found) < self.flushed:
            raise Mismatch(f"{self.flushed} were flushed, {len(found)} + {self.gone} are there")
        else:
            wanted = wanted[: len(found)]
        self.compare(found, wanted)
        self.taken[self.gone :] = wanted
        self.flushed = len(self.taken)
        self.synced = self.flushed if power_went else min(self.synced, self.flushed)
        self.passed = sum(record.address < self.cursor_at for record in self.taken)
        self.writer = self.open()

    def read(self, way: str) -> list[Record]:
        with aolog.Reader(self.path, storage=self.machine.storage) as reader:
            found = WAYS[way](reader)
            self.check_reasons(way, reader)
        return found

    def check_reasons(self, way: str, reader: aolog.Reader, *others: str) -> None:
        """Without a power cut nothing is damaged."""
        allowed = {"torn", *others, *(["torn_or_corrupt", "corrupt"] if self.power_went else [])}
        if not {gap.reason for gap in reader.gaps} <= allowed:
            raise Mismatch(f"{way}: gaps {reader.gaps}")

    def compare(self, found: list[Record], wanted: list[Record]) -> None:
        if len(found) != len(wanted):
            raise Mismatch(f"{len(wanted)} records were to come, {len(found)} came")
        for record, want in zip(found, wanted, strict=True):
            stamp = record.timestamp if want.timestamp is None else want.timestamp
            if record != want._replace(timestamp=stamp):
                raise Mismatch(f"{record} is not {want}")

    def check(self, n: int) -> None:
        found = self.read(list(WAYS)[n % len(WAYS)])
        if self.gone + len(found) < self.flushed:
            raise Mismatch(f"{self.flushed} were flushed, {self.gone} + {len(found)} are there")
        self.compare(found, self.taken[self.gone : self.gone + len(found)])

    def commit(self, n: int) -> None:
        """Reads from the cursor's position on, and commits."""
        with aolog.Reader(self.path, cursor="c", storage=self.machine.storage) as reader:
            at = max(self.passed, self.gone)
            for _ in range(n):
                record = reader.read()
                if record is None:
                    if at < self.flushed:
                        raise Mismatch(f"the cursor's reader ends at {at}, before {self.flushed}")
                    break
                self.compare([record], [self.taken[at]])
                at += 1
            told = sum(g.records_lost or 0 for g in reader.gaps if g.reason == "pruned")
            self.check_reasons("cursor", reader, "pruned")
            if not self.power_went and told and told != self.gone - self.passed:
                raise Mismatch(f"{told} are said to be pruned, not {self.gone - self.passed}")
            reader.commit()
            self.passed, self.cursor_at = at, reader.tell()

    def note_gone(self) -> None:
        names = [n for n in self.machine.storage.list_names(self.path) if n.endswith(".slab")]
        first = min(int(name.removesuffix(".slab")) for name in names)
        gone = sum(record.address < first for record in self.taken)
        if self.gone > gone or (self.passed and gone > self.passed > 0):
            raise Mismatch(f"{gone} records were pruned, and a cursor needs {self.passed}")
        self.gone = gone
        self.flushed = max(self.flushed, gone)

    def finish(self) -> None:
        wanted = self.taken[self.gone :]
        for way in WAYS:
            self.compare(self.read(way), wanted)
        report = verify(self.path, storage=self.machine.storage)
        if report.records != len(wanted) or (report.problems and not self.power_went):
            raise Mismatch(f"verify: {report}, and not {len(wanted)} records")
