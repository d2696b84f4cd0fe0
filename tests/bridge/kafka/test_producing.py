"""Rows reach the client as its own call would take them, compiled or not, also those that it
refuses."""

from __future__ import annotations

import logging
from array import array
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import aolog
from aolog.format.columns import BinaryColumn
from aolog.format.origin import HEADER_NAME
from bridge.kafka import queueing
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.queueing import RowProducer
from tests.bridge.brokers import TOPIC, consume
from tests.bridge.kafka.rows import KEYS, LANES, MS, STAMPS, VALUES, rows_of
from tests.waiting import SOON_S


@pytest.fixture(params=["compiled", "called"], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How rows are taken."""
    if request.param == "called":
        monkeypatch.setattr(queueing, "plugin", lambda: None)
    elif aolog.backend != "compiled" or find_spec("bridge.kafka._produce") is None:
        pytest.skip("no compiler: rows are taken by calls")
    return str(request.param)


def connected(broker: EmbeddedBroker, **more: Any) -> RowProducer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 3, **more}
    return RowProducer(settings, logger=logging.getLogger("test"))


def column_of(values: list[bytes | None]) -> BinaryColumn:
    offsets, bits = array("I", [0]), 0
    for i, value in enumerate(values):
        offsets.append(offsets[-1] + len(value or b""))
        bits |= (value is not None) << i
    there = memoryview(bits.to_bytes((len(values) + 7) // 8, "little"))
    data = b"".join(value or b"" for value in values)
    return BinaryColumn(
        there if None in values else None, memoryview(offsets.tobytes()), memoryview(data)
    )


def arrived(broker: EmbeddedBroker) -> dict[int, tuple[Any, ...]]:
    """By address, each partition's in their order: what is there of each."""
    found = consume(broker.bootstrap_servers)
    assert all(m.partition == m.address % 3 and m.timestamp_ms == MS + m.address for m in found)
    for partition in range(3):
        addresses = [m.address for m in found if m.partition == partition]
        assert addresses == sorted(set(addresses))
    return {m.address: (m.key, m.value, m.headers) for m in found}


def plain(numbers: range) -> dict[int, tuple[Any, ...]]:
    return {i: (KEYS[i], VALUES[i], ()) for i in numbers}


def assert_taken(producer: RowProducer, how: str) -> None:
    """Eight rows are taken as they should be: by calls, which are counted and not sent, or by none."""
    rows, calls = rows_of(), list[tuple[Any, ...]]()
    producer.produce = lambda *row: calls.append(row)  # type: ignore[method-assign]
    producer.put(rows)
    assert len(calls) == (0 if how == "compiled" else 8)
    assert len(producer) == 8 - len(calls)
    assert rows.at == 8


def test_rows_are_taken_by_what_could_be_compiled(broker: EmbeddedBroker, how: str) -> None:
    assert_taken(connected(broker), how)


@pytest.mark.parametrize("kind", ["objects", "a column", "columns"])
def test_rows_arrive_as_they_are(broker: EmbeddedBroker, kind: str) -> None:
    values: dict[str, Any] = {
        "objects": VALUES,
        "a column": [column_of(VALUES)],
        # The second and the last have no nulls, and more entries than the one before.
        "columns": [
            column_of(VALUES[:2]),
            column_of(VALUES[2:5]),
            column_of([]),
            column_of(VALUES[5:]),
        ],
    }
    producer = connected(broker)
    producer.put(rows_of(values[kind]))
    assert producer.flush(SOON_S) == 0
    assert arrived(broker) == plain(range(8))


def test_headers_of_their_own_go_along(broker: EmbeddedBroker) -> None:
    own: list[list[tuple[str, bytes | None]]] = [
        [("a", None), ("a", b""), ("ä", b"\0")] if i % 2 else [] for i in range(8)
    ]
    producer = connected(broker)
    headers = [[*some, (HEADER_NAME, STAMPS[i])] for i, some in enumerate(own)]
    producer.put(rows_of(headers=headers))
    assert producer.flush(SOON_S) == 0
    assert {i: tuple(own[i]) for i in range(8)} == {
        i: h for i, (_, _, h) in arrived(broker).items()
    }


def test_callbacks_are_called_and_rows_keep_their_order(broker: EmbeddedBroker) -> None:
    told: list[tuple[Any, Any]] = []
    callbacks = [
        (lambda e, m: told.append((e, m.key()))) if i in {0, 4, 7} else None for i in range(8)
    ]
    producer = connected(broker)
    producer.put(rows_of(callbacks=callbacks))
    assert producer.flush(SOON_S) == 0
    assert sorted(told, key=str) == sorted([(None, KEYS[i]) for i in (0, 4, 7)], key=str)
    assert arrived(broker) == plain(range(8))


def test_a_row_that_is_refused_is_the_next_one(broker: EmbeddedBroker) -> None:
    producer, rows = connected(broker, **{"message.max.bytes": 2_000}), rows_of()
    with pytest.raises(KafkaException) as refused:
        producer.put(rows)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert rows.at == 4
    rows.at += 1
    producer.put(rows)
    assert producer.flush(SOON_S) == 0
    assert arrived(broker) == {i: one for i, one in plain(range(8)).items() if i != 4}


def test_a_full_queue_raises_and_the_remaining_rows_can_be_put_again(
    broker: EmbeddedBroker,
) -> None:
    producer, rows = connected(broker, **{"queue.buffering.max.messages": 3}), rows_of()
    with pytest.raises(BufferError):
        producer.put(rows)
    assert rows.at == 3
    assert producer.flush(SOON_S) == 0
    assert arrived(broker) == plain(range(3))
    producer.put(rows_of(first=8))  # none
    for _ in range(2):  # the refused row is put again
        rows = rows_of(first=rows.at)
        try:
            producer.put(rows)
        except BufferError:
            assert producer.flush(SOON_S) == 0
    assert producer.flush(SOON_S) == 0
    assert arrived(broker) == plain(range(8))


@pytest.mark.parametrize(
    ("lane", "key", "error"),
    [
        (("a\0b", 0), b"k", ValueError),
        (("\ud800", 0), b"k", UnicodeEncodeError),
        ((b"t", 0), b"k", TypeError),
        ((TOPIC, 1 << 70), b"k", OverflowError),
        ((TOPIC, 1 << 32), b"k", OverflowError),
        ((TOPIC, "0"), b"k", TypeError),
        ((TOPIC, 0), 7, TypeError),
        ((TOPIC, 9_999), b"k", None),
    ],
)
def test_an_invalid_row_raises_the_clients_own_error(
    broker: EmbeddedBroker, lane: Any, key: Any, error: type[Exception] | None
) -> None:
    lanes, keys = [*LANES[:2], lane, *LANES[3:]], [*KEYS[:2], key, *KEYS[3:]]
    producer, rows = connected(broker), rows_of(keys=keys, lanes=lanes)
    if error is None:  # its callback hears of it, or the call, once the partitions are known
        with suppress(KafkaException):
            producer.put(rows)
        assert rows.at in {2, 8}
    else:
        with pytest.raises(error):
            producer.put(rows)
        assert rows.at == 2


def test_many_topics_in_turns_and_names_of_none_between_them(broker: EmbeddedBroker) -> None:
    names = [f"topic-{number}" for number in range(40)]
    producer = connected(broker, **{"allow.auto.create.topics": True})
    for name in [*names, *names[::-1], *names]:
        producer.put(rows_of(lanes=[(name, 0)] * 8))
        with pytest.raises(KafkaException):
            producer.put(rows_of(lanes=[("x" * 600, 0)] * 8))
    assert producer.flush(SOON_S) == 0
    for name in names:
        assert len(consume(broker.bootstrap_servers, name, 1)) == 3 * 8


def test_other_plugins_are_asked_for_too(broker: EmbeddedBroker, how: str) -> None:
    with pytest.raises(KafkaException, match="no-such-plugin"):
        connected(broker, **{"plugin.library.paths": "no-such-plugin"})
    if how == "compiled":  # what the client takes alone
        path = import_module("bridge.kafka._produce").__file__
        assert_taken(connected(broker, **{"plugin.library.paths": f"{path};"}), how)


# --- single messages, and those that failed ---------------------------------------------------


def reporting(servers: str) -> RowProducer:
    settings = {"bootstrap.servers": servers, "log_level": 0}
    return RowProducer(settings, logger=logging.getLogger("test"), reports=True)


def queued(producer: RowProducer, topic: Any, value: Any, key: Any, time_us: Any) -> bool:
    assert producer.queue_all is not None
    return producer.queue_all({topic}, [(topic, value, key, (), time_us)], 0) == 1


def test_a_message_that_the_broker_refuses_is_noted_with_its_content(
    broker: EmbeddedBroker, how: str
) -> None:
    producer = reporting(broker.bootstrap_servers)
    if how == "called":
        assert producer.queue_all is None
        assert producer.failures() == []
        return
    assert queued(producer, TOPIC, b"good", b"k", 0)
    assert not producer.flush(SOON_S)
    assert producer.failures() == []
    broker.push_request_errors(0, [KafkaError.MSG_SIZE_TOO_LARGE])
    assert queued(producer, TOPIC, b"bad", b"k", 1_700_000_000_000_000)
    assert not producer.flush(SOON_S)
    assert producer.failures() == [(TOPIC.encode(), b"bad", b"k", KafkaError.MSG_SIZE_TOO_LARGE)]
    assert producer.failures() == []


def test_messages_that_a_producer_drops_are_noted_whatever_queued_them(how: str) -> None:
    producer = reporting("127.0.0.1:1")
    if producer.queue_all is None:
        assert how == "called"
        return
    contents = [(b"v", b"k"), (None, b""), (b"", None), (b"x" * 100_000, b"k")]
    for value, key in contents:
        assert queued(producer, "t", value, key, 0)
    producer.produce("t", b"called", b"k")
    producer.purge()
    while len(producer):
        producer.poll(0.01)
    dropped = KafkaError._PURGE_QUEUE
    expected = [(b"t", *content, dropped) for content in [*contents, (b"called", b"k")]]
    assert producer.failures() == expected


def test_what_is_not_plain_is_left_to_the_clients_call(how: str) -> None:
    producer = reporting("127.0.0.1:1")
    if producer.queue_all is None:
        assert how == "called"
        return
    wrong: list[tuple[Any, ...]] = [
        ("t", "text", None, 0), ("t", b"", bytearray(1), 0), (b"t", b"", None, 0), ("a\0b", b"", None, 0),
        ("t", b"", None, -1), ("t", b"", None, 1 << 80), ("t", b"", None, 0.5), ("t", bytes(2_000_000), None, 0),
    ]  # fmt: skip  # a table
    for arguments in wrong:
        assert not queued(producer, *arguments)
    assert producer.flush(SOON_S) == 0  # the client's reports of the broker count, too


def test_a_producer_may_go_while_messages_fail(broker: EmbeddedBroker) -> None:
    """Threads of the client note failures until its last one has ended: also those of requests under way, after
    the client has begun to destroy itself."""
    for number in range(10):
        producer = reporting("127.0.0.1:1" if number % 3 else broker.bootstrap_servers)
        if producer.queue_all is not None:
            queued(producer, TOPIC, b"first", None, 0)
            producer.flush(0.0 if number % 3 else SOON_S)
            for _ in range(1_000):
                queued(producer, TOPIC, bytes(1_000), b"%d" % number, 0)
        if number % 2:
            producer.purge()
