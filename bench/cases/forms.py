"""forms: every form of append, each beside what does the same at its best.

One by one with a value, a key, all five fields; many at once; a frame a record; with a flush, or a sync, after
each; format 1; awaited; and Python's logging. The arguments are made before the timed part, which ends when all
records are in the operating system, or on the device for the forms with a sync. Syncs go to memory (tmpfs), so
that the time of the software is left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aolog
from aolog import aio
from aolog.write.log_handler import JsonFormatter
from bench import limits
from bench.cases.append import TARGET_BYTES
from bench.measure import Contender, Group, Promise, Skipped, Target, Wrong
from bench.payloads import Proof, groups_of, prove
from bench.peers.aolog_log import log_path
from bench.peers.programs import GO, GO_FLUSH, SYNCED, framed, synced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bench.cases.plan import Plan, Values

__all__ = ["groups"]

MSGPACK = "msgpack tuples"
APPEND, EACH = "aolog", "aolog, a frame a record"
EACH_FIELDS = f"{EACH}, five fields"
FORMAT_1, FORMAT_1_MANY = "aolog, format 1", "aolog, format 1, append_many"
AWAITED, LOG_HANDLER, FILE_HANDLER = "aolog.aio, awaited", "aolog.LogHandler", "logging.FileHandler"
RECORDS_A_CALL = 1000
# Of Go's time for a value, by its length.
VALUE_RATIO_MAX = {20: 0.9, 100: 0.6, 1024: 0.45}
_BUFFER_BYTES = 1 << 20
_FRAME_HEADER_BYTES = 40
_MEMORY = "/dev/shm"  # tmpfs, where there is one
_TIMED = "from the first record until all are in the operating system; opening and closing not"
_NO_CHECKSUM = Promise("OS", "none")


class Fields(NamedTuple):
    """The arguments of all records, a list each."""

    values: list[bytes]
    keys: list[bytes]
    headers: list[tuple[tuple[str, bytes], ...]]
    timestamps: list[int]
    topics: list[str]

    def part(self, begin: int, end: int) -> Fields:
        """Those of some records."""
        return Fields._make(column[begin:end] for column in self)


def fields_of(values: list[bytes]) -> Fields:
    return Fields(
        values,
        [value[:8] for value in values],
        [(("trace", value[:16]),) for value in values],
        [1_700_000_000_000_000 + i for i in range(len(values))],
        ["orders" if i % 4 else "returns" for i in range(len(values))],
    )


def groups(plan: Plan) -> Iterator[Group]:
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes)
        fields = fields_of(values.all)
        with plan.fixture() as built:
            yield from _beside_go(built, record_bytes, values, fields)
        yield from _beside_msgpack(record_bytes, values, fields)
        with plan.fixture() as built, tempfile.TemporaryDirectory(dir=_memory(built)) as memory:
            yield _synced(built, memory, record_bytes, values)
        yield _awaited(record_bytes, values)
        yield _logging(record_bytes, values)


def _group(
    title: str,
    record_bytes: int,
    contenders: Sequence[Contender | Skipped],
    *targets: Target,
    timed: str = _TIMED,
    lengths: Iterable[int] = (TARGET_BYTES,),
) -> Group:
    """targets: for values of these lengths, and the compiled half. The first one's peer is the baseline."""
    judged = record_bytes in lengths and aolog.backend == "compiled"
    return Group(
        "forms",
        f"{title}, {record_bytes}-byte values",
        timed,
        record_bytes,
        [one for one in contenders if isinstance(one, Contender)],
        targets[0].others,
        [one for one in contenders if isinstance(one, Skipped)],
        targets=targets if judged else (),
    )


# --- the log ------------------------------------------------------------------------------------


def _log(
    name: str,
    fields: Fields,
    expected: Proof,
    append: Callable[[aolog.Writer], object],
    *,
    used: int = 1,
    checksum: str = "xxh3 a batch",
    **options: Any,
) -> Contender:
    """append: all records. used: how many of the fields it passes, which the proof compares."""
    given = list(zip(*fields[:used], strict=True))

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        with aolog.Writer(log_path(directory), **{"sync": "never"} | options) as writer:

            def work() -> int:
                append(writer)
                writer.flush()
                return len(given)

            yield work

    def proof(directory: str) -> Proof:
        found = []
        with aolog.Reader(log_path(directory), strict=True) as reader:
            for record, row in zip(reader, given, strict=True):
                parts = record.value, record.key, record.headers, record.timestamp, record.topic
                if parts[:used] != row:
                    raise Wrong(f"{name}: {record} is not {row}")
                found.append(record.value or b"")
        return prove(found)

    return Contender(name, Promise("OS", checksum), len(given), session, proof, expected)


def _append_values(fields: Fields) -> Callable[[aolog.Writer], object]:
    def append_all(writer: aolog.Writer) -> None:
        append = writer.append
        for value in fields.values:
            append(value)

    return append_all


