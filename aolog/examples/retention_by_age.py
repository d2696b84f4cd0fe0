"""Keep a week: slabs are deleted when they are older, whatever their size.

    python -m aolog.examples.retention_by_age LOG

A slab is deleted as a whole, when its last record is older than the limit; so slabs must be young enough:
`slab_seconds` ends one after an hour. Age never deletes records that a protecting cursor has not passed.
A log without a writer is pruned with `aolog prune LOG --max-age 7d`.
"""

from __future__ import annotations

import sys

import aolog

WEEK_S = 7 * 86_400.0
HOUR_S = 3_600.0


def open_log(path: str, age_s: float = WEEK_S, slab_s: float = HOUR_S) -> aolog.Writer:
    """The writer; its own thread deletes old slabs also while nothing is appended."""
    return aolog.Writer(path, slab_seconds=slab_s, retention=aolog.Retention(max_age_s=age_s))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open_log(sys.argv[1]) as log:
        for line in sys.stdin.buffer:
            log.append(line.rstrip(b"\n"))
