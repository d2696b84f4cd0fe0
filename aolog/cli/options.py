"""The options of the command that runs: which were given, and their names in messages that the
library words for who calls it from Python."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from aolog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["has_options", "in_options", "said_in_options"]

_IN_RETENTION = re.compile(r"Retention\((\w+=[^)]*)\)")
_ARGUMENT = re.compile(r"""\b([a-z_]+)=(['"]?)([^\s'",;)]+)\2""")


def has_options() -> bool:
    """Whether any was given but --json, which changes nothing of what is done."""
    context = click.get_current_context()
    return any(
        context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        for option in context.command.params
        if isinstance(option, click.Option) and option.name != "as_json"
    )


def in_options(text: str) -> str:
    """The text with `name=value` as the command has it: `--name value`."""
    names = {
        (option.name or "").rstrip("_"): option.opts[-1]
        for option in click.get_current_context().command.params
        if isinstance(option, click.Option)
    }

    def named(found: re.Match[str]) -> str:
        name, _, value = found.groups()
        return f"{names[name]} {value}" if name in names else found[0]

    return _ARGUMENT.sub(named, _IN_RETENTION.sub(r"retention_\1", text))


@contextmanager
def said_in_options() -> Iterator[None]:
    """A UsageError that is raised within names the command's options."""
    try:
        yield
    except UsageError as error:
        hint = None if error.hint is None else in_options(error.hint)
        raise type(error)(in_options(error.reason), hint=hint, **error.details) from error
