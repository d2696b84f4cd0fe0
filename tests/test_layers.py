"""Which room may import which, which modules may touch files, and how long they may be, from the source.

The tables are the rules. To see why a rule failed, read the assertion: it shows the imports.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.xdist_group("layers")

ROOT = Path(__file__).parents[1]

# Rooms in order; a room may import the rooms before it.
ROOMS = {
    "aolog": ("errors", "record", "format", "storage", "queuefka", "log", "write", "read", "maintenance",
              "publish", "aio", "cli", "spark", "examples", "testing"),
    "bridge": ("errors", "kafka", "config", "deliver", "supervise", "operate", "cli",  # the forwarder
               "pull", "client", "ingest", "testing", "simulate", "deploy", "examples"),
}  # fmt: skip  # a table
APART = ({"write", "read"},)  # neither imports the other
ENTRIES_MAX = {"aolog": 20, "bridge": 17}  # at the top of the package, all files and directories
LINES_MAX, FUNCTION_LINES_MAX = 450, 80


class Rule(NamedTuple):
    """Only these may import a library, or one of our modules: names or prefixes of modules.
    loading: only imports that happen when the module is loaded count."""

    library: str
    importers: tuple[str, ...]
    loading: bool = False


ARROW = ("aolog.format.arrow_schema", "aolog.read.arrow", "aolog.write.arrow", "aolog.spark",
         "bridge.deliver.transform_arrow")  # fmt: skip  # a list
SPARK_COMMANDS = ("aolog.spark.pipeline", "aolog.examples")
BRIDGE_COMMANDS = (
    "bridge.cli", "bridge.client.consume_command", "bridge.client.files.command", "bridge.ingest.command",
    "bridge.pull.commands", "bridge.simulate.command", "bridge.testing.apache_kafka.command",
)  # fmt: skip  # a list
RULES = (
    Rule("bridge", ("bridge",)),
    Rule("bench", ()),
    Rule("fuzz", ()),
    Rule("tests", ()),
    Rule("aolog.testing", ("aolog.testing", "bridge.testing")),
    Rule("aolog.storage.system", ("aolog.storage", "aolog.testing", "bridge.simulate.program"),
         loading=True),
    Rule("confluent_kafka", ("bridge.kafka", "bridge.client", "bridge.testing.apache_kafka",
                             "aolog.spark.kafka_sink")),
    Rule("aolog.spark.kafka_sink", ("aolog.spark",)),
    Rule("pyarrow", ARROW, loading=True),
    Rule("numpy", (*ARROW, "bridge"), loading=True),
    Rule("pyspark", ("aolog.spark", "aolog.examples")),
    Rule("aolog.spark", ("aolog.spark", "aolog.examples")),
    Rule("obstore", ("aolog.storage.objects.client",)),
    Rule("starlette", ("bridge.operate", "bridge.ingest", "bridge.simulate")),
    Rule("uvicorn", ("bridge.operate",)),
    Rule("click", ("aolog.cli", "aolog.__main__", "bridge", *SPARK_COMMANDS)),
    Rule("aolog.cli", ("aolog.cli", "aolog.__main__", *BRIDGE_COMMANDS, *SPARK_COMMANDS)),
)  # fmt: skip  # a table
# A module outside the command line whose docstring says Pure imports none of these, and of ours only
# pure modules.
IMPURE_LIBRARIES = {
    "asyncio", "concurrent", "fcntl", "inotify_simple", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "select", "selectors", "shutil", "signal", "socket",
    "subprocess", "tempfile", "threading", "time",
}  # fmt: skip  # a table
SAYS_PURE = re.compile(r"\bPure\b(?! but)|^[^\n]*\ba pure state machine")
# `speed` reads the environment once, `plugin` looks once for its compiled half; two functions of `errors` write log lines.
NEARLY_PURE = {"aolog", "aolog.record", "aolog.errors", "aolog.format.native.speed",
               "aolog.format.compression", "bridge.kafka.plugin"}  # fmt: skip  # a list
LOGGING = {"aolog.errors.warn", "aolog.errors.fault"}
MUST_BE_PURE = {
    "aolog.maintenance.archive.probe", "aolog.maintenance.archive.protocol", "aolog.format.archive",
    "aolog.storage.objects.requests", "aolog.storage.objects.url", "aolog.format.columns", "aolog.format.frame", "aolog.format.slab", "aolog.write.recovery_cases",
    "bridge.deliver.at_least_once.engine", "bridge.deliver.exactly_once.engine",
    "bridge.deliver.verdicts", "bridge.supervise.turns", "bridge.kafka.error_table", "bridge.config.routing",
}  # fmt: skip  # a list
# Modules and packages that may touch files.
FILES_ALLOWED = (
    "aolog.storage.system", "aolog.cli", "aolog.spark.java", "aolog.examples", *BRIDGE_COMMANDS,
    "bridge.kafka.known_settings", "bridge.config", "bridge.supervise.discovery", "bridge.operate.page",
    "bridge.operate.unit_events", "bridge.client", "bridge.pull", "bridge.testing", "bridge.simulate",
    "bridge.deploy", "bridge.examples",
)  # fmt: skip  # a list
FILE_LIBRARIES = {"fcntl", "glob", "io", "mmap", "shutil", "tempfile"}
OS_WITHOUT_FILES = {"PathLike", "environ", "fsencode", "fspath", "getcwd", "getpid", "path", "register_at_fork",
                    "strerror", "urandom"}  # fmt: skip  # a list
OS_PATH_WITHOUT_FILES = {"basename", "dirname", "join", "split", "splitext"}
PATH_METHODS = {"glob", "hardlink_to", "is_dir", "is_file", "iterdir", "mkdir", "read_bytes", "read_text",
                "rglob", "rmdir", "symlink_to", "touch", "write_bytes", "write_text"}  # fmt: skip  # a list
PATH_METHODS_THAT_OTHERS_HAVE = {"exists", "lstat", "open", "rename", "replace", "resolve", "stat",
                                 "unlink"}  # fmt: skip  # a list


class Import(NamedTuple):
    """name: dotted; `from a import b` imports a.b. at_run_time: not for types only."""

    name: str
    at_run_time: bool
    at_module_level: bool


def imports_of(tree: ast.AST) -> list[Import]:
    found: list[Import] = []

    def visit(node: ast.AST, *, run_time: bool, level: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, run_time, level) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.extend(Import(name, run_time, level) for name in names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.body:
                visit(child, run_time=False, level=level)
            for child in node.orelse:
                visit(child, run_time=run_time, level=level)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                visit(child, run_time=run_time, level=level and not inside)

    visit(tree, run_time=True, level=True)
    return found


def file_touches(tree: ast.AST) -> list[str]:
    """What in the source touches files, as it is written."""
    found = [i.name for i in imports_of(tree) if i.at_run_time and top(i.name) in FILE_LIBRARIES]
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            found.append("open")
        if not isinstance(node, ast.Attribute):
            continue
        written = ast.unparse(node)
        if written.startswith("os.path."):
            found += [] if node.attr in OS_PATH_WITHOUT_FILES else [written]
        elif isinstance(node.value, ast.Name) and node.value.id == "os":
            harmless = node.attr in OS_WITHOUT_FILES or node.attr.startswith("O_")
            found += [] if harmless else [written]
        elif ast.unparse(node.value).endswith("system"):
            continue  # a call of a System, which may be a simulation
        elif node.attr in PATH_METHODS or (
            node.attr in PATH_METHODS_THAT_OTHERS_HAVE and "Path(" in ast.unparse(node.value)
        ):
            found.append(written)
    return found


def top(name: str) -> str:
    return name.partition(".")[0]


def is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@cache  # not when this module is imported: every worker imports it, and one runs it
def sources() -> dict[str, str]:
    """Of all modules, by name."""
    found = {}
    for path in sorted([*ROOT.glob("aolog/**/*.py"), *ROOT.glob("bridge/**/*.py")]):
        if path.is_relative_to(ROOT / "aolog/docs"):
            continue  # makes the site; it is no part of the package
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = path.read_text(encoding="utf-8")
    return found


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(source) for name, source in sources().items()}


@cache
def imports() -> dict[str, list[Import]]:
    return {name: imports_of(tree) for name, tree in trees().items()}


def importers(library: str, *, loading: bool = False) -> set[str]:
    """Modules that import a library or something in it, for types too unless `loading`."""
    return {
        module
        for module, found in imports().items()
        for one in found
        if is_in(one.name, library) and (not loading or (one.at_run_time and one.at_module_level))
    }


def edges(package: str, *, loading: bool = False) -> dict[str, set[str]]:
    """Which modules of a package import which, in functions and for types too unless `loading`.
    The package's public face, which imports them all, is left out."""
    inside = {m for m in trees() if is_in(m, package)} - {package, f"{package}.__main__"}
    graph = {}
    for module in inside:
        counted = [
            i for i in imports()[module] if not loading or (i.at_run_time and i.at_module_level)
        ]
        names = {i.name if i.name in inside else i.name.rpartition(".")[0] for i in counted}
        graph[module] = names & inside - {module}
    return graph


