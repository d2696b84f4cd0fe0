"""A disk-backed channel between processes: one sends, others receive, and any of them may be restarted.

    python -m aolog.examples.channel send CHANNEL < lines
    python -m aolog.examples.channel receive CHANNEL NAME

A receiver with a name goes on where it committed. Each name gets every line. Lines that all receivers have
committed are deleted when the channel exceeds 64 MiB; a sender waits while one of them is too slow.
"""

from __future__ import annotations

import sys

import aolog

SLAB_BYTES = 8 << 20


def send(path: str) -> None:
    """Sends the lines of standard input; they survive power loss on return."""
    room = aolog.Retention(max_bytes=64 << 20, when_full="block")
    with aolog.Writer(path, slab_bytes=SLAB_BYTES, retention=room, flush_seconds=0.05) as log:
        for line in sys.stdin.buffer:
            log.append(line.rstrip(b"\n"))
        log.sync()


def receive(path: str, name: str, timeout_s: float = 1.0) -> None:
    """Prints lines until none comes for a while. Commits after each batch: after a crash the lines of the
    last batch are printed again."""
    with aolog.Reader(path, cursor=name) as log:
        while (batch := log.read_batch(timeout=timeout_s)) is not None:
            for record in batch:
                sys.stdout.buffer.write((record.value or b"") + b"\n")
            sys.stdout.flush()
            log.commit()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", path]:
            send(path)
        case ["receive", path, name]:
            receive(path, name)
        case _:
            sys.exit(__doc__)
