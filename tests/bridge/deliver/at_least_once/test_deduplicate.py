"""Which messages are those that the bridge would send now, and how lanes are compared with them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aolog import Reader, Writer
from aolog.format.origin import HEADER_NAME
from aolog.record import Position
from bridge.deliver.at_least_once.deduplicate import Wanted
from bridge.deliver.at_least_once.found import Copies, Found, compare, conclude
from bridge.deliver.at_least_once.lanes import Lane, Lanes
from bridge.deliver.verdicts import Given
from bridge.kafka.messages import messages_of
from bridge.kafka.stamp import encode_stamp
from tests.bridge.deliver.at_least_once.engines import A, B, opened

END = 1 << 40  # of the log, past all that these tests find


def sent_and_found(log: Path, **changed: Any) -> tuple[int, Found]:
    """The digest of the log's only record as it is sent, and what is found of it in Kafka."""
    with Reader(log) as reader:
        uuid, batch = reader.topic_uuid, reader.read_batch()
        epoch = reader.epoch
    assert uuid is not None
    assert batch is not None
    (record,) = batch
    (digest,) = messages_of(batch, uuid).digests()
    of = {"uuid": uuid, "epoch": epoch, "key": record.key, "value": record.value, **changed}
    stamp = encode_stamp(of["uuid"], of["epoch"], record.address, record.timestamp)
    message: Any = SimpleNamespace(
        headers=lambda: [(HEADER_NAME, stamp)], key=lambda: of["key"], value=lambda: of["value"],
        offset=lambda: 7,
    )  # fmt: skip  # one call
    found = Found()
    Wanted(uuid, 0, END, {}).add(message, found)
    return digest, found


def test_a_message_with_an_address_past_the_logs_end_is_a_copy_at_once() -> None:
    """Nothing that is read decides it, while the log does not grow that far."""
    found, engine = Found(), opened()
    message: Any = SimpleNamespace(
        headers=lambda: [(HEADER_NAME, encode_stamp(bytes(16), 0, 500, 1))],
        key=lambda: None, value=lambda: b"v", offset=lambda: 7,
    )  # fmt: skip  # one call
    Wanted(bytes(16), 0, 500, {}).add(message, found)
    engine.found(A, found)
    assert engine.copies == [Copies(A, 1, 7, 500)]
    assert not engine.compares
    assert engine.lanes[A].last_offset == 7  # the next read-back begins after it


@pytest.mark.parametrize("timestamp", [0, -1, 2**63 - 1, -(2**63)])
def test_a_record_is_recognised_whatever_its_timestamp(tmp_path: Path, timestamp: int) -> None:
    """The stamp of the least timestamp is that of a record without one."""
    with Writer(tmp_path) as writer:
        writer.append(b"v", key=b"k", timestamp=timestamp)
    digest, found = sent_and_found(tmp_path)
    assert found.take(digest) == 7


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
def test_a_record_is_recognised_by_its_key_and_value_of_which_none_is_not_empty(
    tmp_path: Path, key: bytes | None, value: bytes | None
) -> None:
    with Writer(tmp_path) as writer:
        writer.append(value, key=key)
    digest, found = sent_and_found(tmp_path)
    assert found.take(digest) == 7
    for changed in (
        {"key": b"" if key is None else None},
        {"value": b"" if value is None else None},
    ):
        digest, found = sent_and_found(tmp_path, **changed)
        assert found.take(digest) is None


