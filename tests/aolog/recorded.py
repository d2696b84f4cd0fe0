"""The real system with a list of what was asked of it; and a history that asks a lot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import aolog
from aolog.log.retention import prune
from aolog.storage.storage import Storage
from aolog.storage.system import System
from aolog.testing import SimulatedSystem
from tests.aolog.conftest import kill

# (call, arguments, directories that paths are relative to, result or the OSError)
Entry = tuple[str, list[Any], dict[str, int], Any]


class RecordingSystem(System):
    """The operating system; `entries` is what was asked, with the bytes and the answers."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def mounts(self, path: str) -> tuple[int, str]:
        """Does not say: what it is on is no part of a history."""
        raise FileNotFoundError(path)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        of_the_machine = {
            "boot_id", "euid", "free_bytes", "generation", "mounts", "random_bytes", "user_name"
        }  # fmt: skip  # a set
        if name == "entries" or name in of_the_machine or name.startswith("_"):
            return found

        def call(*args: Any, **options: int) -> Any:
            kept = [b"".join(a) if name == "pwritev" and i == 1 else a for i, a in enumerate(args)]
            try:
                result = found(*args, **options)
            except OSError as error:
                told = OSError(error.errno, error.strerror)  # without the frames of a traceback
                self.entries.append((name, kept, options, told))
                raise
            self.entries.append((name, kept, options, result))
            return result

        return call


def history(directory: str, storage: Storage) -> None:
    """Batches, rotation, a full set of cursors, retention, a death, a torn tail, recovery."""
    log, options = f"{directory}/log", {"flush_seconds": None, "sync": "flush", "storage": storage}
    with aolog.Writer(log, slab_bytes=9000, **options) as writer:
        for i in range(12):
            writer.append(b"%d" % i * 50, key=b"k")
            if i % 3 == 0:
                writer.flush()
        writer.append_many([b"many"] * 200)
        writer.sync()
    for _ in range(3):
        with aolog.Reader(log, cursor="c", storage=storage) as reader:
            for _ in range(60):
                reader.read()
            reader.commit()
    prune(log, storage, aolog.Retention(max_slabs=2))
    writer = aolog.Writer(log, slab_bytes=20_000, batch_bytes=0, preallocate=True, **options)
    writer.append(b"before the death")
    writer.append_many([b"torn" * 40] * 20)
    writer.flush()
    kill(writer)
    last = max(name for name in storage.list_names(log) if name.endswith(".slab"))
    file = storage.open_write(f"{log}/{last}")
    content = file.pread(file.stat().size, 0).rstrip(b"\0")
    file.truncate(len(content) - 100)
    file.close()
    with aolog.Writer(log, slab_bytes=9000, **options) as writer:
        writer.append(b"after it")
    with aolog.Reader(log, cursor="c", storage=storage) as reader:
        list(reader)
        reader.commit()
    storage.exists(f"{log}/nothing")
    storage.unlink(f"{log}/nothing")


def replay(entries: Sequence[Entry], system: SimulatedSystem) -> int:
    """Asks the simulation the same, and compares the answers; how many calls."""
    fds: dict[int, int] = {}
    for name, args, options, result in entries:
        asked = list(args)
        below = {option: fds[fd] for option, fd in options.items()}
        if isinstance(args[0], int):
            asked[0] = fds[args[0]]
        if name == "pwritev":
            asked[1] = [args[1]]
        try:
            answer = getattr(system, name)(*asked, **below)
        except OSError as error:
            answer = error
        if isinstance(answer, OSError) or isinstance(result, OSError):
            assert getattr(answer, "errno", 0) == getattr(result, "errno", 0), (name, args)
            continue
        if name == "open":
            fds[result] = answer
        elif name in {"fstat", "lstat"}:
            file = os.stat_result(result)
            assert (file.st_mode >> 12, answer.st_mode >> 12) in {(4, 4), (8, 8)}
            assert file.st_mode >> 12 == 4 or file.st_size == answer.st_size
        elif name == "listdir":
            assert sorted(answer) == sorted(result)
        else:
            assert answer == result, (name, args)
    return len(entries)
