"""What is known of a record before it is sent: of the client's bound, and of a topic's settings."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from bridge.kafka.admission import KNOWN_MS, Admission, Bounds, bounds_of
from bridge.kafka.client_limits import queue_kbytes_of
from bridge.kafka.lane import Refusal
from bridge.kafka.messages import Messages

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
STAMP = ("aolog", b"s" * 36)
Record = tuple[bytes | None, bytes | None, int]
ANY = Bounds()
PLAIN: Record = (b"k", b"v", NOW_MS)


def messages(
    records: Sequence[Record],
    headers: Sequence[tuple[str, bytes | None]] = (),
    topics: Sequence[str | None] = (),
) -> Messages:
    """Key, value and time in milliseconds of each; the addresses are 0, 10, 20, ..."""
    return Messages(
        array("q", range(0, 10 * len(records), 10)),
        list(topics) or [None] * len(records),
        [key for key, _, _ in records],
        [value for _, value, _ in records],
        array("q", [len(key or b"") + len(value or b"") for key, value, _ in records]),
        array("q", [ms for _, _, ms in records]),
        STAMP[1] * len(records),
        [[*headers, STAMP]] * len(records) if headers else None,
    )


def refused(
    records: Sequence[Record],
    bounds: Bounds = ANY,
    *,
    bytes_max: int = 1_000_000,
    queue_kbytes: int = 65_536,
    compresses: bool = False,
    **more: Any,
) -> Mapping[int, Refusal]:
    admission = Admission(bytes_max, queue_kbytes, compresses=compresses)
    admission.learn("t", bounds, now_ms=NOW_MS)
    return admission.refusals(messages(records, **more), lambda named: named or "t", now_ms=NOW_MS)


def test_a_value_that_the_clients_queue_never_takes_is_known_to_a_byte() -> None:
    producer = Producer({"queue.buffering.max.kbytes": 5, "log_level": 0})

    def takes(size: int, key: bytes | None) -> bool:
        try:
            producer.produce("t", b"x" * size, key)
        except BufferError:
            return False
        producer.purge()
        producer.poll(0)
        return True

    records = [(key, b"x" * size, NOW_MS) for size in (5_119, 5_120, 5_121) for key in (None, b"k")]
    by_client = [number for number, (key, value, _) in enumerate(records) if takes(len(value), key)]
    assert 0 < len(by_client) < len(records)
    found = refused(records, queue_kbytes=5)
    assert [number for number in range(len(records)) if number * 10 not in found] == by_client
    assert {refusal.code for refusal in found.values()} == {"MSG_SIZE_TOO_LARGE"}
    assert "over queue.buffering.max.kbytes=5" in found[50].reason


@pytest.mark.parametrize(
    ("settings", "kbytes"),
    [({}, 65_536), ({"message.max.bytes": "100000001"}, 97_657), ({"message.max.bytes": "9"}, 65_536),
     ({"message.max.bytes": "100000001", "queue.buffering.max.kbytes": "32"}, 32)],
)  # fmt: skip  # a table
def test_a_queue_has_room_for_the_largest_record_unless_it_is_set(
    settings: dict[str, str], kbytes: int
) -> None:
    assert queue_kbytes_of(settings) == kbytes


HEADERS: list[list[tuple[str, bytes | None]]] = [
    [], [("h", b"1")], [("h", None), ("ü" * 40, b"1" * 200)],
]  # fmt: skip  # a table


@pytest.mark.parametrize("headers", HEADERS, ids=len)
@pytest.mark.parametrize("key", [None, b"", b"k" * 10, b"k" * 300], ids=repr)
def test_a_record_over_the_clients_bound_is_known_to_a_byte(
    headers: list[tuple[str, bytes | None]], key: bytes | None
) -> None:
    producer = Producer({"test.mock.num.brokers": 1, "message.max.bytes": 5_000, "log_level": 0})

    def takes(size: int) -> bool:
        try:
            producer.produce("t", b"x" * size, key, 0, headers=[*headers, STAMP])
        except KafkaException:
            return False
        return True

    sizes = range(4_000, 5_001)
    by_client = [size for size in sizes if takes(size)]
    records = [(key, b"x" * size, NOW_MS) for size in sizes]
    found = refused(records, bytes_max=5_000, headers=headers)
    assert [size for size in sizes if (size - 4_000) * 10 not in found] == by_client
    assert {refusal.code for refusal in found.values()} == {"MSG_SIZE_TOO_LARGE"}


def test_a_record_whose_headers_the_client_would_alter_is_refused() -> None:
    found = refused([PLAIN], headers=[("a", b""), ("b\0c", b"1")])
    assert found[0].is_poison
    assert found[0].reason.startswith("NUL_IN_HEADER: a header's name holds a NUL")
    assert refused([PLAIN], headers=[("a", b"\0"), ("b", None)]) == {}


def test_a_compacted_topic_needs_keys() -> None:
    records = [PLAIN, (None, b"v", NOW_MS), (b"", b"v", NOW_MS)]
    assert refused(records) == {}
    found = refused(records, bounds_of({"cleanup.policy": "compact,delete"}))
    assert found.keys() == {10}
    assert found[10].code == "INVALID_RECORD"
    assert "compact" in found[10].reason


@pytest.mark.parametrize(
    ("settings", "oldest_ms", "newest_ms"),
    [
        ({"message.timestamp.before.max.ms": "1000"}, NOW_MS - 1_000, None),
        ({"message.timestamp.after.max.ms": "1000"}, None, NOW_MS + 1_000),
        ({"message.timestamp.difference.max.ms": "1000"}, NOW_MS - 1_000, NOW_MS + 1_000),
        (
            {"message.timestamp.difference.max.ms": "1000",
             "message.timestamp.before.max.ms": "5000",
             "message.timestamp.after.max.ms": str((1 << 63) - 1)},
            NOW_MS - 5_000, NOW_MS + 1_000,
        ),
        (
            {"message.timestamp.before.max.ms": "1000", "message.timestamp.type": "LogAppendTime"},
            None, None,
        ),
    ],
)  # fmt: skip  # a table
def test_a_timestamp_is_refused_where_no_clock_could_make_it_fit(
    settings: dict[str, str], oldest_ms: int | None, newest_ms: int | None
) -> None:
    """Ours may be wrong by a day."""
    old = NOW_MS // 2 if oldest_ms is None else oldest_ms - DAY_MS
    new = NOW_MS * 2 if newest_ms is None else newest_ms + DAY_MS
    records = [(b"k", b"v", ms) for ms in (old - 1, old, 0, NOW_MS, new, new + 1)]
    found = refused(records, bounds_of(settings))
    expected = [0] if oldest_ms is not None else []
    expected += [50] if newest_ms is not None else []
    assert list(found) == expected
    assert {refusal.code for refusal in found.values()} <= {"INVALID_TIMESTAMP"}


def test_the_refusal_of_a_record_too_large_for_a_segment_or_a_topic_names_the_setting() -> None:
    records = [PLAIN, (b"k", b"x" * 3_000, NOW_MS)]
    found = refused(records, Bounds(batch_bytes=2_000, segment_bytes=5_000))
    assert "max.message.bytes=2000 of topic 't'" in found[10].reason
    found = refused(records, Bounds(batch_bytes=5_000, segment_bytes=2_000))
    assert "segment.bytes=2000" in found[10].reason
    assert found[10].code == "RECORD_LIST_TOO_LARGE"


def test_compressed_records_are_refused_only_by_the_clients_bound() -> None:
    records = [(b"k", b"x" * 3_000, NOW_MS), (None, b"v", NOW_MS)]
    bounds = Bounds(batch_bytes=2_000, needs_key=True)
    assert refused(records, bounds, compresses=True).keys() == {10}
    assert refused(records, bytes_max=3_000, compresses=True).keys() == {0}


def test_only_records_of_the_topic_are_refused_for_it() -> None:
    records = [(None, b"v", NOW_MS)] * 4
    found = refused(records, Bounds(needs_key=True), topics=["t", "other", None, "t"])
    assert found.keys() == {0, 20, 30}


def test_a_topics_limits_expire_and_can_be_forgotten() -> None:
    admission = Admission(1_000_000, 65_536, compresses=False)
    keyless = messages([(None, b"v", NOW_MS)])

    def refusals(now_ms: int) -> Mapping[int, Refusal]:
        return admission.refusals(keyless, lambda _: "t", now_ms=now_ms)

    admission.learn("t", Bounds(needs_key=True), now_ms=NOW_MS)
    assert refusals(NOW_MS + KNOWN_MS - 1)
    assert not refusals(NOW_MS + KNOWN_MS)
    admission.learn("t", Bounds(needs_key=True), now_ms=NOW_MS)
    admission.forget()
    assert not refusals(NOW_MS)