def wrong_ways(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports from a room into one after it, or between two that stay apart."""
    wrong = set()
    for module, target in ((each, target) for each in graph for target in graph[each]):
        order, here, there = ROOMS[top(module)], module.split(".")[1], target.split(".")[1]
        if order.index(here) < order.index(there) or {here, there} in APART:
            wrong.add((module, target))
    return wrong


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


# --- the checkers themselves ----------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    ["import os\nread = os.pread", "from pathlib import Path\nPath('x').stat()", "import shutil"],
)
def test_the_checker_sees_what_touches_files(source):
    assert file_touches(ast.parse(source))


def test_the_checks_of_directions_and_cycles_can_fail():
    for wrong in (
        ("aolog.log.directory", "aolog.read.scan"),
        ("aolog.read.scan", "aolog.write.writer"),
    ):
        assert wrong_ways({wrong[0]: {wrong[1]}}) == {wrong}
    assert wrong_ways({"aolog.read.scan": {"aolog.log.walk"}}) == set()
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})


# --- rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ROOMS)
def test_a_room_imports_only_the_rooms_before_it(package):
    assert wrong_ways(edges(package)) == set()


@pytest.mark.parametrize("package", ROOMS)
def test_no_modules_import_one_another_in_a_circle(package):
    """In the bridge, imports in functions and for types do not count."""
    assert cycle_in(edges(package, loading=package == "bridge")) == []


@pytest.mark.parametrize("package", ROOMS)
def test_the_top_of_a_package_has_few_entries_and_each_is_a_room(package):
    names = {path.name for path in (ROOT / package).iterdir() if path.name[0] != "."}
    names.discard("__pycache__")
    assert len(names) <= ENTRIES_MAX[package], names
    files = {"__init__.py", "__main__.py", "py.typed", "FORMAT.md"}
    rooms = {name.removesuffix(".py") for name in names - files - {"docs"}}
    assert rooms <= set(ROOMS[package])


def test_every_module_of_the_bridge_can_be_imported():
    """The checker takes a name that exists for it alone from a plain import, too."""
    pytest.importorskip("confluent_kafka")
    for module in trees():
        if is_in(module, "bridge") and not module.endswith("__main__"):
            import_module(module)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.library)
def test_a_library_is_imported_only_where_it_belongs(rule):
    found = importers(rule.library, loading=rule.loading)
    assert {module for module in found if not is_in(module, *rule.importers)} == set()


def test_only_the_system_module_touches_files():
    touching = {
        module: touches
        for module, tree in trees().items()
        if not is_in(module, *FILES_ALLOWED) and (touches := file_touches(tree))
    }
    assert touching == {}
    assert file_touches(trees()["aolog.storage.system"]), "the checker is blind"


def test_a_module_that_says_that_it_is_pure_is_pure():
    docstrings = {module: ast.get_docstring(tree) or "" for module, tree in trees().items()}
    pure = {module for module, text in docstrings.items() if SAYS_PURE.search(text)}
    pure = {module for module in pure if not is_in(module, "aolog.cli", *BRIDGE_COMMANDS)}
    assert pure >= MUST_BE_PURE
    for module in sorted(pure):
        found = {one.name for one in imports()[module] if one.at_run_time}
        assert {top(name) for name in found} & IMPURE_LIBRARIES == set(), module
        ours = edges(top(module)).get(module, set())
        used = {m for m in ours if any(is_in(name, m) for name in found)}
        assert used <= pure | NEARLY_PURE, module
        assert found & LOGGING == set(), module


def test_no_file_and_no_function_is_too_long():
    lengths = {module: source.count("\n") for module, source in sources().items()}
    assert {module: n for module, n in lengths.items() if n > LINES_MAX} == {}
    functions = {}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name, lines = f"{module}.{node.name}", node.end_lineno - node.lineno + 1
                functions[name] = max(lines, functions.get(name, 0))
    assert {name: n for name, n in functions.items() if n > FUNCTION_LINES_MAX} == {}


def test_the_oracle_shares_no_code_with_the_log():
    for name in ("layout", "oracle", "damage"):
        tree = ast.parse((ROOT / "fuzz" / f"{name}.py").read_text(encoding="utf-8"))
        ours = {i.name for i in imports_of(tree) if i.at_run_time and is_in(i.name, "aolog")}
        assert ours <= {"aolog.record.Gap", "aolog.record.GapReason", "aolog.record.Record"}, name


def test_a_directory_inside_a_log_is_opened_by_a_path_that_says_so():
    """Storage follows links where a path is a plain string: the user's. mypy checks files."""
    opening = {"list_names", "make_directory", "open_directory", "sync_directory"}
    calls = [(m, node) for m, tree in trees().items() for node in ast.walk(tree)
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
             and node.func.attr in opening]  # fmt: skip  # one condition a line
    built = [(m, ast.unparse(node)) for m, node in calls if isinstance(node.args[0], ast.JoinedStr)]
    assert calls
    assert built == []


def test_tests_of_the_bridge_share_modules_and_import_no_other_test():
    """Nor a conftest; see aolog/docs/project/testing-the-bridge.md. The names below are left over."""
    left = ("tests.aolog.", "tests.bridge.client.buffer.test_buffer.")
    found = set()
    for path in (ROOT / "tests/bridge").rglob("*.py"):
        if path.name == "conftest.py":
            continue
        names = {one.name for one in imports_of(ast.parse(path.read_text(encoding="utf-8")))}
        wrong = {
            n for n in names if re.search(r"\.(test_\w+|conftest)\.", n) and not n.startswith(left)
        }
        found |= {(path.name, name) for name in wrong}
    assert found == set()
