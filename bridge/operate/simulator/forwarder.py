"""`aolog-bridge` as a process of the simulator: it ends when its standard input does, so that a simulator
that is killed leaves no process."""

from __future__ import annotations

import os
import runpy
import sys
import threading


def main() -> None:
    """Runs the command line with the given arguments."""

    def watch() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    runpy.run_module("bridge", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
