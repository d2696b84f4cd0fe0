"""Waits: how long a delivery waits, and for what. Tests pass shorter ones."""

from __future__ import annotations

from typing import NamedTuple

from bridge.kafka.client import ANSWER_S


class Waits(NamedTuple):
    """In seconds."""

    answer_s: float = ANSWER_S
    idle_s: float = 0.2  # an idle wait: the longest delay of a signal or a due commit
    busy_s: float = 0.005  # while records are in flight: the delay of reading new ones
    # For a stalled disk; after that the delivery stands still too, so that the stall is visible.
    disk_s: float = 10.0
    topic_s: float = 30.0  # for a topic: one that is being created appears within seconds
    # Between two questions for a topic that is waited for,
    topic_pause_s: float = 0.2
    # that has been missing for long, or is refused,
    refused_pause_s: float = 10.0
    # or that is forbidden: asking for rights means sending a record, and perhaps a new connection.
    forbidden_pause_s: float = 60.0
    # Nothing is logged of a missing topic before a cluster that creates topics has created one.
    creation_s: float = 2.0
    # Between questions for topics in use, and for those of them that take nothing.
    reread_s: float = 60.0
    stuck_reread_s: float = 10.0
    silent_pause_s: float = 5.0  # between questions for a partition that does not answer
    silent_answer_s: float = 2.0  # for an answer while others are sent to; it may need a connection
    # After an unclean stop, between two looks for the last request of the process before; and at most.
    settle_s: float = 0.25
    settle_max_s: float = 5.0
    # Exactly once: for the first cursor record of a bridge that has fenced this one. It needs several
    # round trips.
    take_over_s: float = 5.0


USUAL = Waits()
