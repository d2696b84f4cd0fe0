"""Values that the client reads where they are stay there until it has answered for their messages."""

from __future__ import annotations

import logging
from array import array
from typing import Any

import pytest

from aolog.format.columns import BinaryColumn
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.messages import MessageRows
from bridge.kafka.plugin import plugin
from bridge.kafka.producer import IdempotentProducer, KeptValues
from bridge.kafka.queueing import VALUE_BYTES_MIN, Held, RowProducer
from tests.bridge.brokers import consume
from tests.bridge.kafka.rows import LANES, rows_of
from tests.waiting import SOON_S, wait_until

A, B = ("t", 0), ("t", 1)
SIZE = 2 * VALUE_BYTES_MIN
compiled = pytest.mark.skipif(plugin() is None, reason="no compiler: every value is copied")


def a_batch(size: int = SIZE) -> tuple[bytearray, MessageRows]:
    """Eight rows, and the memory of their values."""
    memory = bytearray(b"".join(b"%d" % i * size for i in range(8)))
    offsets = array("I", range(0, 8 * size + 1, size)).tobytes()
    return memory, rows_of([BinaryColumn(None, memoryview(offsets), memoryview(memory))])


def is_free(memory: bytearray) -> bool:
    """Whether nobody looks at it any more."""
    try:
        memory.append(0)
    except BufferError:
        return False
    return True


def producer_of(servers: str) -> RowProducer:
    settings = {"bootstrap.servers": servers, "log_level": 0}
    return RowProducer(settings, logger=logging.getLogger("test"))


# --- when they may go ------------------------------------------------------------------------


def test_a_batch_goes_with_the_last_answer_for_it_and_no_sooner() -> None:
    kept, gone = KeptValues(100), list[str]()
    kept.add(Held(lambda: gone.append("first"), 60), {A: 10, B: 11})
    kept.add(Held(lambda: gone.append("second"), 30), {A: 20})
    assert kept.room == 10
    seen = []
    for lane, address in ((B, 10), (A, 10), (B, 15), (A, 19), (A, 20)):
        kept.acknowledged(lane, address)
        seen.append((list(gone), kept.room))
    assert seen == [
        ([], 10), ([], 10), (["first"], 70), (["first"], 70), (["first", "second"], 100),
    ]  # fmt: skip  # a table


@pytest.mark.parametrize("answered", [True, False])
def test_what_is_kept_at_the_end_of_a_connection_goes_if_the_client_reads_it_no_more(
    answered: bool,
) -> None:
    kept, gone = KeptValues(100), list[str]()
    kept.add(Held(lambda: gone.append("it"), 60), {A: 10})
    kept.end(answered=answered)
    kept.acknowledged(A, 10)
    assert (gone, kept.room) == (["it"] if answered else [], 100)


# --- the client ------------------------------------------------------------------------------


@compiled
def test_a_kept_value_is_not_copied_and_stays_until_it_is_released(broker: EmbeddedBroker) -> None:
    producer, (memory, rows) = producer_of(broker.bootstrap_servers), a_batch()
    held = producer.keep(rows, 8 * SIZE)
    assert held is not None
    assert held.bytes == 8 * SIZE
    producer.put(rows)
    del rows
    memory[:SIZE] = b"x" * SIZE  # as the client has only a reference, this is sent
    assert producer.flush(SOON_S) == 0
    values = {m.address: m.value for m in consume(broker.bootstrap_servers)}
    assert values == {0: b"x" * SIZE, **{i: b"%d" % i * SIZE for i in range(1, 8)}}
    assert not is_free(memory)
    held.release()
    held.release()
    assert is_free(memory)


@compiled
def test_what_nobody_released_is_never_freed() -> None:
    producer, (memory, rows) = producer_of("127.0.0.1:1"), a_batch()
    held = producer.keep(rows, 8 * SIZE)
    del rows, held, producer
    assert not is_free(memory)


@pytest.mark.parametrize("case", ["short", "no room", "objects"])
def test_other_values_are_copied(case: str) -> None:
    memory, rows = a_batch(10 if case == "short" else SIZE)
    if case == "objects":
        rows = rows_of()
    producer = producer_of("127.0.0.1:1")
    assert producer.keep(rows, SIZE if case == "no room" else 8 * SIZE) is None
    producer.put(rows)
    del rows
    assert is_free(memory)
    producer.purge()


# --- a connection ----------------------------------------------------------------------------


LAST = {lane: max(i for i in range(8) if LANES[i] == lane) for lane in LANES}


@compiled
def test_values_go_with_the_reports_of_their_lanes(broker: EmbeddedBroker) -> None:
    producer = IdempotentProducer(broker.bootstrap_servers, {}, kept_bytes_max=8 * SIZE)
    producer.connect()
    memory, rows = a_batch()
    callbacks: list[Any] = [None] * 8
    for lane, address in LAST.items():
        callbacks[address] = producer.reporting(lane, address, 0)
    rows = rows_of(rows.messages.values, callbacks=callbacks)
    rows.last = dict(LAST)
    producer.put(rows)
    del rows
    assert not is_free(memory)
    wait_until(lambda: list(producer.poll(0.05)) is not None and is_free(memory))
    assert len(consume(broker.bootstrap_servers)) == 8
    producer.disconnect()


@compiled
def test_values_go_with_a_connection_that_reached_nobody() -> None:
    producer = IdempotentProducer("127.0.0.1:1", {}, kept_bytes_max=8 * SIZE)
    producer.connect()
    memory, rows = a_batch()
    rows.last = dict(LAST)
    producer.put(rows)
    del rows
    assert not is_free(memory)
    producer.disconnect()
    assert is_free(memory)
