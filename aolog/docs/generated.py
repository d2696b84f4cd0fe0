"""Reference pages from their sources: what a page's block `{generated} NAME ARGUMENT…` becomes.

`conf.py` puts the text in place of the block before Sphinx reads the page. Each function returns Markdown:

    commands PROGRAM          the help of every command, as click prints it
    configuration             every key of the bridge's configuration, from its schema
    metrics                   every metric of the bridge
    errors                    every error: its code, exit status and docstring
    kafka_errors              the errors of Kafka on which an operator must act
    rooms PACKAGE ROOM…       each room: its docstring, what it imports, its files

Nothing here knows what a page says around its blocks.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aolog.errors import AologError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```\{generated\} (\w+) ?(.*)\n```$", re.MULTILINE)
# That define errors; a test looks for others.
_WITH_ERRORS = [
    "aolog.cli",
    "aolog.spark.kafka_sink",
    "bridge.buffer.provider",
    "bridge.cli",
    "bridge.cli.demo.demo",
    "bridge.client.errors",
    "bridge.kafka.embedded",
]
_OURS = ("aolog", "bridge")


def expanded(text: str) -> str:
    """A page's text with its blocks replaced."""
    return _BLOCK.sub(lambda block: _MAKERS[block[1]](*block[2].split()), text)


# --- commands -------------------------------------------------------------------------------


def commands(program: str) -> str:
    """The help of the program and of each of its commands."""
    module = {"aolog": "aolog.cli", "aolog-bridge": "bridge.cli"}[program]
    root = importlib.import_module(module).main
    return "\n".join(_helps(root, click.Context(root, info_name=program, terminal_width=80)))


