"""A lane's name, and why a lane or a record is refused: what this room and delivery share. Pure.

A lane is the records of a log that go to one partition.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from bridge.kafka.error_table import Fault, fault_of

__all__ = ["NO_PARTITION", "LaneKey", "Refusal", "lane_name"]

LaneKey: TypeAlias = tuple[str, int]
"""Topic and partition."""

NO_PARTITION = -1  # of the lane in which a topic's records wait before its partitions are known


def lane_name(key: LaneKey) -> str:
    """For log lines."""
    topic, partition = key
    return f"{topic}/{partition}" if partition >= 0 else topic or "no topic"


class Refusal(NamedTuple):
    """Why a record, or a lane, will not be taken. code: stable, for machines; see error_table.
    passing: it is waited for, nobody has to act yet."""

    reason: str
    code: str
    passing: bool = False

    @property
    def is_poison(self) -> bool:
        """Whether the record itself is at fault. Otherwise it waits, whatever becomes of poison."""
        return fault_of(self.code) is Fault.RECORD
