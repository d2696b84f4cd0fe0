"""Runs of Kafka's messages, and what they are as records of a log, each with its origin."""

from __future__ import annotations

import time
from itertools import repeat
from typing import TYPE_CHECKING

from bridge.kafka.runs import runs_of
from bridge.pull.options import FETCH_MESSAGES, FETCH_S, STEP_MESSAGES, STEP_S
from bridge.pull.origin import HEADER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog import Writer
    from aolog.record import Headers
    from bridge.kafka.fetcher import Fetched, Fetcher
    from bridge.kafka.runs import Run
    from bridge.pull.origin import Source

FRAME_RECORDS = 500  # at 100 bytes about 100 KiB: damage costs the frames that it touches


def fetch_runs(
    fetcher: Fetcher, is_enough: Callable[[], bool] | None = None
) -> Iterator[tuple[Fetched, list[Run]]]:
    """What arrives in a while, in steps: topics' ids are to be asked for once for all of it. A step
    that found an error is the last one. is_enough: asked after each step; then steps wait for less."""
    until_s = time.monotonic() + FETCH_S
    step_s = FETCH_S if is_enough is None else STEP_S
    for _ in range(0, FETCH_MESSAGES, STEP_MESSAGES):
        left_s = until_s - time.monotonic()
        found = fetcher.fetch(STEP_MESSAGES, max(0.0, min(left_s, step_s)))
        yield found, list(runs_of(found.messages, FRAME_RECORDS))
        if found.out_of_range or found.away is not None:
            return
        if len(found.messages) < STEP_MESSAGES and (
            is_enough is None or is_enough() or time.monotonic() >= until_s
        ):
            return


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
