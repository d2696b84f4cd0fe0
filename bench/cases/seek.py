"""seek: to random addresses of sealed slabs, with the first record there.

One log has frames of one record, the other frames of hundreds. The addresses are the same in every round,
so the indexes of open slabs are warm, as in a program that seeks often.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING

import aolog
from bench.measure import Contender, Group, Promise, Target, Wrong
from bench.payloads import Proof, prove
from bench.peers.aolog_log import BATCH_BYTES, log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.cases.plan import Plan

__all__ = ["ONE_RECORD", "TARGETS", "groups"]

ONE_RECORD = "aolog, frame a record"
_HUNDREDS = "aolog"
_SLABS = 16
_SEEKS = 1_000
_SEED = 20
TARGETS = (
    Target("among frames of one record, as a multiple of large ones", ONE_RECORD, (_HUNDREDS,), 2),
)


def groups(plan: Plan) -> Iterator[Group]:
    for record_bytes in plan.record_bytes:
        values = plan.values(record_bytes)
        with plan.fixture() as one, plan.fixture() as hundreds:
            contenders = [
                _contender(_HUNDREDS, hundreds, BATCH_BYTES, plan, values.all),
                _contender(ONE_RECORD, one, 0, plan, values.all),
            ]
            yield Group(
                "seek",
                f"seek and read one, {_SLABS} sealed slabs, {record_bytes}-byte records",
                "from the seek until the record is there; opening the log not",
                record_bytes,
                contenders,
                (_HUNDREDS,),
                targets=TARGETS,
                unit="seek",
            )


def _contender(
    name: str, directory: str, batch_bytes: int, plan: Plan, values: Sequence[bytes]
) -> Contender:
    slab_bytes = plan.size.seek_bytes // _SLABS
    with aolog.Writer(
        log_path(directory), batch_bytes=batch_bytes, slab_bytes=slab_bytes, sync="never"
    ) as writer:
        records, per_slab = 0, max(1, slab_bytes // (len(values[0]) + 48 * (not batch_bytes)))
        for value in islice(cycle(values), per_slab * _SLABS):
            records += 1
            writer.append(value)
    source = random.Random(_SEED)
    ordinals = [source.randrange(records) for _ in range(_SEEKS)]
    with aolog.Reader(log_path(directory)) as reader:
        places = [reader.seek(ordinal=ordinal) for ordinal in ordinals]
    expected = prove(values[ordinal % len(values)] for ordinal in ordinals)

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        with aolog.Reader(log_path(directory)) as reader:
            yield partial(_seek, reader, places)

    def proof(_: str) -> Proof:
        with aolog.Reader(log_path(directory)) as reader:
            return prove(_value_at(reader, place) for place in places)

    return Contender(name, Promise("-", "xxh3 a batch"), _SEEKS, session, proof, expected)


def _value_at(reader: aolog.Reader, place: int) -> bytes:
    reader.seek(place)
    record = reader.read()
    if record is None or record.address != place or record.value is None:
        raise Wrong(f"seek to {place}: {record}")
    return record.value


def _seek(reader: aolog.Reader, places: Sequence[int]) -> int:
    for place in places:
        _value_at(reader, place)
    return len(places)
