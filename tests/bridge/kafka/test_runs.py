"""Messages as columns: runs of one partition, as the messages came."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from aolog.format.slab import NO_TIMESTAMP
from bridge.kafka.consumed import LeftOut
from bridge.kafka.runs import Run, runs_of

LOG_MS = (2**63 - 1) // 1_000  # a log's times are microseconds
TIMES_MS = [0, 9, -1, -2, LOG_MS, LOG_MS + 1, -LOG_MS, -LOG_MS - 1, 2**63 - 1, -(2**63)]
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from("tu"),
            "partition": st.integers(0, 1),
            "timestamp": st.tuples(st.integers(0, 2), st.sampled_from(TIMES_MS)),
            "key": st.none() | st.binary(max_size=1),
            "headers": st.none() | st.just([("h", b"1"), ("h", None)]),
            "value": st.none() | st.binary(max_size=1),
        }
    ),
    max_size=9,
)


def made(messages: list[dict[str, Any]]) -> list[Message]:
    return [Message(offset=3 * i, **message) for i, message in enumerate(messages)]


def rows(run: Run) -> list[tuple[Any, ...]]:
    return [(run.place, *row) for row in run.rows()]


def time_us(kind: int, ms: int) -> int:
    """Kind 0 and -1: no time."""
    return NO_TIMESTAMP if kind == 0 or ms == -1 or abs(ms) > LOG_MS else 1_000 * ms


def left_out(kind: int, ms: int) -> LeftOut | None:
    return LeftOut(0, ms) if kind and abs(ms) > LOG_MS else None


@given(MESSAGES, st.integers(1, 4))
def test_runs_are_the_messages_in_their_order(messages: list[dict[str, Any]], most: int) -> None:
    runs = list(runs_of(made(messages), most))
    assert [row for run in runs for row in rows(run)] == [
        (
            (m["topic"], m["partition"]),
            3 * i,
            time_us(*m["timestamp"]),
            m["key"],
            m["value"],
            m["headers"],
            left_out(*m["timestamp"]),
        )
        for i, m in enumerate(messages)
    ]
    assert all(0 < len(run.offsets) <= most for run in runs)


@given(MESSAGES)
def test_a_run_ends_where_the_partition_changes_and_no_earlier(
    messages: list[dict[str, Any]],
) -> None:
    places = [run.place for run in runs_of(made(messages), len(messages) or 1)]
    assert all(one != next_one for one, next_one in pairwise(places))


@given(MESSAGES.filter(bool), st.integers(-1, 30), st.integers(-1, 30), st.data())
def test_a_part_of_a_run_is_the_same_part_of_each_column(
    messages: list[dict[str, Any]], begin: int, end: int, data: st.DataObject
) -> None:
    run = next(runs_of(made(messages), 9))
    assert rows(run.within(begin, end)) == [row for row in rows(run) if begin <= row[1] < end]
    count = len(run.offsets)
    wanted = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    kept = [row for row, is_wanted in zip(rows(run), wanted, strict=True) if is_wanted]
    assert rows(run.chosen(wanted)) == kept