def _helps(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    for name, each in sorted(getattr(command, "commands", {}).items()):
        if not each.hidden:
            yield from _helps(each, click.Context(each, parent=context, info_name=name))


# --- configuration --------------------------------------------------------------------------


def configuration() -> str:
    """A table of keys for each table of the configuration."""
    from bridge.config.models import Config

    schema = Config.model_json_schema()
    tables = {
        "The top level": schema,
        "`[clusters.NAME]`": schema["$defs"]["Cluster"],
        "`[[routes]]`": schema["$defs"]["Route"],
        "`[prune]`": schema["$defs"]["Prune"],
    }
    return "\n".join(_keys(title, table) for title, table in tables.items())


def _keys(title: str, table: dict[str, Any]) -> str:
    needed = table.get("required", [])
    rows = [
        f"| `{key}` | {_type(one)} | {'needed' if key in needed else _default(one)} "
        f"| {one['description']} |"
        for key, one in table["properties"].items()
    ]
    lines = [f"## {title}\n", table["description"] + "\n", "| key | type | default | what |"]
    return "\n".join([*lines, "|---|---|---|---|", *rows, ""])


def _default(one: dict[str, Any]) -> str:
    value = one.get("default")
    empty = value is None or value in ([], {})
    return "none" if empty else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(one: dict[str, Any]) -> str:
    either = [each for each in one.get("anyOf", one.get("oneOf", [])) if each != {"type": "null"}]
    if either:
        return " or ".join(_type(each) for each in either)
    if "$ref" in one:
        return f"table `{one['$ref'].rpartition('/')[2].lower()}`"
    if "enum" in one or "const" in one:
        return " or ".join(f"`{each}`" for each in one.get("enum", [one.get("const")]))
    if one["type"] == "array":
        return f"list: {_type(one['items'])}"
    if one["type"] == "object":
        return "table"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {_number(one[key])}" for key, sign in bounds.items() if key in one]
    return " ".join([str(one["type"]), ", ".join(limits)]).strip()


def _number(value: float) -> str:
    return f"{value:,}" if value == int(value) else f"{value:g}"


# --- metrics and errors ---------------------------------------------------------------------


def metrics() -> str:
    """A table of all metrics, with the number of logs that have rows of their own."""
    from bridge.operate.metrics import FAMILIES, LOGS_MAX, OTHER, OTHERS, PREFIX

    rows = [
        (
            f"{PREFIX}{each.name}{'_total' if each.kind == 'counter' else ''}",
            each.kind,
            "log, cluster",
            each.meaning,
            each.advice,
        )
        for each in FAMILIES
    ]
    about = (
        f"The first {LOGS_MAX} logs have rows of their own; the others, and those that were removed, "
        f"are summed in a row `{OTHER}`.\n"
    )
    head = ["| name | type | labels | meaning | what to do |", "|---|---|---|---|---|"]
    lines = [f"| `{name}` | {' | '.join(rest)} |" for name, *rest in [*rows, *OTHERS]]
    return "\n".join([about, *head, *lines, ""])


def errors() -> str:
    """A table of all errors, by exit status."""
    for module in _WITH_ERRORS:
        importlib.import_module(module)
    rows = sorted((kind.exit_status, kind.code, _flat(kind)) for kind in _all_errors(AologError))
    lines = [f"| `{code}` | {status} | {text} |" for status, code, text in rows]
    return "\n".join(["| code | exit | what it means, what to do |", "|---|---|---|", *lines, ""])


def _all_errors(base: type[AologError]) -> Iterator[type[AologError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _all_errors(kind)


def _flat(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split()).replace("|", r"\|")


def kafka_errors() -> str:
    """A table of the rows of the error table that blame a record or the configuration."""
    from bridge.kafka.error_table import ROWS, Fault

    codes: dict[tuple[str, str, str], list[str]] = {}
    for code, row in ROWS.items():
        if row.fault in {Fault.RECORD, Fault.CONFIGURATION}:
            codes.setdefault((row.fault.value, row.reads, row.does), []).append(f"`{code}`")
    head = ["| fault | code | what it says | what you do |", "|---|---|---|---|"]
    lines = [
        f"| {fault} | {', '.join(of)} | {reads} | {does} |"
        for (fault, reads, does), of in codes.items()
    ]
    return "\n".join([*head, *lines, ""])


# --- rooms ----------------------------------------------------------------------------------


def rooms(package: str, *order: str) -> str:
    """The rooms of a package, in this order; all of them must be named."""
    found = {
        path.stem
        for path in (ROOT / package).iterdir()
        if ((path.is_dir() and list(path.glob("*.py"))) or path.suffix == ".py")
        and not path.name.startswith("_")
        and path.name != "docs"
    }
    assert found == set(order), f"rooms of {package}: {sorted(found ^ set(order))}"
    return "\n".join(_room(package, name) for name in order)


def _room(package: str, name: str) -> str:
    top = ROOT / package / name
    if not top.is_dir():
        file = top.with_suffix(".py")
        return f"## {package}/{file.name}\n\n{_module_doc(file)}\n\n{_imports(package, [file])}\n"
    files = sorted(top.rglob("*.py"))
    rows = [
        f"| `{file.relative_to(top)}` | {_first_sentence(_module_doc(file))} |"
        for file in files
        if file.name not in {"__init__.py", "__main__.py"}
    ]
    about = _module_doc(top / "__init__.py")
    table = ["| file | what |", "|---|---|", *rows, ""] if rows else []
    head = [f"## {package}/{name}/", "", about, "", _imports(package, files), ""]
    return "\n".join([*head, *table])


def _module_doc(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def _first_sentence(text: str) -> str:
    first = text.split("\n\n", maxsplit=1)[0].replace("\n", " ")
    return re.split(r"(?<=\w)[.:] (?=[A-Z])", first)[0].rstrip(".:").replace("|", r"\|")


def _imports(package: str, files: list[Path]) -> str:
    """A line: the rooms that these files import, of both packages."""
    own = files[0].relative_to(ROOT / package).parts[0].removesuffix(".py")
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            for parts in (name.split(".") for name in names if name):
                if parts[0] in _OURS:
                    found.add("/".join(parts[:2]))
    others = sorted(found - {f"{package}/{own}"})
    return f"Imports: {', '.join(f'`{name}`' for name in others) or 'nothing of ours'}."


_MAKERS: dict[str, Callable[..., str]] = {
    "commands": commands,
    "configuration": configuration,
    "metrics": metrics,
    "errors": errors,
    "kafka_errors": kafka_errors,
    "rooms": rooms,
}
