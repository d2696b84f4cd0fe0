"""append_many: one call for 1000 records, until all are in the operating system."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import aolog
from bench import limits
from bench.cases.append import TARGET_BYTES, stored_bytes
from bench.cases.plan import append_contender
from bench.measure import Group, Target
from bench.payloads import groups_of
from bench.peers import MSGPACK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.cases.plan import Plan
    from bench.peers.peer import Sink

__all__ = ["groups"]

RECORDS_A_CALL = 1000
RATIO_MAX = 1.0 if aolog.backend == "compiled" else 1.5  # of writelines, records of 100 bytes


def groups(plan: Plan) -> Iterator[Group]:
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes)
        append = partial(_append_groups, list(groups_of(values.all, RECORDS_A_CALL)))
        contenders = [
            limits.write_blocks(stored_bytes(plan, values.all), len(values.all), values.proof),
            limits.write_lines(values.all, values.proof, RECORDS_A_CALL),
        ]
        contenders += [
            append_contender(peer, values, append, by_groups=True)
            for peer in plan.peers
            if "append_many" in peer.runs
        ]
        yield Group(
            "append_many",
            f"append_many of {RECORDS_A_CALL}, {record_bytes}-byte records",
            "from the first call until all are in the operating system; opening and closing not",
            record_bytes,
            contenders,
            (limits.RAW_FILE, MSGPACK),
            plan.skipped,
            targets=(
                Target(
                    "append_many, as a multiple of writelines",
                    "aolog",
                    (limits.RAW_FILE,),
                    RATIO_MAX,
                ),
            )
            if record_bytes == TARGET_BYTES
            else (),
        )


def _append_groups(parts: Sequence[Sequence[bytes]], sink: Sink) -> None:
    sink.append_groups(parts)
