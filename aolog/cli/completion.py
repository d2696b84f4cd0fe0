"""`completion`: a shell script that completes commands, options, logs and cursors."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from aolog.cli.output import out


def completion_of(program: str) -> click.Command:
    """The command `completion` for the root command `program`."""
    variable = (
        f"_{program.upper().replace('-', '_')}_COMPLETE"  # click reads completion requests from it
    )

    @click.command(
        "completion",
        epilog=f"""\b
Examples:
  {program} completion bash > /etc/bash_completion.d/{program}
  {program} completion zsh > "${{fpath[1]}}/_{program}"
  {program} completion fish > ~/.config/fish/completions/{program}.fish""",
    )
    @click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
    def completion(shell: str) -> None:
        """Print the completion script for SHELL."""
        kind = get_completion_class(shell)
        assert kind is not None
        root = click.get_current_context().find_root().command
        # The base class's method: bash's own runs this machine's bash to check its version.
        out.line(ShellComplete.source(kind(root, {}, program, variable)).strip())

    return completion
