"""macOS, for the log, and Windows, which is refused.

Neither is here. A child Python takes away what the other system lacks, and adds what it has instead,
before it imports the log. That shows which calls are made, not what a real macOS does with them.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import aolog
from aolog.storage.file import File

DARWIN = """
import errno, fcntl, json, os, select, sys
sys.platform = "darwin"
sys.modules["inotify_simple"] = None
for name in ("fdatasync", "pipe2", "posix_fallocate", "posix_fadvise", "memfd_create", "eventfd", "splice",
             "copy_file_range", "sched_getaffinity", "pidfd_open", "getrandom", "O_PATH", "O_TMPFILE"):
    if hasattr(os, name):
        delattr(os, name)
del select.epoll
fcntl.F_FULLFSYNC = 51
synced, fails = [], []
def full_sync(fd, command, argument=0, kernel=fcntl.fcntl, fsync=os.fsync):
    if command != 51:
        return kernel(fd, command, argument)
    if fails:
        raise OSError(fails[0], os.strerror(fails[0]))
    fsync(fd)
    synced.append("directory" if os.path.isdir(f"/dev/fd/{fd}") else "file")
    return 0
def weak_sync(fd):
    raise AssertionError("fsync leaves the data in the device's cache")
fcntl.fcntl, os.fsync = full_sync, weak_sync
opened = open
def no_proc(file, *arguments, **options):
    if str(file).startswith("/proc"):
        raise FileNotFoundError(errno.ENOENT, "no /proc", file)
    return opened(file, *arguments, **options)
import builtins
builtins.open = no_proc
"""

WINDOWS = """
import os, sys
for name in ("fcntl", "pwd", "grp", "termios", "resource", "inotify_simple", "numpy", "click"):
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "fdatasync", "pread", "pwritev", "geteuid", "O_CLOEXEC",
             "O_DIRECTORY", "O_NOFOLLOW", "statvfs"):
    delattr(os, name)
sys.platform = "win32"
"""


def run(
    system: str, program: str, *arguments: object, given: bytes = b"", status: int = 0
) -> subprocess.CompletedProcess[bytes]:
    """The program on that system, which has to end with this status."""
    done = subprocess.run(
        [sys.executable, "-c", system + program, *map(str, arguments)],
        input=given, capture_output=True, check=False, timeout=60,
    )  # fmt: skip  # one call
    assert done.returncode == status, done.stderr
    return done


def command(module: str) -> str:
    """A program that runs a command line with the child's arguments."""
    return f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"


# --- macOS ------------------------------------------------------------------------------------


def test_macos_a_sync_reaches_the_device_for_the_file_and_for_the_directory(tmp_path: Path):
    program = """
import aolog
with aolog.Writer(sys.argv[1]) as log:
    created = list(synced)
    log.append(b"one")
    log.flush()
    del synced[:]
    log.sync()
    print(json.dumps([created, synced]))
"""
    done = run(DARWIN, program, tmp_path / "log")
    created, syncs = json.loads(done.stdout)
    assert "directory" in created
    assert syncs == ["file"]
    assert [record.value for record in aolog.Reader(str(tmp_path / "log"))] == [b"one"]


def test_macos_a_sync_that_the_file_system_does_not_know_is_refused(tmp_path: Path):
    """As on its network file systems. A plain fsync instead would promise what it does not do."""
    program = """
import aolog
log = aolog.Writer(sys.argv[1])
log.append(b"one")
log.flush()
fails.append(errno.ENOTSUP)
try:
    log.sync()
except aolog.SyncFailed as error:
    print(error)
log.give_up()
"""
    done = run(DARWIN, program, tmp_path / "log")
    assert b"not supported" in done.stdout


def test_macos_a_follower_polls(tmp_path: Path):
    program = """
import threading, time
import aolog
with aolog.Writer(sys.argv[1], flush_seconds=0.01) as log:
    log.append(b"one")
    log.flush()
    reader = aolog.Reader(sys.argv[1])
    assert next(iter(reader)).value == b"one"
    threading.Timer(0.3, log.append, [b"two"]).start()
    begin_s = time.monotonic()
    assert next(reader.follow(timeout=20)).value == b"two"
    assert 0.2 < time.monotonic() - begin_s < 10
    reader.close()
"""
    run(DARWIN, program, tmp_path / "log")


def test_macos_the_commands_work(tmp_path: Path):
    log = tmp_path / "log"
    run(DARWIN, command("aolog"), "append", log, given=b"one\ntwo\n")
    assert run(DARWIN, command("aolog"), "read", log).stdout == b"one\ntwo\n"
    run(DARWIN, command("aolog"), "verify", log)
    told = run(DARWIN, command("aolog"), "info", log, "--json").stdout
    assert json.loads(told)["records"] == 2
    run(DARWIN, command("aolog"), "backup", log, tmp_path / "backup")
    run(DARWIN, command("aolog"), "repair", log, "--into", tmp_path / "copy")


def test_macos_no_call_reads_or_writes_two_gibibytes():
    """It refuses such a call, where Linux reads or writes less. Memory that nobody touches costs nothing."""
    read: list[int] = []
    written: list[int] = []

    def pread(_fd: int, size: int, _offset: int) -> bytes:
        read.append(size)
        return b""

    def pwritev(_fd: int, parts: list[memoryview], _offset: int) -> int:
        written.append(sum(map(len, parts)))
        return written[-1]

    system = SimpleNamespace(pread=pread, pwritev=pwritev, close=lambda _fd: None)
    file = File("a file", 3, system)  # type: ignore[arg-type]  # it needs these three calls
    assert file.pread(3 << 30, 0) == b""
    with mmap.mmap(-1, 3 << 30) as large, memoryview(large) as part:
        file.pwrite_all([b"head", part], 0)
    assert sum(written) == 4 + (3 << 30)
    assert max(read + written) < 1 << 31


# --- Windows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["aolog", "bridge"])
def test_windows_a_command_says_so_in_one_line(module: str):
    done = run(WINDOWS, command(module), "--version", status=2)
    assert done.stdout == b""
    (line,) = done.stderr.splitlines()
    assert b"Windows is not supported; use Linux" in line


def test_windows_the_first_use_of_the_library_is_refused():
    program = """
import aolog
for use in (lambda: aolog.Writer("log"), lambda: aolog.Reader("log")):
    try:
        use()
    except aolog.UsageError as error:
        print(error)
"""
    done = run(WINDOWS, program)
    assert done.stdout.count(b"Windows is not supported") == 2
