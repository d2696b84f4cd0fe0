"""bridge_memory: what a bridge takes at most, of 1, 8 and 64 logs, beside what `how-to/bridge.md` promises.

The process is `python -m bridge run --root ROOT --drain` with its defaults. Its peak of resident bytes is the
kernel's count, once for logs of one record each (idle: connected, with nothing to hold) and once for a backlog of
small or large records. The cluster runs in other processes: Apache Kafka if available, which is slower than the
bridge, so that what the bridge may hold is full.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import counted
from bench.bridges import MOCK, Destination, destinations, new_topic, run_bridge, without_kafka
from bench.cases.backlog import fill, sampled
from bench.measure import Wrong
from bench.panel import Panel, Probe, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cases.plan import Plan

__all__ = ["ABOVE_IDLE", "PEAK", "groups", "panel_of", "promised_mib"]

PEAK, ABOVE_IDLE = "peak MiB", "MiB above idle"
_LOGS = (1, 8, 64)
_VALUE_BYTES = (1_000, 100_000)
_PARTITIONS = 4
_SHARE = 4  # of the bytes of the case backlog: the parts of all logs are full after 128 MiB
# As the page has them, in MiB: the process, a connected log, what is in flight of a log and of all.
_PROCESS, _LOG, _LOG_IN_FLIGHT, _ALL_IN_FLIGHT = 70, 6, 32, 128
_MB_A_MIB = (1 << 20) / 1e6


def promised_mib(logs: int) -> int:
    """The page's bound for so many logs."""
    return _PROCESS + logs * _LOG + min(logs * _LOG_IN_FLIGHT, _ALL_IN_FLIGHT)


def groups(plan: Plan) -> Iterator[Panel]:
    missing = without_kafka(plan.size)
    with plan.fixture() as directory:
        for to in destinations(plan.size, directory):
            if missing or to.name != MOCK:
                one = panel_of(plan, to, directory)
                one.skipped.extend(missing)
                yield one


def panel_of(plan: Plan, to: Destination, directory: str) -> Panel:
    """Of one cluster."""
    size, numbers = plan.size.backlog_bytes // _SHARE, count()
    probes = []
    for logs in _LOGS:
        idle = _root(directory, "idle", logs, 1, 1)
        for value_bytes in _VALUE_BYTES:
            loaded = _root(directory, f"{value_bytes}", logs, size // logs, value_bytes)
            probes += [
                Probe(
                    f"{counted(logs, 'log')}, {value_bytes // 1_000}-KB records, {delivery}",
                    partial(_peaks, to, delivery, idle, loaded, numbers),
                    {PEAK: promised_mib(logs)},
                )
                for delivery in ("at_least_once", *(["exactly_once"] if to.isolates else []))
            ]
    return Panel(
        "bridge_memory",
        f"a bridge of many logs, {size / 1e6:,.0f} MB, {to.name}",
        "peak of the resident bytes of the bridge's process (VmHWM), and what of it is above that of the same bridge "
        "with a record a log",
        probes,
        rounds=1,
    )


class _Root(NamedTuple):
    """A root, and the number of records in its logs."""

    path: str
    records: int


def _root(directory: str, name: str, logs: int, log_bytes: int, value_bytes: int) -> _Root:
    root = Path(directory, f"{name}-{logs}")
    records = [fill(str(root / f"log-{i}"), log_bytes, value_bytes) for i in range(logs)]
    return _Root(str(root), sum(records))


def _peaks(
    to: Destination, delivery: str, idle: _Root, loaded: _Root, numbers: count[int]
) -> dict[str, float]:
    before, peak = (_peak_mib(to, delivery, root, next(numbers)) for root in (idle, loaded))
    return {PEAK: peak, ABOVE_IDLE: peak - before}


def _peak_mib(to: Destination, delivery: str, root: _Root, number: int) -> float:
    if not Path("/proc/self/status").exists():
        raise Unavailable("no /proc here to read resident bytes from")
    path, records = root
    options = ["--drain", "--cursor", f"bench-{number}", "--delivery", delivery]
    topic, done = new_topic(to.cluster, _PARTITIONS), 0
    with run_bridge(path, to, topic, *options, source="--root") as process:
        assert process.stdout is not None
        with sampled(process.pid) as samples:
            for line in process.stdout:
                done = json.loads(line)["acknowledged"]
        if process.wait() or done != records:
            raise Wrong(f"{delivery}: {done} records of {records}, status {process.returncode}")
    return samples[-1].peak_mb / _MB_A_MIB
