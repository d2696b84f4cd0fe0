"""append_large: records of 64 KB, one call each, beside a write of the same bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench import limits
from bench.cases.append import append_each, stored_bytes
from bench.cases.plan import append_contender
from bench.measure import Group, Target
from bench.peers.aolog_log import PEERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cases.plan import Plan

__all__ = ["groups"]

RECORD_BYTES = 64 << 10


def groups(plan: Plan) -> Iterator[Group]:
    values = plan.values(RECORD_BYTES)
    append = partial(append_each, values.all)
    yield Group(
        "append_large",
        "append one by one, 64-KiB records",
        "from the first append until all are in the operating system; opening and closing not",
        RECORD_BYTES,
        [
            limits.write_blocks(stored_bytes(plan, values.all), len(values.all), values.proof),
            limits.write_calls(values.all, values.proof),
            append_contender(PEERS[0], values, append, by_groups=False),
        ],
        (limits.RAW_BLOCKS,),
        targets=(
            Target(
                "an append, as a multiple of raw write", PEERS[0].name, (limits.RAW_BLOCKS,), 1.15
            ),
        ),
    )