def test_a_record_of_another_log_epoch_or_content_is_not_taken_for_ours(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.append_many([b"v"], keys=[b"k"])
    for changed in ({"epoch": 1 << 20}, {"uuid": bytes(16)}, {"key": b"K"}, {"value": b"V"}):
        digest, found = sent_and_found(tmp_path, **changed)
        assert found.take(digest) is None, changed


# --- comparing ------------------------------------------------------------------------------


def lane_with(*addresses: int, whole: bool = True, **options: Any) -> Lane:
    """A lane in which these addresses were found, at offsets from 100 on."""
    found = Found()
    for offset, address in enumerate(addresses, 100):
        found.add(offset, address, address)
    found.end, found.is_whole = 100 + len(addresses), whole
    lane = Lane(opened=True, **options)
    lane.read_back(found)
    return lane


def compared(
    lane: Lane, addresses: Sequence[int], *, begin: int = 0, aside: Sequence[int] = (), to: int = 0
) -> list[Copies]:
    """What did not count, after the lane's records in a batch. to: no record before it waits."""
    lanes = Lanes()
    lanes[A] = lane
    sizes = array("q", bytes(8 * len(addresses)))
    keys = [None if address in aside else A for address in addresses]
    given = Given(addresses, sizes, keys, None, {}, lambda: addresses)
    compare(given, lanes, begin=begin)
    return conclude(lanes, to)


@pytest.mark.parametrize(
    ("there", "arrived", "copies"),
    [
        ([10, 20, 30], 30, 0),
        ([10, 20], 20, 0),
        ([30], -1, 1),
        ([10, 30], 10, 1),
        ([10, 99, 20, 30], 30, 1),
        ([20, 10], 10, 1),
        ([10, 10, 20, 10, 30, 30], 30, 3),
        ([99], -1, 1),
        ([], -1, 0),
    ],
)
def test_what_is_there_in_the_logs_order_has_arrived_up_to_the_first_that_is_missing(
    there: list[int], arrived: int, copies: int
) -> None:
    lane = lane_with(*there)
    found = compared(lane, [10, 20, 30, 40])
    assert lane.last_address == arrived
    assert lane.found is None
    assert sum(each.messages for each in found) == copies


def test_a_record_that_was_set_aside_is_not_expected() -> None:
    lane = lane_with(10, 30)
    assert compared(lane, [10, 20, 30, 40], aside=[20]) == []
    assert (lane.last_address, lane.last_offset) == (30, 101)


def test_what_did_not_count_is_named_by_its_first() -> None:
    lane = lane_with(10, 77, 20, 78)
    assert compared(lane, [10, 20, 30]) == [Copies(A, 2, 101, 77)]
    assert lane.last_offset == 103  # the next read-back begins after them


def test_records_that_the_lane_left_earlier_in_the_log_are_compared_first() -> None:
    lane = lane_with(10, 20)
    lane.leave(Position(10, None))
    assert compared(lane, [20], begin=20) == []
    assert (lane.last_address, lane.found is None) == (-1, False)
    compared(lane, [10, 20, 30], begin=10)
    assert lane.last_address == 20


def test_a_lane_whose_partition_was_not_read_to_its_end_waits_until_it_was() -> None:
    lane = lane_with(10, 20, whole=False)
    compared(lane, [10, 20, 30, 40])
    assert (lane.last_address, lane.is_unread, lane.room()) == (20, True, 0)
    lane.read_back(lane_with(30).found or Found())
    compared(lane, [30, 40])
    assert (lane.last_address, lane.found, lane.room() > 0) == (30, None, True)


def test_what_did_not_count_is_reported_once_while_the_rest_of_the_partition_is_unread() -> None:
    lane = lane_with(10, 77, 78, whole=False)
    assert compared(lane, [10, 20]) == [Copies(A, 2, 101, 77)]
    assert compared(lane, [20, 30]) == []
    assert lane.is_unread


def test_a_message_is_reported_once_reading_has_passed_its_address() -> None:
    lane = lane_with(50)
    assert compared(lane, [], to=50) == []
    assert compared(lane, [], to=51) == [Copies(A, 1, 100, 50)]


def test_lanes_are_compared_apart() -> None:
    lanes = Lanes()
    lanes[A], lanes[B] = lane_with(20), lane_with(10, 30)
    given = Given([10, 20, 30], array("q", bytes(24)), [A, B, B], None, {}, lambda: [10, 20, 30])
    compare(given, lanes, begin=0)
    conclude(lanes, 31)
    assert (lanes[A].last_address, lanes[B].last_address) == (-1, -1)
