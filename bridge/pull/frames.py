"""What both kinds of work do: fetch runs of Kafka's messages, and append them as records with their origin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache

from aolog import Writer
from aolog.format.columns import BinaryColumn, HeaderColumn, columns_of, offsets_of
from bridge.kafka.consumed import Omissions
from bridge.kafka.fetcher import Fetched, Fetcher
from bridge.kafka.runs import Run, numbered
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
    columns = run.columns._replace(topic=run.place[0], headers=_headers(run, source))
    addresses = writer.append_arrow(columns)
    for offset, what in zip(run.offsets, run.left_out or (), strict=False):
        if what is not None:
            omissions.note(*run.place, offset, what)
    return int(addresses[0])


def _headers(run: Run, source: Source) -> HeaderColumn | None:
    """The headers of each message, and its origin."""
    origins = numbered(source.prefix, run.offsets)
    if run.headers is None:
        return HeaderColumn(*_one_each(len(run.offsets)), origins)
    pairs = [(HEADER_NAME, value) for value in origins.to_list()]
    headers = [(*(own or ()), origin) for own, origin in zip(run.headers, pairs, strict=True)]
    return columns_of([b""] * len(headers), headers=headers).headers


@lru_cache(16)
def _one_each(records: int) -> tuple[memoryview, BinaryColumn]:
    """The offsets of so many records into headers, where each has one, and their names."""
    names = BinaryColumn(
        None,
        memoryview(offsets_of([len(HEADER_NAME)] * records)),
        memoryview(HEADER_NAME.encode() * records),
    )
    return memoryview(offsets_of([1] * records)), names
