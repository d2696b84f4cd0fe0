"""A signal may come at any statement of the main thread, within its wait for the signal too."""

from __future__ import annotations

import subprocess
import sys

_AT_EACH_LINE = """
import os, signal, sys, threading
from bridge.cli.running import on_signals

def wait(at):
    "Waits for SIGTERM, which comes before that line of the wait. Whether the wait has such a line."
    over, lines = threading.Event(), 0
    on_signals(over.set)

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != threading.__file__:
            return None
        if event == "line":
            lines += 1
            if lines == at:
                os.kill(os.getpid(), signal.SIGTERM)
                sys.settrace(None)
        return trace

    sys.settrace(trace)
    over.wait(0.05)
    sys.settrace(None)
    assert lines < at or over.wait(20)
    return lines >= at

at = 1
while wait(at):
    at += 1
print(at)
"""


def test_a_signal_at_any_line_of_a_wait_for_it_ends_the_wait() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AT_EACH_LINE], check=True, stdout=subprocess.PIPE, timeout=60
    )
    assert int(done.stdout) > 10
