"""`python -m aolog`, and the script `aolog`: the command line.

An interrupt that comes while its modules are still loaded, or behind its end, has an exit status
like any other and no traceback.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command that the process was started for."""
    try:
        from aolog.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
