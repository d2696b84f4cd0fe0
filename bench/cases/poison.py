"""poison: what records that can never be delivered cost the others.

One record in 200 is too large: for the client if the cluster is the mock, which has no bounds of topics,
for the topic if it is Apache Kafka. They go to the dead-letter log, each durable before the cursor passes
it. The process is `python -m bridge run --drain --poison dead-letter`; timed from its first status to its
last.
"""

from __future__ import annotations

import json
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench.bridges import new_topic, on_each_cluster, run_bridge
from bench.measure import Wrong
from bench.panel import Panel, Probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.bridges import Destination
    from bench.cases.plan import Plan

__all__ = ["EVERY", "RATE", "US_A_RECORD", "fill", "groups", "panel_of"]

RATE, US_A_RECORD = "records a second", "us a record"
US_A_RECORD_MAX = 50.0  # 20,000 records a second
EVERY = 200  # 0.5 %
_PARTITIONS, _KEYS = 4, 100
_VALUE_BYTES = 100
_BYTES_MAX = 100_000  # which bounds a request too
_POISON_BYTES = 110_000


def groups(plan: Plan) -> Iterator[Panel]:
    with plan.fixture() as directory:
        log = str(Path(directory, "log"))
        records = fill(log, plan.size.records)
        yield from on_each_cluster(
            plan.size, directory, lambda to: panel_of(plan, to, log, records)
        )


def fill(log: str, records: int) -> int:
    """Writes a log of that many records, one in EVERY too large. Returns their number."""
    import aolog

    value, poison = bytes(_VALUE_BYTES), bytes(_POISON_BYTES)
    keys = [b"key %d" % i for i in range(_KEYS)]
    with aolog.Writer(log, sync="never") as writer:
        for i in range(records):
            writer.append(value if (i + 1) % EVERY else poison, key=keys[i % _KEYS])
    return records


def panel_of(plan: Plan, to: Destination, log: str, records: int) -> Panel:
    """Of one cluster."""
    deliveries = ["at_least_once", *(["exactly_once"] if to.isolates else [])]
    numbers = count()
    return Panel(
        "poison",
        f"one record in {EVERY} too large, {to.name}",
        f"{records:,} records of {_VALUE_BYTES} bytes, those too large of {_POISON_BYTES:,}, which are "
        "set aside; from the first status to the last",
        [
            Probe(
                each,
                partial(_drained, each, to, log, records, numbers),
                {US_A_RECORD: US_A_RECORD_MAX},
                f"defaults; keys, {_PARTITIONS} partitions",
            )
            for each in deliveries
        ],
        rounds=plan.size.bridge_rounds,
    )


def _drained(
    delivery: str, to: Destination, log: str, records: int, numbers: count[int]
) -> dict[str, float]:
    cursor = f"bench-{to.name.split()[-1]}-{next(numbers)}"
    options = ["--drain", "--cursor", cursor, "--delivery", delivery, "--status-seconds", "0.1",
               "--poison", "dead-letter"]  # fmt: skip  # a command line
    topic = new_topic(to.cluster, _PARTITIONS)
    if to.isolates:
        from bridge.testing.apache_kafka.server import KafkaServer

        assert isinstance(to.cluster, KafkaServer)
        to.cluster.configure("TOPIC", topic, "max.message.bytes", str(_BYTES_MAX))
    else:
        options += ["-X", f"message.max.bytes={_BYTES_MAX}"]
    begun_s, last = 0.0, {"acknowledged": 0, "skipped": 0, "dead_lettered": 0}
    with run_bridge(log, to, topic, *options) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            begun_s = begun_s or time.monotonic()
        took_s = time.monotonic() - begun_s
    poison, arrived = records // EVERY, last["acknowledged"] + last["skipped"]
    if process.returncode or (arrived, last["dead_lettered"]) != (records - poison, poison):
        raise Wrong(
            f"{delivery}: {arrived} of {records - poison} records, {last['dead_lettered']} of "
            f"{poison} set aside, status {process.returncode}"
        )
    return {US_A_RECORD: took_s * 1e6 / records, RATE: records / took_s}
