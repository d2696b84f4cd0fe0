"""compression: what a codec costs and saves, on messages as services log them.

Values are JSON lines of about 250 bytes: few paths, agents and levels, many users, numbers that
vary, and an identifier of 32 random digits, which nothing compresses. `stored` is what they take on
disk.
"""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import aolog
from bench.measure import Contender, Group, Promise, Skipped, Wrong
from bench.payloads import SEED, groups_of, prove
from bench.peers.aolog_log import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.cases.plan import Plan
    from bench.payloads import Proof
    from bench.sizes import Size

__all__ = ["groups", "make_messages", "records_of"]

NONE = "aolog"  # the baseline: without
_GROUP = 1000  # values of an append_many
_PATHS = [f"/api/v{i % 3}/{what}/{i}" for i in range(40) for what in ("orders", "users", "carts")]
_AGENTS = [f"Mozilla/5.0 (X11; Linux x86_64; rv:{n}.0) Gecko/20100101 Firefox/{n}.0"
           for n in range(120, 140)]  # fmt: skip  # one thing, one line


class _Codec(NamedTuple):
    name: str
    compression: Literal["none", "zstd", "lz4"]
    level: int | None


_CODECS = (
    _Codec(NONE, "none", None),
    _Codec("lz4", "lz4", None),
    _Codec("zstd", "zstd", None),  # level 1
    _Codec("zstd, level 3", "zstd", 3),
    _Codec("zstd, level 9", "zstd", 9),
)


def make_messages(count: int) -> list[bytes]:
    """`count` messages, the same in every run."""
    source = random.Random(SEED)
    moment_ms, messages = 1_700_000_000_000, []
    for _ in range(count):
        moment_ms += source.randrange(20)
        message = {
            "ts": moment_ms,
            "level": "INFO" if source.random() < 0.97 else "WARN",
            "trace": source.randbytes(16).hex(),
            "user": int(source.paretovariate(0.6)) % 1_000_000,
            "method": source.choice(("GET", "GET", "GET", "POST")),
            "path": _PATHS[min(int(source.expovariate(0.1)), len(_PATHS) - 1)],
            "status": 200 if source.random() < 0.95 else source.choice((304, 404, 500)),
            "bytes": int(source.lognormvariate(7, 1.5)),
            "ms": round(source.expovariate(0.02), 3),
            "agent": _AGENTS[min(int(source.expovariate(0.4)), len(_AGENTS) - 1)],
        }
        messages.append(json.dumps(message, separators=(",", ":")).encode())
    return messages


def records_of(size: Size) -> int:
    """Fewer than in other cases: the highest level takes twenty times as long as none."""
    return max(1000, size.records_of(250) // 4)


def groups(plan: Plan) -> Iterator[Group]:
    """Append one by one, a thousand at once, and read."""
    values = make_messages(records_of(plan.size))
    size = sum(map(len, values))
    codecs, skipped = _installed(plan)
    timed = "from the first append until all are in the operating system; opening and closing not"
    for title, append in (("append one by one", _each), (f"append_many of {_GROUP}", _many)):
        contenders = [_append_contender(codec, values, append) for codec in codecs]
        yield _group(f"{title}, JSON messages", timed, size, values, contenders, skipped)
    with plan.fixture() as directory:
        contenders = [_read_contender(codec, values, directory) for codec in codecs]
        timed = "from opening to the last value as bytes, lengths summed"
        yield _group("read one by one, JSON messages", timed, size, values, contenders, skipped)


def _group(
    title: str,
    timed: str,
    size: int,
    values: list[bytes],
    contenders: list[Contender],
    skipped: list[Skipped],
) -> Group:
    mean = round(size / len(values))
    return Group("compression", title, timed, mean, contenders, (NONE,), skipped)


def _installed(plan: Plan) -> tuple[list[_Codec], list[Skipped]]:
    codecs, skipped = [], []
    for codec in _CODECS:
        with plan.fixture() as directory:
            try:
                _open(directory, codec).close()
            except aolog.CodecUnavailable:
                skipped.append(Skipped(codec.name, "not installed"))
            else:
                codecs.append(codec)
    return codecs, skipped


def _open(directory: str, codec: _Codec) -> aolog.Writer:
    return aolog.Writer(
        log_path(directory),
        compression=codec.compression,
        compression_level=codec.level,
        sync="never",
    )


def _each(writer: aolog.Writer, values: Sequence[bytes]) -> None:
    append = writer.append
    for value in values:
        append(value)


def _many(writer: aolog.Writer, values: Sequence[bytes]) -> None:
    for group in groups_of(values, _GROUP):
        writer.append_many(group)


def _append_contender(
    codec: _Codec, values: list[bytes], append: Callable[[aolog.Writer, Sequence[bytes]], None]
) -> Contender:
    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        with _open(directory, codec) as writer:

            def work() -> int:
                append(writer, values)
                writer.flush()
                return len(values)

            yield work

    promise = Promise("OS", "xxh3 a batch")
    return Contender(codec.name, promise, len(values), session, _proof, prove(values))


def _proof(directory: str) -> Proof:
    with aolog.Reader(log_path(directory), strict=True) as reader:
        return prove(map(attrgetter("value"), reader))


def _read_contender(codec: _Codec, values: list[bytes], parent: str) -> Contender:
    directory = Path(parent, codec.name)
    directory.mkdir()
    with _open(str(directory), codec) as writer:
        _each(writer, values)
    stored = sum(path.stat().st_size for path in directory.rglob("*.slab"))
    size = sum(map(len, values))

    def work() -> int:
        records = found = 0
        with aolog.Reader(log_path(str(directory)), strict=True) as reader:
            for record in reader:
                records += 1
                found += len(record.value or b"")
        if found != size:
            raise Wrong(f"{codec.name}: read {found} bytes of {size}")
        return records

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        yield work

    return Contender(
        codec.name,
        Promise("-", "xxh3 a batch"),
        len(values),
        session,
        lambda _: _proof(str(directory)),
        prove(values),
        f"{size / stored:.1f} bytes of values a byte on disk",
    )
