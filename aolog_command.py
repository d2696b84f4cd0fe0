"""Where the scripts `aolog` and `aolog-bridge` begin.

It stands outside of both packages: what lies in a package is reached behind all that the package
itself imports, which takes the better part of what a command needs to begin, and an interrupt
meanwhile was a traceback, or was lost in a callback that may not raise. So it dies by the signal
until there is a command to interrupt.
"""

import sys

__all__ = ["aolog", "bridge", "run"]


def aolog() -> None:
    """The script `aolog`."""
    run("aolog.cli")


def bridge() -> None:
    """The script `aolog-bridge`."""
    run("bridge.cli")


def run(package: str, prog_name: str | None = None) -> None:
    """Runs the `main` of a command line, and ends the process. An interrupt while its modules are
    loaded, or behind its end, is neither lost nor a traceback."""
    try:
        import signal
        from importlib import import_module

        listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # no nohup
        if listens:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        main = import_module(package).main
        if listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main(prog_name=prog_name)
    except KeyboardInterrupt:
        sys.exit(130)
