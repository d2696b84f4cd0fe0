"""Messages in memory: the compiled queue and the one in Python do the same, and `send` takes what is plain."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections import deque
from typing import Any

import pytest

from bridge.client.buffer.memory_queue import PythonQueue, Queue, bytes_of
from bridge.client.buffer.provider import Message

KINDS = dict.fromkeys((Queue, PythonQueue))  # one, where the compiled half is absent
compiled_only = pytest.mark.skipif(Queue is PythonQueue, reason="the compiled half alone")
UNBOUNDED = float("inf")
PLAIN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("t", b"1"), {}), (("t", b"2", b"k"), {}), (("u", None, None), {}), (("t", b"3"), {"key": b"k"}),
    (("t", b"4", b"k", ()), {}), (("t", bytes(1 << 20)), {}),
    (("t", b"5", b"k", (("h", b"v"),)), {}), (("t", b"6"), {"headers": [("h", None), ("i", b"")]}),
    (("t", b"7"), {"key": b"k", "headers": (("h", b"v"),) * 16}), (("t", b"8", None), {"headers": ()}),
]  # fmt: skip  # a table
OTHERS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("t", b"6", b"k", (("new", b"v"),)), {}), ((None, b"7"), {}), (("t", "8"), {}), (("t", b"9", "k"), {}),
    ((), {}), (("t",), {"value": b"1"}), (("t", b"2", b"k"), {"key": b"j"}), (("t", b"3"), {"another": 1}),
    (("new", b"4"), {}), (("t", b"5", None, (), 6), {}), (("t", b"7", None, [["h", b"v"]]), {}),
    (("t", bytes((1 << 20) + 1)), {}), ((["t"], b"8"), {}), (("t", bytearray(b"9")), {}),
    (("t", b"1", b"k", (("h", b"v"),) * 17), {}), (("t", b"2", b"k", (("h", "v"),)), {}),
    (("t", b"3", b"k", (("h", bytes((1 << 20) + 1)),)), {}), (("t", b"4", b"k", [("h",)]), {}),
    (("t", b"5", b"k", ()), {"headers": ()}), (("t", b"6", b"k", {"h": b"v"}), {}), (("t", b"7", None, None), {}),
    (("t", b"8"), {"headers": (("h", b"v"),), "another": 1}), (("t", b"9", b"k", 5), {}),
]  # fmt: skip  # a table


class Calls:
    """Who serves a queue."""

    def __init__(self, messages_max: float = UNBOUNDED) -> None:
        self.accepted: list[Message] = []
        self.passed_on: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.wakes = 0
        self.queue = Queue(messages_max, UNBOUNDED, UNBOUNDED)
        given = self.accepted.append, self.otherwise, self.wake
        self.queue.serve(Message, {"t", "u"}, {"h", "i"}, *given)

    def otherwise(self, *given: Any, **named: Any) -> None:
        self.passed_on.append((given, named))

    def wake(self) -> None:
        self.wakes += 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_a_queue_keeps_messages_in_order_whatever_is_dropped(kind: Any, seed: int) -> None:
    chance, queue, model = random.Random(seed), kind(200, 40_000, 50.0), deque[Message]()
    now_us = 0
    for number in range(3_000):
        count = chance.randrange(chance.choice([2, 100]))
        match chance.randrange(40):
            case 0:
                done = bytes(chance.random() < chance.choice([0.1, 1]) for _ in range(count))
                queue.drop(done)
                kept = [m for m, gone in zip(model, done, strict=False) if not gone]
                for _ in range(min(count, len(model))):
                    model.popleft()
                model.extendleft(reversed(kept))
            case 1:
                assert queue.first(count) == [model[i] for i in range(min(count, len(model)))]
            case _:
                now_us += chance.random() < 0.1
                value = chance.choice([None, bytes(number % 100)])
                headers = (("h", None), ("i", bytes(number % 70))) if chance.random() < 0.1 else ()
                message = Message("t", value, b"k", headers, now_us)
                is_full = bool(model) and (
                    len(model) >= 200
                    or sum(map(bytes_of, model)) >= 40_000
                    or now_us - model[0].timestamp_us > 50
                )
                assert queue.append(message) is not is_full
                if not is_full:
                    model.append(message)
        assert (len(queue), queue.bytes) == (len(model), sum(map(bytes_of, model)))
    assert queue.first(10**6) == list(model)


@compiled_only
def test_send_takes_plain_messages_and_passes_others_on_unchanged() -> None:
    calls = Calls()
    calls.queue.is_open = True
    before_us = time.time_ns() // 1_000
    for given, named in PLAIN + OTHERS:
        calls.queue.send(*given, **named)
    assert calls.passed_on == OTHERS
    found = calls.queue.first(100)
    assert [tuple(message)[:4] for message in found] == [
        ("t", b"1", None, ()), ("t", b"2", b"k", ()), ("u", None, None, ()), ("t", b"3", b"k", ()),
        ("t", b"4", b"k", ()), ("t", bytes(1 << 20), None, ()), ("t", b"5", b"k", (("h", b"v"),)),
        ("t", b"6", None, (("h", None), ("i", b""))), ("t", b"7", b"k", (("h", b"v"),) * 16), ("t", b"8", None, ()),
    ]  # fmt: skip  # a table
    times_us = [message.timestamp_us for message in found]
    assert times_us == sorted(times_us)
    assert before_us <= times_us[0] <= times_us[-1] <= time.time_ns() // 1_000
    assert not any(map(gc.is_tracked, found))


@compiled_only
def test_a_plain_message_that_the_queue_does_not_take_is_passed_on_as_such() -> None:
    calls = Calls(messages_max=2)
    calls.queue.send("t", b"shut")
    calls.queue.is_open = True
    for value in (b"1", b"2", b"full"):
        calls.queue.send("t", value)
    assert [message.value for message in calls.accepted] == [b"shut", b"full"]
    assert [message.value for message in calls.queue.first(9)] == [b"1", b"2"]
    assert calls.passed_on == []


@compiled_only
def test_nothing_joins_in_a_forked_child() -> None:
    calls = Calls()
    calls.queue.is_open = True
    child = os.fork()
    if not child:
        calls.queue.send("t", b"1")
        os._exit(7 if (len(calls.queue), len(calls.accepted)) == (0, 1) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@compiled_only
def test_send_wakes_after_a_message_that_joined_if_that_is_wanted() -> None:
    calls = Calls()
    calls.queue.is_open = True
    calls.queue.send("t", b"1")
    calls.queue.waits = True
    calls.queue.send("t", b"2")
    calls.queue.send("t", "3")
    assert (calls.wakes, len(calls.queue), len(calls.passed_on)) == (1, 2, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_holds_its_messages_and_frees_them(kind: Any) -> None:
    queue, message = kind(UNBOUNDED, UNBOUNDED, UNBOUNDED), Message("t", bytes(100))
    before = sys.getrefcount(message)
    for _ in range(300):
        queue.append(message)
    assert sys.getrefcount(message) == before + 300
    queue.drop(b"\1\0" * 50)
    assert sys.getrefcount(message) == before + 250
    del queue
    assert sys.getrefcount(message) == before


@compiled_only
def test_what_serves_a_queue_is_freed_with_it() -> None:
    """Although each refers to the other."""
    calls = Calls()
    calls.queue.is_open = True
    topic, value = "u", bytes(100)
    before = sys.getrefcount(value)
    calls.queue.send(topic, value)
    calls.queue.send(topic, "passed on")
    assert sys.getrefcount(value) == before + 1
    del calls
    gc.collect()
    assert sys.getrefcount(value) == before


@compiled_only
def test_a_queue_refuses_what_it_cannot_hold() -> None:
    queue = Queue(1, 1, 1)
    calls: list[Any] = [
        lambda: queue.append(("t", b"1")),  # type: ignore[arg-type]  # that is what is tried
        lambda: queue.append(Message("t", b"1", None, ((),))),  # type: ignore[arg-type]  # as before
        lambda: queue.append(Message("t", b"1", None, None)),  # type: ignore[arg-type]  # as before
        lambda: queue.append(Message("t", b"1", None, (), "now")),  # type: ignore[arg-type]  # as before
        lambda: queue.drop(1),  # type: ignore[arg-type]  # as before
        lambda: queue.serve(int, set(), set(), print, print, print),
        lambda: queue.serve(Message, set(), [], print, print, print),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="nobody takes"):
        queue.send("t", b"1")
    with pytest.raises(OverflowError):
        queue.append(Message("t", b"1", None, (), 1 << 70))
    assert (len(queue), queue.bytes) == (0, 0)
