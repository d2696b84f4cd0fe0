"""Topics and lanes, and why a lane or a record is refused: shared by this room and delivery. Pure.

A lane is the records of a log that go to one partition.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from aolog.write.validate import TOPIC_NAME
from bridge.kafka.error_table import Fault, kind_of

LaneKey: TypeAlias = tuple[str, int]
"""Topic and partition."""

NO_PARTITION = -1  # the lane in which a topic's records wait until its partitions are known
_NO_TOPICS = {".", ".."}
_INTERNAL = {
    "__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state",
}  # fmt: skip  # a table


@lru_cache
def is_topic_name(name: str) -> bool:
    """Whether records may go to a topic of this name. Kafka reserves some."""
    return re.fullmatch(TOPIC_NAME, name) is not None and name not in _NO_TOPICS | _INTERNAL


def lane_name(key: LaneKey) -> str:
    """For log lines."""
    topic, partition = key
    return f"{topic}/{partition}" if partition >= 0 else topic or "records without a topic"


class Refusal(NamedTuple):
    """Why a record, or a lane, is refused. code: see error_table. passing: it may end by itself."""

    reason: str
    code: str
    passing: bool = False

    @property
    def is_poison(self) -> bool:
        """Whether the record itself is at fault. Otherwise it waits, whatever --poison says."""
        return kind_of(self.code).fault is Fault.RECORD
