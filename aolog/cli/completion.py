"""`aolog completion`: the script that completes commands, options, logs and cursors in a shell."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from aolog.cli.output import out

__all__ = ["completion"]

_VARIABLE = "_AOLOG_COMPLETE"  # where click looks for a request to complete


@click.command(
    epilog="""\b
Examples:
  aolog completion bash > /etc/bash_completion.d/aolog
  aolog completion zsh > "${fpath[1]}/_aolog"
  aolog completion fish > ~/.config/fish/completions/aolog.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    # The base class's: bash's own asks the bash of this machine for its version first.
    out.line(ShellComplete.source(kind(root, {}, "aolog", _VARIABLE)).strip())
