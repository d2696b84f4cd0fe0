"""The command line of the bridge: `python -m bridge`, also `aolog-bridge`.

It has the commands of the forwarder, one or two in a module; other rooms have theirs. `root` lists all of them.
Errors end as in aolog.cli: with one line and its code, or with --json with one object, and with the exit
status of the error's class (see aolog.errors). The user, the disk or the cluster never cause a traceback.

Read in this order: root, run (options), running (what `run` does, and what each signal does), report,
options (that several commands share), then any command.
"""

from bridge.cli.root import main

__all__ = ["main"]
