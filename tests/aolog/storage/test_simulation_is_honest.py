"""The simulation does what the real file system does: recorded calls, strace, and random calls."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aolog.storage.storage import Storage
from aolog.storage.system import REAL, System
from aolog.testing import SimulatedSystem
from tests.aolog.conftest import ROOT, snapshot
from tests.aolog.recorded import RecordingSystem, history, replay


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


def test_a_history_of_the_real_system_replays_to_the_same_answers_names_and_bytes(tmp_path):
    real = RecordingSystem()
    history(str(tmp_path), Storage(real))
    simulation = simulated(str(tmp_path))
    assert replay(real.entries, simulation) > 300
    assert below(simulation, str(tmp_path)) == snapshot(str(tmp_path))


# --- strace ------------------------------------------------------------------------------------------

NAMES = {
    "openat": "open", "pread64": "pread", "pwritev": "pwritev", "pwritev2": "pwritev", "fdatasync": "fdatasync",
    "fsync": "fsync", "ftruncate": "ftruncate", "renameat": "replace", "renameat2": "replace",
    "unlinkat": "unlink", "mkdir": "mkdir", "mkdirat": "mkdir", "flock": "flock", "close": "close",
}  # fmt: skip  # a table
LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)(?: (E\w+))?.*")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
OPEN_FLAGS = {name: getattr(os, name) for name in dir(os) if name.startswith("O_")}


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def flags_of(text: str, table: dict[str, int]) -> int:
    value = 0
    for name in text.split("|"):
        value |= table[name]
    return value


def from_strace(trace: str, directory: str) -> list[Any]:
    """The calls below the directory, in the form of `recorded.as_json`."""
    found: list[Any] = []
    ours: set[int] = set()
    for line in trace.splitlines():
        match = LINE.fullmatch(line)
        if match is None or match[1] not in NAMES:
            continue
        name, text, number, error = NAMES[match[1]], match[2], int(match[3]), match[4]
        data = [unhex(part) for part in TEXT.findall(text)]
        outcome: Any = f"E{getattr(errno, error)}" if error else number
        if name in {"open", "replace", "unlink", "mkdir"}:
            above = {directory, str(Path(directory).parent)}  # synced as the log is created
            parts = TEXT.sub("", text).split(", ")
            directories = [int(part) for part in parts if part.isdecimal()][: len(data)]
            directories = [fd for fd in directories if fd in ours]
            if not directories and not (
                os.fsdecode(data[0]) in above or os.fsdecode(data[0]).startswith(directory)
            ):
                continue
            args: list[Any] = [os.fsdecode(part) for part in data]
            if name == "mkdir":
                args += [int(parts[-1], 8)]
            if name == "open":
                flags = flags_of(parts[2], OPEN_FLAGS)
                if flags & os.O_DIRECTORY and flags & os.O_NONBLOCK:
                    continue  # listdir's own
                if flags & os.O_PATH:
                    continue  # asks which mount it is on: no fact of the file system's
                args += [flags, *([int(parts[3], 8)] if flags & os.O_CREAT else [])]
                if number >= 0:
                    ours.add(number)
            found.append([name, args, directories, outcome])
            continue
        fd = int(text.split(",")[0])
        if fd not in ours:
            continue
        if name == "close":
            ours.discard(fd)
        numbers = [int(part) for part in re.findall(r", (\d+)", TEXT.sub("", text))]
        if name == "pread":
            found.append([name, [fd, *numbers[-2:]], [], data[0].hex()])
        elif name == "pwritev":
            found.append(
                [
                    name,
                    [fd, b"".join(data).hex(), numbers[-2 if "pwritev2" in match[1] else -1]],
                    [],
                    outcome,
                ]
            )
        elif name == "ftruncate":
            found.append([name, [fd, numbers[0]], [], outcome])
        elif name == "flock":
            table = {"LOCK_EX": fcntl.LOCK_EX, "LOCK_NB": fcntl.LOCK_NB}
            found.append([name, [fd, flags_of(text.split(", ")[1], table)], [], outcome])
        else:
            found.append([name, [fd], [], outcome])
    return found


def test_what_is_recorded_is_what_strace_sees(tmp_path):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: apt-get install strace")
    trace, record, where = tmp_path / "trace", tmp_path / "record", tmp_path / "where"
    where.mkdir()
    run = [strace, "-f", "-xx", "-s", "1000000", "-e", f"trace={','.join(NAMES)}", "-o", str(trace)]
    ended = subprocess.run(
        [*run, sys.executable, "-m", "tests.aolog.recorded", str(where), str(record)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip  # as it is typed
    if ended.returncode and "ptrace" in ended.stderr.lower():
        pytest.skip(f"strace may not trace here: {ended.stderr.strip()[-200:]}")
    assert ended.returncode == 0, ended.stderr
    seen = from_strace(trace.read_text(encoding="ascii"), str(where))
    unseen = {
        "fchmod",
        "listdir",
        "lexists",
        "lstat",
        "isdir",
        "fstat",
    }  # made of several calls, or of stat
    told = [entry for entry in json.loads(record.read_text()) if entry[0] not in unseen]
    assert len(told) > 200
    assert {entry[0] for entry in told} == set(NAMES.values())
    for ours, theirs in zip(told, seen, strict=False):
        assert ours == theirs
    assert told[len(seen) :] == seen[len(told) :] == []


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
    st.tuples(
        st.just("flock"), fd, st.sampled_from([fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN])
    ),
    st.tuples(st.sampled_from(["listdir", "lexists", "isdir", "unlink"]), path),
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
        if name in {"open", "listdir", "lexists", "isdir", "unlink", "mkdir", "rmdir", "replace"}:
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


@settings(max_examples=300, deadline=None)
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
