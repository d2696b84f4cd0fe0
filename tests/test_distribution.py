"""The distribution: its name and extras, what works without them, and its neighbour on PyPI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest

import aolog
import aolog.cli
import aolog.errors
import bridge.cli

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirement_names(requirements: list[str]) -> set[str]:
    """Normalised."""
    return {re.split(r"[\[<>=!;, ]", each)[0].lower().replace("_", "-") for each in requirements}


# --- the name -------------------------------------------------------------------------------


def test_a_hint_names_this_distribution_and_an_extra_that_brings_the_library():
    assert PROJECT["name"] == aolog.errors.DISTRIBUTION
    of_package = packages_distributions()
    for package, extra in aolog.errors.EXTRA_OF.items():
        names = requirement_names(PROJECT["optional-dependencies"][extra])
        assert names & requirement_names(of_package[package]), package
        error = aolog.errors.library_missing(ModuleNotFoundError(name=f"{package}.part"))
        assert f"pip install '{PROJECT['name']}[{extra}]'" in str(error)


def test_every_library_of_the_extras_that_users_install_has_a_hint():
    of_package = packages_distributions()
    known = requirement_names([n for each in aolog.errors.EXTRA_OF for n in of_package[each]])
    for extra in ("arrow", "compression", "bridge", "signing", "spark", "java"):
        names = requirement_names(PROJECT["optional-dependencies"][extra])
        assert names - {PROJECT["name"]} <= known, extra


# --- another distribution with the same import name -----------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with aolog.Writer(str(path)) as writer:
        writer.append(b"one")
    return path


@pytest.mark.parametrize("module", ["aolog", "bridge"])
def test_a_command_says_what_to_remove_where_the_other_package_overwrote_ours(
    module: str, tmp_path: Path
):
    """As pip leaves it where the other distribution was installed last."""
    (tmp_path / "aolog").mkdir()
    (tmp_path / "aolog" / "__init__.py").write_text("__version__ = '0.2.0'\n")
    for each in (ROOT / "aolog").iterdir():
        if each.name != "__init__.py":
            (tmp_path / "aolog" / each.name).symlink_to(each)
    (tmp_path / "bridge").symlink_to(ROOT / "bridge")
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one call
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pip uninstall aolog" in line
    assert "then install aolog-bridge again" in line


# --- without extras -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with this package and what its base install brings, and no more."""
    packages = tmp_path_factory.mktemp("base")
    for name in requirement_names(PROJECT["dependencies"]):
        for file in distribution(name).files or []:
            place = packages / file.parts[0]
            if file.parts[0] != ".." and not place.exists():
                place.symlink_to(Path(str(file.locate())).parents[len(file.parts) - 2])
    for name in ("aolog", "bridge"):
        (packages / name).symlink_to(ROOT / name)
    return packages


WITHOUT_EXTRAS = [
    ("aolog append LOG FILE", None),
    ("aolog append LOG FILE --compression zstd", "compression"),
    ("aolog append LOG FILE --compression lz4", "compression"),
    ("aolog read LOG", None),
    ("aolog read s3://bucket/log", "objects"),
    ("aolog archive LOG s3://bucket/log", "objects"),
    ("aolog restore s3://bucket/log COPY", "objects"),
    ("aolog hold s3://bucket/log", "objects"),
    ("aolog compact s3://bucket/log", "compression"),
    ("aolog tail LOG", None),
    ("aolog info LOG", None),
    ("aolog verify LOG", None),
    ("aolog repair LOG --into COPY", None),
    ("aolog salvage LOG", None),
    ("aolog backup LOG BACKUP", None),
    ("aolog prune LOG --max-slabs 1", None),
    ("aolog cursor list LOG", None),
    ("bridge run --log LOG --topic t --bootstrap-servers 127.0.0.1:1", "bridge"),
    ("bridge run --root . --bootstrap-servers 127.0.0.1:1", "bridge"),
    ("bridge run --config FILE", "bridge"),
    ("bridge status --log LOG", None),
    ("bridge status --root .", None),
    ("bridge status --config FILE", "bridge"),
    ("bridge check-config FILE", "bridge"),
    ("bridge check-config --schema", "bridge"),
    ("bridge seek LOG --to earliest", "bridge"),
    ("bridge replay LOG --from 0 --to latest --topic t --bootstrap-servers 127.0.0.1:1", "bridge"),
    ("bridge replay LOG --dead-letter --bootstrap-servers 127.0.0.1:1", "bridge"),
    ("bridge cursors LOG", "bridge"),
    ("bridge demo", "bridge"),
    ("bridge demo --json", "bridge"),
    ("bridge broker", "bridge"),
    ("bridge top", "bridge"),
    ("bridge simulate", "bridge"),
    ("bridge files FILE", "bridge"),
    ("bridge ingest --root . --http :0", "bridge"),
    ("bridge pull --topic t --log COPY --bootstrap-servers 127.0.0.1:1", "bridge"),
    (
        "bridge mirror --topic t --log COPY --from-servers 127.0.0.1:1 --to-servers 127.0.0.1:2",
        "bridge",
    ),
    ("bridge topics --bootstrap-servers 127.0.0.1:1", "bridge"),
    ("bridge cluster", "bridge"),
    ("bridge offsets --bootstrap-servers 127.0.0.1:1", "bridge"),
    ("bridge consume t --bootstrap-servers 127.0.0.1:1", "bridge"),
]


def test_the_list_of_commands_that_run_without_extras_is_complete():
    listed = {tuple(line.split()[:2]) for line, _ in WITHOUT_EXTRAS}
    assert listed == {
        *(("aolog", name) for name in aolog.cli.main.commands),
        *(("bridge", name) for name in bridge.cli.main.commands),
    }


@pytest.mark.parametrize(("line", "extra"), WITHOUT_EXTRAS, ids=[x[0] for x in WITHOUT_EXTRAS])
def test_a_command_runs_without_extras_or_names_the_extra_to_install(
    line: str, extra: str | None, base: Path, log: Path, tmp_path: Path
):
    (tmp_path / "file").write_text('bootstrap_servers = "127.0.0.1:1"\n')
    places = {"LOG": str(log), "FILE": str(tmp_path / "file")}
    command = [sys.executable, "-S", "-m", *(places.get(word, word) for word in line.split())]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(base)},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip  # one call
    if extra is None:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2, done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith('{"error"' if "--json" in line else ("aolog: ", "aolog-bridge: "))
    assert "is not installed" in said
    assert f"pip install 'aolog-bridge[{extra}]'" in said
