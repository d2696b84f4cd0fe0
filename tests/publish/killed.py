"""`python -m tests.publish.killed DIRECTORY`: a publication by a real process on a real disk, killed
before each of its calls that change something; then whoever comes next. Prints the outcomes.

A child is forked for each, from a process that has no threads.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import aolog
from aolog.log.manifest import Transaction
from aolog.publish.pending import PendingLog, PendingSlab
from aolog.publish.publication import publish
from tests.publish.killing import kill_before

JOB = "ab" * 16
TRANSACTION = Transaction("query/x", 7)
OLD = {"a": ["old"], "b/c": []}
NEW = {"a": ["old", "1", "2"], "b/c": ["3"]}


def write(root: Path) -> list[PendingSlab]:
    slabs: list[PendingSlab] = []
    for log, value in (("a", "1"), ("b/c", "3"), ("a", "2")):
        with PendingLog(root, log, JOB) as pending:
            pending.append_arrow(pa.record_batch({"value": [value.encode()]}))
        slabs += pending.slabs
    return slabs


def seen(root: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for log in OLD:
        try:
            with aolog.Reader(root / log, strict=True) as reader:
                found[log] = [(record.value or b"").decode() for record in reader]
        except aolog.NotALog:
            found[log] = []
    return found


def leave(path: Path) -> None:
    """A log whose writer died."""
    log = aolog.Writer(path)
    log.append(b"old")
    log.sync()
    os._exit(0)


def in_child(act: Callable[[], object]) -> int:
    """How it ended: the signal's number, 0 if it did."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def main(where: Path) -> None:
    logging.getLogger("aolog").setLevel(logging.CRITICAL)
    origin = where / "origin"
    in_child(lambda: leave(origin / "a"))
    slabs = write(origin)
    whole = 0
    for step in range(1, 1000):
        root = where / str(step)
        shutil.copytree(origin, root)

        def act(root: Path = root, step: int = step) -> None:
            kill_before(step)
            publish(root, JOB, slabs, transaction=TRANSACTION)

        ended = in_child(act)
        found = seen(root)
        assert found in (OLD, NEW), (step, found)
        if ended == 0:
            assert found == NEW
            break
        assert ended == signal.SIGKILL
        whole += found == NEW
        if step % 2:  # the batch is repeated
            publish(root, JOB, write(root), transaction=TRANSACTION)
            assert seen(root) == NEW, (step, seen(root))
            assert list(root.rglob("*.pending")) == [], step
        else:  # or somebody writes to the logs
            for name in OLD:
                aolog.Writer(root / name).close()
                assert aolog.verify(root / name).ok or not found[name], (step, name)
            assert seen(root) == found, (step, seen(root))
        shutil.rmtree(root)
    print(step - 1, whole)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
