"""TransactionSize: how many bytes a transaction may hold, controlled by how long the last ones took. Pure.

The cluster ends a transaction that is open for longer than transaction.timeout.ms, and fences its
producer. Where a quota or a link lets little through, a transaction of a fixed size would end so each
time, and nothing would ever arrive. So the first transaction is small:

    the last transaction                      the next one holds at most
    committed within 1/16 of the timeout      twice as much, if at least half of that was used
    committed within 1/4 of it                as much
    committed later                           half
    ended by its connection                   as much as the first one, if that is less
    ended after the timeout                   an eighth of what it held, if that is less

If one that was ended by the timeout had used at least half of what it might hold, it was too large: the
next ones double up to half of what it held, and grow slowly from there. Otherwise an outage ended it.

None holds more than its share of the bridge's memory, except for a single record.

The broker takes a request at once, also one that exceeds a quota, and makes the next one wait. So a
transaction shows a quota too late: it grows by no more than its double, and only far below the timeout.
tests/bridge/deliver/exactly_once/test_transaction_size.py simulates both; the constants follow from it.
"""

from __future__ import annotations

BYTES_FIRST = 64 << 10  # grows to 16 MB within half a second where a commit takes 50 ms
_BYTES_MIN = 1 << 10  # one record may be larger, and is sent alone
_GROWS, _STAYS = 1 / 16, 1 / 4  # of the timeout
_TOO_LARGE_BY = 8
_SLOWLY = 32


class TransactionSize:
    """Of one log."""

    def __init__(self, timeout_s: float, open_s: float, bytes_max: int) -> None:
        self.timeout_s = timeout_s  # transaction.timeout.ms
        self._open_s = open_s  # how long one is open on purpose, which does not count
        self._bytes_max = bytes_max
        self.bytes = min(BYTES_FIRST, bytes_max)  # of keys and values, at most
        self._doubles_to = 1 << 62

    def committed(self, size: int, took_s: float) -> None:
        """A transaction of so many bytes was committed this long after its first record was sent."""
        share = (took_s - self._open_s) / self.timeout_s
        if share > _STAYS:
            self.bytes = max(_BYTES_MIN, self.bytes // 2)
        elif share < _GROWS and size * 2 >= self.bytes:
            slowly = self.bytes + self.bytes // _SLOWLY
            grown = max(slowly, min(self.bytes * 2, self._doubles_to))
            self.bytes = min(grown, self._bytes_max)

    def ended(self, size: int, took_s: float) -> bool:
        """Its connection ended a transaction of so many bytes, this long after its first record was
        sent. Whether it was too large to be committed in the time that the cluster allows."""
        timed_out = took_s >= self.timeout_s
        too_large = timed_out and size * 2 >= self.bytes
        self.bytes = min(self.bytes, BYTES_FIRST)
        if timed_out:
            self.bytes = max(_BYTES_MIN, min(self.bytes, size // _TOO_LARGE_BY))
        if too_large:
            self._doubles_to = size // 2
        return too_large
