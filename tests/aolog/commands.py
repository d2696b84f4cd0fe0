"""Running the command line: in this process, or as one of its own. What its tests share."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from click.testing import CliRunner, Result

from aolog.cli import main
from tests.aolog.conftest import ROOT, SOON_S


def run(*args: object, given: bytes | str | None = None) -> Result:
    """The command in this process. An exception that is none of click's is a failure."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], input=given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def well(*args: object, given: bytes | str | None = None) -> Result:
    """The same, which must succeed."""
    result = run(*args, given=given)
    assert result.exit_code == 0, result.output
    return result


def answer(*args: object, given: bytes | str | None = None) -> dict[str, object]:
    """What it says with --json."""
    return json.loads(well(*args, "--json", given=given).stdout)


def failure(*args: object, given: bytes | str | None = None) -> dict[str, object]:
    """The error that it ends with, said the same to people and to machines."""
    at = args.index("--") if "--" in args else len(args)
    told = run(*args[:at], "--json", *args[at:], given=given)
    plain = run(*args, given=given)
    error = json.loads(told.stderr.splitlines()[-1])["error"]
    assert plain.exit_code == told.exit_code == error["exit_status"]
    line = plain.stderr.splitlines()[-1]
    assert line.startswith(f"aolog: {error['code']}: ")
    assert str(error["message"]).split(";")[0] in line
    return error


@contextmanager
def started(*args: object, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process of its own, which is killed at the end if it has not ended."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options
    command = [sys.executable, "-m", "aolog", *map(str, args)]
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


def ended(child: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """How it ended, and what it said."""
    out, err = child.communicate(timeout=SOON_S)
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err
    return child.returncode, (out or b"").decode(), err.decode()


def on_terminal(module: str, *args: object, stop_at: bytes | None = None) -> tuple[int, bytes]:
    """The exit status of `python -m MODULE ARGS`, and all that a terminal got of it. stop_at: what
    the terminal has to show before the command is terminated."""
    leader, terminal = pty.openpty()
    tty.setraw(terminal)  # bytes as they are
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 500, 0, 0))
    seen = b""
    with subprocess.Popen(
        [sys.executable, "-m", module, *map(os.fsencode, map(str, args))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "500", "LINES": "50"},  # win
        stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
    ) as child:  # fmt: skip  # one process
        try:
            os.close(terminal)
            with suppress(OSError):  # its end
                while part := os.read(leader, 1 << 16):
                    seen += part
                    if stop_at is not None and stop_at in seen:
                        child.terminate()
                        stop_at = None
            return child.wait(SOON_S), seen
        finally:
            child.kill()
            os.close(leader)
