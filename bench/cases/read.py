"""read: every record one by one as an object of its own, from the page cache.

Beside it: what Go takes for records in queuefka's format; and what asyncio costs.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aolog
from aolog import aio
from bench import limits
from bench.cases.append import TARGET_BYTES
from bench.cases.plan import read_contender
from bench.measure import Contender, Group, Promise, Skipped, Target
from bench.payloads import prove
from bench.peers import MSGPACK
from bench.peers.aolog_log import BATCH_BYTES, VALUES_ALONE, log_path, write_log
from bench.peers.programs import GO_READ, framed_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bench.cases.plan import Plan, Values
    from bench.payloads import Proof

__all__ = ["groups"]

# Of a msgpack stream, which gives a value, as `values` does. A Record is a tuple of six, with an
# integer of its own in it: made by nothing but calls of the allocator it costs 1.6.
RATIO_MAX = 1.2 if aolog.backend == "compiled" else 2.4
_PLAIN, _AIO = "aolog, full records", "aolog.aio, full records"
_AIO_RATIO_MAX = 1.3
_LOGS: dict[str, dict[str, Any]] = {
    "aolog": {},
    "aolog, a frame a record": {"batch_bytes": 0},
    "aolog, format 1": {"format": "queuefka"},
}
# Of Go's time, by the log and the length of the values: iterate, values, to Arrow.
_GO_RATIOS_MAX: dict[tuple[str, int], tuple[float, ...]] = {
    ("aolog", 20): (1.0,),
    ("aolog", 100): (0.8,),
    ("aolog", 1024): (0.4,),
    ("aolog, a frame a record", 100): (2.0, 1.4, 1.4),
    ("aolog, format 1", 100): (1.2, 0.9, 0.8),
}


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
        if plan.names is not None:  # the README's rows alone
            continue
        with plan.fixture() as directory:
            yield _beside_go(directory, record_bytes, values)
        with plan.fixture() as directory:
            yield _by_asyncio(directory, record_bytes, values)


def _group(
    what: str, record_bytes: int, contenders: list[Contender | Skipped], targets: Iterable[Target]
) -> Group:
    """targets: the first one's peer is the baseline."""
    made = [one for one in contenders if isinstance(one, Contender)]
    bounds = tuple(targets) if aolog.backend == "compiled" else ()
    return Group(
        "read",
        f"{what}, {record_bytes}-byte values",
        "from opening to the last record",
        record_bytes,
        made,
        (made[0].name,),
        [one for one in contenders if isinstance(one, Skipped)],
        targets=bounds,
    )


def _contender(name: str, log: Path, values: Values, work: Callable[[], int]) -> Contender:
    def proof(_: str) -> Proof:
        with aolog.Reader(log, strict=True) as reader:
            return prove(value or b"" for value in reader.values())

    promise, expected = Promise("-", "xxh a frame"), values.proof
    return Contender(name, promise, expected.records, lambda _: nullcontext(work), proof, expected)


# --- beside Go ------------------------------------------------------------------------------------


def _counted(rows: Callable[[aolog.Reader], Iterable[object]], log: Path) -> int:
    records = 0
    with aolog.Reader(log, strict=True) as reader:
        for _ in rows(reader):
            records += 1
    return records


def _in_arrow(log: Path) -> int:
    records = 0
    with aolog.Reader(log, strict=True) as reader:
        while (batch := reader.read_batch()) is not None:
            records += len(batch.to_arrow(["value"]))
    return records


_WAYS: dict[str, Callable[[Path], int]] = {
    "iterate": partial(_counted, iter),
    "values": partial(_counted, aolog.Reader.values),
    "to Arrow": _in_arrow,
}


def _beside_go(directory: str, record_bytes: int, values: Values) -> Group:
    contenders: list[Contender | Skipped] = []
    for name, options in _LOGS.items():
        log = Path(directory, name)
        with aolog.Writer(log, sync="never", **options) as writer:
            for value in values.all:
                writer.append(value)
        for way, read in _WAYS.items():
            if way == "to Arrow" and find_spec("pyarrow") is None:
                contenders.append(Skipped(f"{name}, {way}", "pyarrow is not installed"))
            else:
                contenders.append(_contender(f"{name}, {way}", log, values, partial(read, log)))
    go = framed_reader(directory, sorted(log.glob("*.slab")), values.proof)  # the last log's
    bounds = [
        Target(f"{name}, {way}, as a multiple of Go", f"{name}, {way}", (GO_READ,), ratio_max)
        for (name, length), most in _GO_RATIOS_MAX.items()
        if length == record_bytes
        for way, ratio_max in zip(_WAYS, most, strict=False)
    ]
    return _group("read beside Go", record_bytes, [go, *contenders], bounds)


# --- by asyncio -----------------------------------------------------------------------------------


def _by_asyncio(directory: str, record_bytes: int, values: Values) -> Group:
    write_log(directory, values.all, batch_bytes=BATCH_BYTES, full=True)
    log = Path(log_path(directory))

    async def count() -> int:
        records = 0
        async with aio.Reader(log, strict=True) as reader:
            async for _ in reader:
                records += 1
        return records

    return _group(
        "read by asyncio, all five fields",
        record_bytes,
        [
            _contender(_PLAIN, log, values, partial(_counted, iter, log)),
            _contender(_AIO, log, values, lambda: asyncio.run(count())),
        ],
        [Target("asyncio, as a multiple of the plain reader", _AIO, (_PLAIN,), _AIO_RATIO_MAX)]
        if record_bytes == TARGET_BYTES
        else [],
    )
