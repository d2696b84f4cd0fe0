"""The simulation does what the real file system does: random calls have the same answers."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aolog.storage.system import REAL, System
from aolog.testing import SimulatedSystem
from aolog.testing.calls import SimulatedCalls
from tests.aolog.conftest import snapshot


def below(system: SimulatedSystem, directory: str) -> dict[str, bytes | None]:
    return {
        path.removeprefix(f"{directory}/"): content
        for path, content in system.files().items()
        if path.startswith(f"{directory}/")
    }


def simulated(directory: str) -> SimulatedSystem:
    """A system in which the directory is there."""
    system = SimulatedSystem()
    for parent in [*reversed(Path(directory).parents), Path(directory)][1:]:
        system.mkdir(str(parent))
    return system


def test_the_simulation_replaces_every_call() -> None:
    calls = [name for name in vars(System) if not name.startswith("_")]
    assert [name for name in calls if name not in vars(SimulatedCalls)] == []


# --- random calls --------------------------------------------------------------------------------------

PATHS = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/b", "missing/a"]
FLAGS = [
    os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDONLY | os.O_DIRECTORY,
]  # fmt: skip  # a table
path, name, fd = st.sampled_from(PATHS), st.sampled_from(["a", "b", "e"]), st.integers(0, 5)
place = st.sampled_from([0, 1, 5, 511, 512, 4095, 4096, 5000, 9000])
calls = st.one_of(
    st.tuples(st.just("open"), path, st.sampled_from(FLAGS)),
    st.tuples(st.just("open"), path, st.just(os.O_RDWR | os.O_CREAT)),
    st.tuples(st.just("close"), fd),
    st.tuples(st.just("pread"), fd, place, place),
    st.tuples(
        st.just("pwritev"), fd, st.lists(st.binary(max_size=600), min_size=1, max_size=3), place
    ),
    st.tuples(st.just("ftruncate"), fd, place),
    st.tuples(st.sampled_from(["fdatasync", "fsync", "fstat"]), fd),
    st.tuples(st.just("flock"), fd, st.just(fcntl.LOCK_EX | fcntl.LOCK_NB)),
    st.tuples(st.sampled_from(["listdir", "lstat", "unlink"]), path),
    st.tuples(st.sampled_from(["mkdir", "rmdir"]), path),
    st.tuples(st.just("mkdir"), st.sampled_from(["d", "d/e"])),
    st.tuples(st.just("replace"), path, path),
    # Relative to what is open, a directory or not, there or removed.
    st.tuples(st.just("open"), path, st.just(os.O_RDONLY | os.O_DIRECTORY)),
    st.tuples(
        st.just("open_below"),
        st.sampled_from(["a", "b", "e", "e/a", "."]),
        fd,
        st.sampled_from(FLAGS),
    ),
    st.tuples(st.just("list_open"), fd),
    st.tuples(
        st.sampled_from(["unlink_below", "mkdir_below", "rmdir_below", "lstat_below"]), name, fd
    ),
    st.tuples(st.just("replace_below"), name, fd, name, fd),
)


class Asker:
    """Asks one system, by paths below a directory and by its own count of descriptors."""

    def __init__(self, system: System, directory: str) -> None:
        self.system, self.directory = system, directory
        self.fds: list[int] = []

    def ask(self, name: str, *args: Any) -> Any:
        if name in {"open", "listdir", "lstat", "unlink", "mkdir", "rmdir", "replace"}:
            args = tuple(f"{self.directory}/{a}" if isinstance(a, str) else a for a in args)
        elif max(self._asked(name, args)) >= len(self.fds):
            return "no such descriptor"
        elif "_" in name:
            return self._below(name, args)
        else:
            args = (self.fds[args[0]], *args[1:])
        return self._answer(name, *args)

    def _answer(self, name: str, *args: Any, **below: int) -> Any:
        try:
            answer = getattr(self.system, name)(*args, **below)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        if name == "open":
            self.fds.append(answer)
            return "opened"
        if name == "close":
            self.fds.remove(args[0])
        if name in {"fstat", "lstat"}:
            return answer.st_mode >> 12, answer.st_size if answer.st_mode >> 12 == 8 else None
        return sorted(answer) if name == "listdir" else answer

    def _asked(self, name: str, args: tuple[Any, ...]) -> tuple[int, ...]:
        """Descriptors, by their count."""
        if name == "replace_below":
            return args[1], args[3]
        return (args[1] if name.endswith("_below") else args[0],)

    def _below(self, name: str, args: tuple[Any, ...]) -> Any:
        """The same call as without its suffix, relative to what is open."""
        fds = [self.fds[i] for i in self._asked(name, args)]
        if name == "list_open":
            return self._answer("listdir", fds[0])
        if name == "replace_below":
            below = {"src_dir_fd": fds[0], "dst_dir_fd": fds[1]}
            return self._answer("replace", args[0], args[2], **below)
        return self._answer(name.removesuffix("_below"), args[0], *args[2:], dir_fd=fds[0])

    def close(self) -> None:
        for fd in self.fds:
            self.system.close(fd)


@settings(max_examples=300)
@given(st.lists(calls, min_size=5, max_size=40))
def test_random_calls_have_the_same_answers_errors_and_bytes(asked):
    with tempfile.TemporaryDirectory() as directory:
        simulation = simulated(directory)
        real, simulated_one = Asker(REAL, directory), Asker(simulation, directory)
        try:
            for call in asked:
                assert real.ask(*call) == simulated_one.ask(*call), call
        finally:
            real.close()
        assert below(simulation, directory) == snapshot(directory)
