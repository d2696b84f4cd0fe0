"""follow: how long after its flush a record is read by another process, and what waiting costs.

The time is from before the append until the follower has the record, by the one monotonic clock of the
machine. Records come a few milliseconds apart, so that the follower sleeps before each. The row of a pipe
shows the cost of waking another process: the floor.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import aolog
from bench import child
from bench.panel import Panel, Probe, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cases.plan import Plan

__all__ = ["groups"]

P50_US, P99_US, CPU_PERCENT = "p50 us", "p99 us", "CPU %"
_P50_US_MAX = 300.0
_CPU_PERCENT_MAX = 1.0
_APART_S = 0.003
_STAMP = struct.Struct("<q")

_LATENCY = """
import json, statistics, struct, sys, time, os
def told(late):
    cuts = statistics.quantiles(late, n=100)
    print(json.dumps({"p50": cuts[49] / 1e3, "p99": cuts[98] / 1e3}))
"""
_FOLLOW = (
    _LATENCY
    + """
import aolog
records = int(sys.argv[2])
late = []
with aolog.Reader(sys.argv[1]) as reader:
    print("ready", flush=True)
    for record in reader.follow(timeout=20):
        late.append(time.monotonic_ns() - struct.unpack("<q", record.value)[0])
        if len(late) == records:
            break
assert len(late) == records
told(late)
"""
)
_PIPE = (
    _LATENCY
    + """
records = int(sys.argv[2])
late = []
print("ready", flush=True)
for _ in range(records):
    late.append(-struct.unpack("<q", os.read(0, 8))[0] + time.monotonic_ns())
told(late)
"""
)
_IDLE = """
import json, sys, time, aolog
with aolog.Reader(sys.argv[1]) as reader:
    assert len(list(reader.follow(timeout=0.1))) == 1
    print("ready", flush=True)
    wall_s, cpu_s = time.monotonic(), time.process_time()
    assert list(reader.follow(timeout=float(sys.argv[2]))) == []
    cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
print(json.dumps({"percent": 100 * cpu_s / wall_s}))
"""


def groups(plan: Plan) -> Iterator[Panel]:
    records, idle_s = plan.size.follow_records, plan.size.follow_idle_s
    with plan.fixture() as directory:
        yield Panel(
            "follow",
            f"follow from another process, {records} records {_APART_S * 1e3:g} ms apart",
            "from before append and flush until the follower has the record",
            [
                Probe(
                    "aolog, follow", partial(_latency, directory, records), {P50_US: _P50_US_MAX}
                ),
                Probe("a pipe", partial(_pipe, directory, records), note="os.write to os.read"),
            ],
            rounds=plan.size.follow_rounds,
        )
        yield Panel(
            "follow",
            f"follow with nothing to read for {idle_s:g} s, beside an idle writer",
            "processor time of the follower, as a part of the time that it waits",
            [
                Probe(
                    "aolog, follow",
                    partial(_idle, directory, idle_s),
                    {CPU_PERCENT: _CPU_PERCENT_MAX},
                )
            ],
            rounds=plan.size.follow_rounds,
        )


def _other(directory: str, code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has reported that it is ready."""
    if sys.platform != "linux":
        raise Unavailable("monotonic clocks of two processes are compared on Linux only")
    other = subprocess.Popen(
        child.command(code, *arguments),
        env=child.environment(str(Path(directory, "bytecode"))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    if other.stdout.readline() != "ready\n":
        other.kill()
        other.wait()
        raise Unavailable("the other process did not start")
    return other


def _told(other: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = other.communicate(timeout=60)
    found = json.loads(said)
    assert isinstance(found, dict)
    return found


def _percentiles(
    other: subprocess.Popen[str], records: int, send: Callable[[bytes], object]
) -> dict[str, float]:
    for _ in range(records):
        time.sleep(_APART_S)
        send(_STAMP.pack(time.monotonic_ns()))
    told = _told(other)
    return {P50_US: told["p50"], P99_US: told["p99"]}


def _latency(directory: str, records: int) -> dict[str, float]:
    path = str(Path(directory, f"log-{time.monotonic_ns()}"))
    with aolog.Writer(path, sync="never") as writer:

        def send(value: bytes) -> None:
            writer.append(value)
            writer.flush()

        return _percentiles(_other(directory, _FOLLOW, path, str(records)), records, send)


def _pipe(directory: str, records: int) -> dict[str, float]:
    other = _other(directory, _PIPE, "", str(records))
    stdin: IO[Any] | None = other.stdin
    assert stdin is not None
    return _percentiles(other, records, stdin.buffer.raw.write)  # type: ignore[attr-defined]  # text on binary on raw


def _idle(directory: str, idle_s: float) -> dict[str, float]:
    path = str(Path(directory, f"idle-{time.monotonic_ns()}"))
    with aolog.Writer(path) as writer:
        writer.append(b"one")
        writer.flush()
        return {CPU_PERCENT: _told(_other(directory, _IDLE, path, str(idle_s)))["percent"]}
