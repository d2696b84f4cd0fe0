"""read_large: records of 64 KB, beside a read of the same bytes.

There are two floors: the bytes read, and the bytes read and hashed once, as every check needs. A value
as an object of its own is copied once more; a view in Arrow is not.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import aolog
from bench import limits
from bench.cases.append_large import RECORD_BYTES
from bench.measure import Contender, Group, Promise, Skipped, Target
from bench.payloads import Proof, prove
from bench.peers.aolog_log import BATCH_BYTES, VALUES_ALONE, log_path, slab_paths, write_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bench.cases.plan import Plan, Values

__all__ = ["groups"]

_TO_ARROW = "aolog, to Arrow"
_RATIO_MAX = 1.15


def groups(plan: Plan) -> Iterator[Group]:
    values = plan.values(RECORD_BYTES)
    with plan.fixture() as directory:
        write_log(directory, values.all, batch_bytes=BATCH_BYTES)
        paths, records = slab_paths(directory), len(values.all)
        contenders = [
            limits.read_blocks(paths, records, values.proof, hashed=False),
            limits.read_blocks(paths, records, values.proof, hashed=True),
            limits.read_calls(paths[0].parent / "raw", values.all, values.proof),
            _contender("aolog", values, directory, lambda r: map(attrgetter("value"), r)),
            _contender(VALUES_ALONE, values, directory, aolog.Reader.values),
        ]
        skipped = []
        if find_spec("pyarrow") is None:
            skipped.append(Skipped(_TO_ARROW, "pyarrow is not installed"))
        else:
            contenders.append(_contender(_TO_ARROW, values, directory, _views))
        yield Group(
            "read_large",
            "read one by one, 64-KiB records",
            "from opening to the last value, lengths summed",
            RECORD_BYTES,
            contenders,
            (limits.READ, limits.READ_AND_HASH, limits.RAW_FILE),
            skipped,
            targets=(
                Target(
                    "to Arrow, as a multiple of reading and hashing the bytes",
                    _TO_ARROW,
                    (limits.READ_AND_HASH,),
                    _RATIO_MAX,
                ),
            ),
        )


def _views(reader: aolog.Reader) -> Iterator[Any]:
    """Values as views of what was read."""
    while (batch := reader.read_batch()) is not None:
        yield from (value.as_buffer() for value in batch.to_arrow(["value"]).column(0))


def _contender(
    name: str, values: Values, directory: str, read: Callable[[aolog.Reader], Iterable[Any]]
) -> Contender:
    def work() -> int:
        records = 0
        with aolog.Reader(log_path(directory), strict=True) as reader:
            for value in read(reader):
                records += len(value) == RECORD_BYTES
        return records

    def proof(_: str) -> Proof:
        with aolog.Reader(log_path(directory), strict=True) as reader:
            return prove(bytes(value) for value in read(reader))

    promise = Promise("-", "xxh3 a batch")
    expected = values.proof
    return Contender(name, promise, expected.records, lambda _: nullcontext(work), proof, expected)
