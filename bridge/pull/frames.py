"""What both kinds of work do: fetch runs of Kafka's messages, and append them as records with their origin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import repeat

from aolog import Writer
from bridge.kafka.consumed import Omissions
from bridge.kafka.fetcher import Fetched, Fetcher
from bridge.kafka.runs import Run, numbered_headers
from bridge.pull.origin import HEADER_NAME, Source
from bridge.pull.pull_options import FETCH_MESSAGES, FETCH_S, STEP_S

FRAME_RECORDS = 1_000  # at 100 bytes about 200 KiB: damage costs the frames that it touches


def fetch_runs(fetcher: Fetcher, is_enough: Callable[[], bool] | None = None) -> Iterator[Fetched]:
    """Fetches for a while, in steps, so that topics' ids are asked for once for all steps. A step that finds an error
    is the last one. is_enough: asked after each step; with it the steps are shorter."""
    until_s = time.monotonic() + FETCH_S
    step, step_s = fetcher.step, FETCH_S if is_enough is None else STEP_S
    for _ in range(0, FETCH_MESSAGES, step):
        left_s = until_s - time.monotonic()
        found = fetcher.fetch(step, max(0.0, min(left_s, step_s)), FRAME_RECORDS)
        count = sum(len(run.offsets) for run in found.runs)
        yield found
        if found.out_of_range or found.away is not None:
            return
        if count < step and (is_enough is None or is_enough() or time.monotonic() >= until_s):
            return


def append_frame(writer: Writer, source: Source, run: Run, omissions: Omissions) -> int:
    """All of them or none. The address of the first. omissions: gets what was left out of them."""
    headers = numbered_headers(HEADER_NAME, source.prefix, run.offsets)
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
    for offset, what in zip(run.offsets, run.left_out or (), strict=False):
        if what is not None:
            omissions.note(*run.place, offset, what)
    return int(addresses[0])
