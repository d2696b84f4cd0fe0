"""The client's statistics (`statistics.interval.ms`): what waits for an acknowledgement, and where.
Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.kafka.stalls import Sent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.kafka.lane import LaneKey


def any_up(statistics: Mapping[str, Any]) -> bool:
    """Whether a broker of the cluster is connected."""
    brokers = statistics["brokers"].values()
    return any(broker["state"] == "UP" and broker["nodeid"] >= 0 for broker in brokers)


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
