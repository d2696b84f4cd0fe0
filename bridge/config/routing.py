"""Where a record goes: cluster, topic, partition. Pure: a function of the record, the log and the
rules, so a retry never moves a record.

The first rule that matches decides. What it leaves open has a default: the default cluster; the
record's own topic, or the default topic; the partition by key. Patterns are those of a shell (`*`, `?`,
`[...]`; `*` matches `/` and `.` too).

By key: a record with a key goes to the partition that Java's default partitioner chooses (murmur2), as
records of the same key from other producers do. Records without a key all go to one partition, which
the log's UUID selects, so that they keep the log's order. Round-robin: by a hash of the record's
address, whatever its key: even, and the same after a restart. (Without the hash it would not be even:
addresses of frames are multiples of 8.)
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import xxhash

PartitionRule: TypeAlias = Literal["key", "round-robin"] | int
"""How a record's partition is chosen. A number is the partition."""

FILTERED = "\0"
"""The topic of records that a transform left out: no record can name it."""

_TOPICS_REMEMBERED = 1 << 12  # a log has few; this bounds memory if each record names another


class Rule(NamedTuple):
    """Records that match the first three, patterns, go where the other fields say. None: open."""

    log: str | None = None  # matches the log's name below the root
    log_topic: str | None = None  # its default topic
    record_topic: str | None = None  # that the record itself names; without one it does not match
    cluster: str | None = None
    topic: str | None = None
    partition: PartitionRule = "key"
    transform: str | None = None
    takes_arrow: bool = False

    def __repr__(self) -> str:
        """Fingerprints are made of it: without a transform, it is as in releases that had none."""
        shown = self._asdict() if self.transform else dict(list(self._asdict().items())[:6])
        return f"Rule({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def concerns(self, log: str, log_topic: str | None) -> bool:
        """Whether it may match records of the log."""
        return _matches(self.log, log) and _matches(self.log_topic, log_topic)


class Destination(NamedTuple):
    """Where a record goes, by its topic."""

    topic: str | None  # None if the record names none and there is no default
    partition: PartitionRule  # one that a rule gives by number may not exist


class Routing:
    """Where the records of one log go on one cluster. Not thread-safe.

    topic: for records for which neither the record nor a rule names one; the log's own if None.
    cluster: only its records; None: all. default_cluster: of records for which no rule names one.
    """

    def __init__(
        self,
        topic: str | None = None,
        rules: Sequence[Rule] = (),
        *,
        log: str = "",
        cluster: str | None = None,
        default_cluster: str | None = None,
    ) -> None:
        self._topic = topic
        self._all_rules = rules
        self._log = log
        self._cluster = cluster
        self._default_cluster = default_cluster
        self.of = lru_cache(_TOPICS_REMEMBERED)(self._decide)
        """Where a record goes that names this topic; None: to another cluster. A call for each record
        costs a look-up in a dict."""
        self.of_log(None)

    def of_log(self, topic: str | None) -> None:
        """Sets the log's own topic."""
        self._log_topic = topic
        self._rules = [rule for rule in self._all_rules if rule.concerns(self._log, topic)]
        self.of.cache_clear()

    @property
    def fingerprint(self) -> str:
        """Equal as long as each record goes where it went before: a hash of the rules, a space, and
        the default topic."""
        rules = repr((self._rules, self._cluster, self._default_cluster)).encode()
        return f"{xxhash.xxh3_64_hexdigest(rules)} {self.default or ''}"

    def may_reroute_to(self, topic: str, before: str) -> bool:
        """Whether records may go to this topic that did not, under the routing with fingerprint `before`."""
        now, default, then = self.fingerprint, self.default, before.partition(" ")[0]
        if then != now.partition(" ")[0]:
            return True
        return before != now and topic == default

    @property
    def default(self) -> str | None:
        """The topic of records for which neither the record nor a rule names one."""
        return self._topic if self._topic is not None else self._log_topic

    @property
    def has_transforms(self) -> bool:
        """Whether records of the log may be transformed."""
        return any(rule.transform for rule in self._rules)

    def transform_of(self, record_topic: str | None) -> tuple[str, bool] | None:
        """The transform of records that name this topic, and whether it takes Arrow."""
        rule = self._rule_of(record_topic or None)
        return None if rule.transform is None else (rule.transform, rule.takes_arrow)

    def _rule_of(self, record_topic: str | None) -> Rule:
        return next((r for r in self._rules if _matches(r.record_topic, record_topic)), Rule())

    def _decide(self, record_topic: str | None) -> Destination | None:
        if record_topic == FILTERED:
            return None
        record_topic = record_topic or None
        rule = self._rule_of(record_topic)
        if self._cluster is not None and (rule.cluster or self._default_cluster) != self._cluster:
            return None
        return Destination(rule.topic or record_topic or self.default, rule.partition)


def clusters_of(
    rules: Sequence[Rule], log: str, log_topic: str | None, default_cluster: str
) -> set[str]:
    """The clusters to which records of the log may go."""
    found: set[str] = set()
    for rule in rules:
        if rule.concerns(log, log_topic):
            found.add(rule.cluster or default_cluster)
            if rule.record_topic is None:
                return found
    return found | {default_cluster}


def _matches(pattern: str | None, text: str | None) -> bool:
    return pattern is None or (text is not None and fnmatchcase(text, pattern))


# --- partitions -----------------------------------------------------------------------------

_M, _MASK, _SEED = 0x5BD1E995, 0xFFFFFFFF, 0x9747B28C  # of murmur2
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
