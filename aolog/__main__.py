"""`python -m aolog`, and the script `aolog`: the command line."""

from __future__ import annotations

import signal
import sys
from importlib import import_module

import aolog


def main() -> None:
    """Runs the command line `aolog`."""
    run("aolog.cli")


def run(package: str, prog_name: str | None = None) -> None:
    """Runs the `main` of a command line. While its modules are loaded, SIGINT kills the process: a
    KeyboardInterrupt could be lost in a callback that may not raise. An interrupt after `main` prints no
    traceback."""
    if not hasattr(aolog, "AologError"):  # another distribution has replaced our __init__.py
        found = (
            f"another distribution has replaced {aolog.__file__}: remove it (pip uninstall aolog), "
            "then install aolog-bridge again (with pip's --force-reinstall)"
        )
        print(f"{prog_name or 'aolog'}: usage: {found}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    if sys.platform != "linux":
        from aolog.errors import only_on_linux

        print(f"{prog_name or 'aolog'}: usage: {only_on_linux()}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    try:
        listens = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # nohup
        if listens:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        main = import_module(package).main
        if listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main(prog_name=prog_name)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
