"""The table of what a writer's threads do, and when: aolog/write/schedule.py."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from aolog.write.options import WriterOptions
from aolog.write.schedule import Seen, State, Task, began, done, due, looked

OPTIONS = WriterOptions(flush_seconds=2, sync_seconds=5, slab_seconds=60)
NEVER = dict.fromkeys(Task, inf)
SEEN = Seen(end=100, has_slab=True, needs_mark=True, is_durable=True, is_synced=True, warn_s=inf)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State(), {}),
        (State(waits_s=10), {Task.FLUSH: 12}),
        (State(unsynced_s=10), {Task.SYNC: 15}),
        (State(begun_s=10), {Task.SEAL: 70}),
        (State(quiet_s=10), {Task.MARK: 15}),
        (State(pruned_s=10), {Task.PRUNE: 20}),
        (State(warn_s=10), {Task.WARN: 10}),
        (State(flushed_s=10), {Task.LOOK: 12}),
        (State(failed_s=10), {Task.FLUSH: 11}),
        (
            State(waits_s=0, unsynced_s=0, begun_s=0, quiet_s=0, pruned_s=0, warn_s=3, failed_s=9),
            {Task.FLUSH: 10, Task.PRUNE: 10, Task.WARN: 3},
        ),
    ],
)
def test_a_task_is_due_so_long_after_something_is_so(
    state: State, expected: dict[Task, float]
) -> None:
    assert due(state, OPTIONS) == NEVER | expected


def test_without_a_bound_on_time_a_task_is_never_due() -> None:
    all_so = State(waits_s=0, begun_s=0, flushed_s=0)
    assert due(all_so, WriterOptions(flush_seconds=None, slab_seconds=None)) == NEVER
    assert due(State(failed_s=0), WriterOptions(flush_seconds=None))[Task.FLUSH] == 1


def test_records_wait_since_the_first_of_them_and_a_slab_ages_since_its_first() -> None:
    state = began(State(), 10, slab=0, warn_s=inf)
    state = began(state, 11, slab=0, warn_s=inf)
    assert (state.waits_s, state.begun_s) == (10, 10)
    state = began(done(state, Task.FLUSH, 12), 13, slab=0, warn_s=4.0)
    assert (state.waits_s, state.begun_s, state.flushed_s, state.warn_s) == (13, 10, 12, 4.0)
    assert began(state, 14, slab=4096, warn_s=inf).begun_s == 14


def test_a_seal_is_due_until_the_slab_has_ended() -> None:
    state = State(begun_s=10, slab=4096)
    assert done(looked(state, 70, SEEN), Task.SEAL, 70) == looked(state, 70, SEEN)
    ended = looked(state, 70, SEEN._replace(has_slab=False))
    assert ended.begun_s == inf
    assert began(ended, 71, slab=8192, warn_s=inf).begun_s == 71


@pytest.mark.parametrize(
    ("seen", "quiet_s"),
    [
        (SEEN, 10),  # since the look before
        (SEEN._replace(end=200), 12),  # something came
        (SEEN._replace(is_durable=False), 12),
        (SEEN._replace(needs_mark=False), inf),
    ],
)
def test_a_log_is_quiet_since_nothing_came_and_all_is_durable(seen: Seen, quiet_s: float) -> None:
    before = looked(State(), 10, SEEN)
    assert before.quiet_s == 10
    assert looked(before, 12, seen).quiet_s == quiet_s


def test_what_was_synced_by_a_call_is_not_synced_again() -> None:
    state = State(unsynced_s=10)
    assert looked(state, 11, SEEN._replace(is_synced=False)).unsynced_s == 10
    assert looked(state, 11, SEEN).unsynced_s == inf


@pytest.mark.parametrize(
    ("task", "changed"),
    [
        (Task.FLUSH, {"waits_s": inf, "failed_s": inf, "flushed_s": 50}),
        (Task.SYNC, {"unsynced_s": inf}),
        (Task.MARK, {"quiet_s": inf, "unsynced_s": -inf}),  # it is synced at once
        (Task.PRUNE, {"pruned_s": 50}),
        (Task.WARN, {"warn_s": inf}),
        (Task.LOOK, {"flushed_s": inf}),
    ],
)
def test_a_task_that_is_done_is_due_no_more(task: Task, changed: dict[str, Any]) -> None:
    all_so = State(*range(1, len(State._fields) + 1))
    assert done(all_so, task, 50) == all_so._replace(**changed)
