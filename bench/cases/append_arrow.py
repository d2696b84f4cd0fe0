"""append_arrow: batches of a column that are there already, until all are in the operating system."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aolog
from bench import limits
from bench.cases.append import stored_bytes
from bench.measure import Contender, Group, Promise, Target
from bench.payloads import groups_of, prove
from bench.peers.aolog_log import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.cases.plan import Plan
    from bench.payloads import Proof

__all__ = ["groups"]

RECORDS_A_CALL = 10_000  # what Spark hands out at once
_LOG, _IPC = "aolog, append_arrow", "arrow IPC"


def groups(plan: Plan) -> Iterator[Group]:
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        return
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes)
        batches = [
            pa.record_batch([pa.array(group, pa.binary())], names=["value"])
            for group in groups_of(values.all, RECORDS_A_CALL)
        ]
        yield Group(
            "append_arrow",
            f"append_arrow of {RECORDS_A_CALL}, {record_bytes}-byte records",
            "from the first call until all are in the operating system; opening and closing not",
            record_bytes,
            [
                limits.write_blocks(stored_bytes(plan, values.all), len(values.all), values.proof),
                _ipc(batches, len(values.all), values.proof),
                _log(batches, len(values.all), values.proof),
            ],
            (_IPC,),
            targets=(Target("append_arrow, as a multiple of writing IPC", _LOG, (_IPC,), 1.3),),
        )


def _ipc(batches: Sequence[Any], records: int, expected: Proof) -> Contender:
    import pyarrow as pa

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        with (
            pa.OSFile(str(Path(directory, "stream")), "wb") as file,
            pa.ipc.new_stream(file, batches[0].schema) as stream,
        ):

            def work() -> int:
                for batch in batches:
                    stream.write_batch(batch)
                return records

            yield work

    def proof(directory: str) -> Proof:
        with pa.OSFile(str(Path(directory, "stream"))) as file, pa.ipc.open_stream(file) as stream:
            return prove(value for batch in stream for value in batch.column(0).to_pylist())

    return Contender(_IPC, Promise("OS", "none"), records, session, proof, expected)


def _log(batches: Sequence[Any], records: int, expected: Proof) -> Contender:
    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        with aolog.Writer(log_path(directory), sync="never") as writer:

            def work() -> int:
                for batch in batches:
                    writer.append_arrow(batch)
                writer.flush()
                return records

            yield work

    def proof(directory: str) -> Proof:
        with aolog.Reader(log_path(directory), strict=True) as reader:
            return prove(record.value or b"" for record in reader)

    return Contender(_LOG, Promise("OS", "xxh3 a batch"), records, session, proof, expected)
