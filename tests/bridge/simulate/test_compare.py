"""The comparison counts each kind of fault as what it is, and finds none where there is none."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aolog import Record
from aolog.format.origin import HEADER_NAME
from bridge.client.received import Received
from bridge.kafka.stamp import encode_stamp
from bridge.simulate.compare import Comparison

UUID = bytes(16)


def record(number: int) -> Record:
    headers = (("h", b"1"), ("h", None)) if number % 3 == 0 else ()
    return Record(number * 10, 1_600_000_000_000_999 + number, b"k", b"v%d" % number, headers, None)


def message(r: Record, partition: int = 0, **changed: object) -> Received:
    stamp = (HEADER_NAME, encode_stamp(UUID, 1, r.address, r.timestamp))
    assert r.timestamp is not None
    arrived = Received(
        "demo", partition, 0, r.timestamp // 1000, r.key, r.value, (*r.headers, stamp)
    )
    return arrived._replace(**changed)


def compare(records: list[Record], messages: list[Received]) -> Comparison:
    c = Comparison()
    c.appended(records)
    c.arrived(messages)
    return c


def faults(c: Comparison) -> dict[str, int]:
    names = ("missing", "repeated", "altered", "disordered", "strangers")
    return {name: count for name in names if (count := getattr(c, name))}


RECORDS = [record(i) for i in range(6)]
MESSAGES = [message(r) for r in RECORDS]


@given(
    partitions=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    steps=st.lists(st.integers(1, 20), min_size=1, max_size=30),
    seed=st.integers(0, 999),
)
def test_what_arrived_as_it_was_sent_is_clean_however_it_interleaves(
    partitions: list[int], steps: list[int], seed: int
) -> None:
    records = [record(i) for i in range(len(partitions))]
    queues = [
        [message(r, p) for r, q in zip(records, partitions, strict=True) if q == p]
        for p in range(4)
    ]
    chance, c = random.Random(seed), Comparison()
    c.appended(records)
    for step in steps:
        queue = chance.choice(queues)
        c.arrived(queue[:step])
        del queue[:step]
        assert faults(c).keys() <= {"missing"}
    for queue in queues:
        c.arrived(queue)
    assert faults(c) == {}
    assert c.matched == len(records)
    assert c.bytes == sum(len(r.value or b"") for r in records)


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        (MESSAGES[1:], {"missing": 1}),
        ([], {"missing": 6}),
        (MESSAGES[:3] + MESSAGES[2:], {"repeated": 1}),
        (MESSAGES[:4] + MESSAGES[1:], {"repeated": 3, "disordered": 1}),
        (
            [*MESSAGES[:2], MESSAGES[3], MESSAGES[2], *MESSAGES[4:]],
            {"disordered": 1},
        ),
        ([*MESSAGES, Received("demo", 0, 9, 0, b"k", b"v", ())], {"strangers": 1}),
    ],
    ids=["one gone", "all gone", "twice", "a run again", "swapped", "a stranger"],
)
def test_a_fault_is_counted_as_what_it_is(messages: list[Received], found: dict[str, int]) -> None:
    c = compare(RECORDS, messages)
    assert faults(c) == found
    assert c.matched == 6 - c.missing


@pytest.mark.parametrize(
    "changed",
    [
        {"value": b"other"},
        {"value": None},
        {"key": None},
        {"key": b""},
        {"headers": MESSAGES[0].headers[1:]},
        {"headers": (("x", b"1"), *MESSAGES[0].headers)},
        {"headers": [MESSAGES[0].headers[1], MESSAGES[0].headers[0], MESSAGES[0].headers[2]]},
        {"timestamp": MESSAGES[0].timestamp + 1},
        {
            "headers": [
                *MESSAGES[0].headers[:2],
                (HEADER_NAME, encode_stamp(UUID, 1, 0, 1_600_000_000_000_000)),
            ]
        },
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_any_altered_part_is_an_altered_record(changed: dict[str, object]) -> None:
    c = compare(RECORDS, [MESSAGES[0]._replace(**changed), *MESSAGES[1:]])
    assert faults(c) == {"altered": 1}
