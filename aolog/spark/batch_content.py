"""What a transaction of the sink writes: this distinguishes a repetition from other rows.

Spark repeats a batch after a kill: the same offsets, under the same number. A checkpoint that was
rewound or copied gives the number to other rows. Spark passes a sink neither offsets nor rows of its
batch, so both are found here: the rows by a digest that does not depend on their order or on how they
were divided into tasks, the offsets by the file in the checkpoint that Spark writes once, before the
batch begins.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from aolog.errors import MALFORMED, AologError, load_optional
from aolog.spark.options_parsing import place
from aolog.spark.positions import from_json
from aolog.storage.directory import Inside
from aolog.storage.objects.requests import Found, Get
from aolog.storage.objects.url import is_url
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.storage.objects.client import Client

_MODULUS = 1 << 64
_STORE_S = 10.0  # how long to ask a store for a checkpoint: a batch is written without it, too
_OF_TASKS = ("log", "topic")  # columns of few values
_ODD = np.uint64(0x9E3779B97F4A7C15)  # an odd random number: a product with it mixes the bits
_hash = xxhash.xxh3_64_intdigest


def digest_of(batch: pa.RecordBatch) -> int:
    """A sum of hashes of the rows that are stored, modulo 2^64. A key is hashed with its value, a header's
    name with its value; each other column by itself."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    total = _pairs(columns.get("key"), columns["value"])
    if (times := columns.get("timestamp")) is not None:
        numbers = times.cast(pa.int64()).fill_null(-1).to_numpy().view(np.uint64)
        mixed = (numbers ^ (numbers >> np.uint64(29))) * _ODD
        total += int(((mixed ^ (mixed >> np.uint64(32))) * _ODD).sum())
    if (headers := columns.get("headers")) is not None:
        pairs = headers.flatten()
        total += _pairs(pairs.field(0), pairs.field(1)) * 3
    for name in _OF_TASKS:
        if (column := columns.get(name)) is not None:
            for one in pc.value_counts(column).to_pylist():
                text = (one["values"] or "\0null").encode()
                total += _hash(text, _hash(name.encode())) * one["counts"]
    return total % _MODULUS


def _pairs(keys: pa.Array | None, values: pa.Array) -> int:
    seeds: Iterable[int] = repeat(0) if keys is None else map(_hash, _entries(keys), repeat(1))
    return sum(map(_hash, _entries(values), seeds))


def _entries(column: pa.Array) -> list[bytes]:
    """Null differs from every short value."""
    found: list[bytes] = column.cast(pa.binary()).fill_null(b"\0null\xff").to_pylist()
    return found


def checkpoint_below(root: str | None, query: str) -> str | None:
    """The checkpoint of the query with this id, in a directory of checkpoints; None if it is not there."""
    if root is None:
        return None
    with suppress(AologError, OSError):
        files = _Files(place(root))
        for name in files.names():
            with suppress(AologError, OSError, *MALFORMED):
                if json.loads(files.content(f"{name}/metadata"))["id"] == query:
                    return f"{files.where}/{name}"
    return None


def plan_of(checkpoint: str | None, batch: int) -> str | None:
    """A digest of the batch's offsets as Spark planned them; the same for a batch that is repeated, and
    different for one that is planned anew. None if they cannot be read here."""
    planned = _planned(checkpoint, batch)
    return None if planned is None else xxhash.xxh3_64_hexdigest(planned)


def logs_read(checkpoint: str | None, batch: int) -> set[str]:
    """The UUIDs of the logs from which this source reads records for the batch, by the checkpoint's
    offsets; empty if they cannot be read here."""
    before, now = (_positions(_planned(checkpoint, number)) for number in (batch - 1, batch))
    return {uuid for uuid, address in now if (uuid, address) not in before}


def _positions(planned: bytes | None) -> set[tuple[str, int]]:
    """UUIDs and addresses in a file of offsets, which has a line for each source of the query."""
    found = set()
    for line in (planned or b"").splitlines():
        with suppress(*MALFORMED):  # another source's, or Spark's own
            for position in from_json(json.loads(line)).values():
                if isinstance(position.uuid, str):
                    found.add((position.uuid, position.address))
    return found


def _planned(checkpoint: str | None, batch: int) -> bytes | None:
    if checkpoint is None or batch < 0:
        return None
    try:
        return _Files(place(checkpoint)).content(f"offsets/{batch}")
    except (AologError, OSError):  # another file system, or no checkpoint of Spark's
        return None


class _Files:
    """What is below a directory, or below the URL of an object store, with one client for all requests.
    Raises UsageError without obstore."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._client: Client | None = None
        if is_url(where):
            client = load_optional("aolog.storage.objects.client")
            self._client = client.Client(where, deadline_s=_STORE_S)

    def names(self) -> list[str]:
        """Of directories, and locally of files."""
        if self._client is None:
            return Storage().list_names(self.where)
        return self._client.entries("")[1]

    def content(self, name: str) -> bytes:
        """name: a path below. Raises OSError and AologError."""
        if self._client is None:
            directory, _, last = f"{self.where}/{name}".rpartition("/")
            with Storage().open_read(Inside(directory, last)) as file:
                return file.pread(file.stat().size, 0)
        found = self._client.ask(Get(name))
        if not isinstance(found, Found):
            raise FileNotFoundError(name)
        return bytes(found.body)
