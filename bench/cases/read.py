"""read: every record one by one as an object of its own, from the page cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import aolog
from bench import limits
from bench.cases.append import TARGET_BYTES
from bench.cases.plan import read_contender
from bench.measure import Group, Target
from bench.peers import MSGPACK
from bench.peers.aolog_log import VALUES_ALONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cases.plan import Plan

__all__ = ["groups"]

# Of a msgpack stream, which gives a value, as `values` does. A Record is a tuple of six, with an
# integer of its own in it: made by nothing but calls of the allocator it costs 1.6.
RATIO_MAX = 1.2 if aolog.backend == "compiled" else 2.4


def groups(plan: Plan) -> Iterator[Group]:
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes)
        with plan.fixture() as directory:
            contenders = [limits.read_calls(Path(directory, "raw"), values.all, values.proof)]
            for i, peer in enumerate(plan.peers):
                if "read" in peer.runs:
                    own = Path(directory, str(i))
                    own.mkdir()
                    contenders.append(read_contender(peer, values, str(own)))
            yield Group(
                "read",
                f"read one by one, {record_bytes}-byte records",
                "from opening to the last value as bytes, lengths summed",
                record_bytes,
                contenders,
                (limits.RAW_FILE, MSGPACK),
                plan.skipped,
                targets=(
                    Target("values, as a multiple of msgpack", VALUES_ALONE, (MSGPACK,), RATIO_MAX),
                )
                if record_bytes == TARGET_BYTES
                else (),
            )
