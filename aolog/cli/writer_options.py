"""A writer's options on the command line, made from their table (`aolog/write/options.py`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.parse import DURATION, MODE, SIZE, SIZE_OR_ZERO
from aolog.write.options import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.errors import UsageError
    from aolog.write.options import Option

_RETENTION = (
    click.option("--retention-max-bytes", type=SIZE, help="Maximum size of the log. See --when-full."),
    click.option("--retention-max-age", type=DURATION, help="Delete slabs older than this."),
    click.option("--retention-max-slabs", type=click.IntRange(min=1), help="Keep at most N slabs."),
    click.option(
        "--when-full", type=click.Choice(["prune", "block", "error"]), default="prune", show_default=True,
        help="If the log is full and cursors need its oldest slab: delete it (unread records are lost "
        "and counted), wait, or end with an error.",
    ),
)  # fmt: skip  # options read best one a line
_RETENTION_NAMES = "retention_max_bytes retention_max_age retention_max_slabs when_full"


def writer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a log's writer, each under its own name, and those of its Retention."""
    made = [_option(one) for one in table().values() if one.name != "retention"]
    for option in reversed([*made, *_RETENTION]):
        command = option(command)
    return command


def headings() -> dict[str, str]:
    """For GroupedCommand: the questions that the options answer, with their names."""
    found: dict[str, str] = {}
    for name, option in table().items():
        names = _RETENTION_NAMES if name == "retention" else name
        found[option.about.group] = f"{found.get(option.about.group, '')} {names}"
    return found


def as_typed(error: UsageError) -> UsageError:
    """The error of a writer with its options spelled as they are typed: `--sync never` for sync='never', and
    `--retention-max-bytes 9` for Retention(max_bytes=9)."""
    names, value = "|".join(table()), r"""["']?([\w.-]+)["']?"""

    def text(of: str) -> str:
        of = re.sub(
            rf"Retention\((\w+)={value}\)", lambda m: f"{_flag('retention_' + m[1])} {m[2]}", of
        )
        of = re.sub(rf"\b({names})={value}", lambda m: f"{_flag(m[1])} {m[2]}", of)
        return re.sub(rf"\b({names})\b", lambda m: _flag(m[0]) if "_" in m[0] else m[0], of)

    hint = None if error.hint is None else text(error.hint)
    return type(error)(text(error.reason), hint=hint, **error.details)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option(one: Option) -> Callable[[Any], Any]:
    default = "" if one.default is None else f"  [{one.default_text.replace(' ', '')}]"
    return click.option(
        _flag(one.name),
        type=_type(one),
        default=one.default,
        help=f"{one.about.sentence}{default}",
    )


def _type(one: Option) -> click.ParamType[Any] | None:
    _, unit, least, most, _ = one.about
    of: dict[str, click.ParamType[Any]] = {
        "bytes": SIZE if least else SIZE_OR_ZERO,
        "seconds": DURATION,
        "records": click.IntRange(min=least),
        "level": click.IntRange(least, most),
        "octal": MODE,
    }
    return click.Choice(one.choices) if one.choices else of.get(unit)
