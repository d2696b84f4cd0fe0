"""The delivery engine: each row of its table, and claims about single situations. Its promises as a
whole are in test_engine_model.py."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence

import pytest

from bridge.deliver.at_least_once import engine as engine_module
from bridge.deliver.at_least_once.batch_planner import Given
from bridge.deliver.at_least_once.commands import (
    Command,
    Commit,
    Connect,
    Disconnect,
    SetAside,
    State,
)
from bridge.deliver.at_least_once.engine import Engine
from bridge.deliver.at_least_once.partition_state import HELD_SHARE_MAX, Lane, Mark
from bridge.deliver.at_least_once.window import BYTES_MIN
from bridge.deliver.position import Aside, Position
from bridge.kafka.lane import LaneKey, Refusal

A: LaneKey = ("t", 0)
B: LaneKey = ("t", 1)
LARGE = Refusal("too large", "MSG_SIZE_TOO_LARGE")
AWAY = Refusal("no leader", "LEADER_NOT_AVAILABLE", passing=True)


def at(address: int) -> Position:
    return Position(address, None)


def engine(**options: object) -> Engine:
    """Each record carries a callback."""
    options = {"mark_every": 1, **options}
    return Engine(at(0), now_s=0.0, entropy=random.Random(1), **options)  # type: ignore[arg-type]


def read(
    e: Engine,
    to: int,
    records: dict[LaneKey, Sequence[int]],
    *,
    poison: Sequence[int] = (),
    size: int = 0,
    now_s: float = 0.0,
) -> list[Command]:
    """Reads a batch from where the engine wants it up to `to`: addresses by lane."""
    e.begin()
    lanes = {address: key for key, addresses in records.items() for address in addresses}
    order = sorted(lanes)
    admitted = e.admit(
        Given(
            order,
            array("q", [size] * len(order)),
            [lanes[address] for address in order],
            None,
            dict.fromkeys(poison, LARGE),
        ),
        at(to),
        now_s=now_s,
    )
    return admitted.commands


def sending(**options: object) -> Engine:
    e = engine(**options)
    assert e.tick(0.0) == [Connect(careful=False)]
    assert e.connected({}) == []
    return e


def opened(**options: object) -> Engine:
    """Both lanes have acknowledged a record on this connection; all before address 2 is delivered."""
    e = sending(**options)
    read(e, 2, {A: [0], B: [1]})
    e.delivered(A, 0, 0, now_s=0.0)
    e.delivered(B, 1, 0, now_s=0.0)
    return e


def under_way(**options: object) -> Engine:
    """Four records are outstanding: 10 and 20 in A, 11 and 21 in B."""
    e = opened(**options)
    read(e, 40, {A: [10, 20], B: [11, 21]})
    return e


def reconnect(e: Engine, now_s: float = 1000.0) -> Engine:
    """Connected again after a failure."""
    (command,) = e.tick(now_s)
    assert isinstance(command, Connect)
    e.connected({})
    return e


def many(e: Engine, records: int, *, now_s: float = 0.0) -> None:
    """Sends so many records of A, from address 2 on."""
    read(e, 2 + records, {A: range(2, 2 + records)}, now_s=now_s)


# --- the table ------------------------------------------------------------------------------

_Case = tuple[Callable[[], Engine], Callable[[Engine], list[Command]]]


def connecting() -> Engine:
    e = engine()
    e.tick(0.0)
    return e


def stopping() -> Engine:
    e = under_way()
    assert e.stop(now_s=1.0) == []
    return e


def one_sent() -> Engine:
    e = sending()
    read(e, 10, {A: [0]})
    return e


def held_lane_full() -> Engine:
    e = opened(outstanding_max=5)
    read(e, 100, {A: range(10, 16)})
    return e


def some_delivered() -> Engine:
    e = under_way()
    e.delivered(A, 10, 1, now_s=0.5)
    return e


ROWS: dict[tuple[str, str], _Case] = {
    ("connecting", "connected"): (connecting, lambda e: e.connected({A: 5})),
    ("connecting", "failed, to be tried again"): (connecting, lambda e: e.failed("no", now_s=0.0)),
    ("sending", "delivered"): (under_way, lambda e: e.delivered(A, 10, 1, now_s=0.0)),
    ("sending", "failed, to be tried again"): (under_way, lambda e: e.failed("no", now_s=0.0)),
    ("sending", "tick, commit due"): (some_delivered, lambda e: e.tick(1.0)),
    ("sending", "stop"): (under_way, lambda e: e.stop(now_s=0.0)),
    ("backing_off", "tick, delay over"): (engine, lambda e: e.tick(0.0)),
    ("stopping", "all acknowledged, or late"): (stopping, lambda e: e.tick(6.0)),
    ("stopping", "failed, to be tried again"): (stopping, lambda e: e.failed("no", now_s=1.0)),
    ("sending", "suspect, one of several"): (
        under_way,
        lambda e: e.suspect("no", "INVALID_RECORD", now_s=0.0),
    ),
    ("sending", "suspect, a single record"): (
        one_sent,
        lambda e: e.suspect("no", "INVALID_RECORD", A, now_s=0.0),
    ),
    ("sending", "suspect, records named"): (
        under_way,
        lambda e: e.suspect("no", "INVALID_RECORD", A, named=(10, 20), now_s=0.0),
    ),
    ("sending", "poison read, to be set by"): (
        lambda: opened(poison="dead-letter"),
        lambda e: read(e, 20, {A: [2, 10]}, poison=[10]),
    ),
    ("sending", "poison read, to stop"): (
        opened,
        lambda e: read(e, 20, {A: [2, 10]}, poison=[10]),
    ),
    ("sending", "tick, held lanes fill it"): (held_lane_full, lambda e: e.tick(5.0)),
    ("connecting, backing_off: stop", ""): (connecting, lambda e: e.stop(now_s=0.0)),
}


def table() -> list[tuple[str, str, str, list[str]]]:
    """The rows of the docstring: state, event, next state, names of the commands."""
    assert engine_module.__doc__ is not None
    block = engine_module.__doc__.split("\n\n")[1].splitlines()[1:]
    rows = []
    for line in block:
        state, event = line[4:16].strip(), line[16:43].strip()
        if ":" in line:  # the last row has states and event in one column
            state, event = line[4:43].strip(), ""
        after, commands = line[43:56].strip(), line[56:].partition(";")[0].strip()
        names = [] if commands == "-" else commands.split(", ")
        rows.append((state, event, after, names))
    return rows


def test_every_row_of_the_table_is_tested_and_no_other() -> None:
    assert {(state, event) for state, event, _, _ in table()} == set(ROWS)
    assert len(table()) == len(ROWS)


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_the_engine_does_what_its_table_says(row: tuple[str, str, str, list[str]]) -> None:
    state, event, after, names = row
    begin, happens = ROWS[state, event]
    e = begin()
    commands = happens(e)
    assert [type(command).__name__ for command in commands] == names
    assert e.state.value == after


def test_an_engine_that_has_stopped_ignores_every_event() -> None:
    e = stopping()
    assert e.tick(100.0)
    assert e.over
    assert not e.wants_batch
    answers = [
        e.tick(200.0),
        e.connected({A: 99}),
        e.delivered(A, 10, 1, now_s=200.0),
        e.failed("x", now_s=200.0),
        e.suspect("x", "x", now_s=200.0),
        e.stop(now_s=200.0),
    ]
    assert answers == [[]] * len(answers)
    assert e.state is State.STOPPED


# --- the cursor -----------------------------------------------------------------------------


def test_the_cursor_is_the_least_address_that_no_lane_has_acknowledged() -> None:
    e = under_way()
    seen = [e.position.address]
    for lane, address in ((B, 11), (A, 10), (B, 21), (A, 20)):
        e.delivered(lane, address, address, now_s=0.0)
        seen.append(e.position.address)
    assert seen == [10, 10, 20, 20, 40]
    assert (e.outstanding, e.acknowledged) == (0, 6)


def test_a_mark_acknowledges_its_predecessors_in_its_lane_and_in_no_other() -> None:
    e = opened(mark_every=256)
    read(e, 100, {A: [10, 20, 30, 40, 80], B: [11, 90]})
    e.delivered(A, 80, 4, now_s=0.0)
    assert (e.position, e.outstanding, e.acknowledged) == (at(11), 2, 7)
    assert e.lanes[B].low() == at(11)


def test_a_late_acknowledgement_covers_all_marks_before_it() -> None:
    e = under_way()
    e.delivered(A, 20, 7, now_s=0.0)
    assert (e.position, e.outstanding) == (at(11), 2)


def test_a_repeated_or_unknown_acknowledgement_changes_nothing() -> None:
    e = some_delivered()
    before = (e.position, e.outstanding, e.acknowledged)
    assert e.delivered(A, 10, 1, now_s=0.0) == []
    assert e.delivered(("other", 3), 0, 0, now_s=0.0) == []
    assert (e.position, e.outstanding, e.acknowledged) == before


def test_a_commit_is_due_at_its_time_and_only_after_progress() -> None:
    e = engine(commit_s=2.0)
    e.tick(0.0)
    e.connected({})
    read(e, 20, {A: [0], B: [10]})
    assert e.tick(2.0) == []
    e.delivered(A, 0, 0, now_s=2.5)
    assert e.seconds_to_tick(2.5) == 1.5
    assert e.tick(3.9) == []
    assert e.tick(4.0) == [Commit(at(10))]
    e.committed_at(at(10))
    assert e.tick(6.0) == []
    assert e.committed == at(10)


def test_after_a_failure_the_log_is_read_again_from_the_cursor() -> None:
    e = some_delivered()
    assert e.failed("gone", now_s=0.0) == [Commit(at(11)), Disconnect()]
    assert (e.next_read, e.position, e.outstanding) == (at(11), at(11), 0)
    assert e.failure == "gone"
    reconnect(e)
    assert e.failure is None
    assert [e.lanes[A].has(address) for address in (10, 20)] == [True, False]


def test_records_that_were_found_in_the_destination_are_not_sent_again() -> None:
    e = connecting()
    e.connected({A: 20})
    assert [e.lanes[A].has(address) for address in (0, 20, 30)] == [True, True, False]
    read(e, 40, {A: [10, 20, 30]})
    assert (e.skipped, e.outstanding, e.position) == (2, 1, at(30))


def test_a_lane_is_opened_anew_on_each_connection_in_which_offsets_may_begin_anew() -> None:
    e = under_way()
    assert e.lanes[A].opened
    e.failed("the topic was deleted", now_s=0.0)
    assert not e.lanes[A].opened
    reconnect(e)
    read(e, 40, {A: [10]})
    assert e.delivered(A, 10, 0, now_s=10.0) == []
    assert e.lanes[A].last_offset == 0


# --- refusals -------------------------------------------------------------------------------


def test_a_lane_is_bisected_in_groups_a_32nd_as_large() -> None:
    e = opened()
    many(e, 10_000)
    groups = []
    for _ in range(3):
        e.suspect("no", "INVALID_RECORD", A, now_s=0.0)
        assert e.careful
        reconnect(e)
        assert e.lanes[A].room() == 1  # a single record opens it first
        read(e, 10_002, {A: range(2, 10_002)})
        assert e.outstanding == 1
        e.delivered(A, e.position.address, -1, now_s=0.0)
        groups.append(e.lanes[A].room())
        read(e, 10_002, {A: range(2, 10_002)})
        assert e.outstanding == groups[-1]
        assert e.lanes[A].room() == 0  # one group at a time
    assert groups == [312, 9, 1]
    e.suspect("no", "INVALID_RECORD", A, now_s=0.0)
    assert e.refusals == {5: Refusal("no", "INVALID_RECORD")}
    reconnect(e)
    e.lanes[A].opened = True
    groups = []
    for last in (5, 12, 13, 315, 400, 10_000, 10_001):
        e.lanes[A].arrived(last)
        groups.append(e.lanes[A].room())
    assert groups[:6] == [1, 9, 9, 312, 312, 312]  # the other suspects go through in larger groups
    assert groups[6] > 10_000


def test_each_step_of_a_bisection_follows_without_a_pause() -> None:
    e = opened()
    many(e, 10_000)
    for _ in range(4):
        e.suspect("no", "INVALID_RECORD", A, now_s=100.0)
        assert e.tick(100.0) == [Connect(careful=True)]
        e.connected({})
        e.lanes[A].opened = True
        read(e, 10_002, {A: range(2, 10_002)}, now_s=100.0)
    assert e.refusals.keys() == {2}


def test_a_refusal_that_teaches_nothing_is_retried_after_growing_pauses() -> None:
    """No report names the lane."""
    e = sending()
    pauses = []
    for _ in range(5):
        read(e, 10, {A: [0]})
        e.suspect("no", "_GAPLESS_GUARANTEE", now_s=0.0)
        pauses.append(e.seconds_to_tick(0.0))
        reconnect(e)
    assert pauses[0] > 0
    assert pauses[-1] > 2 * pauses[0]


@pytest.mark.parametrize("progress", ["delivered", "set aside"])
def test_progress_makes_the_next_pause_short_again(progress: str) -> None:
    e = opened(backoff_s=1.0, poison="dead-letter")
    for _ in range(10):
        e.failed("away", now_s=0.0)
        reconnect(e)
    read(e, 20, {A: [2], B: [10]}, poison=[10] if progress == "set aside" else [])
    e.set_aside([10]) if progress == "set aside" else e.delivered(A, 2, 1, now_s=0.0)
    e.failed("away", now_s=0.0)
    assert e.seconds_to_tick(0.0) <= 1.0


def test_if_the_cluster_names_records_the_same_are_sent_once_more_with_a_report_each() -> None:
    e = opened()
    many(e, 1_000)
    rooms = []
    for _ in range(2):  # the second time it named none
        e.suspect("no", "_INVALID_DIFFERENT_RECORD", A, now_s=0.0)
        reconnect(e)
        e.lanes[A].opened = True
        rooms.append(e.lanes[A].room())
        read(e, 1_002, {A: range(2, 1_002)})
    assert rooms == [1_000, 31]


def test_a_single_refused_record_leaves_nothing_in_doubt() -> None:
    for e, doubt in ((one_sent(), False), (under_way(), True)):
        e.suspect("no", "INVALID_RECORD", A, now_s=0.0)
        assert e.in_doubt is doubt


def test_a_lane_is_bisected_up_to_what_was_suspect_and_other_lanes_are_not() -> None:
    e = opened()
    many(e, 100)
    e.suspect("no", "INVALID_RECORD", A, now_s=0.0)
    reconnect(e)
    assert (e.lanes[A].suspects, e.lanes[B].suspects) == ([(101, 3)], [])
    e.note_held(A, 100)
    assert e.careful
    e.note_held(A, 101)
    assert not e.careful


def test_without_a_named_lane_each_lane_with_records_in_flight_is_bisected() -> None:
    e = opened()
    many(e, 30)
    e.suspect("no", "INVALID_RECORD", now_s=0.0)
    assert {key for key, lane in e.lanes.items() if lane.suspects} == {A}
    e = under_way()
    e.suspect("no", "INVALID_RECORD", now_s=0.0)
    assert {key for key, lane in e.lanes.items() if lane.suspects} == {A, B}
    assert e.refusals == {}


def test_a_suspect_that_has_arrived_is_no_longer_one() -> None:
    e = under_way()
    e.suspect("no", "INVALID_RECORD", A, now_s=0.0)
    assert e.tick(1000.0) == [Connect(careful=True)]
    e.connected({A: 20})
    assert not e.careful


def test_named_records_are_poison_at_once() -> None:
    for lane, named in ((A, [10, 20]), (None, [20])):
        e = under_way()
        e.suspect("too large", "MSG_SIZE_TOO_LARGE", lane, named=named, now_s=0.0)
        assert e.refusals == dict.fromkeys(named, LARGE)
        assert not e.careful


# --- poison ---------------------------------------------------------------------------------


def test_poison_is_set_aside_first_and_the_cursor_waits_for_that() -> None:
    e = opened(poison="drop")
    commands = read(e, 20, {A: [2, 10]}, poison=[10])
    assert commands == [SetAside((Aside(at(10), A, LARGE),))]
    assert not e.wants_batch
    e.delivered(A, 2, 1, now_s=0.0)
    assert e.position == at(10)
    e.set_aside([10])
    assert (e.position, e.wants_batch, e.aside) == (at(20), True, {10})
    e.committed_at(at(20))
    assert e.aside == set()


def test_poison_that_could_not_be_set_aside_is_read_again() -> None:
    e = opened(poison="dead-letter")
    read(e, 20, {A: [2, 10]}, poison=[10])
    e.delivered(A, 2, 1, now_s=0.0)
    assert e.failed("disk full", now_s=0.0) == [Commit(at(10)), Disconnect()]
    assert reconnect(e).begin() == at(10)
    assert not e.lanes[A].has(10)


def test_a_lane_that_stopped_before_poison_sends_again_what_is_before_it() -> None:
    e = opened()
    read(e, 40, {A: [2, 10]}, poison=[10])
    assert set(e.standing) == {A}
    e.failed("away", now_s=0.0)
    reconnect(e)
    assert (e.standing, e.begin()) == ({}, at(2))


def stopped_before_poison() -> Engine:
    """A has stopped before 10; B has acknowledged 11."""
    e = opened()
    read(e, 40, {A: [2, 10], B: [11]}, poison=[10])
    e.delivered(A, 2, 1, now_s=0.0)
    assert (e.position, set(e.standing), e.stopped_short) == (at(10), {A}, False)
    e.delivered(B, 11, 1, now_s=0.0)
    return e


def test_poison_stops_its_lane_and_the_cursor_and_no_other_lane() -> None:
    e = stopped_before_poison()
    assert (e.position, e.stopped_short, e.wants_batch) == (at(10), True, True)
    assert e.begin() == at(40)
    assert read(e, 60, {B: [50], A: [41]}) == []
    e.failed("gone", now_s=0.0)
    reconnect(e)
    assert (e.begin(), set(e.standing), e.position) == (at(50), {A}, at(10))
    assert e.lanes[A].room() == 0


def test_a_standing_lane_is_retried_when_somebody_asks() -> None:
    e = stopped_before_poison()
    away = ("away", 0)
    e.close(away, AWAY)
    e.refusals[10] = LARGE
    assert e.reopen() == [A]
    assert (e.standing, e.refusals, e.begin()) == ({}, {}, at(10))
    assert e.lanes[away].room() == 0  # nobody can do anything about that one
    assert e.reopen() == []


# --- records that wait in the log -------------------------------------------------------------


def test_a_lane_is_opened_by_one_record_and_read_again_from_the_second() -> None:
    e = sending()
    read(e, 40, {A: [0, 10, 20]})
    assert (e.outstanding, e.wants_batch) == (1, False)  # the answer may come any moment
    e.delivered(A, 0, 0, now_s=0.0)
    assert e.wants_batch
    assert (e.catching_up, e.begin()) == (True, at(10))
    read(e, 40, {A: [10, 20]})
    assert e.lanes[A].behind is None
    assert e.next_read == at(40)


def test_a_lane_that_never_answers_is_held_and_the_others_are_read_on_for() -> None:
    e = sending(hold_s=1.0)
    read(e, 40, {A: [0, 20], B: [10, 30]})
    e.delivered(B, 10, 0, now_s=0.1)
    assert e.begin() == at(30)
    read(e, 40, {B: [30]}, now_s=0.1)
    e.tick(0.9)
    assert not e.wants_batch  # A may still answer
    e.tick(1.1)
    assert e.wants_batch
    assert (e.begin(), e.position) == (at(40), at(0))
    read(e, 90, {B: [50], A: [60]})
    assert e.lanes[A].behind == at(20)
    e.delivered(A, 0, 0, now_s=50.0)
    assert (e.begin(), e.position) == (at(20), at(20))
    assert e.lanes[A].share is None  # it was not slow: it was not there


def test_where_a_lane_left_its_records_moves_only_when_they_are_read_for_it() -> None:
    e = opened()
    e.close(A, AWAY)
    read(e, 100, {B: [10], A: [20, 60]})
    e.open(A)
    assert e.begin() == at(20)
    read(e, 50, {A: [20]})
    assert e.lanes[A].behind == at(50)
    e.close(A, AWAY)
    assert e.begin() == at(100)
    read(e, 120, {A: [110]})
    assert e.lanes[A].behind == at(50)


@pytest.mark.parametrize("alone", [True, False])
def test_a_slow_lane_is_held_if_another_could_flow(alone: bool) -> None:
    e = opened()
    if alone:
        e.close(B, LARGE)
    many(e, 600)
    e.delivered(A, 300, -1, now_s=1.4)  # slow, but not stuck
    e.tick(1.5)
    assert e.lanes[A].held is not alone


def test_a_held_lane_goes_on_after_its_last_answer_with_a_share_that_grows() -> None:
    e = opened()
    many(e, 1000)
    e.tick(2.0)
    assert e.lanes[A].held
    e.delivered(A, 1001, -1, now_s=3.0)
    assert not e.lanes[A].held
    shares: list[int | None] = []
    for number in range(10):
        shares.append(e.lanes[A].share)
        first = 2000 + 10 * number
        read(e, first + 5, {A: [first]}, now_s=3.0)
        e.delivered(A, first, -1, now_s=3.1)
    assert shares[:4] == [250, 500, 1000, 2000]
    assert shares[-1] is None
    assert HELD_SHARE_MAX >= 32_000


def test_records_of_held_lanes_are_counted_apart_and_bounded_by_closing_the_connection() -> None:
    e = opened(outstanding_max=100)
    many(e, 60)
    e.tick(2.0)
    assert e.wants_batch
    read(e, 200, {B: range(100, 199)}, now_s=2.0)
    assert e.wants_batch
    read(e, 300, {B: range(201, 300)}, now_s=2.0)
    assert not e.wants_batch
    e.delivered(B, 299, -1, now_s=2.1)
    assert e.wants_batch
    read(e, 500, {B: range(300, 341)}, now_s=2.1)
    assert e.tick(5.0) == [Commit(at(2)), Disconnect()]
    assert e.outstanding == 0
    reconnect(e)
    assert (e.begin(), e.lanes[A].room()) == (at(2), 1)


@pytest.mark.parametrize("careful", [False, True])
def test_room_is_what_the_table_of_lanes_says(careful: bool) -> None:
    closed = Lane(opened=True, closed=LARGE)
    held = Lane(opened=True, held=True)
    share = Lane(opened=True, share=100, suspects=[(5, 100)] if careful else [])
    assert (closed.room(), held.room(), Lane().room(), share.room()) == (0, 0, 1, 100)
    share.send(Mark(at(0), 9, 10))
    assert share.room() == (0 if careful else 90)
    share.behind = at(50)
    assert share.room() == (0 if careful else 90)
    share.send(Mark(at(10), 99, 41))
    assert share.room() == 0
    assert Lane(opened=True).room() > 1 << 60


# --- bounds ---------------------------------------------------------------------------------


def test_no_batch_is_wanted_beyond_the_bounds_nor_while_not_sending() -> None:
    for bound, size in (({"outstanding_max": 3}, 0), ({"bytes_max": 1000}, 400)):
        e = opened(**bound)
        read(e, 20, {A: [2, 3]}, size=size)
        assert e.wants_batch
        read(e, 40, {A: [20, 30]}, size=size)
        assert not e.wants_batch
        e.delivered(A, 3, 1, now_s=0.0)
        assert e.wants_batch
    assert not engine().wants_batch
    assert not connecting().wants_batch


def test_nothing_is_read_or_sent_from_until_on() -> None:
    e = opened(until=25)
    read(e, 40, {A: [10, 20, 30]})
    assert (e.outstanding, e.frontier, e.wants_batch) == (2, at(25), False)


def test_what_is_in_flight_begins_small_and_grows_while_answers_come_soon() -> None:
    e = opened()
    assert e.batch_bytes == BYTES_MIN
    read(e, 20, {A: [10]}, size=BYTES_MIN - 1)
    assert e.wants_batch
    read(e, 30, {A: [20]}, size=1)
    assert not e.wants_batch
    e.delivered(A, 10, 1, now_s=0.1)
    assert e.batch_bytes == 2 * BYTES_MIN - 1


def test_what_is_in_flight_is_halved_once_if_answers_come_late() -> None:
    e = opened()
    e.window.bytes = 8 * BYTES_MIN
    read(e, 30, {A: [10, 20]}, size=4 * BYTES_MIN)
    e.delivered(A, 10, 1, now_s=1.5)
    e.delivered(A, 20, 2, now_s=1.6)
    assert e.batch_bytes == 4 * BYTES_MIN


def test_a_held_lane_does_not_narrow_the_window_and_a_new_connection_begins_small() -> None:
    e = opened(backoff_s=0.0)
    e.window.bytes = 8 * BYTES_MIN
    read(e, 20, {A: [10]}, size=BYTES_MIN)
    e.tick(1.5)
    assert e.lanes[A].held
    e.delivered(A, 10, 1, now_s=30.0)
    assert e.batch_bytes == 8 * BYTES_MIN
    e.failed("away", now_s=30.0)
    assert e.batch_bytes == BYTES_MIN


# --- stopping, and doubt --------------------------------------------------------------------


def test_the_delay_is_over_when_it_says() -> None:
    e, now_s = engine(backoff_s=0.5), 0.0
    for _ in range(20):
        assert e.tick(now_s) == [Connect(careful=False)]
        e.failed("no", now_s=now_s)
        delay_s = e.seconds_to_tick(now_s)
        assert e.tick(now_s + delay_s * 0.999) == []
        now_s += delay_s + 1e-6


def test_a_stop_ends_with_the_last_acknowledgement() -> None:
    e = stopping()
    assert not e.wants_batch
    for lane, address in ((A, 10), (B, 11), (A, 20)):
        assert e.delivered(lane, address, address, now_s=1.5) == []
    assert e.delivered(B, 21, 21, now_s=1.5) == [Commit(at(40)), Disconnect()]
    assert (e.state, e.in_doubt) == (State.STOPPED, False)


def test_a_stop_ends_in_its_time_and_commits_what_is_acknowledged() -> None:
    e = under_way(stop_s=3.0)
    e.stop(now_s=1.0)
    assert e.stop(now_s=3.5) == []  # a second one does not extend it
    e.delivered(A, 10, 1, now_s=3.5)
    assert e.tick(3.9) == []
    assert e.tick(4.0) == [Commit(at(11)), Disconnect()]
    assert (e.state, e.outstanding) == (State.STOPPED, 3)


def test_an_idle_engine_stops_at_once() -> None:
    assert sending().stop(now_s=0.0) == [Commit(at(0)), Disconnect()]


def test_records_in_flight_at_a_failure_are_in_doubt_until_the_next_connection() -> None:
    e = under_way()
    assert not e.in_doubt
    e.failed("gone", now_s=0.0)
    assert e.in_doubt
    assert not reconnect(e).in_doubt
    e = engine(in_doubt=True)  # of the process before
    e.tick(0.0)
    e.failed("gone", now_s=0.0)
    e.stop(now_s=0.0)
    assert e.in_doubt
