"""A command whose --help lists its options under headings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

_REST = "Other options"


class GroupedCommand(click.Command):
    """headings: for each heading, the names of its parameters in order, separated by spaces. Options
    without a heading come last, under "Other options"."""

    def __init__(self, *args: Any, headings: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._headings = {heading: names.split() for heading, names in headings.items()}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Overrides click's method."""
        rows = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and row is not None and parameter.name:
                rows[parameter.name] = row
        sections = {
            heading: [rows.pop(name) for name in names] for heading, names in self._headings.items()
        }
        sections[_REST] = list(rows.values())
        for heading, found in sections.items():
            if found:
                with formatter.section(heading):
                    formatter.write_dl(found)
