"""Which partition a record goes to. Pure: a function of the record and the log, for ever.

A record with a key goes where Java's default partitioner would send it (murmur2), so that other
producers of the same keys meet it there. Records without a key all go to one partition, chosen
by the log's UUID, so that their order is the log's. A retry never moves a record.
"""

from __future__ import annotations

from functools import lru_cache

import xxhash

__all__ = ["murmur2", "partition_of", "partition_of_key", "partition_without_key"]

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_KEYS_REMEMBERED = 1 << 16  # keys recur; hashing one in Python costs microseconds


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, as Kafka's Java client computes it (A. Appleby's algorithm, its
    seed)."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


@lru_cache(_KEYS_REMEMBERED)
def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_without_key(topic_uuid: bytes, partitions: int) -> int:
    """The partition of a log's records that have no key."""
    return int(xxhash.xxh3_64_intdigest(topic_uuid)) % partitions


def partition_of(key: bytes | None, topic_uuid: bytes, partitions: int) -> int:
    """The partition of a record among so many."""
    if key is None:
        return partition_without_key(topic_uuid, partitions)
    return partition_of_key(key, partitions)
