"""`python -m bridge`, and the script `aolog-bridge`: the command line."""

from __future__ import annotations

import signal

__all__ = ["main"]


def main(prog_name: str | None = None) -> None:
    """Runs the command that the process was started for."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # until the command sets its own handlers (cli/running.py)
    from aolog.__main__ import run

    run("bridge.cli", prog_name)


if __name__ == "__main__":
    main("python -m bridge")
