"""latency: from `append` to Kafka's acknowledgement, at a steady rate, through log and bridge.

Three processes: one appends on the beat and notes the time of each `append`; the bridge notes when
everything before an address is acknowledged; the cluster runs in its own process, the mock in this one.
For comparison a process produces directly to the cluster, at the same rate and with the same settings of
the client: from `produce` to its callback.
"""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from contextlib import contextmanager
from functools import partial
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from bench.bridges import Bridge, environment, new_topic, on_each_cluster
from bench.child import ROOT
from bench.measure import Wrong
from bench.panel import Panel, Probe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.bridges import Destination
    from bench.cases.plan import Plan

__all__ = ["P50_MS", "P90_MS", "P99_MS", "groups", "panel_of", "percentiles"]

P50_MS, P90_MS, P99_MS, MAX_MS = "p50 ms", "p90 ms", "p99 ms", "greatest ms"
RATE = 1_000  # records a second
FLUSH_S = 0.01
P99_MS_MAX = 50.0
_VALUE_BYTES = 100

# Prints the address of a first record, waits for a line, appends on the beat, prints the pairs.
_BEAT = """
def beat(count, rate, act):
    begin = time.monotonic()
    for i in range(count):
        left = begin + i / rate - time.monotonic()
        if left > 0:
            time.sleep(left)
        act(i)
"""
_APPEND = (
    """
import sys, time, aolog
"""
    + _BEAT
    + """
path, count, rate, size, flush_s = sys.argv[1:]
value, told = bytes(int(size)), []
with aolog.Writer(path, flush_seconds=float(flush_s)) as log:
    first = log.append(value)
    log.flush()
    print(first, flush=True)
    sys.stdin.readline()
    def act(_):
        at = time.monotonic_ns()
        told.append((log.append(value), at))
    beat(int(count), float(rate), act)
for pair in told:
    print(*pair)
"""
)
# Prints how long each took.
_PRODUCE = (
    """
import sys, threading, time
from confluent_kafka import Producer
from bridge.kafka.client import DEFAULTS, FIXED
"""
    + _BEAT
    + """
servers, topic, count, rate, size = sys.argv[1:]
value, took, header = bytes(int(size)), [], [("aolog", bytes(36))]
producer = Producer({**DEFAULTS, **FIXED, "bootstrap.servers": servers, "log_level": 3})
producer.produce(topic, value, None, 0, None, None, 0, header)
assert producer.flush(60) == 0

def poll():
    while len(took) < int(count):
        producer.poll(0.1)

def act(_):
    at = time.monotonic_ns()
    def done(error, message):
        assert error is None, error
        took.append(time.monotonic_ns() - at)
    producer.produce(topic, value, None, 0, done, None, 0, header)

thread = threading.Thread(target=poll)
thread.start()
beat(int(count), float(rate), act)
thread.join(60)
assert len(took) == int(count)
print(*took)
"""
)


def groups(plan: Plan) -> Iterator[Panel]:
    with plan.fixture() as directory:
        yield from on_each_cluster(plan.size, directory, lambda to: panel_of(plan, to, directory))


def panel_of(plan: Plan, to: Destination, directory: str) -> Panel:
    """Of one cluster."""
    records = max(1, int(RATE * plan.size.latency_seconds))
    return Panel(
        "latency",
        f"latency at {RATE:,} records/s, {to.name}",
        f"{records:,} records of {_VALUE_BYTES} bytes on the beat; append, or produce, until the "
        "sender knows that the cluster has acknowledged",
        [
            Probe(
                "log and bridge",
                partial(_bridged, to, directory, records),
                {P99_MS: P99_MS_MAX},
                f"flush_seconds={FLUSH_S:g}, else defaults; writer and bridge are two processes",
            ),
            Probe(
                "raw producer",
                partial(_produced, to, records),
                note="the bridge's settings of the client, a thread that polls",
            ),
        ],
        rounds=plan.size.bridge_rounds,
    )


def percentiles(took_ns: Sequence[int]) -> dict[str, float]:
    """The percentiles in milliseconds."""
    ordered = sorted(took_ns)
    at = {P50_MS: 0.5, P90_MS: 0.9, P99_MS: 0.99, MAX_MS: 1.0}
    last = len(ordered) - 1
    return {name: ordered[round(last * share)] / 1e6 for name, share in at.items()}


def _bridged(to: Destination, directory: str, records: int) -> dict[str, float]:
    log = mkdtemp(prefix="latency-", dir=directory)  # a cursor is of one cluster
    with _child(_APPEND, log, records, RATE, _VALUE_BYTES, FLUSH_S) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        first = int(writer.stdout.readline())
        with Bridge(log, to, new_topic(to.cluster)) as bridge:
            bridge.acknowledged(first)
            writer.stdin.write("\n")
            writer.stdin.flush()
            pairs = [tuple(map(int, line.split())) for line in writer.stdout]
            told = bridge.acknowledged(pairs[-1][0])
    addresses, times = zip(*told, strict=True)
    return percentiles([times[bisect_right(addresses, address)] - at for address, at in pairs])


def _produced(to: Destination, records: int) -> dict[str, float]:
    servers = to.cluster.bootstrap_servers
    with _child(_PRODUCE, servers, new_topic(to.cluster), records, RATE, _VALUE_BYTES) as producer:
        assert producer.stdout is not None
        return percentiles([int(word) for word in producer.stdout.read().split()])


@contextmanager
def _child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Raises Wrong where it fails."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip  # one thing, a line or two
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Wrong(f"the process of the load ended with status {process.returncode}")
