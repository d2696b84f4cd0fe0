"""What both pullers do: fetch runs of Kafka's messages, append them as records with their origin, and report
what was lost."""

from __future__ import annotations

import logging
import time
from itertools import repeat
from typing import TYPE_CHECKING

from aolog.errors import counted
from bridge.errors import DestinationError
from bridge.kafka.runs import runs_of
from bridge.pull.origin import HEADER_NAME
from bridge.pull.pull_options import FETCH_MESSAGES, FETCH_S, STEP_MESSAGES, STEP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog import Writer
    from aolog.record import Headers
    from bridge.kafka.catalog import Place
    from bridge.kafka.consumed import Omissions
    from bridge.kafka.fetcher import Fetched, Fetcher
    from bridge.kafka.runs import Run
    from bridge.pull.origin import Source
    from bridge.pull.pull_options import PullOptions

_log = logging.getLogger("bridge")
FRAME_RECORDS = 500  # at 100 bytes about 100 KiB: damage costs the frames that it touches


def fetch_runs(
    fetcher: Fetcher, is_enough: Callable[[], bool] | None = None
) -> Iterator[tuple[Fetched, list[Run]]]:
    """Fetches for a while, in steps, so that topics' ids are asked for once for all steps. A step that finds
    an error is the last one. is_enough: asked after each step; with it the steps are shorter."""
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


def report_lost(options: PullOptions, place: Place, begin: int, end: int) -> None:
    """The cluster has deleted the offsets [begin, end) before they were pulled: logs an error. Raises
    DestinationError if the pull is to fail then."""
    what = (
        f"{place[0]}/{place[1]}: the cluster has deleted {counted(end - begin, 'offset')} before they were"
        f" pulled ({begin} to {end - 1})"
    )
    if options.out_of_range == "fail":
        raise DestinationError(what, hint="--out-of-range earliest goes on at its first record")
    _log.error("%s", what)


def append_frame(writer: Writer, source: Source, run: Run, omissions: Omissions) -> int:
    """All of them or none. The address of the first. omissions: gets what was left out of them."""
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
    for offset, what in zip(run.offsets, run.left_out or (), strict=False):
        if what is not None:
            omissions.note(*run.place, offset, what)
    return int(addresses[0])
