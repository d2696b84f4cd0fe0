"""Checks the signatures of a log's records, after its bytes are verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.read.gaps import reported_elsewhere
from aolog.read.reader import Reader

if TYPE_CHECKING:
    import os

    from aolog.format.signature import Keys

_SHOWN_MAX = 100  # addresses that are listed; all are counted


class WrongSignature(NamedTuple):
    """A record whose signature is wrong or missing."""

    address: int
    reason: str


class Signatures(NamedTuple):
    """Counts of readable records. wrong: the first hundred that are forged or unsigned."""

    signed: int
    unsigned: int
    forged: int
    wrong: list[WrongSignature]

    @property
    def ok(self) -> bool:
        """Whether every record is as its signer made it."""
        return not (self.unsigned or self.forged)


def check_signatures(path: str | os.PathLike[str], keys: Keys) -> Signatures:
    """Reads the whole log. Gaps are left to `verify`. Raises what Reader raises."""
    signed = unsigned = forged = 0
    wrong: list[WrongSignature] = []
    with Reader(path, on_gap=reported_elsewhere) as reader:
        for record in reader:
            moment = None if record.timestamp is None else max(1, record.timestamp // 1_000)
            topic = record.topic or reader.topic or ""
            verdict = keys.check(record.headers, topic, record.key, record.value, moment)
            if verdict.ok:
                signed += 1
                continue
            forged += verdict.signed
            unsigned += not verdict.signed
            if len(wrong) < _SHOWN_MAX:
                wrong.append(
                    WrongSignature(record.address, verdict.reason or "it has no signature")
                )
    return Signatures(signed, unsigned, forged, wrong)
