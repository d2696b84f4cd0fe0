"""What archiving costs on paper, from the requests that a round takes: `python -m bench.archive_cost`.

A round is done against a simulated store, and its requests are counted; prices and limits are S3's. The
page aolog/docs/reference/archive.md has the tables; a test holds them to this.
"""

from __future__ import annotations

import tempfile
from collections import Counter

import aolog
from aolog.maintenance.archive.archiver import SHIP_SECONDS, Archiver
from aolog.maintenance.archive.compaction import OBJECT_BYTES
from aolog.storage.objects.requests import Delete, List, Put
from aolog.testing.objects import SimulatedStore
from aolog.write.options import SLAB_BYTES

HOSTS = 10_000
DAY_S = 86_400
WRITE_USD, READ_USD = (
    0.005 / 1000,
    0.0004 / 1000,
)  # a PUT or LIST, and any other request; DELETE is free
STORAGE_USD = 0.023 / 30  # a GB for a day
PUTS_A_SECOND = 3_500  # that S3 takes below one prefix before it answers 503
GB = 1_000_000_000


def round_of_a_beginning() -> Counter[type]:
    """The requests of a round that replaces the beginning of a slab by a longer one."""
    store = SimulatedStore()
    with (
        tempfile.TemporaryDirectory() as path,
        aolog.Writer(path, flush_seconds=None, sync="flush") as log,
        Archiver(path, "s3://bucket/log", client=store) as archiver,  # type: ignore[arg-type]  # in its place
    ):
        archiver.begin()
        for _ in range(3):
            log.append(b"x")
            log.flush()
            log.append(b"y")
            log.flush()
            store.log.clear()
            archiver.round()
    return Counter(type(request) for request in store.log)


def usd_of(requests: Counter[type]) -> float:
    """The price of these requests."""
    writes = requests[Put] + requests[List]
    return writes * WRITE_USD + (requests.total() - writes - requests[Delete]) * READ_USD


def by_interval(requests: Counter[type]) -> list[str]:
    """The rows of the table of intervals."""
    rows = [
        (
            f"| a round every | rounds a day | USD a day, one log | USD a day, {HOSTS:,} logs | requests a second | "
            "PUTs a second |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for every_s in (10, 60, SHIP_SECONDS, 900):
        rounds = DAY_S / every_s
        usd, mark = rounds * usd_of(requests), "**" if every_s == SHIP_SECONDS else ""
        rows.append(
            f"| {mark}{every_s:.0f} s{mark} | {rounds:,.0f} | {usd:.4f} | {HOSTS * usd:,.0f} | "
            f"{HOSTS * requests.total() / every_s:,.0f} | {HOSTS * requests[Put] / every_s:,.0f} |"
        )
    return rows


def by_size() -> list[str]:
    """The rows of the table of objects, for hosts that write so much a day in full slabs."""
    rows = [
        (
            f"| a host writes a day | slabs a day, {HOSTS:,} hosts | objects after 30 days | after `aolog compact` | "
            "USD a day for storage then |"
        ),
        "|---|---|---|---|---|",
    ]
    for gigabytes in (0.1, 1, 10):
        slabs = gigabytes * GB / SLAB_BYTES
        kept = 30 * HOSTS
        packed = gigabytes * GB / OBJECT_BYTES
        rows.append(
            f"| {gigabytes:g} GB | {HOSTS * slabs:,.0f} | {kept * slabs:,.0f} | {kept * packed:,.0f} | "
            f"{kept * gigabytes * STORAGE_USD:,.0f} |"
        )
    return rows


def burst(requests: Counter[type]) -> str:
    """What happens when all hosts archive in the same second, for example after an outage of the store."""
    puts = HOSTS * requests[Put]
    return f"{puts:,} PUTs at once, {puts / PUTS_A_SECOND:.0f} s at {PUTS_A_SECOND:,} a second"


if __name__ == "__main__":
    counted = round_of_a_beginning()
    names = ", ".join(f"{number} {kind.__name__.upper()}" for kind, number in counted.items())
    print(f"A round of a beginning: {names}; {usd_of(counted) * 1e6:.1f} USD for a million\n")
    print(*by_interval(counted), "", *by_size(), "", burst(counted), sep="\n")
