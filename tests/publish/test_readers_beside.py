"""A reader beside a publication: at any of the reader's calls the publication goes on, from any of its
steps to any other. The reader sees all of it or nothing, in each log and over all. About 8 s.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import aolog
from aolog.errors import LogLocked
from aolog.format.root_manifest import Transaction
from aolog.log.lock import lock_log
from aolog.publish.many_logs import steadily
from aolog.publish.publication import publish
from aolog.storage.storage import Storage
from aolog.testing import Call, SimulatedSystem
from tests.publish.job import (
    CHANGES,
    JOB,
    OLD,
    ROOT,
    TASKS,
    Told,
    added,
    old_disk,
    values_of,
    write,
)


def publish_twice(storage: Storage, slabs: list) -> None:
    """The second has no slabs; its manifest leaves out those of the first."""
    for version, its in ((1, slabs), (2, [])):
        transaction = Transaction("app/x", version)
        publish(ROOT, JOB, its, transaction=transaction, storage=storage)


class Steps:
    """Publications in a thread of its own, that goes on when it is told to. On a copy of a disk, on
    which all tasks have written."""

    def __init__(self, system: SimulatedSystem, slabs: list) -> None:
        self.system = system
        self.done = 0
        self.ended = False
        self._may = 0
        self._turn = threading.Condition()
        publisher = Told(system.process(), self._before)
        self._thread = threading.Thread(target=self._publish, args=(Storage(publisher), slabs))
        self._thread.start()

    def _publish(self, storage: Storage, slabs: list) -> None:
        try:
            publish_twice(storage, slabs)
        finally:
            with self._turn:
                self.ended = True
                self._turn.notify_all()

    def _before(self, name: str, _: int) -> None:
        if name not in CHANGES:
            return
        with self._turn:
            self.done += 1
            self._turn.notify_all()
            self._turn.wait_for(lambda: self.done <= self._may)

    def go_to(self, step: int) -> None:
        """It stands before its so manieth call that changes something, or is done."""
        with self._turn:
            self._may = max(self._may, step - 1)
            self._turn.notify_all()
            self._turn.wait_for(lambda: self.ended or self.done > self._may)

    def end(self) -> None:
        self.go_to(1 << 30)
        self._thread.join()


@pytest.fixture(scope="module")
def prepared() -> tuple[SimulatedSystem, list]:
    """The logs, and all slabs of the job, pending."""
    system = old_disk()
    slabs = [slab for task in TASKS for slab in write(Storage(system), task)]
    return system, slabs


@contextmanager
def stepping(prepared: tuple[SimulatedSystem, list], step: int) -> Iterator[Steps]:
    system, slabs = prepared
    steps = Steps(system.snapshot(), slabs)
    try:
        steps.go_to(step)
        yield steps
    finally:
        steps.end()


def count_of(prepared: tuple[SimulatedSystem, list]) -> tuple[int, int]:
    """(step before which it commits, all steps)."""
    system = prepared[0].snapshot()
    calls: list[Call] = []
    system.before = lambda call: calls.append(call) if call.name in CHANGES else None
    publish_twice(Storage(system), prepared[1])
    commit = next(
        i for i, call in enumerate(calls, 1) if call.name == "replace" and "jsonl" in call.path
    )
    return commit, len(calls)


def read_all(steps: Steps, at: int, to: int) -> tuple[dict[str, list[str]], bool]:
    """What a reader of one log after another gets, while the publication goes on before its call
    `at`; whether it came to that."""
    system = Told(steps.system.process(), lambda _, n: steps.go_to(to) if n == at else None)
    found = {log: values_of(Storage(system), log) for log in OLD}
    return found, system.calls >= at


def test_no_reader_sees_a_part(prepared, said):
    commit, last = count_of(prepared)
    looks = 0
    seen = set[str]()
    for begun in range(commit - 1, min(commit + 22, last)):
        for to in (begun + 1, last + 1):
            at, more = 1, True
            while more:
                with stepping(prepared, begun) as steps:
                    found, more = read_all(steps, at, to)
                kinds = ""
                for log, values in found.items():
                    assert values in (OLD[log], added()[log]), (begun, to, at, log, values)
                    kinds += "+" if values == added()[log] else "-"
                assert kinds == "".join(sorted(kinds, reverse=True)), (begun, to, at, kinds)
                seen.add(kinds)
                looks += 1
                # Closely where it lists and reads the manifest.
                at += 1 if at < 9 else 19 + begun % 5
    said(f"readers beside a publication: {looks} interleavings, seen {sorted(seen)}")
    assert {"---", "+++"} < seen  # and some in between: what is read later is there
    assert looks > 300


def test_who_looks_steadily_at_all_logs_sees_all_of_it_or_nothing(prepared):
    commit, last = count_of(prepared)
    seen = set[bool]()
    for begun in (commit - 1, commit, commit + 2):
        for at in range(1, 130, 9):
            found = look_steadily(prepared, begun, at, last + 1)
            assert found in (OLD, added()), (begun, at)
            seen.add(found == OLD)
    assert seen == {False, True}


def look_steadily(prepared: tuple, begun: int, at: int, to: int) -> dict[str, list[str]]:
    with stepping(prepared, begun) as steps:
        system = Told(steps.system.process(), lambda _, n: steps.go_to(to) if n == at else None)
        storage = Storage(system)
        return steadily([ROOT], lambda: {log: values_of(storage, log) for log in OLD}, storage)


@pytest.mark.parametrize("is_log", [False, True])
def test_publications_without_end_wait_for_who_looks(is_log):
    """But for those of a root that is a log: its lock is the writer's, and it is a whole by itself."""
    storage = Storage(SimulatedSystem())
    storage.make_directory(ROOT)
    publish(ROOT, JOB, write(storage, {"." if is_log else "a": ["p0"]}), storage=storage)
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        assert looks < 20, "it never ends"
        try:
            lock_log(ROOT, storage).close()
        except LogLocked:
            return True
        publish(ROOT, JOB, [], transaction=Transaction("app/x", looks), storage=storage)
        return False

    assert steadily([ROOT], look, storage) is not is_log
    assert looks > 2, "publications do not wait at once"
    lock_log(ROOT, storage).close()  # given back


def test_a_reader_that_stays_goes_from_nothing_to_all(prepared):
    commit, last = count_of(prepared)
    for begun in range(commit - 1, last + 1):
        with stepping(prepared, begun) as steps:
            system = steps.system.process()
            readers = {}
            for log in OLD:
                if OLD[log] or begun > commit:
                    readers[log] = aolog.Reader(
                        f"{ROOT}/{log}", storage=Storage(system), strict=True
                    )
            got = {log: [r.value.decode() for r in reader] for log, reader in readers.items()}
            assert all(got[log] in (OLD[log], added()[log]) for log in readers), begun
            for to in (begun + 1, begun + 3, last + 1):
                steps.go_to(to)
                for log, reader in readers.items():
                    got[log] += [r.value.decode() for r in reader]
                    assert got[log] in (OLD[log], added()[log]), (begun, to)
            assert all(got[log] == added()[log] for log in readers), begun
            for reader in readers.values():
                reader.close()