def _append_fields(fields: Fields) -> Callable[[aolog.Writer], object]:
    def append_all(writer: aolog.Writer) -> None:
        append = writer.append
        for value, key, headers, timestamp, topic in zip(*fields, strict=True):
            append(value, key=key, headers=headers, timestamp=timestamp, topic=topic)

    return append_all


# --- beside Go ------------------------------------------------------------------------------------


def _beside_go(built: str, record_bytes: int, values: Values, fields: Fields) -> Iterator[Group]:
    go, go_large, go_flush = framed(built, values.all, values.proof)
    one_by_one, many = _append_values(fields), list(groups_of(values.all, RECORDS_A_CALL))
    log = partial(_log, fields=fields, expected=values.proof)

    def append_many(writer: aolog.Writer) -> None:
        for group in many:
            writer.append_many(group)

    def flush_each(writer: aolog.Writer) -> None:
        append, flush = writer.append, writer.flush
        for value in fields.values:
            append(value)
            flush()

    ratio_max = VALUE_RATIO_MAX.get(record_bytes, 1.0)
    yield _group(
        "append one by one", record_bytes,
        [go, go_large, log(APPEND, append=one_by_one)],
        Target("append, as a multiple of Go", APPEND, (GO,), ratio_max),
        lengths=VALUE_RATIO_MAX,
    )  # fmt: skip  # a table
    frames = partial(log, batch_bytes=0, checksum="xxh3 a record")
    format_1 = partial(log, format="queuefka", checksum="xxh32 a record")
    yield _group(
        "a frame a record, and format 1", record_bytes,
        [
            go,
            frames(EACH, append=one_by_one),
            frames(EACH_FIELDS, append=_append_fields(fields), used=len(fields)),
            format_1(FORMAT_1, append=one_by_one),
            format_1(FORMAT_1_MANY, append=append_many),
        ],
        Target("a frame a record, as a multiple of Go", EACH, (GO,), 3),
        Target("a frame a record with five fields, as a multiple of Go", EACH_FIELDS, (GO,), 5),
        Target("format 1, as a multiple of Go", FORMAT_1, (GO,), 1.6),
        Target("append_many of format 1, as a multiple of Go", FORMAT_1_MANY, (GO,), 1.2),
    )  # fmt: skip  # a table
    yield _group(
        "append and flush each", record_bytes,
        [
            go_flush,
            limits.write_calls(values.all, values.proof, flushes_each=True),
            log(APPEND, append=flush_each, checksum="xxh3 a frame"),
        ],
        Target("append and flush, as a multiple of Go", APPEND, (GO_FLUSH,), 1.6),
    )  # fmt: skip  # a table


# --- beside msgpack -------------------------------------------------------------------------------


def _beside_msgpack(record_bytes: int, values: Values, fields: Fields) -> Iterator[Group]:
    rows = list(zip(*fields, strict=True))
    calls = [fields.part(i, i + RECORDS_A_CALL) for i in range(0, len(rows), RECORDS_A_CALL)]

    def append_keys(writer: aolog.Writer) -> None:
        append = writer.append
        for value, key in zip(fields.values, fields.keys, strict=True):
            append(value, key=key)

    def append_many(writer: aolog.Writer) -> None:
        for one in calls:
            writer.append_many(
                one.values, keys=one.keys, headers=one.headers, timestamps=one.timestamps
            )

    def write_each(used: int, write: Any, pack: Any) -> None:
        for row in zip(*fields[:used], strict=True):
            write(pack(row))

    def write_many(used: int, write: Any, pack: Any) -> None:
        for one in calls:
            write(b"".join(map(pack, zip(*one[:used], strict=True))))

    for title, used, write, append, ratio_max in (
        ("append a value and a key", 2, write_each, append_keys, 1.4),
        ("append all five fields", 5, write_each, _append_fields(fields), 1.0),
        (
            f"append_many of {RECORDS_A_CALL}, with keys, headers, timestamps",
            4,
            write_many,
            append_many,
            0.6,
        ),
    ):
        yield _group(
            title, record_bytes,
            [
                _packed(values, rows, used, write),
                _log(APPEND, fields, values.proof, append, used=used),
            ],
            Target(f"{title}, as a multiple of msgpack", APPEND, (MSGPACK,), ratio_max),
        )  # fmt: skip  # a table


