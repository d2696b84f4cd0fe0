"""What both deliveries share in words: their names, and the error of a record that cannot be delivered."""

from __future__ import annotations

from bridge.errors import Undeliverable
from bridge.kafka.error_table import advice
from bridge.kafka.lane import Refusal

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"
SET_ASIDE = "start with --poison dead-letter"  # what the operator can do about poison


def undeliverable(
    path: str, refusal: Refusal, address: int, *, instead: str = SET_ASIDE, **details: object
) -> Undeliverable:
    """Of a delivery that waits before a record. instead: what else the operator can do about poison."""
    first = advice(refusal.code)
    return Undeliverable(
        f"the record at address {address} cannot be delivered: {refusal.reason}",
        hint=f"{first}; or {instead}" if refusal.is_poison else first,
        path=path,
        address=address,
        refusal=refusal.code,
        **details,
    )
