"""What must hold of a state that a crash left: the promise, clause by clause.

A violation is a string that begins with the clause. What came of the state is observed elsewhere
(observe.py), once; here it is held against what was promised at a point.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.explore.history import Case
from tests.explore.observe import CursorSeen, Faulty, Observation, Read, claim
from tests.explore.run import Given, Point

__all__ = ["Expected", "Model"]


class Model:
    """The records of a run, for its points."""

    def __init__(self, case: Case, records: list[Given], dropped: set[int]) -> None:
        self.case = case
        self.records = records
        self.dropped = dropped
        self.value_at = {
            given.address: given.value for i, given in enumerate(records) if i not in dropped
        }


class Expected:
    """What must hold at a point, in terms of what is read. power_cut: else the process was killed
    and the page cache stays. visible_to: no address below it may be used again."""

    def __init__(self, model: Model, point: Point, *, power_cut: bool, visible_to: int) -> None:
        promise = self.promise = point.promise
        self.case = model.case
        self.value_at = model.value_at
        self.visible_to = visible_to
        self._follows = not power_cut or model.case.synced  # a cursor is not ahead of its log
        end, dropped = promise.known, model.dropped
        # Addresses of what was given to append, and may be in the log.
        self.known = [g.address for i, g in enumerate(model.records[:end]) if i not in dropped]
        self._pruned = {address for address in self.known if promise.may_be_pruned(address)}
        if power_cut:
            there = {address for address in self.known if address < promise.durable}
        else:
            flushed = model.records[: promise.flushed]
            there = {g.address for i, g in enumerate(flushed) if i not in dropped}
        self.required = there - self._pruned

    def check(self, seen: Observation) -> None:
        """Raises Violation."""
        claim(not seen.unread, str(seen.broken))
        self._check_reading(seen.before)
        if seen.cursors is not None:
            self._check_cursors(seen.cursors, seen.before, [])
        if seen.faulty is not None:
            self._check_faults(seen.faulty)
        claim(seen.broken is None, str(seen.broken))
        new = seen.new
        claim(seen.after.records[-2:] == new, "recovery: what was appended", new, seen.after)
        old = seen.after._replace(records=seen.after.records[:-2])
        claim(
            old.records == seen.before.records, "recovery: other records", seen.before, seen.after
        )
        self._check_gaps(old)
        positions = self._check_cursors(seen.cursors_after, old, new)
        fresh = max([self.visible_to, *(address + 1 for address, _ in old.records), *positions])
        claim(self.case.format_1 or new[0].address >= fresh, "reused: an address", new[0], fresh)

    def _check_reading(self, read: Read) -> None:
        """Only what was appended, in order; what is missing is at the end, in a gap, or pruned."""
        last = -1
        for address, value in read.records:
            claim(address > last, "order: addresses fall", last, address)
            claim(self.value_at.get(address) == value, "invented: a record", address, value)
            last = address
        there = {address for address, _ in read.records}
        lost = self.required - there
        claim(not lost, "durable: acknowledged and lost", sorted(lost), read.gaps)
        for address in self.known:
            if address < last and address not in there and address not in self._pruned:
                in_gap = any(gap.begin <= address < gap.end for gap in read.gaps)
                claim(in_gap, "gaps: missing and not told", address, read)
        self._check_gaps(read)

    def _check_gaps(self, read: Read) -> None:
        """Counts that are stated are exact."""
        if not read.gaps:
            return
        there = {address for address, _ in read.records}
        missing = [address for address in self.known if address not in there]
        for gap in read.gaps:
            claim(gap.reason not in {"corrupt", "missing"}, "gaps: a crash is told as damage", gap)
            if gap.records_lost is not None:
                lost = sum(gap.begin <= address < gap.end for address in missing)
                claim(lost == gap.records_lost, "gaps: a count is wrong", gap, lost, missing)

    def _check_cursors(
        self, cursors: Mapping[str, CursorSeen], read: Read, new: list[Given]
    ) -> list[int]:
        """Addresses of the cursors that are there. They are where a commit put them, not behind the
        last that returned, and, where the log's writer syncs, not ahead of its records. A reader
        resumes there. new: what was appended since."""
        promise, found = self.promise, []
        for name in promise.committed:
            claim(name in cursors, "cursor: a commit is lost", name)
        if not cursors:
            return found
        there = {address for address, _ in read.records}
        for name, (address, resumed) in cursors.items():
            claim(address is not None, f"cursor: {name} is damaged")
            assert address is not None
            found.append(address)
            tried = {tried.address for tried in promise.trying.get(name, [])}
            claim(address in tried, "cursor: where nobody put it", name, address, tried)
            if name in promise.committed:
                least = promise.committed[name].address
                claim(address >= least, "cursor: a commit is undone", name, address, least)
            taken = {a for a in self._pruned if a >= address} - there
            claim(not taken, "retention: took what a cursor needs", name, address, taken)
            if self._follows:
                passed = {a for a in self.known if a < address} - self._pruned
                claim(passed <= there, "cursor: ahead of what is durable", name, address, there)
            if resumed is not None:
                wanted = [given for given in read.records + new if given.address >= address]
                claim(
                    resumed.records == wanted, "cursor: resumes elsewhere", name, address, resumed
                )
        return found

    def _check_faults(self, faulty: Faulty) -> None:
        """What was acknowledged all the same survived the next power cut; so did what was required
        before."""
        acknowledged = faulty.acknowledged
        for left in faulty.left:
            there = set(left.records)
            claim(
                there.issuperset(acknowledged), "faults: acknowledged and lost", acknowledged, left
            )
            lost = self.required - {address for address, _ in there}
            claim(not lost, "faults: durable and lost", sorted(lost), left)
            for address, value in left.records:
                known = faulty.given.get(address, self.value_at.get(address))
                claim(known == value, "faults: invented", address, value)
