"""The delivery engine: each row of its table, the cursor, lanes and bounds. Refusals are in
test_engine_poison.py, its promises as a whole in test_engine_model.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.deliver.at_least_once import engine as engine_module
from bridge.deliver.at_least_once.engine import Engine, State
from bridge.deliver.at_least_once.lanes import HELD_SHARE_MAX, RECORD_BYTES
from tests.bridge.deliver.at_least_once.engines import (
    A,
    B,
    at,
    connecting,
    engine,
    many,
    one_sent,
    opened,
    read,
    reconnect,
    under_way,
)

# --- the table ------------------------------------------------------------------------------

_Case = tuple[Callable[[], Engine], Callable[[Engine], None]]


def stopping() -> Engine:
    e = under_way()
    e.stop(now_s=1.0)
    return e


def held_lane_full() -> Engine:
    e = opened(outstanding_max=5)
    read(e, 100, {A: range(10, 16)})
    return e


REFUSED = ("no", "INVALID_RECORD")
ROWS: dict[tuple[str, str], _Case] = {
    ("connecting", "connected"): (connecting, lambda e: e.connected()),
    ("connecting", "failed, to be tried again"): (connecting, lambda e: e.failed("no", now_s=0.0)),
    ("sending", "delivered"): (under_way, lambda e: e.delivered(A, 10, 1, now_s=0.0)),
    ("sending", "failed, to be tried again"): (under_way, lambda e: e.failed("no", now_s=0.0)),
    ("sending", "stop"): (under_way, lambda e: e.stop(now_s=0.0)),
    ("backing_off", "tick, delay over"): (engine, lambda e: e.tick(0.0)),
    ("stopping", "all acknowledged, or late"): (stopping, lambda e: e.tick(6.0)),
    ("stopping", "failed, to be tried again"): (stopping, lambda e: e.failed("no", now_s=1.0)),
    ("sending", "suspect, one of several"): (under_way, lambda e: e.suspect(*REFUSED, now_s=0.0)),
    ("sending", "suspect, a single record"): (one_sent, lambda e: e.suspect(*REFUSED, A, now_s=0.0)),
    ("sending", "suspect, records named"): (
        under_way, lambda e: e.suspect(*REFUSED, A, named=(10, 20), now_s=0.0)),
    ("sending", "poison read, to be set by"): (
        opened, lambda e: read(e, 20, {A: [2, 10]}, poison=[10], stops=False)),
    ("sending", "poison read, to stop"): (opened, lambda e: read(e, 20, {A: [2, 10]}, poison=[10])),
    ("sending", "tick, held lanes fill it"): (held_lane_full, lambda e: e.tick(5.0)),
    ("connecting, backing_off: stop", ""): (connecting, lambda e: e.stop(now_s=0.0)),
}  # fmt: skip  # a table


def table() -> list[tuple[str, str, str, str]]:
    """The rows of the docstring: state, event, next state, and a note."""
    assert engine_module.__doc__ is not None
    block = engine_module.__doc__.split("\n\n")[1].splitlines()[1:]
    rows = []
    for line in block:
        state, event = line[4:16].strip(), line[16:43].strip()
        if ":" in line:  # the last row has states and event in one column
            state, event = line[4:43].strip(), ""
        rows.append((state, event, line[43:56].strip(), line[56:].strip()))
    return rows


def test_every_row_of_the_table_is_tested_and_no_other() -> None:
    assert {(state, event) for state, event, _, _ in table()} == set(ROWS)
    assert len(table()) == len(ROWS)


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_the_engine_follows_its_table(row: tuple[str, str, str, str]) -> None:
    state, event, after, note = row
    begin, happens = ROWS[state, event]
    e = begin()
    happens(e)
    assert e.state.value == after
    assert bool(e.pending) == ("pending" in note)
    if after == "backing_off":
        assert (e.seconds_to_tick(5.0 if "tick" in event else 0.0) == 0) == ("at once" in note)


def test_an_engine_that_has_stopped_ignores_every_event() -> None:
    e = stopping()
    e.tick(100.0)
    assert e.over
    assert not e.wants_batch
    position = e.position
    e.tick(200.0)
    e.connected()
    e.delivered(A, 10, 1, now_s=200.0)
    e.failed("x", now_s=200.0)
    e.suspect("x", "x", now_s=200.0)
    e.stop(now_s=200.0)
    assert (e.state, e.position) == (State.STOPPED, position)


# --- the cursor -----------------------------------------------------------------------------


def test_the_cursor_is_the_least_address_that_no_lane_has_acknowledged() -> None:
    e = under_way()
    seen = [e.position.address]
    for lane, address in ((B, 11), (A, 10), (B, 21), (A, 20)):
        e.delivered(lane, address, address, now_s=0.0)
        seen.append(e.position.address)
    assert seen == [10, 10, 20, 20, 40]
    assert (e.outstanding, e.acknowledged) == (0, 6)


# --- records that wait in the log -------------------------------------------------------------


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
    e.tick(5.0)
    assert (e.state, e.position, e.outstanding) == (State.BACKING_OFF, at(2), 0)
    reconnect(e)
    assert (e.begin(), e.lanes[A].room()) == (at(2), 1)


def test_bytes_in_flight_are_bounded_whether_their_lanes_are_held_or_flow() -> None:
    """The bound was doubled for lanes that are held, and the client's queue was smaller than either."""
    e, most, size = opened(bytes_max=10_000), [], 1_000 - RECORD_BYTES
    e.window.bytes = 10_000
    for now_s in (1.9, 2.0):
        e.tick(now_s)  # lane A is held the second time
        first = 10 + 10 * len(most)
        for number in range(first, first + 10):
            if not e.wants_batch:
                break
            assert e.batch_bytes <= 2_500
            is_early = number < 13
            lane = A if is_early else B
            read(e, number + 1, {lane: [number]}, size=size, now_s=0.0 if is_early else now_s)
        most.append(e.lanes.memory_bytes)
    assert most == [6_000, 8_000]


def test_held_lanes_close_the_connection_when_they_have_half_of_the_bytes_in_flight() -> None:
    e = opened(bytes_max=2_000)
    e.window.bytes = 2_000
    read(e, 20, {A: [10]}, size=1_000 - RECORD_BYTES)
    read(e, 40, {B: [30]}, size=10, now_s=1.9)
    e.tick(2.0)
    assert e.lanes[A].held
    e.tick(2.1)
    assert e.state is State.SENDING  # no more than half
    other = opened(bytes_max=2_000)
    other.window.bytes = 2_000
    read(other, 20, {A: [10]}, size=1_001 - RECORD_BYTES)
    read(other, 40, {B: [30]}, size=10, now_s=1.9)
    other.tick(2.0)
    assert other.state is State.BACKING_OFF


# --- stopping, and doubt --------------------------------------------------------------------


def test_a_stop_ends_in_its_time_after_the_acknowledged_records() -> None:
    e = under_way(stop_s=3.0)
    e.stop(now_s=1.0)
    e.stop(now_s=3.5)  # a second one does not extend it
    e.delivered(A, 10, 1, now_s=3.5)
    e.tick(3.9)
    assert e.state is State.STOPPING
    e.tick(4.0)
    assert (e.state, e.position, e.outstanding) == (State.STOPPED, at(11), 3)


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
