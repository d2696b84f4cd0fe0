"""What status and log lines say of lanes: which ones wait and why, and which messages were copied."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from aolog.errors import counted
from bridge.deliver.at_least_once.found import Copies
from bridge.deliver.at_least_once.lanes import Lanes
from bridge.deliver.at_least_once.topics import Topics
from bridge.deliver.status import WaitingLane
from bridge.kafka.error_table import advice
from bridge.kafka.lane import LaneKey, Refusal, lane_name
from bridge.kafka.telemetry import COPIES

_log = logging.getLogger("bridge")


def _waits(key: LaneKey, how: str, address: int, refusal: Refusal) -> str:
    return f"{lane_name(key)} {how} address {address}: {refusal.reason}: {advice(refusal.code)}"


class LaneReports:
    """Of one log. again: how an operator retries a lane that has stopped. copies: messages reported so far."""

    def __init__(self, lanes: Lanes, topics: Topics, again: str) -> None:
        self._lanes = lanes
        self._topics = topics
        self._again = again
        self._stopped: set[LaneKey] = set()
        self.copies = 0

    def waiting(self) -> Iterator[WaitingLane]:
        """Lanes that do not go on, and why."""
        for (topic, partition), lane in self._lanes.items():
            if lane.closed is not None and lane.waits_from is not None:
                retries = lane.closed.passing or (topic, partition) in self._topics
                until = "" if retries else f"; {self._again}"
                at = lane.waits_from.address
                yield {
                    "topic": topic,
                    "partition": partition,
                    "state": "waits" if retries else "blocked",
                    "reason": _waits((topic, partition), "waits at", at, lane.closed) + until,
                    "cause": lane.closed.reason,
                    "code": lane.closed.code,
                }

    def log_stopped(self) -> None:
        """One line for each lane that has stopped. Topics logs missing topics."""
        standing = self._lanes.standing
        for key in standing.keys() - self._stopped:
            at, refusal = standing[key]
            if key not in self._topics:
                _log.warning(
                    "%s; %s",
                    _waits(key, "stopped before", at.address, refusal),
                    self._again,
                    extra={"event": "lane_stands", "code": refusal.code},
                )
        self._stopped = set(standing)

    def log_copies(self, found: Iterable[Copies]) -> None:
        """Logs and counts what the engine found and did not count."""
        for (topic, partition), messages, offset, address in found:
            COPIES.labels(topic).inc(messages)
            self.copies += messages
            _log.warning(
                "%s/%d has %s with stamps of this log that are not its records there, the first at offset "
                "%d, with the stamp of address %d: somebody copied messages; or the log was copied, "
                "restored, or lost its end; or they are the bridge's own, sent twice, or after messages that "
                "retention or compaction has removed since. They do not count as delivered",
                topic, partition, counted(messages, "message", ","), offset, address,
                extra={"event": "copies_found"},
            )  # fmt: skip  # one call
