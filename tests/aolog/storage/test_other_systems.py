"""Every system but Linux is refused in one line. A child Python takes away what another system lacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

ANOTHER = """
import os, sys
for name in ("fcntl", "pwd", "grp", "termios", "resource", "inotify_simple", "numpy", "click"):
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "fdatasync", "pread", "pwritev", "geteuid", "O_CLOEXEC",
             "O_DIRECTORY", "O_NOFOLLOW", "statvfs"):
    delattr(os, name)
sys.platform = "win32"
"""
USES = """
import aolog
for use in (lambda: aolog.Writer("log"), lambda: aolog.Reader("log")):
    try:
        use()
    except aolog.UsageError as error:
        print(error)
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", ANOTHER + program, *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("module", ["aolog", "bridge"])
def test_a_command_says_so_in_one_line(module: str) -> None:
    started = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    done = run(started, "--version")
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.splitlines()
    assert b"win32 is not supported; use Linux" in line


def test_the_first_use_of_the_library_is_refused() -> None:
    done = run(USES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"win32 is not supported") == 2
