"""The command line of the bridge: `python -m bridge`, also `aolog-bridge`.

One module a command; `root` turns whatever goes wrong into one line with its code and an exit
status, one a class of error (see aolog.errors). Never a traceback for what the user, the disk or
the cluster did.
"""

from bridge.cli.root import main

__all__ = ["main"]
