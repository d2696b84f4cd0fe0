"""The distribution: its name and extras, what works without them, and its neighbour on PyPI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import aolog
import aolog.extras

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirement_names(requirements: list[str]) -> set[str]:
    """Normalised."""
    return {re.split(r"[\[<>=!;, ]", each)[0].lower().replace("_", "-") for each in requirements}


# --- the name -------------------------------------------------------------------------------


def test_a_hint_names_this_distribution_and_an_extra_that_brings_the_library():
    assert PROJECT["name"] == aolog.extras.DISTRIBUTION
    of_package = packages_distributions()
    for package, extra in aolog.extras.EXTRA_OF.items():
        names = requirement_names(PROJECT["optional-dependencies"][extra])
        assert names & requirement_names(of_package[package]), package
        error = aolog.extras.library_missing(ModuleNotFoundError(name=f"{package}.part"))
        assert f"pip install '{PROJECT['name']}[{extra}]'" in str(error)


def test_every_library_of_the_extras_that_users_install_has_a_hint():
    of_package = packages_distributions()
    known = requirement_names([n for each in aolog.extras.EXTRA_OF for n in of_package[each]])
    for extra in ("arrow", "compression", "bridge", "spark", "java"):
        names = requirement_names(PROJECT["optional-dependencies"][extra])
        assert names - {PROJECT["name"]} <= known, extra


def test_a_module_that_no_extra_brings_has_no_hint():
    assert aolog.extras.library_missing(ModuleNotFoundError(name="nonsense")) is None
    assert aolog.extras.library_missing(ModuleNotFoundError()) is None


# --- another distribution with the same import name -----------------------------------------


@pytest.fixture
def neighbour(tmp_path: Path) -> Path:
    """A directory in which a distribution `aolog` is installed: its metadata."""
    metadata = tmp_path / "site" / "aolog-0.2.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: aolog\nVersion: 0.2.0\n")
    (metadata / "RECORD").write_text("aolog/__init__.py,,\n")
    return metadata.parent


def command(
    module: str, *arguments: object, path: Path, ours: bool = True
) -> subprocess.CompletedProcess[str]:
    """The command line, with another directory of packages, behind this tree or without it."""
    places = [str(ROOT)] * ours + [str(path)]
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        cwd=path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip  # one call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with aolog.Writer(str(path)) as writer:
        writer.append(b"one")
    return path


@pytest.mark.parametrize(
    "arguments",
    [("aolog", "info"), ("bridge", "cursors"), ("bridge", "status", "--log")],
    ids=lambda arguments: " ".join(arguments),
)
def test_another_distribution_named_aolog_is_reported_once_with_the_command_to_remove_it(
    arguments: tuple[str, ...], log: Path, neighbour: Path
):
    done = command(*arguments, log, path=neighbour)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "warning: the distribution 'aolog' 0.2.0" in line
    assert "pip uninstall aolog" in line
    assert "aolog-bridge" in line
    done = command(*arguments, log, "--json", path=neighbour)
    assert "pip uninstall aolog" in json.loads(done.stderr)["warning"]["message"]


def test_nothing_is_reported_where_this_distribution_is_alone(log: Path, neighbour: Path):
    (neighbour / "aolog-0.2.0.dist-info" / "RECORD").unlink()  # a source tree's metadata
    for arguments in (("aolog", "info"), ("bridge", "cursors")):
        assert command(*arguments, log, path=neighbour).stderr == ""


def test_both_commands_say_what_to_remove_where_the_other_package_overwrote_ours(neighbour: Path):
    """As pip leaves it where the other distribution was installed last."""
    (neighbour / "aolog").mkdir()
    (neighbour / "aolog" / "__init__.py").write_text("__version__ = '0.2.0'\n")
    for each in (ROOT / "aolog").iterdir():
        if each.name != "__init__.py":
            (neighbour / "aolog" / each.name).symlink_to(each)
    (neighbour / "bridge").symlink_to(ROOT / "bridge")
    for module in ("aolog", "bridge"):
        done = command(module, "--version", path=neighbour, ours=False)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "pip uninstall aolog" in line
        assert "then install aolog-bridge again" in line
