"""Runs of Kafka's messages as records of a log, each with its origin."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from bridge.pull.origin import HEADER_NAME

if TYPE_CHECKING:
    from aolog import Writer
    from aolog.record import Headers
    from bridge.kafka.runs import Run
    from bridge.pull.origin import Source

FRAME_RECORDS = 500  # at 100 bytes about 100 KiB: damage costs the frames that it touches


def append_frame(writer: Writer, source: Source, run: Run) -> int:
    """All of them or none. The address of the first."""
    written = source.prefix.replace(b"%", b"%%") + b"%d"
    # A tuple of one pair for each record.
    headers: list[Headers] = list(
        zip(zip(repeat(HEADER_NAME), map(written.__mod__, run.offsets), strict=False))
    )
    if run.headers is not None:
        own = zip(run.headers, headers, strict=True)
        headers = [(*(theirs or ()), *origin) for theirs, origin in own]
    addresses = writer.append_many(
        run.values,
        keys=run.keys,
        headers=headers,
        timestamps=run.timestamps_us,
        topics=repeat(run.place[0], len(run.values)),
    )
    return int(addresses[0])
