"""append: one call a record, until all are in the operating system."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import aolog
from bench import limits
from bench.cases.plan import append_contender
from bench.measure import Group, Target
from bench.peers import MSGPACK
from bench.peers.aolog_log import BATCH_BYTES, slab_paths, write_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.cases.plan import Plan
    from bench.peers.peer import Sink

__all__ = ["TARGET_BYTES", "append_each", "groups", "stored_bytes"]

TARGET_BYTES = 100
# Of a msgpack stream without checksums, for records of 100 bytes.
RATIO_MAX = 0.55 if aolog.backend == "compiled" else 3.0


def groups(plan: Plan) -> Iterator[Group]:
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes)
        contenders = [
            limits.write_blocks(stored_bytes(plan, values.all), len(values.all), values.proof),
            limits.write_calls(values.all, values.proof),
        ]
        for peer in plan.peers:
            if "append" in peer.runs:
                given, _ = values.of(peer)
                append = partial(append_each, given)
                contenders.append(append_contender(peer, values, append, by_groups=False))
        yield Group(
            "append",
            f"append one by one, {record_bytes}-byte records",
            "from the first append until all are in the operating system; opening and closing not",
            record_bytes,
            contenders,
            (limits.RAW_FILE, MSGPACK),
            plan.skipped,
            targets=(Target("append, as a multiple of msgpack", "aolog", (MSGPACK,), RATIO_MAX),)
            if record_bytes == TARGET_BYTES
            else (),
        )


def append_each(values: Sequence[bytes], sink: Sink) -> None:
    """One call a record."""
    sink.append_each(values)


def stored_bytes(plan: Plan, values: Sequence[bytes]) -> bytes:
    """What the log's files hold after these values: the bytes that have to be written."""
    with plan.fixture() as directory:
        write_log(directory, values, batch_bytes=BATCH_BYTES)
        return b"".join(path.read_bytes() for path in slab_paths(directory))
