"""A signal whose handler raises (KeyboardInterrupt) may end any call of a writer's, anywhere.

What was taken before is neither lost nor changed, and the writer can be closed. Signals are
handled where a function begins and behind calls of C's: there a profiler is told too, and may
raise in their stead, so that every such place is tried in turn.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import aolog
from tests.aolog.conftest import AtPlace, in_thread

RECORDS = 12


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt."""


def interrupt() -> None:
    raise Interrupted


def append(writer: aolog.Writer, taken: dict[int, tuple[bytes, bytes | None]]) -> None:
    for i in range(RECORDS):
        value = b"value %d" % i
        key = value if i % 3 == 2 else None
        taken[writer.append(value, key=key)] = (value, key)


# In a finalizer Python tells and forgets it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("slab_bytes", [64 << 20, 8400])
def test_an_interrupt_at_any_place_of_append_costs_and_changes_nothing_taken_before(
    tmp_path: Path, slab_bytes: int
) -> None:
    """Four seconds, and six where slabs are sealed too."""
    n, came = 0, True
    while came:
        log = tmp_path / str(n)
        taken: dict[int, tuple[bytes, bytes | None]] = {}
        writer = aolog.Writer(
            log, batch_bytes=60, flush_seconds=None, sync="never", slab_bytes=slab_bytes
        )
        writer.append(b"first")
        place = AtPlace(n, interrupt)
        sys.setprofile(place)
        try:
            append(writer, taken)
        except Interrupted:
            pass
        finally:
            sys.setprofile(None)
        came = place.came
        in_thread(writer.close).result()  # in another, which would wait for a lock that is kept
        with aolog.Reader(log) as reader:
            found = {record.address: (record.value, record.key) for record in reader}
        assert {address: found.get(address) for address in taken} == taken, n
        assert len(found) <= len(taken) + 2, n  # the first, and the one that was interrupted
        assert aolog.verify(log).ok, n
        n += 1
    assert n > 100
    assert len(taken) == RECORDS
