"""A log against a list: whatever is done to it, in whatever order, it holds what the list holds."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import aolog
from aolog.log.retention import prune
from aolog.storage.storage import Storage
from tests.aolog.conftest import begin_at, kill, slab_files
from tests.texts import UNICODE

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

some_bytes = st.one_of(
    st.binary(max_size=12),
    st.binary(min_size=1, max_size=3).map(lambda b: b * 200),
    st.just(b""),
)
maybe_bytes = st.one_of(st.none(), some_bytes)
text = st.text(UNICODE, max_size=6)
pairs = st.lists(st.tuples(text, maybe_bytes), max_size=3).map(tuple)
topics = st.one_of(st.none(), st.sampled_from(["t", "topic", "ø"]))
stamps = st.one_of(st.none(), st.integers(-1000, 1000), st.integers(-(1 << 62), 1 << 62))


class Taken(NamedTuple):
    """A record that was appended. timestamp: None if it had none of its own."""

    address: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str | None


class LogAgainstList(RuleBasedStateMachine):
    """taken: every record of the log, the pruned ones included, in order. flushed: how many of
    them are in the system. gone: how many of them were pruned. passed: by cursor, how many."""

    format = "aolog"

    def __init__(self) -> None:
        super().__init__()
        self.where = Path(tempfile.mkdtemp(prefix="aolog-model-"))
        self.moves = 0
        self.path = str(self.where / "log0")
        self.taken: list[Taken] = []
        self.flushed = 0
        self.gone = 0
        self.passed: dict[str, int] = {}
        self.writer: aolog.Writer | None = None
        self.live: aolog.Reader | None = None
        self.live_read = self.live_gaps = 0
        self.torn = 0

    @initialize(
        slab_bytes=st.sampled_from([1, 8400, 9500, 1 << 20]),
        batch_bytes=st.sampled_from([0, 1, 60, 500, 64 << 10]),
        flush_records=st.sampled_from([None, 1, 5]),
        first=st.sampled_from([0, 0, 1 << 40]),
    )
    def begin(
        self, slab_bytes: int, batch_bytes: int, flush_records: int | None, first: int
    ) -> None:
        self.options = {
            "slab_bytes": slab_bytes,
            "batch_bytes": batch_bytes,
            "flush_records": flush_records,
            "flush_seconds": None,
            "sync": "never",
            "format": self.format,
        }
        if first:
            begin_at(self.path, first, self.format)
        self.open()
        self.live = aolog.Reader(self.path)

    def open(self) -> None:
        self.writer = aolog.Writer(self.path, **self.options)
        if self.taken:
            assert self.writer.end > self.taken[-1].address

    def teardown(self) -> None:
        if self.live is not None:
            self.live.close()
        if self.writer is not None:
            self.writer.close()
            self.flushed = len(self.taken)
            self.holds_what_the_list_holds()
        shutil.rmtree(self.where)

    # --- appending -----------------------------------------------------------------------------

    def take(self, *records: Taken) -> None:
        for record in records:
            assert not self.taken or record.address > self.taken[-1].address
            self.taken.append(record)

    @rule(value=maybe_bytes, key=maybe_bytes, headers=pairs, topic=topics, timestamp=stamps)
    def append(self, value, key, headers, topic, timestamp) -> None:
        address = self.writer.append(
            value, key=key, headers=headers, topic=topic, timestamp=timestamp
        )
        self.take(Taken(address, timestamp, key, value, headers, topic))

    @rule(value=some_bytes, times=st.integers(1, 10))
    def append_plain(self, value: bytes, times: int) -> None:
        for _ in range(times):
            self.take(Taken(self.writer.append(value), None, None, value, (), None))

    @rule(values=st.lists(maybe_bytes, max_size=20))
    def append_many(self, values: list[bytes | None]) -> None:
        addresses = self.writer.append_many(values).tolist()
        assert (
            addresses == list(range(addresses[0], addresses[0] + len(values))) if values else True
        )
        self.take(
            *(Taken(a, None, None, v, (), None) for a, v in zip(addresses, values, strict=True))
        )

    @rule(rows=st.lists(st.tuples(maybe_bytes, maybe_bytes, pairs, topics, st.integers(-1000, 1000)),
                        max_size=8), skip=st.integers(0, 3))  # fmt: skip
    def append_arrow(self, rows, skip: int) -> None:
        values, keys, headers, names, times = zip(*rows, strict=True) if rows else ([],) * 5
        of_headers = pa.list_(
            pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
        )
        batch = pa.RecordBatch.from_pydict(
            {
                "value": pa.array(values, pa.binary()),
                "key": pa.array(keys, pa.binary()),
                "headers": pa.array(
                    [[{"key": k, "value": v} for k, v in each] for each in headers], of_headers
                ),
                "topic": pa.array(names, pa.string()),
                "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            }
        )
        addresses = self.writer.append_arrow(batch.slice(skip)).tolist()
        self.take(
            *(
                Taken(address, stamp, key, value, each, topic)
                for address, (value, key, each, topic, stamp) in zip(
                    addresses, rows[skip:], strict=True
                )
            )
        )

    # --- flushing, closing, dying ----------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        assert self.writer.flush() == self.writer.end
        self.flushed = len(self.taken)

    @rule()
    def sync(self) -> None:
        assert self.writer.sync() == self.writer.durable == self.writer.end
        self.flushed = len(self.taken)

    @rule()
    def close_and_open(self) -> None:
        self.writer.close()
        self.flushed = len(self.taken)
        self.open()

    @rule(junk=st.one_of(st.just(b""), st.binary(min_size=1, max_size=50), st.just(bytes(100))))
    def die_and_open(self, junk: bytes) -> None:
        """As SIGKILL, with the beginning of another write after the last frame."""
        kill(self.writer)
        self.forget_what_was_in_memory()
        if junk and self.format == "aolog":
            with slab_files(self.path)[-1].open("ab") as file:
                file.write(junk)
            self.torn += any(junk)
        self.open()

    @rule()
    def die_and_open_a_copy(self) -> None:
        """As a machine that is started again from an image of its disk."""
        self.moves += 1
        copy = str(self.where / f"log{self.moves}")
        shutil.copytree(self.path, copy)
        kill(self.writer)
        self.live.close()
        self.path = copy
        self.forget_what_was_in_memory()
        self.open()
        self.live = aolog.Reader(self.path)
        self.live_read, self.live_gaps = self.gone, 0

    def forget_what_was_in_memory(self) -> None:
        with aolog.Reader(self.path) as reader:
            found = [record.address for record in reader]
        known = [record.address for record in self.taken[self.gone :]]
        assert known[: len(found)] == found
        assert self.gone + len(found) >= self.flushed
        self.flushed = self.gone + len(found)
        del self.taken[self.flushed :]

    # --- reading ---------------------------------------------------------------------------------

    def check(self, record: aolog.Record, expected: Taken) -> None:
        stamp = expected.timestamp
        if stamp is None and self.format == "aolog":
            stamp = record.timestamp
        assert record == expected._replace(timestamp=stamp)

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        if self.writer is None:
            return
        with aolog.Reader(self.path) as reader:
            found = list(reader)
            assert {gap.reason for gap in reader.gaps} <= {"torn"}
        assert self.gone + len(found) >= self.flushed
        assert self.gone + len(found) <= len(self.taken)
        for record, expected in zip(found, self.taken[self.gone :], strict=False):
            self.check(record, expected)

    @precondition(lambda self: self.flushed > self.gone)
    @rule(data=st.data(), into=st.integers(0, 60))
    def read_from_an_address(self, data: st.DataObject, into: int) -> None:
        i = data.draw(st.integers(self.gone, self.flushed - 1))
        address = self.taken[i].address + into
        following = [j for j in range(i, self.flushed) if self.taken[j].address >= address]
        try:
            with aolog.Reader(self.path, address) as reader:
                record = reader.read()
        except aolog.AddressBeyondEnd:
            assert not following
            return
        if following:
            self.check(record, self.taken[following[0]])

    @precondition(lambda self: self.flushed > self.gone and self.format == "aolog")
    @rule(data=st.data())
    def read_from_an_ordinal(self, data: st.DataObject) -> None:
        i = data.draw(st.integers(self.gone, self.flushed - 1))
        with aolog.Reader(self.path) as reader:
            assert reader.seek(ordinal=i) == self.taken[i].address
            assert reader.ordinal == i
            self.check(reader.read(), self.taken[i])
            assert reader.ordinal == i + 1

    @precondition(lambda self: self.format == "aolog")
    @rule(stamp=st.one_of(st.integers(-1001, 1001), st.integers(-(1 << 55), 1 << 55)))
    def read_from_a_time(self, stamp: int) -> None:
        with aolog.Reader(self.path) as reader:
            everything = list(reader)
            reader.seek(EPOCH + timedelta(microseconds=stamp))
            record = reader.read()
        assert record == next((r for r in everything if r.timestamp >= stamp), None)

    @rule(n=st.integers(0, 30), batch=st.booleans())
    def read_on_live(self, n: int, batch: bool) -> None:
        """A reader that is open all the time: over rolls, crashes and pruning."""
        records: list[aolog.Record] = []
        while len(records) < n:
            got = self.live.read_batch(max_bytes=100) if batch else self.live.read()
            if got is None:
                break
            records += got if batch else [got]
        told = self.live.gaps[self.live_gaps :]  # since a record was read
        for gap in told:
            assert gap.reason in {"torn", "pruned"}
        by_address = {record.address: i for i, record in enumerate(self.taken)}
        for record in records:
            i = by_address[record.address]
            assert i >= self.live_read
            if i > self.live_read:  # told, if the format counts
                assert self.live_read < self.gone
                pruned = any(gap.reason == "pruned" for gap in told)
                assert pruned or self.format == "queuefka"
            self.check(record, self.taken[i])
            self.live_read = i + 1
        if records:
            after = [gap for gap in told if gap.begin > records[-1].address]
            self.live_gaps = len(self.live.gaps) - len(after)
            if self.format == "aolog":
                lost = sum(gap.records_lost or 0 for gap in after)
                assert self.live.ordinal == self.live_read + lost
        if len(records) < n:
            assert self.live_read >= self.flushed or self.gone >= self.flushed

    # --- cursors and pruning -----------------------------------------------------------------------

    @rule(name=st.sampled_from(["a", "b"]), n=st.integers(0, 20))
    def read_on_with_a_cursor(self, name: str, n: int) -> None:
        with aolog.Reader(self.path, cursor=name) as reader:
            begin = max(self.passed.get(name, self.gone), self.gone)
            at = begin
            for _ in range(n):
                record = reader.read()
                if record is None:
                    assert at >= self.flushed
                    break
                self.check(record, self.taken[at])
                at += 1
            if self.format == "aolog":
                assert [gap for gap in reader.gaps if gap.reason != "torn"] == []
            reader.commit()
        self.passed[name] = at

    @rule(n=st.integers(1, 4))
    def prune_by_count(self, n: int) -> None:
        prune(self.path, Storage(), aolog.Retention(max_slabs=n))
        self.note_what_is_gone()
        for passed in self.passed.values():
            assert passed >= self.gone  # nothing that a cursor needs

    def note_what_is_gone(self) -> None:
        first = int(slab_files(self.path)[0].stem)
        gone = sum(record.address < first for record in self.taken)
        assert gone >= self.gone
        self.gone = gone
        self.flushed = max(self.flushed, gone)

    @rule()
    def look_it_over(self) -> None:
        report = aolog.verify(self.path)
        assert {gap.reason for gap in report.gaps} <= {"torn"}
        assert len(report.gaps) <= self.torn
        assert report.problems == []
        assert self.flushed <= self.gone + report.records <= len(self.taken)
        listed = {cursor.name: cursor for cursor in aolog.cursors(self.path)}
        assert set(listed) >= {name for name, passed in self.passed.items() if passed}
        if self.format == "aolog":
            for name, passed in self.passed.items():
                if name in listed:
                    assert listed[name].ordinal in {passed, self.gone} or passed < self.gone


class QueuefkaAgainstList(LogAgainstList):
    """The same in format 1, which has values only."""

    format = "queuefka"

    @rule(value=some_bytes.filter(bool))
    def append(self, value: bytes) -> None:
        self.take(Taken(self.writer.append(value), None, None, value, (), None))

    @rule(value=some_bytes.filter(bool), times=st.integers(1, 10))
    def append_plain(self, value: bytes, times: int) -> None:
        LogAgainstList.append_plain(self, value, times)

    @rule(values=st.lists(some_bytes.filter(bool), max_size=10))
    def append_many(self, values: list[bytes]) -> None:
        addresses = self.writer.append_many(values).tolist()
        self.take(
            *(Taken(a, None, None, v, (), None) for a, v in zip(addresses, values, strict=True))
        )

    @rule()
    def append_arrow(self) -> None:
        """No columns in format 1."""


def run(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("machine", [LogAgainstList, QueuefkaAgainstList])
def test_a_log_holds_what_a_list_holds(machine: type[RuleBasedStateMachine]) -> None:
    run(machine, examples=40, steps=30)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [LogAgainstList, QueuefkaAgainstList])
def test_a_log_holds_what_a_list_holds_for_long(machine: type[RuleBasedStateMachine]) -> None:
    run(machine, examples=400, steps=60)
