"""Which partition of a topic a record goes to, by its key, its log or its address. Pure.

With a key: the one that Java's default partitioner chooses (murmur2), as other producers do. Without
one: the same for all records of a log.
"""

from __future__ import annotations

from functools import lru_cache

import xxhash

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_KEYS_REMEMBERED = 1 << 16  # hashing a key in Python takes microseconds, and keys recur
KEY_BYTES_REMEMBERED = 256  # longer keys are not remembered: 65,536 of 64 KB would take 4 GiB


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed of Kafka's Java client (A. Appleby's algorithm)."""
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


_remembered_murmur2 = lru_cache(_KEYS_REMEMBERED)(murmur2)


def partition_of_key(key: bytes, partitions: int) -> int:
    """partitions: their number."""
    found = murmur2(key) if len(key) > KEY_BYTES_REMEMBERED else _remembered_murmur2(key)
    return (found & 0x7FFFFFFF) % partitions


def partition_of(key: bytes | None, topic_uuid: bytes, partitions: int) -> int:
    """partitions: their number. topic_uuid: the log's UUID, for records without a key."""
    if key is None:
        return int(xxhash.xxh3_64_intdigest(topic_uuid)) % partitions
    return partition_of_key(key, partitions)


def partition_of_address(address: int, partitions: int) -> int:
    """The partition of a record by its address alone."""
    return int(xxhash.xxh3_64_intdigest(address.to_bytes(8, "little"))) % partitions
