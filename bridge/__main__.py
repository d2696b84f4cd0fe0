"""`python -m bridge`. An interrupt while its modules are still loaded is no traceback."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(prog_name: str | None = None) -> None:
    """Runs the command that the process was started for."""
    try:
        from bridge.cli import main as run

        run(prog_name=prog_name)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main("python -m bridge")