def _packed(
    values: Values,
    rows: Sequence[tuple[Any, ...]],
    used: int,
    write_all: Callable[[int, Any, Any], None],
) -> Contender | Skipped:
    try:
        import msgpack
    except ModuleNotFoundError:
        return Skipped(MSGPACK, "not installed")

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        pack = msgpack.Packer().pack
        with Path(directory, "stream").open("wb", buffering=_BUFFER_BYTES) as file:

            def work() -> int:
                write_all(used, file.write, pack)
                file.flush()
                return len(rows)

            yield work

    def proof(directory: str) -> Proof:
        with Path(directory, "stream").open("rb") as file:
            found = list(msgpack.Unpacker(file, use_list=False))
        if found != [row[:used] for row in rows]:
            raise Wrong(f"{MSGPACK}: gave other rows")
        return prove(row[0] for row in found)

    note = "a packed tuple a record, in one buffered file"
    return Contender(MSGPACK, _NO_CHECKSUM, len(rows), session, proof, values.proof, note)


# --- with a sync each -----------------------------------------------------------------------------


def _memory(otherwise: str) -> str:
    """Where a sync costs nothing; if there is no such place, another directory."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else otherwise


def _synced(built: str, memory: str, record_bytes: int, values: Values) -> Group:
    few, length = values.few, len(values.few[0])

    def append_all(writer: aolog.Writer) -> None:
        append, sync = writer.append, writer.sync
        for value in few:
            append(value)
            sync()

    blocks = [bytes(_FRAME_HEADER_BYTES) + value + bytes(-length % 8) for value in few]

    def proof(directory: str) -> Proof:
        data, begin = Path(directory, "out").read_bytes(), _FRAME_HEADER_BYTES
        found = range(begin, len(data), len(blocks[0]))
        return prove(data[at : at + length] for at in found)

    raw = synced(built, blocks, proof, values.few_proof)
    log = _log(APPEND, fields_of(few), values.few_proof, append_all)
    return _group(
        "append and sync each, in memory", record_bytes,
        [
            raw if isinstance(raw, Skipped) else _moved(raw, memory),
            _moved(replace(log, promise=Promise("device", "xxh3 a frame")), memory),
        ],
        Target("append and sync, as a multiple of write and fdatasync in C", APPEND, (SYNCED,), 3),
        timed="from the first record until the last sync has returned; files in memory, if possible",
    )  # fmt: skip  # a table


def _moved(one: Contender, parent: str) -> Contender:
    """The same, with a directory below `parent` for each round."""

    def moved(directory: str) -> str:
        made = Path(parent, Path(directory).name)
        made.mkdir(exist_ok=True)
        return str(made)

    def proof(directory: str) -> Proof:
        assert one.proof is not None
        return one.proof(moved(directory))

    return replace(one, session=lambda directory: one.session(moved(directory)), proof=proof)


# --- awaited, and logging -------------------------------------------------------------------------


def _awaited(record_bytes: int, values: Values) -> Group:
    fields = fields_of(values.all)
    plain = _log(APPEND, fields, values.proof, _append_values(fields))

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        log = aio.Writer(log_path(directory), sync="never")

        async def append_all() -> int:
            append = log.append
            for value in values.all:
                await append(value)
            await log.flush()
            return len(values.all)

        with asyncio.Runner() as runner:
            runner.run(log.__aenter__())
            yield lambda: runner.run(append_all())
            runner.run(log.close())

    return _group(
        "append awaited", record_bytes,
        [plain, replace(plain, name=AWAITED, session=session)],
        Target("as a multiple of the call without asyncio", AWAITED, (APPEND,), 5),
    )  # fmt: skip  # a table


def _logging(record_bytes: int, values: Values) -> Group:
    """Lines with the bytes in hex. Both handlers have the same formatter: aolog's JSON."""
    lines = [value.hex() for value in values.few]
    logger = logging.getLogger("bench.forms")
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def contender(
        name: str, make: Callable[[str], logging.Handler], read: Callable[[str], Any]
    ) -> Contender:
        @contextmanager
        def session(directory: str) -> Iterator[Callable[[], int]]:
            handler = make(log_path(directory))
            handler.setFormatter(JsonFormatter())
            logger.handlers[:] = [handler]

            def work() -> int:
                info = logger.info
                for line in lines:
                    info(line)
                handler.flush()
                return len(lines)

            with closing(handler):
                yield work

        def proof(directory: str) -> Proof:
            found = [json.loads(line)["message"] for line in read(log_path(directory))]
            return prove(map(bytes.fromhex, found))

        promise = Promise("OS", "none" if name == FILE_HANDLER else "xxh3 a batch")
        return Contender(name, promise, len(lines), session, proof, values.few_proof)

    def lines_of_log(path: str) -> list[bytes | None]:
        with aolog.Reader(path, strict=True) as reader:
            return list(reader.values())

    return _group(
        "a line of Python's logging", record_bytes,
        [
            contender(FILE_HANDLER, logging.FileHandler, lambda path: Path(path).read_text().splitlines()),
            contender(LOG_HANDLER, lambda path: aolog.LogHandler(path, sync="never"), lines_of_log),
        ],
        Target("as a multiple of FileHandler", LOG_HANDLER, (FILE_HANDLER,), 1.0),
    )  # fmt: skip  # a table
