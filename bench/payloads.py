"""The appended values: random bytes of one length, the same in every run; and the proof that a store
kept them. Pure.

They are random, so that compression gains nothing, and of one length, so that a raw file can be read
without framing.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Proof", "groups_of", "make_payloads", "prove"]

SEED = 20
_ONCE_BYTES = 1 << 20  # randbytes makes one huge integer: in pieces it stays linear


def make_payloads(count: int, length: int, seed: int = SEED) -> list[bytes]:
    """`count` payloads of `length` bytes."""
    source = random.Random(f"{seed}/{length}")
    once = max(1, _ONCE_BYTES // length)
    payloads: list[bytes] = []
    while len(payloads) < count:
        n = min(once, count - len(payloads))
        data = source.randbytes(n * length)
        payloads += [data[i : i + length] for i in range(0, n * length, length)]
    return payloads


def groups_of(values: Sequence[bytes], count: int) -> Iterator[Sequence[bytes]]:
    """The values in order, `count` at a time."""
    for i in range(0, len(values), count):
        yield values[i : i + count]


class Proof(NamedTuple):
    """Equal for the same records in the same order. digest: over lengths and contents."""

    records: int
    digest: str


def prove(values: Iterable[bytes]) -> Proof:
    digest, records = xxhash.xxh3_128(), 0
    for value in values:
        digest.update(len(value).to_bytes(4, "little"))
        digest.update(value)
        records += 1
    return Proof(records, digest.hexdigest())
