"""`check-config`: shows what a configuration would run, or what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.output import json_option, out
from aolog.errors import counted, one_line

if TYPE_CHECKING:
    from bridge.config.models import Config

_LOGS_SHOWN = 20
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  # other keys have quotes


@click.command("check-config")
@click.argument("file", type=click.Path(), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON schema of the file, and end.")
@json_option
def check_config(file: str | None, *, schema: bool, as_json: bool) -> None:
    """Check FILE and show what `run` would do with it.

    FILE is TOML or JSON. Reports all problems at once. Reads secrets and never shows them. Connects
    to nothing and changes nothing.

    \b
    Examples:
      aolog-bridge check-config bridge.toml
      aolog-bridge check-config bridge.toml --json
      aolog-bridge check-config --schema > bridge.schema.json

    \b
    Exit status: 0 the configuration is right, 2 it is not.
    """
    from bridge.config.load import load
    from bridge.config.models import Config
    from bridge.config.routing import clusters_of
    from bridge.supervise.discovery import find_logs

    if schema:
        out.json(Config.model_json_schema())
        return
    if file is None:
        raise click.UsageError("name a FILE, or use --schema")
    config = load(file)
    if config.root is None:
        logs = {path: path for path in config.logs}
    else:
        logs = find_logs(config.root, config.include, config.exclude)
    # A rule by the log's own topic may match any log: nothing is opened here.
    rules = [rule for rule in config.rules if rule.log_topic is None]
    goes = {name: sorted(clusters_of(rules, name, None, config.default_cluster)) for name in logs}
    shown = config.shown()
    if as_json:
        out.json({
            "ok": True, "configuration": shown, "logs": goes, "warnings": config.exposures(),
        })  # fmt: skip  # a table
    else:
        _show(file, config, shown, goes)


def _show(file: str, config: Config, shown: dict[str, Any], goes: dict[str, list[str]]) -> None:
    """Prints TOML: the configuration, and all else in comments."""
    out.line(f"# {one_line(file)}: right")
    for line in _toml(shown):
        out.line(one_line(line))
    where = "named" if config.root is None else f"now below {config.root}"
    out.line(f"# {counted(len(goes), 'log')} {one_line(where)}")
    for name in list(goes)[:_LOGS_SHOWN]:
        out.line(f"#     {one_line(name)} -> {', '.join(goes[name])}")
    if len(goes) > _LOGS_SHOWN:
        out.line(f"#     and {len(goes) - _LOGS_SHOWN} more")
    for exposure in config.exposures():
        out.line(f"# warning: {one_line(exposure)}")


def _toml(table: dict[str, Any], path: str = "") -> Iterator[str]:
    """Each value on a line, with its path; then the arrays of tables. The file that has these lines says the
    same."""
    arrays = []
    for key, value in table.items():
        name = path + (key if _BARE_KEY.fullmatch(key) else json.dumps(key))
        if isinstance(value, dict):
            yield from _toml(value, f"{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            arrays.append((name, value))
        elif value is not None:
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
    for name, tables in arrays:
        for each in tables:
            yield f"[[{name}]]"
            yield from _toml(each)
