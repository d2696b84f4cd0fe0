"""What other programs write into headers and times: it is kept as far as it can be, and counted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bridge.kafka.consumed import LeftOut, Omissions, headers_of, stamp_of, time_ms_of
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.runs import runs_of
from bridge.kafka.stamp import encode_stamp
from tests.bridge.brokers import consume_any
from tests.bridge.foreign import Foreign, produce_foreign

STAMP = encode_stamp(bytes(16), 1, 7, None)
RECORDS = [
    Foreign(b"0", [(b"a", b"1"), (b"\xff", b"2"), (b"b", None), (b"\xc3\x28", b"3"), (b"aolog", STAMP)]),
    Foreign(b"1", [(b"\xff\xfe", b"")], timestamp_ms=-1),
    Foreign(b"2", [(b"", b"1"), ("ä".encode(), b"2")], timestamp_ms=-9 * 10**18),
    Foreign(b"3", [(b"cut\0off", b"1")], timestamp_ms=10**18),
    Foreign(b"4"),
]  # fmt: skip  # a record a line


@pytest.fixture
def messages(embedded_broker: EmbeddedBroker) -> list[Any]:
    """The client's."""
    embedded_broker.create_topic("t")
    produce_foreign(embedded_broker.bootstrap_servers, "t", RECORDS)
    return consume_any(embedded_broker.bootstrap_servers, "t", 1)


def test_headers_that_have_a_name_are_kept_and_the_others_counted_once(messages: list[Any]) -> None:
    assert [headers_of(message) for message in messages] == [
        ([("a", b"1"), ("b", None), ("aolog", STAMP)], 2),
        ([], 1),
        ([("", b"1"), ("ä", b"2")], 0),
        ([("cut", b"1")], 0),  # by the client
        ((), 0),
    ]
    assert [headers_of(message)[1] for message in messages] == [0] * 5
    assert stamp_of(messages[0]) is not None
    assert stamp_of(messages[1]) is None


def test_columns_are_what_each_message_says(messages: list[Any]) -> None:
    (run,) = runs_of(messages, 100)
    assert run.headers == [
        [("a", b"1"), ("b", None), ("aolog", STAMP)],
        None,
        [("", b"1"), ("ä", b"2")],
        [("cut", b"1")],
        None,
    ]
    assert run.left_out == [
        LeftOut(2),
        LeftOut(1),
        LeftOut(0, -9 * 10**18),
        LeftOut(0, 10**18),
        None,
    ]


def test_a_time_is_any_number_but_kafkas_minus_one(messages: list[Any]) -> None:
    assert [time_ms_of(m) for m in messages[1:4]] == [None, -9 * 10**18, 10**18]


def test_each_of_many_such_messages_is_read(embedded_broker: EmbeddedBroker) -> None:
    """Python specializes a call that it has made often, and no longer notices the client's exception."""
    embedded_broker.create_topic("many")
    records = [Foreign(b"%d" % i, [(b"\xff", b""), (b"n", b"%d" % i)]) for i in range(200)]
    produce_foreign(embedded_broker.bootstrap_servers, "many", records)
    messages = consume_any(embedded_broker.bootstrap_servers, "many", 1)
    for i, message in enumerate(messages):
        assert headers_of(message) == ([("n", b"%d" % i)], 1)


def test_a_client_that_never_gives_such_headers_costs_them_and_not_the_record() -> None:
    class Message:
        def headers(self) -> None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    assert headers_of(Message()) == ((), 1)


def test_what_is_left_out_is_logged_at_once_for_each_topic_and_then_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    now_s = 0.0
    omissions = Omissions(lambda: now_s)
    for offset in range(3):
        omissions.note("t", 0, offset, LeftOut(1))
    omissions.note("u", 1, 5, LeftOut(0, 10**18))
    now_s = 61.0
    omissions.note("t", 0, 3, LeftOut(2, -(2**63)))
    last = (
        "t/0@3: left out: 2 headers whose name is not UTF-8; a timestamp that cannot be kept,"
        " -9223372036854775808 ms, and of 2 records since the last line"
    )
    assert caplog.messages == [
        "t/0@0: left out: 1 header whose name is not UTF-8",
        "u/1@5: left out: a timestamp that cannot be kept, 1000000000000000000 ms",
        last,
    ]
    assert (omissions.headers, omissions.times, omissions.total) == (5, 2, 7)
