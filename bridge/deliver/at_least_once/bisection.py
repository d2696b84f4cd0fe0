"""Bisection: finds the record that a lane's partition refuses, by resending smaller groups. Pure.

The cluster refuses a request, and does not say for which record. So the records of the request are
resent in groups a fraction as large, one group at a time. If a group is refused, its records are resent
in smaller groups; if it arrives, the next group follows. A refused group of one record is the poison.
Some refusals name their records (KIP-467), if each record has a report of its own: so after such a
refusal the records are first resent as they were, each with a report.
"""

from __future__ import annotations

# With a 32nd, three connections with 32 requests each find one record among 10,000.
NARROWING = 32


class Bisection:
    """Of one lane; true while it goes on. steps: the narrowest last: up to which address, in groups of
    how many records."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def group(self) -> int:
        """How many records to send at once."""
        return self.steps[-1][1]

    def refused(self, to: int, records: int, *, names: bool) -> None:
        """One of so many records up to an address was refused. names: the refusal is one that may name
        its records."""
        as_they_were = names and not self.steps
        self.steps.append((to, max(1, records if as_they_were else records // NARROWING)))

    def arrived(self, address: int) -> None:
        """All records up to an address have arrived."""
        while self.steps and self.steps[-1][0] <= address:
            self.steps.pop()
