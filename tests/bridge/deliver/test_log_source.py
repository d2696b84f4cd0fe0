"""A source reads some thousand records at a time: more bytes where they are large. It counts what it passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aolog import Writer
from bridge import Buffer, MemoryProvider
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.log_source import READ_BYTES_MAX, LogSource
from bridge.deliver.rate_limit import RateLimit
from tests.aolog.conftest import flip
from tests.bridge.logs import fill

FRAME_BYTES = 70 << 10  # a batch ends with a whole frame: 64 KiB of values by default, and heads
STRETCH_BYTES = 528 << 10  # or with frames that are moved together at once


@pytest.mark.parametrize(
    ("rates", "bytes_max"),
    [
        ({"bytes_per_s": 100_000}, 100_000 + FRAME_BYTES),
        ({"records_per_s": 50}, 50 * 1100 + FRAME_BYTES),
        ({"records_per_s": 1e9, "bytes_per_s": 1e9}, READ_BYTES_MAX),
    ],
)
def test_a_slow_pace_reads_no_more_at_once_than_may_be_sent_in_a_second(
    tmp_path: Path, rates: dict[str, float], bytes_max: int
) -> None:
    """But for the frame that comes whole: else all would be sent at once, and then long nothing."""
    with Writer(tmp_path, flush_seconds=60) as log:  # however slow the machine is, frames are full
        for _ in range(9_000):
            log.append(bytes(1024))
    source = LogSource(
        str(tmp_path), ForwarderOptions(bootstrap_servers="", shared_limit=RateLimit(**rates))
    )
    sizes = []
    while (batch := source.read_batch(0.0)) is not None:
        sizes.append(sum(frame.size for frame in batch.frames))
    source.close()
    whole = STRETCH_BYTES if bytes_max > STRETCH_BYTES else 2 * FRAME_BYTES
    assert bytes_max - whole <= max(sizes) <= bytes_max


@pytest.mark.parametrize("cursor", ["bridge", "buffer"])
def test_a_log_that_a_buffer_sends_too_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cursor: str
) -> None:
    with Buffer(MemoryProvider(), tmp_path / "log", mode="always") as buffer:
        buffer.send("t", b"x")
        buffer.flush()
    options = ForwarderOptions(bootstrap_servers="", cursor=cursor)
    LogSource(str(tmp_path / "log"), options).close()
    assert ("each message arrives twice" in caplog.text) == (cursor == "bridge")


def test_a_gap_is_passed_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 300, batch_bytes=1000)
    (slab,) = tmp_path.glob("*.slab")
    flip(slab, slab.stat().st_size // 2, 64)
    source = LogSource(str(tmp_path), ForwarderOptions(bootstrap_servers=""))
    read = 0
    while (batch := source.read_batch(0.0)) is not None:
        read += len(batch)
    source.close()
    assert 0 < source.losses.records == 300 - read
    assert f"{300 - read} records lost" in caplog.text
