"""rich's Console, which ends as other commands do when the reader of standard output has closed it."""

from __future__ import annotations

import rich.console

from aolog.cli.output import OutputClosed


class Console(rich.console.Console):
    """As rich's, whose own way to end is exit status 1."""

    def on_broken_pipe(self) -> None:
        """Called by rich. Nothing more is printed."""
        self.quiet = True
        raise OutputClosed from None
