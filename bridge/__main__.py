"""`python -m bridge`, and the script `aolog-bridge`: the command line."""

from __future__ import annotations

from aolog.__main__ import run

__all__ = ["main"]


def main(prog_name: str | None = None) -> None:
    """Runs the command that the process was started for."""
    run("bridge.cli", prog_name)


if __name__ == "__main__":
    main("python -m bridge")
