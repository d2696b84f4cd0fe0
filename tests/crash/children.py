"""What is killed: `python -m tests.crash.children ROLE LOG RUN LEDGER_FD`. Each runs until then.

A role says what it did into the ledger (ledger.py) once the call has returned, and never before.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable

from aolog import Reader, Writer  # here, not behind "begins", which a kill is to follow
from aolog.log.retention import Retention, prune
from aolog.storage.storage import Storage
from tests.crash.ledger import Id, say, value_of

QUICK = {"flush_seconds": 0.002, "sync_seconds": 0.004}  # the writer's own thread is busy too


class Child:
    """path: the log. run: how many-th child it is. fd: the ledger."""

    def __init__(self, path: str, run: int, fd: int) -> None:
        self.path, self.run, self.fd = path, run, fd
        self.rng = random.Random(run)

    def append(self, writer: Writer, thread: int, i: int) -> int:
        which = Id(self.run, thread, i)
        address = writer.append(value_of(which))
        say(self.fd, "taken", *which, address)
        return address

    def write(self, keep: str, thread: int = 0, **options: object) -> None:
        """Appends for ever; now and then everything is kept."""
        with Writer(self.path, **options) as writer:
            self.write_on(writer, keep, thread)

    def write_on(self, writer: Writer, keep: str, thread: int) -> None:
        rng = random.Random((self.run << 8) + thread)
        i = 0
        while True:
            for _ in range(rng.randrange(1, 20)):
                self.append(writer, thread, i)
                i += 1
            say(self.fd, "kept", getattr(writer, keep)())

    # --- writers ------------------------------------------------------------------------------

    def flush(self) -> None:
        self.write("flush", slab_bytes=400_000, sync="never", flush_seconds=None)

    def sync(self) -> None:
        self.write("sync", slab_bytes=400_000, **QUICK)

    def by_policy(self) -> None:
        with Writer(self.path, sync="flush", flush_records=1) as writer:
            i = 0
            while True:
                say(self.fd, "kept", self.append(writer, 0, i) + 1)
                i += 1

    def threads(self) -> None:
        self.in_threads("sync", "flush", "sync", "sync")

    def sync_in_threads(self) -> None:
        self.in_threads("sync", "sync", "sync")

    def in_threads(self, *keeps: str) -> None:
        with Writer(self.path, slab_bytes=100_000, **QUICK) as writer:
            started = [
                threading.Thread(target=self.write_on, args=(writer, keep, n))
                for n, keep in enumerate(keeps)
            ]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()

    def rotation(self) -> None:
        self.write("flush", slab_bytes=9_000, batch_bytes=200, sync="never")

    def batches(self) -> None:
        with Writer(self.path, slab_bytes=100_000, **QUICK) as writer:
            i = 0
            while True:
                ids = [Id(self.run, 0, i + j) for j in range(self.rng.randrange(1, 60))]
                addresses = writer.append_many([value_of(which) for which in ids])
                for which, address in zip(ids, addresses.tolist(), strict=True):
                    say(self.fd, "taken", *which, address)
                say(self.fd, "kept", writer.flush())
                i += len(ids)

    def format_1(self) -> None:
        self.write("flush", slab_bytes=60_000, format="queuefka", **QUICK)

    def pruning(self) -> None:
        self.write("flush", slab_bytes=20_000, retention=Retention(max_slabs=4), **QUICK)

    # --- beside a living writer ---------------------------------------------------------------

    def committer(self) -> None:
        """Reads what comes, and commits after each few records."""
        with Reader(self.path, cursor="c", strict=True) as reader:
            say(self.fd, "resumed", reader.tell())
            for record in reader.follow():
                if self.rng.randrange(5) == 0:
                    say(self.fd, "trying", reader.tell())
                    reader.commit()
                    say(self.fd, "committed", reader.tell())
                assert record.value is not None

    def pruner(self) -> None:
        while True:
            prune(self.path, Storage(), Retention(max_slabs=3))


def main() -> None:
    role, path, run, fd = sys.argv[1:]
    child = Child(path, int(run), int(fd))
    call: Callable[[], None] = getattr(child, role)
    say(child.fd, "begins", run)
    call()


if __name__ == "__main__":
    main()
