"""When a log runs: each row of the table of turns, and the pauses after failures."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from bridge.supervise import turns as module
from bridge.supervise.turns import Ending, Limits, Outcome, Phase, Timing, Turns, schedule


def queued(*, drains: bool = False) -> Turns:
    return Turns(Timing(), drains=drains)


def running(ending: Ending | None = None, *, drains: bool = False) -> Turns:
    t = queued(drains=drains)
    t.start(1.0)
    t.ending = ending
    return t


def ended(outcome: Outcome = Outcome.ENDED, ending: Ending | None = None) -> Turns:
    t = running(ending)
    t.end(outcome, 2.0)
    return t


def parked() -> Turns:
    return ended(ending="park")


def waiting() -> Turns:
    return ended(Outcome.FAILED)


def standing() -> Turns:
    return ended(Outcome.LASTING)


def paused() -> Turns:
    return ended(ending="pause")


def grown() -> Turns:
    t = running("park")
    t.grow(2.0)
    return t


def end(outcome: Outcome = Outcome.ENDED) -> Callable[[Turns], object]:
    return lambda t: t.end(outcome, 2.0)


def pause(t: Turns) -> None:
    t.pause()


def stop(t: Turns) -> None:
    t.stop()


ROWS: dict[tuple[str, str], tuple[Callable[[], Turns], Callable[[Turns], object]]] = {
    ("queued", "start"): (queued, lambda t: t.start(1.0)),
    ("running", "end, of itself"): (running, end()),
    ("running", "end, its turn is over"): (lambda: running("turn"), end()),
    ("running", "end, other options"): (lambda: running("reload"), end()),
    ("running", "end, idle"): (lambda: running("park"), end()),
    ("running", "end, idle, but it grew"): (grown, end()),
    ("running", "end, to be paused"): (lambda: running("pause"), end()),
    ("running", "end, to stop"): (lambda: running("stop"), end()),
    ("running", "end, drained"): (lambda: running(drains=True), end()),
    ("running", "end, the log is gone"): (running, end(Outcome.GONE)),
    ("running", "end, a failure"): (running, end(Outcome.FAILED)),
    ("running", "end, failed, and paused"): (lambda: running("pause"), end(Outcome.FAILED)),
    ("running", "end, a lasting failure"): (running, end(Outcome.LASTING)),
    ("waiting", "tick, the pause is over"): (waiting, lambda t: t.tick(9.0)),
    ("waiting", "retry"): (waiting, lambda t: t.retry()),
    ("standing", "retry"): (standing, lambda t: t.retry()),
    ("parked", "it grew"): (parked, lambda t: t.grow(3.0)),
    ("parked", "other options"): (parked, lambda t: t.reconfigure()),
    ("queued", "pause"): (queued, pause),
    ("parked", "pause"): (parked, pause),
    ("waiting", "pause"): (waiting, pause),
    ("standing", "pause"): (standing, pause),
    ("paused", "resume"): (paused, lambda t: t.resume(3.0)),
    ("queued", "stop"): (queued, stop),
    ("parked", "stop"): (parked, stop),
    ("paused", "stop"): (paused, stop),
}  # fmt: skip  # a table
EVENTS: list[Callable[[Turns], object]] = [
    lambda t: t.tick(99.0), lambda t: t.retry(), lambda t: t.grow(99.0), lambda t: t.reconfigure(),
    pause, lambda t: t.resume(99.0), stop,
]  # fmt: skip  # a list


def table() -> list[tuple[str, str, str]]:
    block = (module.__doc__ or "").split("\n\n")[1]
    return re.findall(r"^    (\w+) +(\S.*?)  +(\w+)$", block, re.MULTILINE)[1:]


@pytest.mark.parametrize(("phase", "event", "after"), table(), ids=lambda v: str(v))
def test_each_row_of_the_table_of_turns_happens(phase: str, event: str, after: str) -> None:
    build, happen = ROWS[phase, event]
    t = build()
    assert t.phase == phase
    happen(t)
    assert t.phase == after


def test_each_case_is_a_row_of_the_table_of_turns() -> None:
    assert {row[:2] for row in table()} == ROWS.keys()


@pytest.mark.parametrize(
    "begin", [queued, running, parked, waiting, standing, paused, lambda: ended(ending="stop")]
)
def test_no_event_changes_a_phase_except_as_the_table_says(begin: Callable[[], Turns]) -> None:
    for happen in EVENTS:
        t = begin()
        before = t.phase
        happen(t)
        assert t.phase == before or (before, t.phase) in {(row[0], row[2]) for row in table()}


@pytest.mark.parametrize(("ran_s", "pauses_s"), [(24 * 3600, [1, 1, 1]), (5, [1, 2, 4])])
def test_a_pause_grows_only_where_a_log_fails_soon(ran_s: float, pauses_s: list[float]) -> None:
    t, now_s = queued(), 1_000.0
    for number, pause_s in enumerate(pauses_s, 1):
        t.start(now_s)
        now_s += ran_s
        t.end(Outcome.FAILED, now_s)
        assert (t.phase, t.restarts) == (Phase.WAITING, number)
        assert pause_s / 2 <= t.retry_at_s - now_s <= pause_s


@pytest.mark.parametrize("outcome", [Outcome.LOCKED, Outcome.LASTING])
def test_a_pause_lasts_however_the_run_ends(outcome: Outcome) -> None:
    t = running("pause")
    t.end(outcome, 2.0)
    assert t.phase == Phase.PAUSED
    assert not t.tick(999.0)


@pytest.mark.parametrize("outcome", [Outcome.ENDED, Outcome.FAILED])
def test_a_resume_counts_before_the_run_has_ended(outcome: Outcome) -> None:
    t = running("pause")
    t.resume(1.5)
    t.end(outcome, 2.0)
    assert t.phase == (Phase.QUEUED if outcome is Outcome.ENDED else Phase.WAITING)


def test_while_another_bridge_has_the_cursor_the_pause_is_always_the_same() -> None:
    t = queued()
    for now_s in (0.0, 10.0, 20.0):
        t.start(now_s)
        t.end(Outcome.LOCKED, now_s)
        assert t.retry_at_s == now_s + Timing().locked_s


# --- whose turn it is -----------------------------------------------------------------------

LIMITS = Limits(active_max=1, slice_s=5.0, park_s=1.0)


class Log:
    """Runs since 1.0, and has delivered something; its last report was at 3.0."""

    def __init__(self, *, idle_s: float | None = None, watched_s: float | None = None) -> None:
        self.turns = queued()
        self.turns.start(1.0)
        self.turns.is_open = True
        self.turns.reported(3.0, idle=False, moved=True)
        self.turns.idle_s, self.turns.watched_s = idle_s, watched_s


class Queued:
    def __init__(self, since_s: float = 0.0) -> None:
        self.turns = queued()
        self.turns.since_s = since_s


SCHEDULES: dict[tuple[str, str], tuple[list[Log], list[Queued], float]] = {
    ("idle for park_s", "watch"): ([Log(idle_s=1.0)], [], 2.0),
    ("watched, and still idle", "park"): ([Log(idle_s=1.0, watched_s=2.0)], [], 3.0),
    ("watched, and no longer idle", "unwatch"): ([Log(watched_s=2.0)], [], 3.0),
    ("idle, others are queued", "watch"): ([Log(idle_s=1.9)], [Queued()], 2.0),
    ("its turn is over, others are queued", "turn"): ([Log()], [Queued()], 6.1),
    ("queued, and fewer than active_max run", "start"): ([], [Queued()], 1.0),
}


def test_each_row_of_the_schedule_happens_and_nothing_else() -> None:
    block = (module.__doc__ or "").split("\n\n")[4]
    rows = re.findall(r"^    (\S.*?)  +(\w+)$", block, re.MULTILINE)
    assert set(rows[1:]) == SCHEDULES.keys()
    for (_, action), (runs, waits, now_s) in SCHEDULES.items():
        found = schedule(runs, waits, LIMITS, now_s)._asdict()
        assert {name: len(logs) for name, logs in found.items() if logs} == {action: 1}


def test_nothing_ends_without_need() -> None:
    for runs, waits, limits in (
        ([Log(idle_s=1.0)], [], LIMITS._replace(park_s=None)),  # a drain
        ([Log()], [], LIMITS),  # nothing is queued
        ([Log()], [Queued()], LIMITS._replace(slice_s=99.0)),
        ([Log(idle_s=1.0, watched_s=3.0)], [], LIMITS),  # it has not reported since
    ):
        assert not any(schedule(runs, waits, limits, 6.5))


def test_a_run_without_a_delivery_is_not_ended_by_a_turn_that_is_too_short_for_one() -> None:
    log = Log()
    log.turns.moved = False
    assert schedule([log], [Queued()], LIMITS, 10.9).turn == []
    assert schedule([log], [Queued()], LIMITS, 11.1).turn == [log]


def test_idle_logs_end_first_and_those_that_were_queued_first_start_first() -> None:
    old, idle = Log(), Log(idle_s=6.0)
    old.turns.since_s = 0.0
    first, second = Queued(1.0), Queued(2.0)
    found = schedule([old, idle], [second, first], LIMITS._replace(active_max=3), 9.0)
    assert (found.start, found.watch, found.turn) == ([first], [idle], [])
