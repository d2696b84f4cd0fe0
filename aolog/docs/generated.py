"""Reference pages from their sources: what a page's block `{generated} NAME ARGUMENT…` becomes.

`conf.py` puts the text in place of the block before Sphinx reads the page. The line in a block is for readers of the
file: it says how to see the same in a terminal. Each function returns Markdown:

    commands PROGRAM          the help of every command, as click prints it
    commands PROGRAM NAME…    the help of these commands; NAME may be --help, for the program's own
    configuration             every key of the bridge's configuration, from its schema
    metrics                   every metric of the bridge
    errors                    every error: its code, exit status and docstring
    spark_writer_options      a writer's options that a write of Spark takes
    kafka_errors              the errors of Kafka on which an operator must act
    rooms PACKAGE ROOM…       each room: its docstring, its files

Nothing here depends on the text around a block.
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
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```\{generated\} (\w+) ?(.*)\n(?:[^`\n].*\n)*```$", re.MULTILINE)
# The modules that define errors; a test checks that the list is complete.
_WITH_ERRORS = [
    "aolog.cli",
    "aolog.spark.kafka_sink",
    "bridge.client.buffer.provider",
    "bridge.cli",
    "bridge.client.errors",
    "bridge.kafka.embedded",
]


def expanded(text: str) -> str:
    """A page's text with its blocks replaced."""
    return _BLOCK.sub(lambda block: _MAKERS[block[1]](*block[2].split()), text)


def _table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """head: the names of the columns, with bars between them."""
    lines = [" | ".join(cell.replace("|", r"\|") for cell in row) for row in rows]
    between = "|".join("---" for _ in head.split("|"))
    return "\n".join(f"| {line} |" for line in [head, between, *lines]) + "\n"


# --- commands -------------------------------------------------------------------------------


def commands(program: str, *names: str) -> str:
    """The help of these commands, or of the program and all of its commands."""
    module = {"aolog": "aolog.cli", "aolog-bridge": "bridge.cli"}[program]
    root = importlib.import_module(module).main
    context = click.Context(root, info_name=program, terminal_width=80, **root.context_settings)
    helps: list[str] = []
    for name in names or ("--help", *sorted(root.commands)):
        helps += [_help(root, context)] if name == "--help" else _helps(root, context, name)
    return "\n".join(helps)


def _help(command: click.Command, context: click.Context) -> str:
    return f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"


def _helps(group: click.Group, context: click.Context, name: str) -> Iterator[str]:
    """The help of a command of the group, and of the commands below it."""
    command = group.commands[name]
    if command.hidden:
        return
    inner = click.Context(command, parent=context, info_name=name)
    yield _help(command, inner)
    if isinstance(command, click.Group):
        for each in sorted(command.commands):
            yield from _helps(command, inner, each)


# --- configuration --------------------------------------------------------------------------


def configuration() -> str:
    """A table of keys for each table of the configuration."""
    from bridge.config.models import Config

    schema = Config.model_json_schema()
    tables = {
        "The top level": schema,
        "`[clusters.NAME]`": schema["$defs"]["Cluster"],
        "`[[routes]]`": schema["$defs"]["Route"],
        "`[archive]`": schema["$defs"]["Archive"],
    }
    return "\n".join(_keys(title, table) for title, table in tables.items())


def _keys(title: str, table: dict[str, Any]) -> str:
    needed = table.get("required", [])
    rows = [
        (f"`{key}`", _type(one), "needed" if key in needed else _default(one), one["description"])
        for key, one in table["properties"].items()
    ]
    keys = _table("key | type | default | what", rows)
    return f"## {title}\n\n{table['description']}\n\n{keys}"


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


def spark_writer_options() -> str:
    """A table, by the options' names in Spark."""
    from aolog.spark.sink_options import OF_WRITER
    from aolog.write.options import table

    rows = []
    for name, of in OF_WRITER.items():
        option = table()[of]
        rows.append((f"`{name}`", f"{option.default_text}", option.about.sentence))
    return _table("option | default | what", rows)


# --- metrics and errors ---------------------------------------------------------------------


def metrics() -> str:
    """A table of all metrics, with the number of logs that have rows of their own."""
    from bridge.operate.metrics import FAMILIES, LOGS_MAX, OTHER, OTHERS, PREFIX

    ours = [
        (
            f"{PREFIX}{each.name}{'_total' if each.kind == 'counter' else ''}",
            each.kind,
            "log, cluster",
            each.meaning,
            each.advice,
        )
        for each in FAMILIES
    ]
    rows = [(f"`{name}`", *rest) for name, *rest in [*ours, *OTHERS]]
    return (
        f"The first {LOGS_MAX} logs have rows of their own; the others, and those that were removed, "
        f"are summed in a row `{OTHER}`.\n\n"
    ) + _table("name | type | labels | meaning | what to do", rows)


def errors() -> str:
    """A table of all errors, by exit status."""
    for module in _WITH_ERRORS:
        importlib.import_module(module)
    kinds = sorted(_all_errors(AologError), key=lambda kind: (kind.exit_status, kind.code))
    rows = [
        (f"`{kind.code}`", str(kind.exit_status), " ".join((kind.__doc__ or "").split()))
        for kind in kinds
    ]
    return _table("code | exit | what it means, what to do", rows)


def _all_errors(base: type[AologError]) -> Iterator[type[AologError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _all_errors(kind)


def kafka_errors() -> str:
    """A table of the rows of the error table that blame a record or the configuration."""
    from bridge.kafka.error_table import ROWS, Fault

    codes: dict[tuple[str, str, str], list[str]] = {}
    for code, row in ROWS.items():
        if row.kind.fault in {Fault.RECORD, Fault.CONFIGURATION}:
            codes.setdefault((row.kind.fault.value, row.reads, row.does), []).append(f"`{code}`")
    rows = [(fault, ", ".join(of), reads, does) for (fault, reads, does), of in codes.items()]
    return _table("fault | code | what it says | what you do", rows)


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
        return f"## {package}/{file.name}\n\n{_module_doc(file)}\n"
    rows = [
        (f"`{file.relative_to(top)}`", _first_sentence(_module_doc(file)))
        for file in sorted(top.rglob("*.py"))
        if file.name not in {"__init__.py", "__main__.py"}
    ]
    about = f"## {package}/{name}/\n\n{_module_doc(top / '__init__.py')}\n"
    return f"{about}\n{_table('file | what', rows)}" if rows else about


def _module_doc(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def _first_sentence(text: str) -> str:
    first = text.split("\n\n", maxsplit=1)[0].replace("\n", " ")
    return re.split(r"(?<=\w)[.:] (?=[A-Z])", first)[0].rstrip(".:")


_MAKERS: dict[str, Callable[..., str]] = {
    "commands": commands,
    "configuration": configuration,
    "metrics": metrics,
    "errors": errors,
    "spark_writer_options": spark_writer_options,
    "kafka_errors": kafka_errors,
    "rooms": rooms,
}
