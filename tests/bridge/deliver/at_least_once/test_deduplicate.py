"""A message is a duplicate if the log holds its record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from aolog import Reader, Writer
from aolog.format.origin import HEADER_NAME
from aolog.storage.storage import Storage
from bridge.deliver.at_least_once.deduplicate import Deduplicator
from bridge.kafka.stamp import encode_stamp


@pytest.mark.parametrize("timestamp", [0, -1, 2**63 - 1, -(2**63)])
def test_a_record_is_recognised_whatever_its_timestamp(tmp_path: Path, timestamp: int) -> None:
    """The stamp of the least timestamp is that of a record without one."""
    with Writer(tmp_path) as writer:
        writer.append(b"v", key=b"k", timestamp=timestamp)
    with Reader(tmp_path) as reader:
        uuid, epoch, (record,) = reader.topic_uuid, reader.epoch, list(reader)
    assert uuid is not None
    deduplicator = Deduplicator(str(tmp_path), Storage(), uuid, since=lambda: 0)
    stamp = encode_stamp(uuid, epoch, record.address, record.timestamp)
    message = SimpleNamespace(
        headers=lambda: [(HEADER_NAME, stamp)], key=lambda: record.key, value=lambda: record.value
    )
    assert deduplicator.last([message]) == record.address
