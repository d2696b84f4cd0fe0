"""What was promised and what arrived. Pure.

A record is (run, number): the run of the program that wrote it, and a number that counts from 1 in that
run. A program promises a number when everything up to it is safe from a kill: flushed to the log, or
acknowledged where nothing is kept on disk. Records arrive in order, so a number that is passed over is
missing. A missing record that was promised is lost.
"""

from __future__ import annotations

from collections import deque


class _Run:
    def __init__(self) -> None:
        self.arrived_to = 0
        self.promised = 0
        self.over = False
        self.missing: set[int] = set()

    def lost(self) -> int:
        count = sum(number <= self.promised for number in self.missing)
        return count + (max(0, self.promised - self.arrived_to) if self.over else 0)


class Counts:
    """Counts of all runs. arrived: different records; repeated: records that arrived again."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}
        self._promises = deque[tuple[float, int, int]]()  # when, run, number: not all arrived
        self.arrived = 0
        self.repeated = 0

    def promised(self, run: int, number: int, now_s: float = 0.0) -> None:
        """Everything up to this number is safe."""
        of = self._runs.setdefault(run, _Run())
        if number > of.promised:
            of.promised = number
            self._promises.append((now_s, run, number))

    def came(self, run: int, number: int) -> None:
        """A record arrived."""
        of = self._runs.setdefault(run, _Run())
        for earlier, other in self._runs.items():
            if earlier < run:
                other.over = True
        if number > of.arrived_to:
            of.missing.update(range(of.arrived_to + 1, number))
            of.arrived_to = number
            self.arrived += 1
        elif number in of.missing:
            of.missing.remove(number)
            self.arrived += 1
        else:
            self.repeated += 1

    @property
    def lost(self) -> int:
        """Promised records that will not arrive: later ones did."""
        return sum(run.lost() for run in self._runs.values())

    @property
    def pending(self) -> int:
        """Promised records that have not arrived and still may."""
        runs = self._runs.values()
        return sum(max(0, run.promised - run.arrived_to) for run in runs if not run.over)

    def oldest_s(self, now_s: float) -> float | None:
        """How long ago the oldest pending record was promised; None if none is pending."""
        while self._promises:
            promised_s, run, number = self._promises[0]
            of = self._runs[run]
            if number > of.arrived_to and not of.over:
                return now_s - promised_s
            self._promises.popleft()
        return None

    def has_arrived(self, run: int, number: int) -> bool:
        """Whether this record arrived."""
        of = self._runs.get(run)
        return of is not None and number <= of.arrived_to and number not in of.missing

    def is_settled(self, run: int) -> bool:
        """Whether no more of this run can arrive: a later run's record did."""
        return any(later > run and of.arrived_to for later, of in self._runs.items())
