"""The command line of the bridge: `python -m bridge`, also `aolog-bridge`.

One module a command; `root` says what there are. What goes wrong ends as in aolog.cli: one line with
its code, or with --json one object, and an exit status, one a class of error (see aolog.errors).
Never a traceback for what the user, the disk or the cluster did.
"""

from bridge.cli.root import main

__all__ = ["main"]
