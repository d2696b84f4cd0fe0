"""A signal's handler, or a finalizer, runs in the middle of another call of its own thread's.

A writer's call in it is carried out or refused: it never waits for the thread that it keeps from
going on, and changes nothing that was taken. As in test_interrupts.py, each place at which a
signal is handled is tried in turn, by a profiler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import aolog
from aolog.write.group_commit import GroupCommit
from tests.aolog.conftest import AtPlace, in_thread

RECORDS = 8


class Handler(AtPlace):
    """Calls there, and notes whether that was refused."""

    def __init__(self, n: int, call: Callable[[], object]) -> None:
        super().__init__(n, self._handle)
        self.call_within = call
        self.refused = False

    def _handle(self) -> None:
        try:
            self.call_within()
        except aolog.UsageError as error:
            self.refused = "within another call" in error.reason


@pytest.mark.parametrize("how", ["append", "flush", "sync", "close"])
def test_a_call_within_another_is_carried_out_or_refused(tmp_path: Path, how: str) -> None:
    """A second each."""
    n, came, refused = 0, True, 0
    while came:
        log = tmp_path / str(n)
        writer = aolog.Writer(log, batch_bytes=60, flush_seconds=None, sync="never")
        taken: dict[int, tuple[bytes, bytes | None]] = {}

        def take(value: bytes, key: bytes | None) -> None:
            address = writer.append(value, key=key)  # noqa: B023 -- called in this turn only
            assert address not in taken  # noqa: B023 -- the same
            taken[address] = value, key  # noqa: B023 -- the same

        def call() -> None:
            if how == "append":
                take(b"nested", b"key")
                take(b"nested too", None)
            else:
                getattr(writer, how)()  # noqa: B023 -- the same

        handler = Handler(n, call)

        def work() -> None:  # in another thread: one that waits for itself is a failure
            sys.setprofile(handler)  # noqa: B023 -- the same
            try:
                for i in range(RECORDS):
                    take(b"value %d" % i, b"key %d" % i if i % 3 == 2 else None)
                    if i % 4 == 3:
                        writer.sync()  # noqa: B023 -- the same
            except aolog.LogClosed:
                assert how == "close"
            finally:
                sys.setprofile(None)

        in_thread(work).result()
        writer.close()
        with aolog.Reader(log) as reader:
            found = {record.address: (record.value, record.key) for record in reader}
        assert {address: found.get(address) for address in taken} == taken, n
        assert aolog.verify(log).ok, n
        came, refused = handler.came, refused + handler.refused
        n += 1
    assert 100 < refused < n


def test_who_asks_from_within_its_own_work_is_refused_and_others_are_not() -> None:
    def work(target: int, given: bool) -> None:
        nonlocal settled
        if given:
            with pytest.raises(aolog.UsageError, match="within another call"):
                commit.reach(target, False)
        settled = target

    settled = 0
    commit = GroupCommit(lambda: settled, work)
    in_thread(lambda: commit.reach(1, True)).result()
    in_thread(lambda: commit.reach(2, False)).result()
    commit.reach(3, True)
    assert settled == 3
