"""A box with a bad link: measurements wait on a disk that stays bounded, and arrive in order.

    python -m bridge.examples.bad_link LOG DESTINATION < measurements

While the link is up, messages are sent live; when it fails they go to the log, and are delivered from there
when it is back. The log keeps at most 64 MiB. After a longer outage its oldest messages are deleted
and counted (`when_full="prune"`): for measurements the newest matter most. Use "block" or "error" where
none may be lost. DESTINATION is a file here; on a box it is `bridge.KafkaProvider(...)`.
"""

from __future__ import annotations

import sys

from aolog.log.retention import Retention
from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.file_provider import FileProvider
from bridge.client.buffer.provider import Provider

DISK_BYTES = 64 << 20


def open_buffer(provider: Provider, path: str, disk_bytes: int = DISK_BYTES) -> Buffer:
    """The buffer; `send` never waits for the link."""
    return Buffer(
        provider, path, mode="buffer",
        retention=Retention(max_bytes=disk_bytes, when_full="prune"),
    )  # fmt: skip  # the policy stands alone


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open_buffer(FileProvider(sys.argv[2]), sys.argv[1]) as buffer:
        for line in sys.stdin.buffer:
            buffer.send("measurements", line.rstrip(b"\n"))
