"""Stalls: lanes that make no progress while they have unacknowledged records. Pure.

A lane makes progress when its partition acknowledges something, or when the first record changes that
the delivery still has to deliver there. It is stalled after STALLED_S without progress, until it makes
some: a new connection, or an aborted transaction, does not end a stall. The client's statistics tell
what is unacknowledged, so no broker is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from bridge.kafka.lane import LaneKey, lane_name

STALLED_S = 7.0  # statistics come each second, so a stall is named within 10 s
SAY_AGAIN_S = 60.0
# A question about the cause may block the delivery for seconds, without a status. So it is asked after
# a status has shown the stall: one is reported each second.
ASK_WHY_S = 9.0
_NAMED_MAX = 5  # in one line; /status and the metrics list all


class Sent(NamedTuple):
    """A partition in the client's statistics."""

    waiting: int  # unacknowledged messages
    acknowledged: int  # grows with each answer on this connection
    leader: str  # in words
    asked: bool = True  # the leader has a request, or cannot be sent one


def any_up(statistics: Mapping[str, Any]) -> bool:
    """Whether a broker of the cluster is connected: not a bootstrap server, but perhaps a coordinator."""
    return any(
        broker["state"] == "UP" and (broker["nodeid"] >= 0 or broker["source"] == "logical")
        for broker in statistics["brokers"].values()
    )


def connecting_to(statistics: Mapping[str, Any]) -> str | None:
    """The address of a broker to which the client is connecting, as the cluster advertises it; or None."""
    waits = {"INIT", "DOWN", "TRY_CONNECT", "UP"}
    brokers = statistics["brokers"].values()
    found = (b["nodename"] for b in brokers if b["nodeid"] >= 0 and b["state"] not in waits)
    return next(found, None)


def lanes_of(statistics: Mapping[str, Any], leaders: dict[LaneKey, str]) -> dict[LaneKey, Sent]:
    """What was sent to each partition. leaders: the last known ones; updated. A partition whose
    leader died has none in the statistics, and the last one is named."""
    nodes = {broker["nodeid"]: broker for broker in statistics["brokers"].values()}
    lanes = {}
    for topic, of_topic in statistics["topics"].items():
        for partition in of_topic["partitions"].values():
            lane = topic, partition["partition"]
            if lane[1] < 0:  # the client's own, of records that have no partition yet
                continue
            requested = partition["xmit_msgq_cnt"] + partition["msgs_inflight"]
            node = nodes.get(partition["leader"]) if partition["leader"] >= 0 else None
            if node is not None:
                leader = f"{node['nodename']}, node {node['nodeid']}"
                leaders[lane] = leader
                asked = requested > 0 or node["state"] != "UP"
            else:
                leader = f"none, before {leaders[lane]}" if lane in leaders else "none"
                asked = True
            waiting = partition["msgq_cnt"] + requested
            lanes[lane] = Sent(waiting, partition["acked_msgid"], leader, asked)
    return lanes


class Stall(TypedDict):
    """A lane that is or was stalled; seconds: for how long. A dict, as in JSON."""

    topic: str
    partition: int
    leader: str
    seconds: float


@dataclass(slots=True)
class _Lane:
    since_s: float
    low: int
    acknowledged: int
    leader: str


class Stalls:
    """Of one delivery. Times are seconds of any clock that only grows."""

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, _Lane] = {}  # with unacknowledged records
        self._stalled: dict[LaneKey, _Lane] = {}  # some of those
        self._seen: Mapping[LaneKey, Sent] | None = None
        self._say_due_s = 0.0

    def see(
        self, sent: Mapping[LaneKey, Sent], low: Callable[[LaneKey], int | None], now_s: float
    ) -> tuple[list[Stall], list[Stall]]:
        """Which stalls to log now (all, if one is new or a minute has passed), and which are over.

        sent: the latest statistics, a new mapping each time. low: the address of a lane's first record
        that is not delivered, None if all are."""
        if sent is self._seen:
            return [], []
        self._seen = sent
        over = []
        for key, lane in list(self._lanes.items()):
            each = sent.get(key)
            acknowledged = lane.acknowledged if each is None else each.acknowledged
            if acknowledged > lane.acknowledged or low(key) != lane.low:
                del self._lanes[key]
                if key in self._stalled:
                    over.append(_stall(key, lane, now_s))
                continue
            lane.acknowledged = acknowledged  # a new connection counts from zero
            if each is not None:
                lane.leader = each.leader
        for key, each in sent.items():
            if each.waiting and key not in self._lanes and (first := low(key)) is not None:
                self._lanes[key] = _Lane(now_s, first, each.acknowledged, each.leader)
        before = self._stalled
        self._stalled = {k: v for k, v in self._lanes.items() if now_s - v.since_s >= STALLED_S}
        if self._stalled.keys() <= before.keys() and now_s < self._say_due_s:
            return [], over
        self._say_due_s = now_s + SAY_AGAIN_S
        return self.now(now_s), over

    def now(self, now_s: float) -> list[Stall]:
        """The lanes that are stalled, the oldest first."""
        stalled = [_stall(key, lane, now_s) for key, lane in self._stalled.items()]
        return sorted(stalled, key=lambda stall: -stall["seconds"])


def _stall(key: LaneKey, lane: _Lane, now_s: float) -> Stall:
    topic, partition = key
    seconds = round(now_s - lane.since_s, 1)
    return Stall(topic=topic, partition=partition, leader=lane.leader, seconds=seconds)


def in_words(stalls: Sequence[Stall]) -> str:
    """For a log line, or the error in status."""
    named = [
        f"{lane_name((s['topic'], s['partition']))} for {s['seconds']:.0f} s (leader {s['leader']})"
        for s in stalls[:_NAMED_MAX]
    ]
    more = len(stalls) - len(named)
    return ", ".join(named) + (f", and {more:,} more" if more else "")
