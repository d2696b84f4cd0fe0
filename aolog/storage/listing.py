"""How long a listing of a directory counts. Pure.

A directory's time changes with its entries. But the same time proves nothing where it stands still: tools
put it back, some file systems keep whole seconds (ext3, ext4 with small inodes, HFS+), have no times
after 2038, or do not set it at all. There the age of the listing decides.
"""

from __future__ import annotations

from typing import NamedTuple

# Times of change have the resolution of a clock tick: a look within this time after a change may have
# missed another change in the same tick.
_TICK_NS = 50_000_000
_TRUSTED_S = 5.0  # where only a crash makes a new entry
# A listing takes a microsecond or two for each name: at most a few thousandths of the time.
_TRUSTED_S_PER_NAME = 0.0005


def is_coarse(changed_ns: int) -> bool:
    """Whether a time of change is in whole seconds: later changes may have the same."""
    return changed_ns % 1_000_000_000 == 0


def shows_changes(changed_ns: int, seen_ns: int) -> bool:
    """Whether a change after a look at `seen_ns`, which found this time, gives another time."""
    return seen_ns - changed_ns >= _TICK_NS and not is_coarse(changed_ns)


class Listing(NamedTuple):
    """A listing that was made. changed_ns: the directory's time before it. at_ns, at_s: when it began, by
    the clock of files and by the monotonic one. names: in the directory."""

    changed_ns: int
    at_ns: int
    at_s: float
    names: int

    def has_time(self, changed_ns: int) -> bool:
        """Whether the directory has this time still, and was not listed in the tick of its change."""
        return changed_ns == self.changed_ns and self.at_ns - changed_ns >= _TICK_NS

    def is_old(self, now_s: float, *, has_ended: bool) -> bool:
        """Whether the directory has to be listed again although its time is the same. has_ended: whether
        the entry that came last is finished. Then another one probably follows, otherwise only after a
        crash of its writer."""
        trusted_s = self.names * _TRUSTED_S_PER_NAME
        if not has_ended and not is_coarse(self.changed_ns):
            trusted_s = max(trusted_s, _TRUSTED_S)
        return now_s - self.at_s >= trusted_s
