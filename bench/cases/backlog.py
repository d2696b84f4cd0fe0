"""backlog: what the bridge holds in memory while a long log drains, whatever its length.

The process is `python -m bridge run --drain` as it is. Its resident bytes are the kernel's count, with
Python and the Kafka client: their peak, and their medians in the first and the last quarter of the
time that the drain takes. Bounded memory does not grow from one to the other; the peak is reached
when the cluster is slow and the client's queue full. The cluster runs in other processes.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.bridges import new_topic, on_each_cluster, run_bridge
from bench.measure import Wrong
from bench.panel import Panel, Probe, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.bridges import Destination
    from bench.cases.plan import Plan

__all__ = ["FIRST_MB", "LAST_MB", "MB_A_SECOND", "PEAK_MB", "fill", "groups", "panel_of", "sampled"]

FIRST_MB, LAST_MB = "resident MB, first quarter", "resident MB, last quarter"
PEAK_MB = "peak MB"
MB_A_SECOND = "MB of values a second"
PEAK_MB_MAX = 200.0
PARTITIONS, _KEYS = 4, 100
# The bridge bounds both records and bytes under way; at this length it is the bytes that count.
_VALUE_BYTES = 1_000
_STATUS_S = 0.1
_SAMPLE_S = 0.02


def groups(plan: Plan) -> Iterator[Panel]:
    with plan.fixture() as directory:
        log = str(Path(directory, "log"))
        records = fill(log, plan.size.backlog_bytes)
        yield from on_each_cluster(
            plan.size, directory, lambda to: panel_of(plan, to, log, records)
        )


def fill(log: str, size: int, value_bytes: int = _VALUE_BYTES) -> int:
    """Writes a log with this many bytes of values. Returns the number of its records."""
    import aolog

    records, value = max(1, size // value_bytes), bytes(value_bytes)
    keys = [b"key %d" % i for i in range(_KEYS)]
    with aolog.Writer(log, sync="never") as writer:
        for i in range(records):
            writer.append(value, key=keys[i % _KEYS])
    return records


def panel_of(plan: Plan, to: Destination, log: str, records: int) -> Panel:
    """Of one cluster."""
    deliveries = ["at_least_once", *(["exactly_once"] if to.isolates else [])]
    numbers = count()
    return Panel(
        "backlog",
        f"draining {records * _VALUE_BYTES / 1e6:,.0f} MB of {_VALUE_BYTES:,}-byte records, "
        f"{to.name}",
        "resident bytes of the bridge's process (VmRSS, medians; VmHWM, the peak)",
        [
            Probe(
                each,
                partial(_drained, each, to, log, records, numbers),
                {PEAK_MB: PEAK_MB_MAX},
                f"defaults; keys, {PARTITIONS} partitions",
            )
            for each in deliveries
        ],
        rounds=plan.size.bridge_rounds,
    )


def _drained(
    delivery: str, to: Destination, log: str, records: int, numbers: count[int]
) -> dict[str, float]:
    if not Path("/proc/self/status").exists():
        raise Unavailable("no /proc here to read resident bytes from")
    done, begun_s = 0, time.monotonic()
    cursor = f"bench-{to.name.split()[-1]}-{next(numbers)}"
    options = ["--drain", "--cursor", cursor, "--delivery", delivery]
    options += ["--status-seconds", f"{_STATUS_S}"]
    with run_bridge(log, to, new_topic(to.cluster, PARTITIONS), *options) as process:
        assert process.stdout is not None
        with sampled(process.pid) as taken:
            for number, line in enumerate(process.stdout):
                done = json.loads(line)["acknowledged"]
                if not number:  # the first status: it began to deliver so long ago
                    begun_s = time.monotonic() - _STATUS_S
        took_s = time.monotonic() - begun_s
        if process.wait() or done != records:
            raise Wrong(f"{delivery}: {done} records of {records}, status {process.returncode}")
    samples = [sample for sample in taken if sample.at_s >= begun_s] or taken[-1:]
    quarter = -(-len(samples) // 4)
    return {
        FIRST_MB: statistics.median(sample.now_mb for sample in samples[:quarter]),
        LAST_MB: statistics.median(sample.now_mb for sample in samples[-quarter:]),
        PEAK_MB: taken[-1].peak_mb,
        MB_A_SECOND: records * _VALUE_BYTES / 1e6 / took_s,
    }


class Sample(NamedTuple):
    """Resident bytes of a process: now, and at most so far."""

    at_s: float
    now_mb: float
    peak_mb: float


@contextmanager
def sampled(pid: int) -> Iterator[list[Sample]]:
    """Samples of a process: at once, then every `_SAMPLE_S`, until the block or the process ends."""
    samples: list[Sample] = []
    ended = threading.Event()

    def sample() -> None:
        while (found := _resident(pid)) is not None:
            samples.append(found)
            if ended.wait(_SAMPLE_S):
                break

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _resident(pid: int) -> Sample | None:
    """None if the process has ended."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name in {"VmRSS", "VmHWM"}:
            found[name] = int(value.split()[0]) * 1024 / 1e6
    if not found:  # a zombie has neither
        return None
    return Sample(time.monotonic(), found["VmRSS"], found["VmHWM"])
