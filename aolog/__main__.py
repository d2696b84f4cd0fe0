"""`python -m aolog`, and the script `aolog`: the command line."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import aolog


def main() -> None:
    """Runs the command line `aolog`."""
    run("aolog.cli")


def run(package: str, prog_name: str | None = None) -> None:
    """Runs the `main` of a command line. An interrupt, also while its modules are loaded, prints no
    traceback. At the end the collector does not look through all that was loaded: the process goes."""
    if not hasattr(aolog, "AologError"):  # another distribution has replaced our __init__.py
        found = (
            f"another distribution has replaced {aolog.__file__}: remove it (pip uninstall aolog), "
            "then install aolog-bridge again (with pip's --force-reinstall)"
        )
        print(f"{prog_name or 'aolog'}: usage: {found}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    if sys.platform == "win32":
        from aolog.errors import not_on_windows

        print(f"{prog_name or 'aolog'}: usage: {not_on_windows()}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    try:
        import_module(package).main(prog_name=prog_name)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
